"""Finite sums of terms, closed under marginals and conditionals."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, singledispatch

import torch
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.nn.base import Density
from qaffde.nn.calculus import integrals, moments, sampling
from qaffde.nn.calculus.base_laws import Law, NormalLaw, UniformLaw
from qaffde.nn.calculus.polynomial import TrigonometricForm
from qaffde.nn.calculus.terms import Shortcut, Term
from qaffde.nn.measures import BaseMeasure, BoxMeasure, GaussianMeasure

PLANE = 2
NOTHING = torch.empty(1, 0, dtype=torch.float64)
"""One row of no columns: what is known before anything is given."""


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
        return self.log_masses.logsumexp(0)

    @property
    def weights(self) -> Tensor:
        """Probability of each term, of shape (K,)."""
        return self.log_masses.softmax(0)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,) at points of shape (n, d)."""
        return log_densities(self.terms, x).logsumexp(1) - self.log_mass

    def reordered(self, columns: Sequence[int]) -> "BornMixture":
        """The density of the same columns in another order."""
        return BornMixture((t.reordered(list(columns)) for t in self.terms), self.log_mass)

    def marginal(self, columns: Sequence[int]) -> "BornMixture":
        """Density of some columns, in the order given: the others are integrated out exactly."""
        ordered = [t.reordered(self._first(columns)) for t in self.terms]
        return BornMixture((t.marginal(len(columns)) for t in ordered), self.log_mass)

    def condition(self, columns: Sequence[int], values: Tensor) -> "BornMixture":
        """Density of the other columns where `columns` have `values` of shape (t,)."""
        ordered = [t.reordered(self._first(columns)) for t in self.terms]
        terms = [t.condition(values) for t in ordered]
        return BornMixture(t for t in terms if t.log_coefficient > -torch.inf)

    def probability(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Probability of a box, of shape (); ends of shape (d,), infinite ones allowed."""
        parts = [integrals.term_probability(term, lower, upper) for term in self.terms]
        return (torch.stack(parts).sum() * torch.exp(-self.log_mass)).clamp(0, 1)

    def cdf(self, x: Tensor) -> Tensor:
        """Distribution function of shape (n,) at points of shape (n, d)."""
        if self.n_dims == 1:
            return self._cdf(x[:, 0])
        below = torch.full_like(x[0], -torch.inf)
        return torch.stack([self.probability(below, row) for row in x])

    def ppf(self, q: Tensor) -> Tensor:
        """Quantiles of shape (n,) of a density of one column, by bisection of its cdf."""
        ends = torch.stack([t.support[:, 0] for t in self.terms])
        reach = torch.stack([t.reach[:, 0] for t in self.terms])
        lower, upper = (end.expand_as(q) for end in (reach[:, 0].min(), reach[:, 1].max()))
        for _ in range(64):
            middle = (lower + upper) / 2
            below = self._cdf(middle) < q
            lower, upper = torch.where(below, middle, lower), torch.where(below, upper, middle)
        x = torch.where(q == 0, ends[:, 0].min(), (lower + upper) / 2)
        return torch.where(q == 1, ends[:, 1].max(), x)

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Exact draws, of shape (n, d)."""
        return self.sample_given(NOTHING.expand(n, 0), generator)

    def sample_given(self, x: Tensor, generator: Generator) -> Tensor:
        """Draws (n, d − t) of the last columns, row by row given the first, `x` (n, t)."""
        log_terms = self.log_marginals(x)
        chosen = torch.multinomial(log_terms.softmax(1), 1, generator=generator)[:, 0]
        drawn = torch.empty(len(x), self.n_dims - x.shape[1], dtype=torch.float64)
        for k in chosen.unique().tolist():
            rows = chosen == k
            drawn[rows] = sampling.sample_term(
                self.terms[k], x[rows], log_terms[rows, k], generator
            )
        return drawn

    def mean_given(self, x: Tensor) -> Tensor:
        """Means (n, d − t) of the last columns, row by row given the first, `x` (n, t)."""
        log_terms = self.log_marginals(x)
        share = log_terms.softmax(1)
        mean = torch.zeros(len(x), self.n_dims - x.shape[1], dtype=torch.float64)
        for k in share.any(0).nonzero()[:, 0].tolist():
            rows = share[:, k] > 0
            part = moments.term_mean(self.terms[k], x[rows], log_terms[rows, k])
            mean[rows] += share[rows, k, None] * part
        return mean

    def log_marginals(self, x: Tensor) -> Tensor:
        """Logarithm (n, K) of each term at the first columns `x` (n, t), the others integrated."""
        if x.shape[1] == 0:
            return self.log_masses.expand(len(x), -1)
        return log_densities([term.marginal(x.shape[1]) for term in self.terms], x)

    def mean(self) -> Tensor:
        """Mean of shape (d,), in closed form."""
        return self.mean_given(NOTHING)[0]

    def covariance(self) -> Tensor:
        """Covariance of shape (d, d), in closed form."""
        origin = self.mean()
        parts = [moments.term_second_moment(term, origin) for term in self.terms]
        return torch.einsum("k,kst->st", self.weights, torch.stack(parts))

    @cached_property
    def _column_integrals(self) -> list[integrals.ColumnIntegral]:
        return [integrals.ColumnIntegral.of(term) for term in self.terms]

    def _cdf(self, x: Tensor) -> Tensor:
        """Distribution function (n,) of a density of one column at x of shape (n,)."""
        total = torch.stack([part(x) for part in self._column_integrals]).sum(0)
        return (total * torch.exp(-self.log_mass)).clamp(0, 1)

    def _first(self, columns: Sequence[int]) -> list[int]:
        return [*columns, *(c for c in range(self.n_dims) if c not in columns)]


def log_densities(terms: Sequence[Term], x: Tensor) -> Tensor:
    """Logarithm (n, K) of each term at x of shape (n, d), −∞ where it is negligible.

    At each point the term of the largest prefactor is evaluated first. Of the others, those that
    even at the bound of their q would not reach e^{−40} of it are left out.
    """
    u = [term.whiten(x) for term in terms]
    log_prefactors = [term.log_prefactor(v) for term, v in zip(terms, u, strict=True)]
    first = torch.stack(log_prefactors).argmax(0)
    found = torch.full((len(x), len(terms)), -torch.inf, dtype=torch.float64)

    def evaluate(k: int, rows: Tensor) -> None:
        found[rows, k] = log_prefactors[k][rows] + terms[k].values(u[k][rows]).log()

    for k in first.unique().tolist():
        evaluate(k, first == k)
    floor = found.amax(1) - 40
    for k, term in enumerate(terms):
        ceiling = log_prefactors[k] + math.log(term.form.coefficients.loose_bound)
        rows = (first != k) & (ceiling >= floor)
        if rows.any():
            evaluate(k, rows)
    return found


Base = tuple[Tensor, Law, Tensor, Tensor]
"""Log-weight, law, offset and scale."""


@singledispatch
def base_terms(measure: BaseMeasure) -> list[Base]:
    """A base measure as a list of weighted, affinely mapped product laws."""
    raise ValueError(
        "the 'kernel' base measure is infinite: nothing can be integrated, conditioned or drawn; "
        "fit with base_measure='box', 'gaussian' or 'mixture' (or 'auto') instead"
    )


@base_terms.register
def _(measure: BoxMeasure) -> list[Base]:
    lower, upper = measure.lower.double(), measure.upper.double()
    log_one = torch.zeros((), dtype=torch.float64)
    return [(log_one, UniformLaw(), (lower + upper) / 2, ((upper - lower) / 2).diag())]


@base_terms.register
def _(measure: GaussianMeasure) -> list[Base]:
    parts = measure.weights, measure.means, measure.cholesky
    triples = zip(*(part.double() for part in parts), strict=True)
    return [(weight.log(), NormalLaw(), mean, C) for weight, mean, C in triples]


def born_terms(
    form: TrigonometricForm, series: QF.LatticeSeries | None, measure: BaseMeasure
) -> list[Term]:
    """Terms of a polynomial times a base measure; the series has the same values on a lattice."""
    return [_term(form, series, *base) for base in base_terms(measure)]


def _term(
    form: TrigonometricForm,
    series: QF.LatticeSeries | None,
    log_weight: Tensor,
    law: Law,
    m: Tensor,
    C: Tensor,
) -> Term:
    moved = replace(form, W=form.W @ C, b=form.b + form.W @ m)
    lattice = None
    if series is not None and len(m) == PLANE:
        lattice = Shortcut(moved, series, m, C)
    return Term(log_weight, law, m, C, moved, lattice)


def constant_form(d: int) -> TrigonometricForm:
    """The form of d columns that is one everywhere."""
    W, b = torch.zeros(1, d, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    return TrigonometricForm.squared(W, b, torch.ones(1, 1, dtype=torch.float64))
