"""Normalizing flows of zuko, configured as scikit-learn estimators."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from qaffde.baselines.base import FlowDensity, TrainedEstimator
from qaffde.extras import import_extra
from qaffde.parameters import check_count
from qaffde.training import TrainingConfig


def import_zuko() -> Any:
    """The package zuko, or an error that says how to install it."""
    return import_extra("zuko", "flows", "this flow needs")


class ZukoDensity(FlowDensity):
    r"""Density of a zuko flow with a standard normal base.

    .. math:: \log p(x \mid c) = \log n(f_c(x)) + \log \lvert \det \partial f_c(x) / \partial x
              \rvert

    The transform of the flow maps data of d columns to the base.
    """

    def __init__(self, flow: nn.Module, n_dims: int) -> None:
        super().__init__()
        self.flow = flow
        self.n_dims = n_dims

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Log-density of shape (n,)."""
        return self.flow(context).log_prob(x)

    def sample(self, n: int, generator: Generator, context: Tensor | None = None) -> Tensor:
        """Draws of shape (n, d): base draws through the inverse."""
        z = torch.randn(n, self.n_dims, generator=generator, dtype=self.dtype)
        return self.flow(context).transform.inv(z)


FLOW_TRAINING = TrainingConfig(max_steps=8000, learning_rate=5e-3, clip_norm=5.0, patience=20)


def layered_flow(
    model: Any, make: Callable[..., nn.Module], n_dims: int, n_context: int, **options: Any
) -> ZukoDensity:
    """Flow that `make` makes of a model's `n_layers`, `hidden_size` and `n_hidden`."""
    for name in ("n_layers", "hidden_size", "n_hidden"):
        check_count(name, getattr(model, name))
    hidden = [model.hidden_size] * model.n_hidden
    sizes = {"transforms": model.n_layers, "hidden_features": hidden}
    return ZukoDensity(make(n_dims, n_context, **sizes, **options), n_dims)


@dataclass(eq=False, repr=False)
class MAF(TrainedEstimator):
    """Masked autoregressive flow (Papamakarios et al., 2017).

    Scores in one pass, draws in one for each column.

    Parameters
    ----------
    n_layers : int, default=8
        Number of transformations, each with a network of its own.
    hidden_size, n_hidden : int, default=64, 2
        Width and number of the hidden layers of ReLUs in each network.
    training, time_limit, verbose, random_state
        As in :class:`~qaffde.baselines.TrainedEstimator`.

    References
    ----------
    Papamakarios et al., "Masked Autoregressive Flow for Density Estimation", NeurIPS 2017.
    """

    n_layers: int = 8
    hidden_size: int = 64
    n_hidden: int = 2
    default_training = FLOW_TRAINING

    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        return layered_flow(self, import_zuko().flows.MAF, n_dims, n_context)


@dataclass(eq=False, repr=False)
class RealNVP(TrainedEstimator):
    """Real-valued non-volume-preserving flow: affine couplings (Dinh et al., 2017).

    Scores and draws in one pass. Parameters are those of :class:`~qaffde.baselines.MAF`.

    References
    ----------
    Dinh et al., "Density estimation using Real NVP", ICLR 2017.
    """

    n_layers: int = 8
    hidden_size: int = 64
    n_hidden: int = 2
    default_training = FLOW_TRAINING

    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        return layered_flow(self, import_zuko().flows.RealNVP, n_dims, n_context)


@dataclass(eq=False, repr=False)
class NSF(TrainedEstimator):
    """Neural spline flow: monotone rational-quadratic splines (Durkan et al., 2019).

    The splines act on five standard deviations around the mean; beyond, the flow is the identity.

    Parameters
    ----------
    n_layers, hidden_size, n_hidden : int, default=3, 64, 2
        As in :class:`~qaffde.baselines.MAF`.
    n_bins : int, default=16
        Pieces of a spline.
    training, time_limit, verbose, random_state
        As in :class:`~qaffde.baselines.TrainedEstimator`.

    References
    ----------
    Durkan et al., "Neural Spline Flows", NeurIPS 2019.
    """

    n_layers: int = 3
    hidden_size: int = 64
    n_hidden: int = 2
    n_bins: int = 16
    default_training = FLOW_TRAINING

    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        check_count("n_bins", self.n_bins, minimum=2)
        make = import_zuko().flows.NSF
        return layered_flow(self, make, n_dims, n_context, bins=self.n_bins)
