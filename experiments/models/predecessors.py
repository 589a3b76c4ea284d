"""Methods that the paper compares with or extends: the inverse autoregressive flow, and DMKDE."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from qaffde import QAFFDE
from qaffde.baselines import TrainedEstimator
from qaffde.baselines.base import FlowDensity
from qaffde.baselines.flows import FLOW_TRAINING, import_zuko, layered_flow


@dataclass(eq=False, repr=False)
class IAF(TrainedEstimator):
    """Inverse autoregressive flow (Kingma et al., 2016): a MAF run backwards.

    Draws in one pass, scores (and so trains) in one for each column. Parameters are those of
    :class:`~qaffde.baselines.MAF`.

    References
    ----------
    Kingma et al., "Improved Variational Inference with Inverse Autoregressive Flow", NeurIPS 2016.
    """

    n_layers: int = 8
    hidden_size: int = 64
    n_hidden: int = 2
    default_training = FLOW_TRAINING

    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        return layered_flow(self, _inverse_maf, n_dims, n_context)


def _inverse_maf(*sizes: int, **network: Any) -> nn.Module:
    zuko = import_zuko()
    forward = zuko.flows.MAF(*sizes, **network)
    flow: nn.Module = zuko.lazy.Flow(zuko.lazy.LazyInverse(forward.transform), forward.base)
    return flow


def dmkde(**parameters: Any) -> QAFFDE:
    """Density matrix of plain random Fourier features (DMKDE), the method the paper extends.

    It is :class:`qaffde.QAFFDE` with random features, read as they are and divided by the mass of
    the kernel. So it is not a density (it has a floor and no finite integral) and cannot be drawn.

    Parameters
    ----------
    **parameters
        Of :class:`qaffde.QAFFDE`.

    References
    ----------
    González et al., "Learning with density matrices and random features", 2022.
    """
    fixed = {"features": "random", "base_measure": "kernel", "measurement": "direct"}
    return QAFFDE(**(fixed | parameters))
