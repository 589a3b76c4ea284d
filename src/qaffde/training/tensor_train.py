r"""Maximum likelihood for tensor trains.

.. math:: \max \; \sum_i w_i \log \frac{\lVert \Psi(x_i) \rVert^2}{Z}
          - \lambda \sum_t \int \lVert \partial_t \Psi \rVert^2 / Z

Z and the roughness of Ψ (Good and Gaskins, 1971: that of the root of the density) are contractions
of the train, so both terms are exact.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from numbers import Real

import torch
from torch import Generator, Tensor, nn

from qaffde.functional.contraction import log_likelihood
from qaffde.nn import CircleBasis, CodeBasis, ColumnBasis, Part, TensorTrain, WaveBasis
from qaffde.parameters import check_count, check_positive, check_share
from qaffde.training.config import LoopConfig
from qaffde.training.loop import train as run_loop
from qaffde.training.run import History, Run, hold_out

STEP, LOAD = 0.2, 0.5
"""Size of W and E, and of V, in units of the parameters that learn."""


@dataclass(frozen=True)
class TensorTrainConfig:
    """Settings of the training of a tensor train.

    Parameters
    ----------
    n_functions : int, default=48
        K, functions of a part, at most; codes have no more than there are, and fits of few rows
        have fewer.
    bond, rank : int, default=96, 8
        χ, at most, and the columns r of the end: with one, Ψ is zero on whole surfaces.
    ridge : float, default=3.0
        λ times the number of rows.
    max_steps, batch_size, learning_rate : default=2000, 2048, 0.03
        Of Adam; more steps where rows are more than a hundred thousand.
    validation_fraction, max_validation, patience : default=0.1, 20_000, 8
        Rows that are held out, and fiftieths of the steps without gain on them before it stops.
    checkpoint : path or None, default=None
        As in :class:`TrainingConfig`.
    """

    n_functions: int = 48
    bond: int = 96
    rank: int = 8
    ridge: float = 3.0
    max_steps: int = 2000
    batch_size: int = 2048
    learning_rate: float = 0.03
    validation_fraction: float = 0.1
    max_validation: int = 20_000
    patience: int = 8
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        counts = ("n_functions", "bond", "rank", "max_steps", "batch_size", "max_validation")
        for name in (*counts, "patience"):
            check_count(name, getattr(self, name))
        check_positive("learning_rate", self.learning_rate)
        check_share("validation_fraction", self.validation_fraction)
        if not (isinstance(self.ridge, Real) and self.ridge >= 0):
            raise ValueError(f"ridge={self.ridge!r} must be a number of at least 0")

    def for_rows(self, n: int) -> "TensorTrainConfig":
        """Settings for n rows: smaller trains for few, more steps for many."""
        size = n ** (1 / 3)
        return replace(
            self,
            n_functions=min(self.n_functions, 4 + round(size)),
            bond=min(self.bond, 4 + round(1.3 * size)),
            max_steps=round(self.max_steps * max(1.0, n / 100_000) ** 0.25),
            batch_size=min(self.batch_size, max(64, n // 8)),
        )

    def loop(self, n: int, run: Run, rounds: int) -> LoopConfig:
        """Settings of the loop over n rows, the first of some rounds that are left."""
        steps = -(-self.max_steps // rounds)
        return LoopConfig(
            max_steps=steps,
            batch_size=min(self.batch_size, n),
            learning_rate=self.learning_rate,
            final_learning_rate=1e-3 * self.learning_rate,
            clip_norm=5.0,
            eval_every=max(1, steps // 50),
            patience=self.patience,
            time_limit=None if run.left is None else run.left / rounds,
        )


class LearningTrain(nn.Module):
    r"""A train in parameters of like size, for Adam.

    .. math:: W = I + a W', \qquad E = a E', \qquad V_k = [k = 0] + b V'_k / (1 + f_k)

    where :math:`f_k` is the frequency of a function: steps are small where functions vary fast.
    The bases are in the order of the train, and the ridge is λ.
    """

    def __init__(
        self,
        bases: Sequence[ColumnBasis],
        bond: int,
        rank: int,
        ridge: float,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.bases, self.ridge = list(bases), ridge
        normal = partial(torch.randn, bond, generator=generator, dtype=torch.float32)
        mixing = 0.02 / (STEP * math.sqrt(bond))
        self.mixers = nn.ParameterList(mixing * normal(bond) for _ in bases[1:])
        self.loadings = nn.ParameterList(normal(b.n_functions) for b in bases)
        self.end = nn.Parameter((1 + normal(rank)) / STEP)
        for k, basis in enumerate(bases):
            self.register_buffer(f"scale_{k}", 1 / (1 + basis.roughness.float().sqrt() / math.pi))
            self.register_buffer(f"rough_{k}", basis.roughness.float())

    def tensors(self) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Mixers W, loadings V and the end E of the train."""
        bond = len(self.end)
        mixers = [self.end.new_full((1, bond), 1 / math.sqrt(bond))]
        mixers += [torch.eye(bond).to(W) + STEP * W for W in self.mixers]
        loadings = []
        for k, V in enumerate(self.loadings):
            scaled = LOAD * V * self.get_buffer(f"scale_{k}")
            loadings.append(torch.cat([1 + scaled[:, :1], scaled[:, 1:]], 1))
        return mixers, loadings, STEP * self.end

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Mean of w log ‖Ψ‖²/Z over rows (n, d), while training less the roughness."""
        mixers, loadings, end = self.tensors()
        e = [basis.values(x[:, k]).float() for k, basis in enumerate(self.bases)]
        log_mass, rough = self._integrals(mixers, loadings, end)
        log_p = log_likelihood(weight, e, mixers, loadings, end) - weight.mean() * log_mass
        return log_p - self.ridge * rough if self.training else log_p

    def _integrals(
        self, mixers: list[Tensor], loadings: list[Tensor], end: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logarithm of Z, and the roughness of Ψ, Σ ∫ ‖∂Ψ‖² / Z."""
        rho, rough, log_mass = end.new_ones(1, 1), end.new_zeros(1, 1), end.new_zeros(())
        for k, (W, V) in enumerate(zip(mixers, loadings, strict=True)):
            Q, steep = V @ V.T, (V * self.get_buffer(f"rough_{k}")) @ V.T
            moved = W.T @ rho @ W
            rough = (W.T @ rough @ W) * Q + moved * steep
            rho = moved * Q
            size = rho.detach().trace()
            rho, rough, log_mass = rho / size, rough / size, log_mass + size.log()
        mass = (rho @ end * end).sum()
        return log_mass + mass.log(), (rough @ end * end).sum() / mass

    @torch.no_grad()
    def result(self, places: Sequence[int]) -> TensorTrain:
        """The train itself, in double precision."""
        mixers, loadings, end = self.tensors()
        W, V = ([tensor.double() for tensor in part] for part in (mixers, loadings))
        return TensorTrain(W, V, self.bases, places, end=end.double()).normalized()


def make_bases(
    parts: Sequence[Part], x: Tensor, n_functions: int, knots: Sequence[Tensor | None]
) -> list[ColumnBasis]:
    """Functions of each part of rows (n, d), on lines with knots where they are given.

    Codes have their own masses, none of them zero.
    """

    def basis(part: Part, values: Tensor, own: Tensor | None) -> ColumnBasis:
        if part.is_line:
            return WaveBasis(n_functions, own)
        if part.kind == "circle":
            return CircleBasis(n_functions)
        codes = values[~values.isnan()].long()
        counts = torch.bincount(codes, minlength=part.size).double() + 0.5
        return CodeBasis(counts / counts.sum(), n_functions)

    return list(map(basis, parts, x.T, knots))


def chain_order(levels: Tensor, n_cells: int = 16) -> list[int]:
    """Order of columns in which neighbors tell most about each other.

    A path through the pairs of largest mutual information, in cells, which grows at both ends.

    Parameters
    ----------
    levels : Tensor of shape (n, d)
        Columns in [0, 1], about uniform.
    n_cells : int, default=16

    Examples
    --------
    >>> u = torch.rand(1000, 3, generator=torch.Generator().manual_seed(0))
    >>> u[:, 0] = u[:, 2]
    >>> chain_order(u) in ([1, 0, 2], [1, 2, 0], [0, 2, 1], [2, 0, 1])
    True
    """
    d = levels.shape[1]
    cells = (levels.nan_to_num(0.5) * n_cells).long().clamp(0, n_cells - 1)
    told = torch.zeros(d, d, dtype=torch.float64)
    for i, j in combinations(range(d), 2):
        pairs = cells[:, i] * n_cells + cells[:, j]
        joint = torch.bincount(pairs, minlength=n_cells**2).double().reshape(n_cells, -1)
        share = joint / joint.sum()
        gain = share / (share.sum(1, keepdim=True) * share.sum(0)).clamp(min=1e-300)
        told[i, j] = told[j, i] = torch.special.xlogy(share, gain).sum()
    told.fill_diagonal_(-1)
    path = [int(k) for k in divmod(int(told.argmax()), d)] if d > 1 else [0]
    while len(path) < d:
        rest = [k for k in range(d) if k not in path]
        first, last = told[path[0], rest], told[path[-1], rest]
        if first.max() > last.max():
            path.insert(0, rest[int(first.argmax())])
        else:
            path.append(rest[int(last.argmax())])
    return path


def resolution_knots(x: Tensor, levels: Callable[[Tensor], Tensor], n_cells: int) -> Tensor:
    r"""Knots (2, J) of a line that give values resolution by the root of their density.

    .. math:: dv = \tfrac12 \left(f + \sqrt f \Big/ \textstyle\int \sqrt f\right) dx

    where f is a histogram of the values (n,), in cells of equal width between the outermost but
    for one in two thousand. Half of the resolution goes by mass, the other half helps rare values.
    `levels` gives u, the share of the column's law below values (m,).
    """
    tail = torch.tensor([5e-4, 1 - 5e-4], dtype=torch.float64)
    low, high = torch.quantile(x[:: -(-len(x) // 1_000_000)], tail)
    edges = torch.linspace(0, 1, n_cells + 1, dtype=torch.float64) * (high - low) + low
    counts = torch.bincount(torch.bucketize(x, edges[1:-1]), minlength=n_cells).double() + 0.5
    share = counts / counts.sum()
    root = share.sqrt() / share.sqrt().sum()
    u = levels(edges)
    u[0], u[-1] = 0.0, 1.0
    least = 1e-7  # share of the law in a cell
    keep = (torch.cat([u.new_ones(1), u.diff()]) > least) & (u < 1 - least)
    v = torch.minimum((share + root) / 2, 64 * u.diff().clamp(min=0)).cumsum(0)
    v = torch.cat([v.new_zeros(1), v / v[-1]])
    keep[-1] = True
    return torch.stack([u, v])[:, keep]


def levels_of(bases: Sequence[ColumnBasis], x: Tensor) -> Tensor:
    """Rows (n, d) with each part as the share of its law that lies below."""
    found = []
    for basis, values in zip(bases, x.T, strict=True):
        if isinstance(basis, CodeBasis):
            middle = basis.masses.cumsum(0) - basis.masses / 2
            codes = values.nan_to_num(0.0).long()
            found.append(torch.where(values.isnan(), torch.nan, middle[codes]))
        else:
            found.append(torch.special.ndtr(values) if basis.part.is_line else values)
    return torch.stack(found, 1)


def fit_train(
    parts: Sequence[Part],
    x: Tensor,
    weight: Tensor,
    config: TensorTrainConfig,
    generator: Generator,
    run: Run,
    knots: Sequence[Tensor | None] | None = None,
) -> tuple[TensorTrain, History]:
    """Tensor train of maximum likelihood of parts (n, d), and the history of its training.

    The result are independent parts where they are better on held-out rows. Values that are NaN
    are drawn, first from their own law, then in further rounds from the train of the round before,
    given the rest of the row (stochastic EM; Celeux and Diebolt, 1985). Parts on a line are about
    normal; their bases have knots (2, J) where they are given.
    """
    chosen, valid = hold_out(
        len(x), config.validation_fraction, generator, most=config.max_validation
    )
    knots = [None] * len(parts) if knots is None else knots
    bases = make_bases(parts, x[chosen], config.n_functions, knots)
    if not len(valid) or len(bases) == 0:
        return independent(bases), History(stopped_by="max_steps")
    order = chain_order(levels_of(bases, x[chosen[:20_000]]))
    w, ridge = (weight / weight.mean()).float(), config.ridge / len(chosen)
    own = [bases[k] for k in order]
    learner = LearningTrain(own, config.bond, config.rank, ridge, generator)
    train, history = independent(bases), History()
    rounds = 3 if x.isnan().any() else 1
    for number in range(rounds):
        filled = train.fill(x, generator)[:, order].float()
        loop = config.loop(len(chosen), run, rounds - number)
        history = run_loop(
            learner,
            lambda module, z, own: -module(z, own),
            (filled[chosen], w[chosen]),
            (filled[valid], w[valid]),
            loop,
            generator,
            **run.loop_arguments(f"train-{number}", loop.max_steps),
        )
        if min(history.valid_loss) < 0:
            train = learner.eval().result(order)
    return train, history


def independent(bases: Sequence[ColumnBasis]) -> TensorTrain:
    """The train of independent parts, each with its own law."""
    one = torch.ones(1, 1, dtype=torch.float64)
    loadings = [torch.eye(1, basis.n_functions, dtype=torch.float64) for basis in bases]
    return TensorTrain([one] * len(bases), loadings, bases).normalized()
