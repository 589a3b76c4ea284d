r"""Inner products ∫ p(x) q(x) dx of sums of terms, in closed form by their waves.

A trigonometric polynomial is a sum of waves, :math:`q(x) = \operatorname{Re} \sum_m \alpha_m
e^{i \Omega_m \cdot x}`. The product of two bases of one law is a base again, of coordinates v, so

.. math:: \int p_1 p_2 = c \, \tfrac12 \operatorname{Re} \sum_{mn} \bigl[\alpha_m \beta_n
          \chi(\Omega_m + \Omega_n') + \alpha_m \bar\beta_n \chi(\Omega_m - \Omega_n')\bigr]

with the characteristic function χ of v. Waves of one frequency are merged: on a lattice few are
left. Where the sum takes more than :data:`AFFORDABLE` multiplications, and where a uniform base
meets a normal one, the same integral is a Gauss–Legendre sum over a grid of v, which is as exact.
Where that is not affordable either, it is an unbiased mean over randomized quasi-random points.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from typing import Any

import torch
from scipy.stats import qmc
from torch import Tensor

from qaffde.functional.chebyshev import series_length
from qaffde.nn.calculus.base_laws import Law, NormalLaw
from qaffde.nn.calculus.integrals import CONFIDENCE, MAX_POINTS, MIN_POINTS, REPETITIONS, legendre
from qaffde.nn.calculus.mixture import BornMixture
from qaffde.nn.calculus.polynomial import WAVES
from qaffde.nn.calculus.terms import Term

AFFORDABLE = 2e10
"""Multiplications that an inner product may cost, about two seconds."""
POINT, MAX_GRID = 500, 2**22
"""What a point of a grid costs beside its waves, in multiplications; most points of a grid."""
SAME = 1e-11
"""Difference of frequencies, as a share of the largest, that is rounding."""
FAINT = 1e-17
"""Coefficient of a wave, as a share of the largest, that is left out."""
SHARE = 40.0
"""Logarithm of the largest pair over those that are left out."""
ENTRIES = 1 << 21
"""Of a matrix at a time."""


@dataclass(frozen=True)
class Waves:
    """Waves Re Σ α e^{iΩ·x}: complex α (M,) and Ω (M, d)."""

    alpha: Tensor
    omega: Tensor

    @classmethod
    def of(cls, term: Term) -> "Waves":
        """Waves of the polynomial of a term, in the units of x."""
        form = term.form
        W = torch.linalg.solve_triangular(term.scale, form.W, upper=False, left=False)
        z, pairs = torch.exp(1j * (form.b - W @ term.offset)), form.coefficients.pairs
        first, second = torch.triu_indices(len(W), len(W))
        twice = torch.where(first == second, 1.0, 2.0)
        total = twice * pairs.E[first, second] * z[first] * z[second]
        difference = twice * pairs.B[first, second] * z[first].conj() * z[second]
        omega = torch.cat([W[first] + W[second], W[second] - W[first]])
        return cls(torch.cat([total, difference]), omega).merged()

    def merged(self) -> "Waves":
        """The same with every frequency only once, and without faint waves."""
        unit = SAME * self.omega.abs().amax().clamp(min=torch.finfo(torch.float64).tiny)
        steps = (self.omega / unit).round().long()
        leading = steps.gather(1, (steps != 0).int().argmax(1, keepdim=True))[:, 0]
        sign = torch.where(leading < 0, -1, 1)  # Re α e^{iθ} = Re ᾱ e^{−iθ}
        generator = torch.Generator().manual_seed(0)
        hash_of = torch.randint(-(2**62), 2**62, steps.shape[1:], generator=generator)
        _, group = (sign * (steps * hash_of).sum(1)).unique(return_inverse=True)
        alpha = torch.where(sign < 0, self.alpha.conj(), self.alpha)
        alpha = alpha.new_zeros(int(group.max()) + 1).index_add_(0, group, alpha)
        omega = torch.empty(len(alpha), self.omega.shape[1], dtype=torch.float64)
        omega[group] = sign[:, None] * self.omega
        kept = alpha.abs() > FAINT * alpha.abs().max()
        return Waves(alpha[kept], omega[kept])

    def moved(self, offset: Tensor, scale: Tensor) -> "Waves":
        """Waves of v, where x = offset + scale·v."""
        return Waves(self.alpha * torch.exp(1j * (self.omega @ offset)), self.omega @ scale)

    def times(self, other: "Waves") -> "Waves":
        """Waves of the product with a function of other columns, which come behind."""
        rows, columns = (part.flatten() for part in _pairs(self.alpha, other.alpha))
        parts = []
        for beta, sign in ((other.alpha, 1), (other.alpha.conj(), -1)):
            omega = torch.cat([self.omega[rows], sign * other.omega[columns]], 1)
            parts.append(Waves(self.alpha[rows] * beta[columns] / 2, omega))
        alpha, omega = (torch.cat([getattr(w, k) for w in parts]) for k in ("alpha", "omega"))
        return Waves(alpha, omega).merged()

    def on_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values at the product of axes, as many as there are columns."""
        found = self.alpha[None]
        for axis, omega in zip(axes[:-1], self.omega.T, strict=False):
            found = (found[:, None] * torch.exp(1j * axis[:, None] * omega)).flatten(0, 1)
        last = torch.exp(1j * axes[-1][:, None] * self.omega[:, -1])
        return (found @ last.mT).real.reshape([len(axis) for axis in axes])


def _pairs(first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    """Numbers of all pairs of elements."""
    numbers = torch.arange(len(first)), torch.arange(len(second))
    return torch.meshgrid(*numbers, indexing="ij")


@dataclass(frozen=True, eq=False)
class Summand:
    """A term, or the product of terms of different columns that share a law.

    Terms of one density have one polynomial of x, whose waves are `known` to all of them.
    """

    factors: tuple[Term, ...]
    known: dict[Any, Waves]

    @property
    def law(self) -> Law:
        """The law of every coordinate."""
        return self.factors[0].law

    @property
    def log_coefficient(self) -> Tensor:
        """Logarithm of what multiplies the base and the polynomial."""
        return torch.stack([term.log_coefficient for term in self.factors]).sum()

    @cached_property
    def log_bound(self) -> float:
        """Logarithm of a number that the polynomial does not exceed."""
        return sum(math.log(term.form.coefficients.bound) for term in self.factors)

    @cached_property
    def offset(self) -> Tensor:
        """Offset m (d,)."""
        return torch.cat([term.offset for term in self.factors])

    @cached_property
    def scale(self) -> Tensor:
        """Scale C (d, d)."""
        return torch.block_diag(*(term.scale for term in self.factors))

    @property
    def most_waves(self) -> int:
        """No more waves than these."""
        return 2 * math.prod(len(term.form.W) ** 2 for term in self.factors)

    @cached_property
    def waves(self) -> Waves:
        """The waves of the polynomial."""
        for term in self.factors:
            if term.form.coefficients not in self.known:
                self.known[term.form.coefficients] = Waves.of(term)
        return reduce(Waves.times, (self.known[t.form.coefficients] for t in self.factors))

    @property
    def cost(self) -> float:
        """Multiplications of the polynomial at one point."""
        return sum(len(t.form.W) * t.form.coefficients.cost for t in self.factors)

    def values(self, x: Tensor) -> Tensor:
        """The polynomial (n,) at x of shape (n, d)."""
        parts = x.split([term.n_dims for term in self.factors], 1)
        found = (t.values(t.whiten(part)) for t, part in zip(self.factors, parts, strict=True))
        return math.prod(found, start=torch.ones((), dtype=torch.float64))


@dataclass(frozen=True)
class Overlap:
    """Product of two bases: e^{log_mass} times the law of v, x = offset + scale·v.

    Where a uniform base meets a normal one, v is uniform and `normal` a factor.
    """

    log_mass: Tensor
    law: Law
    offset: Tensor
    scale: Tensor
    normal: Summand | None = None

    @classmethod
    def of(cls, first: Summand, second: Summand) -> "Overlap | None":
        """The product of two bases; None where they are disjoint."""
        if first.law.bounded and second.law.bounded:
            halves = [s.scale.abs().sum(1) for s in (first, second)]
            low = torch.maximum(first.offset - halves[0], second.offset - halves[1])
            high = torch.minimum(first.offset + halves[0], second.offset + halves[1])
            if not (low < high).all():
                return None
            half = (high - low) / 2
            log_mass = (half / halves[0] / halves[1] / 2).log().sum()
            return cls(log_mass, first.law, (low + high) / 2, half.diag())
        if first.law.bounded or second.law.bounded:
            box, normal = (first, second) if first.law.bounded else (second, first)
            half, nothing = box.scale.abs().sum(1), torch.zeros((), dtype=torch.float64)
            return cls(nothing, box.law, box.offset, half.diag(), normal)
        return cls._of_normals(first, second)

    @classmethod
    def _of_normals(cls, first: Summand, second: Summand) -> "Overlap":
        """The product of two normal laws, in coordinates where the first is standard."""
        d, C = len(first.offset), first.scale
        T = torch.linalg.solve_triangular(C, second.scale, upper=False)
        away = torch.linalg.solve_triangular(
            C, (second.offset - first.offset)[:, None], upper=False
        )
        eye = torch.eye(d, dtype=torch.float64)
        root = torch.linalg.cholesky(eye + T @ T.mT)
        white = torch.linalg.solve_triangular(root, away, upper=False)
        inverse = torch.linalg.solve_triangular(T, eye, upper=False)
        precision = torch.linalg.cholesky(eye + inverse.mT @ inverse)
        spread = torch.linalg.solve_triangular(precision, eye, upper=False).mT
        mean = torch.cholesky_solve(away, root)[:, 0]
        log_volume = root.diagonal().log().sum() + C.diagonal().abs().log().sum()
        log_mass = -0.5 * white.square().sum() - log_volume - 0.5 * d * math.log(2 * math.pi)
        return cls(log_mass, first.law, first.offset + C @ mean, C @ spread)

    def factor(self, x: Tensor) -> Tensor:
        """The normal density (n,) beside the law of v, at x of shape (n, d), or one."""
        if self.normal is None:
            return torch.ones(len(x), dtype=torch.float64)
        C, away = self.normal.scale, (x - self.normal.offset).mT
        u = torch.linalg.solve_triangular(C, away, upper=False).mT
        return (NormalLaw().log_density(u) - C.diagonal().abs().log().sum()).exp()


def inner_product(
    first: BornMixture, second: Sequence[BornMixture], factors: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Integral of a density times another, and half the width of its 99 % confidence interval.

    The width is zero where the integral is exact.

    Parameters
    ----------
    first : BornMixture
    second : sequence of BornMixture
        Of the same columns, or densities of the first and of the other columns, whose product is
        taken.
    factors : Tensor of shape (K, L), optional
        What the pairs of terms are multiplied with.
    """
    known: tuple[dict[Any, Waves], ...] = {}, {}
    left = [Summand((term,), known[0]) for term in first.terms]
    right = [Summand(terms, known[1]) for terms in product(*(mixture.terms for mixture in second))]
    log_mass = first.log_mass + sum(mixture.log_mass for mixture in second)
    pairs = []
    for (k, a), (j, b) in ((x, y) for x in enumerate(left) for y in enumerate(right)):
        overlap = Overlap.of(a, b)
        if overlap is not None:
            log_scale = overlap.log_mass + a.log_coefficient + b.log_coefficient - log_mass
            if factors is not None:
                log_scale = log_scale + factors.expand(len(left), len(right))[k, j].log()
            pairs.append((float(log_scale), a, b, overlap))
    nothing = torch.zeros((), dtype=torch.float64)
    if not pairs:
        return nothing, nothing
    bounds = [level + a.log_bound + b.log_bound for level, a, b, _ in pairs]
    floor = max(bounds) - SHARE - 2 * math.log(len(pairs))
    kept = [pair for pair, bound in zip(pairs, bounds, strict=True) if bound > floor]
    total = torch.zeros(REPETITIONS, dtype=torch.float64)
    for level, a, b, overlap in kept:
        scale = torch.tensor(level, dtype=torch.float64).exp()  # infinite beyond float64
        total = total + scale * _expected(a, b, overlap, AFFORDABLE / len(kept))
    spread = total.std() if (total != total[0]).any() else nothing
    return total.mean().clamp(min=0), CONFIDENCE * spread / math.sqrt(REPETITIONS)


def _expected(first: Summand, second: Summand, overlap: Overlap, budget: float) -> Tensor:
    """Expectation of the product of two polynomials, (1,) or one for each repetition."""
    if max(first.most_waves, second.most_waves) ** 1.5 < budget:
        waves = [s.waves.moved(overlap.offset, overlap.scale) for s in (first, second)]
        sizes, d = [len(w.alpha) for w in waves], len(overlap.offset)
        if overlap.normal is None and math.prod(sizes) * WAVES * d / 2 < budget:
            return _wave_sum(overlap.law, *waves)[None]
        nodes = _n_nodes(overlap, *waves)
        rules = sum(n**3 for n in nodes)  # of n nodes
        n_points = math.prod(nodes)
        if n_points < MAX_GRID and n_points * (4 * sum(sizes) + POINT) + rules < budget:
            return _grid_sum(overlap, nodes, *waves)[None]
    return _scattered(first, second, overlap, budget)


def _wave_sum(law: Law, first: Waves, second: Waves) -> Tensor:
    """Expectation under the law, over all sums and differences of frequencies."""
    total = torch.zeros((), dtype=torch.float64)
    size = max(1, ENTRIES // len(second.alpha))
    for alpha, omega in zip(first.alpha.split(size), first.omega.split(size), strict=True):
        for beta, sign in ((second.alpha, 1), (second.alpha.conj(), -1)):
            columns = zip(omega.T, second.omega.T, strict=True)
            chi = math.prod(
                (law.characteristic(a[:, None] + sign * b) for a, b in columns),
                start=torch.ones((), dtype=torch.float64),
            )
            image = chi @ torch.view_as_real(beta.resolve_conj())
            total = total + (alpha * torch.view_as_complex(image)).sum().real / 2
    return total


def _n_nodes(overlap: Overlap, *waves: Waves) -> list[int]:
    """Nodes of a Gauss–Legendre rule along each coordinate of v."""
    top = torch.stack([w.omega.abs().amax(0) for w in waves]).sum(0) + overlap.law.bandwidth
    if overlap.normal is not None:
        steep = torch.linalg.solve_triangular(overlap.normal.scale, overlap.scale, upper=False)
        top = top + NormalLaw.bandwidth * steep.norm(dim=0)
    return [series_length(float(omega) * overlap.law.reach) for omega in top]


def _grid_sum(overlap: Overlap, nodes: Sequence[int], first: Waves, second: Waves) -> Tensor:
    """Expectation by a product of Gauss–Legendre rules."""
    reach = torch.tensor(overlap.law.reach, dtype=torch.float64)
    rules = [legendre(n, -reach, reach) for n in nodes]
    axes = [axis for axis, _ in rules]
    v = torch.cartesian_prod(*axes).reshape(-1, len(axes))
    weight = torch.cartesian_prod(*(w for _, w in rules)).reshape(v.shape).prod(1)
    weight = weight * overlap.law.log_density(v).exp()
    weight = weight * overlap.factor(overlap.offset + v @ overlap.scale.mT)
    return weight @ (first.on_grid(axes) * second.on_grid(axes)).flatten()


def _scattered(first: Summand, second: Summand, overlap: Overlap, budget: float) -> Tensor:
    """Means (repetitions,) over quasi-random points of the law of v."""
    d, law = len(overlap.offset), overlap.law
    cost = REPETITIONS * (first.cost + second.cost + 4 * WAVES * d)
    n_points = 2 ** int(math.log2(min(max(budget / cost, MIN_POINTS), MAX_POINTS)))
    engines = (qmc.Sobol(d, seed=seed) for seed in range(REPETITIONS))
    level = torch.cat([torch.from_numpy(engine.random(n_points)) for engine in engines])
    end = torch.full_like(level, law.reach)
    v = law.between(-end, end, level)[0]
    x = overlap.offset + v @ overlap.scale.mT
    values = first.values(x) * second.values(x) * overlap.factor(x)
    return values.reshape(REPETITIONS, -1).mean(1)
