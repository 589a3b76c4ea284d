"""Planar flow (Rezende and Mohamed, 2015)."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from qaffde.baselines.base import FlowDensity, TrainedEstimator
from qaffde.parameters import check_count
from qaffde.training import TrainingConfig

N_SOLVER_STEPS = 60


def solve_increasing(beta: Tensor, m: Tensor) -> Tensor:
    r"""Solution α of :math:`\alpha + m \tanh \alpha = \beta` for m > −1, elementwise.

    Newton's method inside a bracket that every step shrinks; a step that would leave the bracket
    halves it instead.

    Examples
    --------
    >>> alpha = torch.linspace(-3, 3, 7, dtype=torch.float64)
    >>> m = torch.tensor(-0.9999, dtype=torch.float64)
    >>> torch.allclose(solve_increasing(alpha + m * alpha.tanh(), m), alpha)
    True
    """
    lower, upper = beta - m.abs(), beta + m.abs()
    alpha = beta.clone()
    for _ in range(N_SOLVER_STEPS):
        t = torch.tanh(alpha)
        excess = alpha + m * t - beta
        lower = torch.where(excess < 0, alpha, lower)
        upper = torch.where(excess > 0, alpha, upper)
        newton = alpha - excess / (1 + m * (1 - t.square()))
        inside = (newton > lower) & (newton < upper)
        alpha = torch.where(excess == 0, alpha, torch.where(inside, newton, (lower + upper) / 2))
    return alpha


class PlanarDensity(FlowDensity):
    r"""Standard normal pulled back through planar maps, which go from data to base.

    .. math:: \log p(x) = \log n(z_K) + \sum_k \log \det f_k'(z_{k-1}), \qquad
              z_0 = x,\; z_k = f_k(z_{k-1})

    with maps that shift along one direction as far as another one says (Eq. 10 there):

    .. math:: f(x) = x + \hat u \tanh(w \cdot x + b), \qquad
              \hat u = u + \bigl(m(w \cdot u) - w \cdot u\bigr) \frac{w}{\lVert w \rVert^2},
              \qquad m(a) = \log(1 + e^a) - 1

    so that :math:`w \cdot \hat u = m > -1` and f is invertible (their appendix A.1; the square on
    the norm is missing in many implementations, whose maps then fold). With t = tanh(w·x + b) and
    s = log(1 + e^a) the determinant is :math:`1 + m (1 - t^2) = t^2 + s (1 - t^2)`, positive to
    the last digit. In this direction the likelihood is direct; draws invert each map.

    Parameters
    ----------
    n_dims, n_layers : int
        d and K.
    """

    def __init__(self, n_dims: int, n_layers: int) -> None:
        super().__init__()
        self.n_dims = n_dims
        self.u = nn.Parameter(0.1 * torch.randn(n_layers, n_dims))
        self.w = nn.Parameter(torch.randn(n_layers, n_dims) / math.sqrt(n_dims))
        self.b = nn.Parameter(torch.randn(n_layers))

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Log-density of shape (n,); a planar flow takes no context."""
        z, log_det = self.to_base(x)
        return log_det - 0.5 * (z.square().sum(1) + self.n_dims * math.log(2 * math.pi))

    def sample(self, n: int, generator: Generator, context: Tensor | None = None) -> Tensor:
        """Draws of shape (n, d)."""
        return self.to_data(torch.randn(n, self.n_dims, generator=generator, dtype=self.dtype))

    def to_base(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Image of shape (n, d), and the logarithm of the determinant, of shape (n,)."""
        directions, slope = self.directions()
        shifts = []
        for u, w, b in zip(directions, self.w, self.b, strict=True):
            shifts.append(torch.tanh(x @ w + b))
            x = x + shifts[-1][:, None] * u
        t2 = torch.stack(shifts).square()  # (K, n)
        return x, (t2 + slope[:, None] * (1 - t2)).log().sum(0)

    def to_data(self, z: Tensor) -> Tensor:
        r"""Preimage of shape (n, d) of z of shape (n, d).

        Along w a map is the increasing function :math:`\alpha \mapsto \alpha + m \tanh \alpha`
        of α = w·x + b, which is solved for α; then :math:`x = z - \hat u \tanh \alpha`.
        """
        directions, slope = self.directions()
        for u, w, b, s in zip(
            *(p.flip(0) for p in (directions, self.w, self.b, slope)), strict=True
        ):
            alpha = solve_increasing(z @ w + b, s - 1)
            z = z - torch.tanh(alpha)[:, None] * u
        return z

    def directions(self) -> tuple[Tensor, Tensor]:
        """The constrained û of shape (K, d), and s = 1 + w·û of shape (K,)."""
        product = (self.w * self.u).sum(1)
        slope = softplus(product)
        along = (slope - 1 - product) / self.w.square().sum(1)
        return self.u + along[:, None] * self.w, slope


@dataclass(eq=False, repr=False)
class Planar(TrainedEstimator):
    """Planar flow (Rezende and Mohamed, 2015), the simplest of flows and the weakest.

    Parameters
    ----------
    n_layers : int, default=32
        Number of planar maps.
    training, time_limit, verbose, random_state
        As in :class:`qaffde.baselines.TrainedEstimator`. The learning rate is ten times that of
        the networks: maps of one hidden unit each move slowly.

    References
    ----------
    Rezende and Mohamed, "Variational Inference with Normalizing Flows", ICML 2015.
    """

    n_layers: int = 32
    default_training = TrainingConfig(
        max_steps=8000, learning_rate=2e-2, clip_norm=5.0, patience=20
    )

    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        check_count("n_layers", self.n_layers)
        if n_context:
            raise ValueError("a planar flow takes no context; use MADE, MAF, RealNVP or NSF")
        return PlanarDensity(n_dims, self.n_layers)
