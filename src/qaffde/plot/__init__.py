"""Pictures of fitted densities and of their calibration."""

from qaffde.plot.calibration import CalibrationDisplay
from qaffde.plot.display import KINDS, DensityDisplay

__all__ = ["KINDS", "CalibrationDisplay", "DensityDisplay"]
