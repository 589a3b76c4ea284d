"""Pictures of fitted densities (the extra ``plot``)."""

from qaffde.plot.display import KINDS, DensityDisplay

__all__ = ["KINDS", "DensityDisplay"]
