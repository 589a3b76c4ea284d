"""Finite sums of terms, closed under marginals and conditionals."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.nn.base import Density
from qaffde.nn.calculus import integrals, sampling
from qaffde.nn.calculus.base_laws import Law, NormalLaw, UniformLaw
from qaffde.nn.calculus.polynomial import SquaredCoefficients, TrigonometricForm
from qaffde.nn.calculus.terms import Shortcut, Term
from qaffde.nn.features import BaseMeasure, BoxMeasure, GaussianMeasure
from qaffde.nn.parts import gap_patterns

PLANE = 2
NOTHING = torch.empty(1, 0, dtype=torch.float64)
"""One row of no columns: what is known before anything is given."""
MAX_DEVIATIONS = 1e8
"""Distance of a condition from the data beyond which rounding would move its conditional."""


class BornMixture(Density):
    r"""Sum of terms, each a base times a trigonometric polynomial, divided by its mass.

    Every fitted density with a finite base measure is one (:func:`~qaffde.nn.expand`), and so is
    every marginal and every conditional of one. Terms are values: they are not changed in place.

    Parameters
    ----------
    terms : iterable of Term
    log_mass : Tensor of shape (), optional
        Logarithm of the sum of their masses, where it is known.

    Examples
    --------
    >>> from qaffde.nn import BornDensity, BoxMeasure, FourierFeatures, expand
    >>> features = FourierFeatures.draw("paired", 8, bandwidth=torch.ones(2))
    >>> unit = BoxMeasure(torch.zeros(2), torch.ones(2))
    >>> density = expand(BornDensity(features, torch.ones(1, 8), unit))
    >>> first, second = torch.tensor([[0.3]]).double(), torch.tensor([0.8]).double()
    >>> joint = density.log_prob(torch.tensor([[0.3, 0.8]]).double())
    >>> product = density.condition([1], second).log_prob(first) + density.marginal([1]).log_prob(
    ...     second[None]
    ... )
    >>> torch.allclose(joint, product)
    True
    """

    def __init__(self, terms: Iterable[Term], log_mass: Tensor | None = None) -> None:
        super().__init__()
        self.terms = list(terms)
        if log_mass is not None:
            self.log_mass = log_mass

    @property
    def n_dims(self) -> int:
        """The number of columns d."""
        return self.terms[0].n_dims

    @cached_property
    def log_masses(self) -> Tensor:
        """Logarithm (K,) of the terms' masses, −∞ where they are negligible."""
        return log_densities([term.marginal(0) for term in self.terms], NOTHING)[0]

    @cached_property
    def log_mass(self) -> Tensor:
        """Logarithm of the sum of the terms' masses."""
        log_mass = self.log_masses.logsumexp(0)
        if log_mass == -torch.inf:
            raise ValueError("the density is zero at the condition: no conditional density")
        return log_mass

    @cached_property
    def _parts(self) -> list[Term]:
        """The terms that matter, divided by the mass of all: they have a sum of mass one."""
        return [
            term.times(-self.log_mass)
            for term, log_mass in zip(self.terms, self.log_masses, strict=True)
            if log_mass > self.log_mass - 40
        ]

    @property
    def weights(self) -> Tensor:
        """Probability of each term, of shape (K,)."""
        return self.log_masses.softmax(0)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) at points of shape (n, d): NaN is integrated out."""
        log_p = torch.zeros(len(x), dtype=torch.float64)
        for have, _, rows in gap_patterns(x):
            if have:
                log_joint = log_densities(self.marginal(have).terms, x[rows][:, have])
                log_p[rows] = log_joint.logsumexp(1) - self.log_mass
        return log_p

    def fill(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        """A copy of x (n, d) with draws, or means, given the rest of the row in place of NaN.

        There are draws if there is a generator.
        """
        filled = x.clone()
        for have, lack, rows in gap_patterns(x):
            if lack:
                ordered, given = self.reordered([*have, *lack]), x[rows][:, have]
                filled[rows.nonzero(), torch.tensor(lack)] = (
                    ordered.mean_given(given)
                    if generator is None
                    else ordered.sample_given(given, generator)
                )
        return filled

    def reordered(self, columns: Sequence[int]) -> "BornMixture":
        """The density of the same columns in another order."""
        if list(columns) == list(range(self.n_dims)):
            return self
        return BornMixture((t.reordered(list(columns)) for t in self.terms), self.log_mass)

    def affine(self, location: Tensor, scale: Tensor) -> "BornMixture":
        """The density of location + scale·x, of shapes (d,)."""
        return BornMixture(
            (term.affine(location, scale) for term in self.terms), vars(self).get("log_mass")
        )

    def marginal(self, columns: Sequence[int]) -> "BornMixture":
        """Density of some columns, in the order given: the others are integrated out exactly."""
        ordered = self.reordered(self._first(columns)).terms
        return BornMixture((t.marginal(len(columns)) for t in ordered), self.log_mass)

    def condition(self, columns: Sequence[int], values: Tensor) -> "BornMixture":
        """Density of the other columns where `columns` have `values` of shape (t,).

        Only ratios of the terms matter: the largest is divided by its value at the condition,
        which may be too large or too small for a number.
        """
        terms = conditional_terms(self.reordered(self._first(columns)).terms, values)
        return BornMixture(t for t in terms if t.log_coefficient > -torch.inf)

    def probability(
        self, lower: Tensor, upper: Tensor, shares: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Probabilities (n,) of boxes, and their errors, zero where they are exact.

        Parameters
        ----------
        lower, upper : Tensors of shape (n, d)
            May be infinite. Columns with two infinite ends are integrated out.
        shares : Tensor of shape (n, K), optional
            What each term is multiplied with; one by default.
        """
        kept = None if shares is None else shares[:, self.log_masses > self.log_mass - 40]
        value = torch.ones(len(lower)).double() if shares is None else shares @ self.weights
        error = torch.zeros_like(value)
        if self.n_dims == 1:
            below, above = (self._column.below(end[:, 0]) for end in (lower, upper))
            masses = (above - below) * (1 if kept is None else kept)
            return (masses.sum(1) / self._column.total).clamp(0, 1), error
        free = (lower == -torch.inf) & (upper == torch.inf)
        for keep, _, rows in gap_patterns(torch.where(free, torch.nan, 0.0)):
            if keep:
                terms = [t.reordered(self._first(keep)).marginal(len(keep)) for t in self._parts]
                low, high = (end[rows][:, keep] for end in (lower, upper))
                own = None if kept is None else kept[rows]
                value[rows], error[rows] = integrals.box_probability(terms, low, high, own)
        return value.clamp(0, 1), error

    def cdf(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution function (n,) at points of shape (n, d), and its errors."""
        return self.probability(torch.full_like(x, -torch.inf), x)

    def ppf(self, q: Tensor) -> Tensor:
        """Quantiles of shape (n,) of a density of one column, by bisection of its cdf."""
        ends = torch.stack([t.support[:, 0] for t in self.terms])
        x = torch.where(q == 0, ends[:, 0].min(), self._column.ppf(q))
        return torch.where(q == 1, ends[:, 1].max(), x)

    def even_points(self, n: int) -> tuple[Tensor, Tensor]:
        """Some n points (m, 1) of a density of one column, and their weights (m,), of sum one.

        They are quantiles of each term at even levels: no mode is too narrow for them.
        """
        found = []
        for term, weight in zip(self.terms, self.weights, strict=True):
            size = math.ceil(n * float(weight))
            level = (torch.arange(size, dtype=torch.float64) + 0.5) / max(size, 1)
            if size:
                points = sampling.term_quantiles(term, level)
                found.append((points, (weight / size).expand(size)))
        points, weights = (torch.cat(parts) for parts in zip(*found, strict=True))
        return points, weights

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Exact draws, of shape (n, d)."""
        return self.sample_given(NOTHING.expand(n, 0), generator)

    def sample_given(self, x: Tensor, generator: Generator) -> Tensor:
        """Draws (n, d − t) of the last columns, row by row given the first, `x` (n, t)."""
        return self.draw_given(x, generator)[1]

    def draw_given(
        self,
        x: Tensor,
        generator: Generator,
        log_factor: Tensor | float = 0.0,
        outside: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Numbers (n,) of terms, and draws from them of the last columns, given the first.

        The terms are multiplied with a factor at each row, whose logarithm is of shape (n, K), and
        may have columns from `outside` (n, e).
        """
        share, mean_q = self._given(x, log_factor, outside)
        chosen = torch.multinomial(share, 1, generator=generator)[:, 0]
        drawn = torch.empty(len(x), self.n_dims - x.shape[1], dtype=torch.float64)
        for k in chosen.unique().tolist() if drawn.shape[1] else ():
            rows = chosen == k
            beside = None if outside is None else outside[rows]
            given = x[rows], mean_q[rows, k], generator, beside
            drawn[rows] = sampling.sample_term(self.terms[k], *given)
        return chosen, drawn

    def mean_given(self, x: Tensor) -> Tensor:
        """Means (n, d − t) of the last columns, row by row given the first, `x` (n, t)."""
        share, mean_q = self._given(x)
        mean = torch.zeros(len(x), self.n_dims - x.shape[1], dtype=torch.float64)
        for k in share.any(0).nonzero()[:, 0].tolist():
            rows = share[:, k] > 0
            part = integrals.term_mean(self.terms[k], x[rows], mean_q[rows, k])
            mean[rows] += share[rows, k, None] * part
        return mean

    def log_prob_given(self, x: Tensor, t: int) -> Tensor:
        """Log-density (n,) of the columns from t on, row by row given the first t of x (n, d)."""
        log_given, log_means = self._log_given(x[:, :t])
        u = [term.whiten(x) for term in self.terms]
        rest = torch.stack([k.log_base(v, t) for k, v in zip(self.terms, u, strict=True)], 1)
        joint = log_given + rest
        joint = joint + log_values(self.terms, u, joint)
        return joint.logsumexp(1) - (log_given + log_means).logsumexp(1)

    def _given(
        self, x: Tensor, log_factor: Tensor | float = 0.0, outside: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Share (n, K) of each term at the first columns `x` (n, t), and its mean of q there."""
        if x.shape[1] or outside is not None:
            log_given, log_means = self._log_given(x, log_factor, outside)
            return (log_given + log_means).softmax(1), log_means.exp()
        share = (self.log_masses + log_factor).softmax(-1)
        mean_q = self.log_masses - torch.stack([term.log_coefficient for term in self.terms])
        return share.expand(len(x), -1), mean_q.exp().expand(len(x), -1)

    def _log_given(
        self, x: Tensor, log_factor: Tensor | float = 0.0, outside: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Prefactors (n, K) at the first columns, less the largest of each row, and means of q."""
        terms = [term.marginal(x.shape[1]) for term in self.terms]
        x = x if outside is None else torch.cat([x, outside], 1)
        log_prefactors, log_means = log_parts(terms, x, log_factor)
        top = log_prefactors.amax(1)
        check_given(terms, x, top)
        return log_prefactors - top[:, None], log_means

    def mean(self) -> Tensor:
        """Mean of shape (d,), in closed form."""
        return self.mean_given(NOTHING)[0]

    def covariance(self) -> Tensor:
        """Covariance of shape (d, d), in closed form."""
        origin = self.mean()
        parts = [integrals.term_second_moment(term, origin) for term in self.terms]
        return torch.einsum("k,kst->st", self.weights, torch.stack(parts))

    @cached_property
    def _column(self) -> integrals.Column:
        """The distribution of a density of one column."""
        return integrals.Column([integrals.ColumnIntegral.of(term) for term in self._parts])

    def _first(self, columns: Sequence[int]) -> list[int]:
        return [*columns, *(c for c in range(self.n_dims) if c not in columns)]


def log_densities(terms: Sequence[Term], x: Tensor, log_factor: Tensor | float = 0.0) -> Tensor:
    """Logarithm (n, K) of each term, times a factor, at x (n, d), −∞ where it is negligible."""
    log_prefactors, log_q = log_parts(terms, x, log_factor)
    return log_prefactors + log_q


def log_parts(
    terms: Sequence[Term], x: Tensor, log_factor: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """Logarithms (n, K) of each term's prefactor, times a factor, and of its q, at x (n, d)."""
    u = [term.whiten(x) for term in terms]
    found = [term.log_prefactor(v) for term, v in zip(terms, u, strict=True)]
    log_prefactors = torch.stack(found, 1) + log_factor
    return log_prefactors, log_values(terms, u, log_prefactors)


def log_values(terms: Sequence[Term], u: Sequence[Tensor], log_prefactors: Tensor) -> Tensor:
    """Logarithm (n, K) of each term's q at its own coordinates (n, d), −∞ where negligible.

    At each point the term of the largest prefactor (n, K) is evaluated first. Of the others, those
    that even at the bound of their q would not reach e^{−40} of it are left out.
    """
    first = log_prefactors.argmax(1)
    found = torch.full_like(log_prefactors, -torch.inf)

    def evaluate(k: int, rows: Tensor) -> None:
        rows = rows & (log_prefactors[:, k] > -torch.inf)
        found[rows, k] = terms[k].values(u[k][rows]).log()

    for k in first.unique().tolist():
        evaluate(k, first == k)
    floor = (log_prefactors + found).amax(1) - 40
    for k, term in enumerate(terms):
        ceiling = log_prefactors[:, k] + math.log(term.form.coefficients.bound)
        rows = (first != k) & (ceiling >= floor)
        if rows.any():
            evaluate(k, rows)
    return found


def conditional_terms(
    terms: Sequence[Term], x: Tensor, log_factor: Tensor | float = 0.0
) -> list[Term]:
    """Terms, times factors of logarithms (K,), where the first columns are `x` of shape (t,).

    The largest coefficient is one.
    """
    found = [term.condition(x) for term in terms]
    level = torch.stack([term.log_coefficient for term in found]) + log_factor
    check_given(terms, x[None], level.amax()[None])
    return [
        replace(term, log_coefficient=log_coefficient)
        for term, log_coefficient in zip(found, level - level.amax(), strict=True)
    ]


def check_given(terms: Sequence[Term], x: Tensor, log_prefactor: Tensor) -> None:
    """Refuse conditions `x` (n, t) that have no density, or that are too far away for one.

    `log_prefactor` (n,) is the largest of the terms'.
    """
    if x.shape[1] == 0:
        return
    distance = torch.stack([term.whiten(x).abs().amax(1) for term in terms]).amin(0)
    far = ~(distance <= MAX_DEVIATIONS)
    for rows, reason in (
        (far, f"it is more than {MAX_DEVIATIONS:.0e} standard deviations from the data"),
        (~far & (log_prefactor == -torch.inf), "the density is zero there"),
    ):
        if rows.any():
            raise ValueError(f"no conditional density given {x[rows][0].tolist()}: {reason}")


def base_terms(measure: BaseMeasure) -> list[tuple[Tensor, Law, Tensor, Tensor]]:
    """A base measure as weighted product laws, each with its log-weight, law, offset and scale."""
    if isinstance(measure, BoxMeasure):
        lower, upper = measure.lower.double(), measure.upper.double()
        log_one = torch.zeros((), dtype=torch.float64)
        return [(log_one, UniformLaw(), (lower + upper) / 2, ((upper - lower) / 2).diag())]
    if isinstance(measure, GaussianMeasure):
        parts = measure.weights, measure.means, measure.cholesky
        triples = zip(*(part.double() for part in parts), strict=True)
        return [(weight.log(), NormalLaw(), mean, C) for weight, mean, C in triples]
    raise ValueError(
        "the 'kernel' base measure is infinite: nothing can be integrated, conditioned or drawn; "
        "fit with base_measure='box', 'gaussian' or 'mixture' (or 'auto') instead"
    )


def born_terms(
    form: TrigonometricForm, series: QF.LatticeSeries | None, measure: BaseMeasure
) -> list[Term]:
    """Terms of a polynomial times a base measure; the series has the same values on a lattice."""
    terms = []
    for log_weight, law, m, C in base_terms(measure):
        moved = replace(form.rotated(C), b=form.b + form.W[:, : len(m)] @ m)
        lattice = None
        if series is not None and len(m) == PLANE:
            lattice = Shortcut(moved, series, m, C)
        terms.append(Term(log_weight, law, m, C, moved, lattice))
    return terms


def constant_form(d: int) -> TrigonometricForm:
    """The form of d columns that is one everywhere."""
    W, b = torch.zeros(1, d, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    return TrigonometricForm(W, b, SquaredCoefficients(torch.ones_like(b)[None]))
