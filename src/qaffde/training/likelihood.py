r"""Algorithm 3: the density matrix of maximum likelihood, exact and, for frozen features, convex.

In the whitened coordinates :math:`e(x) = (G + \mu I)^{-1/2} \phi(x)` the problem is that of
quantum state tomography,

.. math:: \max_{\sigma \succeq 0,\ \operatorname{tr} \sigma = 1}
          \sum_i w_i \log e_i^\top \sigma e_i

and the density :math:`m\, \phi^\top L^\top L \phi / \operatorname{tr}(L G L^\top)` with
:math:`L = A (G + \mu I)^{-1/2}`, :math:`\sigma = A^\top A`, is normalized by G itself. A ridge
μ > 0 adds the penalty :math:`\log(1 + \mu \lVert L \rVert^2 / \operatorname{tr}(L G L^\top))` on
functions that take large coefficients for a small norm, and the problem keeps its form.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Generator, Tensor, nn

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, BornDensity, DensityMatrix, FourierFeatures, KernelMeasure
from qaffde.training.closed_form import density_matrix, row_batches
from qaffde.training.config import LoopConfig, TrainingConfig
from qaffde.training.loop import MakeOptimizer, adam, eager, train
from qaffde.training.run import History, Run

MAX_COORDINATES = 2**28
"""Numbers in the coordinates that are kept at once: 1 GB."""
BLOCK = 1024
"""Rows whose coordinates stay in the cache between the loss and its gradient."""
LBFGS_ITERATIONS = 5
"""In a step of the loop."""


@dataclass(frozen=True, eq=False)
class Whitening:
    """The map e = Tᵀφ from features to coordinates that are orthonormal, but for the ridge μ.

    `transform` is T, of shape (D, n), and `level` the eigenvalues of G + μI, of shape (n,).
    """

    features: FourierFeatures
    measure: BaseMeasure
    transform: Tensor
    level: Tensor
    ridge: float

    @classmethod
    def of(
        cls,
        features: FourierFeatures,
        measure: BaseMeasure,
        G: Tensor,
        *,
        ridge: float,
        tolerance: float,
    ) -> "Whitening":
        """Whitening by a Gram matrix G; the ridge is a share of its largest eigenvalue."""
        U, lam = QF.range_eigenpairs(G, tolerance)
        mu = ridge * float(lam[-1])
        return cls(features, measure, U * (lam + mu).rsqrt(), lam + mu, mu)

    def to(self, device: torch.device | str) -> "Whitening":
        """The same map on a device."""
        if self.level.device == torch.device(device):
            return self
        return replace(
            self,
            features=deepcopy(self.features).to(device),
            measure=deepcopy(self.measure).to(device),
            transform=self.transform.to(device),
            level=self.level.to(device),
        )

    @torch.no_grad()
    def values(self, X: Tensor) -> Tensor:
        """Features φ (N, D) of rows (N, d), in float32: all the precision a likelihood needs."""
        W, b, a = (part.float() for part in (self.features.W, self.features.b, self.features.a))
        phi = W.new_empty(len(X), len(b))
        for x, values in zip(X.split(BLOCK), phi.split(BLOCK), strict=True):
            torch.addmm(b, x.to(phi), W.T, out=values).cos_().mul_(a)
        return phi

    def coordinates(self, X: Tensor) -> Tensor:
        """Coordinates e of shape (N, n) of rows of shape (N, d), in float32."""
        return self.values(X) @ self.transform.float()

    def resolve_rank(self, rank: int | float | str) -> int:
        """Rank as a number: a share is one of the coordinates."""
        return QF.resolve_rank(rank, self.level, 1.0)

    def start(self, X: Tensor, weight: Tensor, rank: int) -> DensityMatrix:
        """The state of Algorithm 2 from some rows, read by the square-root measurement."""
        features = self.features
        if QF.Lattice.of(features.W) is None:  # whose moments are quick in double precision
            features = deepcopy(features).float()
        rows = row_batches(X.to(features.W), weight.to(features.W))
        T = (self.transform * self.level.sqrt()).float()
        rho = T.T @ density_matrix(features, rows).to(T) @ T
        lam, V = QF.leading_eigenpairs(rho / rho.trace(), rank, 1e-3)
        return DensityMatrix(lam[:, None].sqrt() * V)

    @torch.no_grad()
    def log_square(self, state: DensityMatrix, phi: Tensor) -> Tensor:
        """Log-density over m, of shape (N,), at features of rows, to float32's precision."""
        squares = state.factor.to(self.level).square()
        mass = (squares * (1 - self.ridge / self.level)).sum()
        born = QF.born_rule(phi, state.factor @ self.transform.T.to(phi))
        return born.to(self.level).log() - mass.log()

    def density(self, state: DensityMatrix) -> BornDensity:
        """The density of a state of the coordinates."""
        factor = state.factor.detach().to(self.transform) @ self.transform.T
        if isinstance(self.measure, KernelMeasure):
            return BornDensity(self.features, factor / torch.linalg.norm(factor), self.measure)
        return BornDensity(self.features, factor, self.measure).normalize_()


def whiten(
    features: FourierFeatures, measure: BaseMeasure, ridge: float, tolerance: float
) -> Whitening:
    """Whiten features on a base measure; the ridge is a share of the largest eigenvalue of G.

    On the paper's kernel measure, which has no Gram matrix, features stay as they are: the
    objective is then the paper's, whose likelihood is not that of a density. Eigenvalues of G
    below the share `tolerance` of the largest count as zero, and with them features and
    eigenvalues below a hundredth of the ridge: they add nothing.
    """
    if isinstance(measure, KernelMeasure):
        one = torch.ones_like(features.a)
        return Whitening(features, measure, one.diag(), one, 0.0)
    share = min(0.01 * ridge, 0.5)  # something is left under any ridge
    features = features.trimmed(share)
    return Whitening.of(
        features, measure, measure.gram(features), ridge=ridge, tolerance=max(tolerance, share)
    )


class WhitenedState(nn.Module):
    """State of coordinates, at features that are given, or at rows where they are too many."""

    transform: Tensor

    def __init__(self, space: Whitening, state: DensityMatrix, *, of_rows: bool = False) -> None:
        super().__init__()
        self.features = deepcopy(space.features) if of_rows else nn.Identity()
        self.state = state
        self.register_buffer("transform", space.transform)
        self.float()

    @property
    def factor(self) -> Tensor:
        """Factor (r, D) of the amplitudes as functions of the features."""
        return self.state.factor @ self.transform.T

    def log_trace(self) -> Tensor:
        """Logarithm of the trace of the state."""
        return self.state.log_trace()

    def forward(self, x: Tensor) -> Tensor:
        """Log of the Born rule at features (n, D), or rows (n, d)."""
        return QF.born_rule(self.features(x), self.factor).log() - self.log_trace()


def maximize_likelihood(
    space: Whitening,
    state: DensityMatrix,
    Z: Tensor,
    weight: Tensor,
    config: TrainingConfig,
    generator: Generator,
    run: Run,
) -> History:
    """Maximize the likelihood of rows (N, d), with weights of mean one, over a state, in place.

    Where the coordinates of all rows do not fit into memory, Adam goes on with all rows from the
    state of a part of them.
    """
    if not space.features.W.any():  # constant features: all rows are alike
        Z, weight = Z[:1], torch.ones_like(weight[:1])
    most, peers = MAX_COORDINATES // space.features.n_features, run.peers
    too_many = peers.any(len(Z) > most)
    part = torch.randperm(len(Z), generator=generator)[:most] if too_many else slice(None)
    phi = space.values(Z[part])
    solver = SOLVERS[config.solver]
    loop = solver.config(config.max_iter, len(phi), run)
    history = train(
        WhitenedState(space, state),
        state_likelihood,
        (phi, weight[part].to(phi)),
        None,
        loop,
        generator,
        make_optimizer=solver.make_optimizer,
        **run.loop_arguments("state", loop.max_steps),
    )
    if too_many:
        adam = SOLVERS["adam"].config(config.polish_epochs, len(Z), run, learning_rate=1e-3)
        module = WhitenedState(space, state, of_rows=True)
        rows = (Z.to(module.transform), weight.to(module.transform))
        train(module, negative_log_likelihood, rows, None, adam, generator, peers=peers)
    return history


@torch.no_grad()
def approximate_state(
    space: Whitening, start: DensityMatrix, phi: Tensor, weight: Tensor, max_iter: int
) -> DensityMatrix:
    """State near the solution after a few iterations of SciPy's L-BFGS, to judge a candidate.

    Much of the time of a small problem is that of calls, of which torch's optimizers make more.
    """
    shape, w, T = start.factor.shape, weight.to(phi), space.transform.to(phi)

    def loss(a: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        A = torch.from_numpy(a).reshape(shape).to(phi)
        value, gradient = expectation(A @ T.T, phi, w)
        trace, mean = A.square().sum(), w.mean()
        slope = 2 * mean / trace * A - gradient @ T
        total = float(mean * trace.log() - value)
        return total, slope.double().flatten().cpu().numpy()

    first = start.factor.detach().double().flatten().cpu().numpy()
    options = {"maxiter": max_iter, "maxcor": 20}
    found = minimize(loss, first, jac=True, method="L-BFGS-B", options=options)
    return DensityMatrix(torch.from_numpy(found.x).reshape(shape).to(phi))


def lbfgs(parameters: Iterable[nn.Parameter], config: LoopConfig) -> torch.optim.Optimizer:
    """L-BFGS with a strong Wolfe line search, some iterations in each step."""
    settings: dict[str, Any] = {"history_size": 20, "line_search_fn": "strong_wolfe"}
    settings |= {"lr": config.learning_rate, "max_iter": LBFGS_ITERATIONS}
    return eager(torch.optim.LBFGS)(parameters, **settings)


@dataclass(frozen=True)
class Solver:
    """An optimizer for the convex problem, and the settings of the loop that runs it.

    A step of the loop takes so many iterations; 0 stands for steps of batches.
    """

    make_optimizer: MakeOptimizer
    settings: dict[str, Any]
    iterations: int

    def config(self, max_iter: int, n: int, run: Run, **settings: Any) -> LoopConfig:
        """Settings of the loop for `max_iter` iterations, or epochs of batches, over n rows."""
        chosen = {**self.settings, **settings, "time_limit": run.left}
        if self.iterations:
            return LoopConfig(max_steps=-(-max_iter // self.iterations), **chosen)
        chosen["batch_size"] = run.peers.share_of(chosen["batch_size"])
        epoch = -(-run.peers.largest(n) // chosen["batch_size"])
        return LoopConfig(max_steps=max_iter * epoch, **chosen)


_FULL = {"batch_size": None, "learning_rate": 1.0, "final_learning_rate": 1.0, "eval_every": 1}
SOLVERS: dict[str, Solver] = {
    "lbfgs": Solver(lbfgs, _FULL, LBFGS_ITERATIONS),
    "adam": Solver(adam, {"batch_size": 2048, "learning_rate": 0.01, "eval_every": 100}, 0),
}


def negative_log_likelihood(module: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    r"""Mean :math:`-w \log p(x)` over a batch, not divided by the weight of the batch.

    Parameters
    ----------
    module : nn.Module
        A :class:`~qaffde.nn.Density`, or any module from rows to log-probabilities.
    x, weight : Tensors of shapes (n, d), (n,)
        Weights of mean one over all rows.

    Examples
    --------
    >>> negative_log_likelihood(nn.Identity(), torch.tensor([-0.5, -1.5]), torch.ones(2))
    tensor(1.)
    """
    return -(weight * module(x)).mean()


def state_likelihood(state: Any, phi: Tensor, weight: Tensor) -> Tensor:
    r"""Mean :math:`-w \log(\phi^\top \sigma \phi)` of a state at features of shape (N, D).

    The :func:`negative_log_likelihood` of a state with a `factor` and a `log_trace`, without
    gradients in the features. Rows are read once for the loss and its gradient.

    Examples
    --------
    >>> from qaffde.nn import DensityMatrix
    >>> state = DensityMatrix(torch.tensor([[2.0, 0.0]]))
    >>> state_likelihood(state, torch.ones(3, 2), torch.ones(3)).item()
    0.0
    """
    return weight.mean() * state.log_trace() - _Expectation.apply(state.factor, phi, weight)


def expectation(A: Tensor, E: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mean w log ‖Ae‖² and its gradient in A, in one pass over the rows of E."""
    total, gradient = A.new_zeros((), dtype=torch.double), torch.zeros_like(A)
    for e, w in zip(E.split(BLOCK), weight.split(BLOCK), strict=True):
        Y = A @ e.T  # (r, n)
        born = Y.square().sum(0)
        total += w @ born.log()
        gradient.addmm_(Y.mul_(w / born), e)
    return total / len(E), gradient * (2 / len(E))


class _Expectation(torch.autograd.Function):
    """The expectation with its gradient, which is computed at once."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, E: Tensor, weight: Tensor) -> Tensor:
        value, gradient = expectation(A, E, weight)
        ctx.save_for_backward(gradient)
        return value.to(A)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None
