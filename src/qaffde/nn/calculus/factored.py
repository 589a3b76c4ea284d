r"""Mixtures of parts: sums of terms on the lines, times independent laws of all other parts.

.. math:: p(x) = \sum_k e^{\lambda_k}\, T_k(x_{\text{lines}}) \prod_t f_{kt}(x_t)

with the terms :math:`T_k` of a :class:`~qaffde.nn.BornMixture` and one-part laws :math:`f_{kt}`.
Within a component the parts other than lines are independent of all else, so every operation on
them only changes the weights of the terms.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from qaffde.nn.calculus import sampling
from qaffde.nn.calculus.integrals import box_probability
from qaffde.nn.calculus.mixture import BornMixture, check_given, log_densities, log_values
from qaffde.nn.calculus.quadrature import panel_rule, row_rules
from qaffde.nn.calculus.terms import Term
from qaffde.nn.parts import LINE, Factor, Part, PartsDensity, Region, gap_patterns

MAX_ROWS = 1 << 16
"""Rows that are evaluated at once."""


class FactoredMixture(PartsDensity):
    """Sum of terms on the lines times one-part laws of the other parts.

    Parameters
    ----------
    parts : sequence of Part
    log_weights : Tensor of shape (K,)
        λ, up to a constant.
    lines : BornMixture or None
        K terms of the parts that are lines, in their order; None where there are none.
    factors : iterable of Factor
        Laws of the other parts, in their order, each of K components.

    Examples
    --------
    >>> from qaffde.nn import CodeFactor
    >>> coin = CodeFactor(torch.tensor([[0.25, 0.75]]).double().log())
    >>> density = FactoredMixture([coin.part], torch.zeros(1).double(), None, [coin])
    >>> density.log_prob(torch.tensor([[1.0], [torch.nan]]).double()).exp()
    tensor([0.7500, 1.0000], dtype=torch.float64)
    """

    log_weights: Tensor

    def __init__(
        self,
        parts: Sequence[Part],
        log_weights: Tensor,
        lines: BornMixture | None,
        factors: Iterable[Factor],
    ) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.lines = lines
        self.factors = nn.ModuleList(factors)
        self.register_buffer("log_weights", log_weights)

    @property
    def terms(self) -> list[Term]:
        """The terms of the lines."""
        return [] if self.lines is None else self.lines.terms

    def log_masses(self) -> Tensor:
        """Logarithm (K,) of the components' probabilities."""
        return self.derived("log_masses", self._log_masses)

    def _log_masses(self) -> Tensor:
        total = self.log_weights + sum(self._term_masses(), torch.zeros(()).double())
        return total - total.logsumexp(0)

    def _term_masses(self) -> list[Tensor]:
        return [torch.stack([term.log_mass for term in self.terms])] if self.terms else []

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the known parts of x (n, q): NaN is integrated out."""
        z, log_factor = x[:, self._places()], self._log_factor(x)
        log_p = torch.empty(len(x), dtype=torch.float64)
        for have, _, rows in gap_patterns(z):
            log_p[rows] = self._log_joint(z[rows][:, have], have, log_factor[rows]).logsumexp(1)
        return log_p

    def _log_joint(self, z: Tensor, have: list[int], log_factor: Tensor) -> Tensor:
        """Logarithm (n, K) of the components at some of the lines (n, t)."""
        if not have:
            return self.log_masses() + log_factor
        return log_densities(self._marginal_terms(tuple(have)), z, log_factor + self._level())

    def _level(self) -> Tensor:
        """Logarithm (K,) of what multiplies the terms."""
        return self.derived("level", self._computed_level)

    def _computed_level(self) -> Tensor:
        if self.lines is not None and not len(self.factors) and not self.log_weights.any():
            return -self.lines.log_mass.expand(len(self.log_weights))
        return self.log_masses() - self._term_masses()[0]

    def line(self, number: int) -> BornMixture:
        """Density of one line, by the number of its part."""
        place = self._places().index(number)
        return self.derived(("line", place), lambda: self._sum_of_terms((place,)))

    def sum_of_terms(self) -> BornMixture | None:
        """The same density as a sum of terms, where all parts are lines."""
        if len(self.factors) or self.lines is None:
            return None
        places = tuple(range(len(self.parts)))
        return self.derived("sum", lambda: self._sum_of_terms(places))

    def _sum_of_terms(self, columns: tuple[int, ...]) -> BornMixture:
        terms = zip(self._marginal_terms(columns), self._level(), strict=True)
        shifted = (replace(t, log_coefficient=t.log_coefficient + level) for t, level in terms)
        return BornMixture(shifted, torch.zeros((), dtype=torch.float64))

    def _marginal_terms(self, columns: tuple[int, ...]) -> list[Term]:
        def make() -> list[Term]:
            ordered = self._ordered_terms(columns)
            return [term.marginal(len(columns)) for term in ordered]

        return self.derived(("marginal", columns), make)

    def _ordered_terms(self, first: Sequence[int]) -> list[Term]:
        order = [*first, *(c for c in range(len(self._places())) if c not in first)]
        return self.derived(
            ("ordered", tuple(order)), lambda: [term.reordered(order) for term in self.terms]
        )

    def _places(self) -> list[int]:
        return [k for k, part in enumerate(self.parts) if part.is_line]

    def _others(self) -> list[tuple[int, Factor]]:
        """Numbers of the parts that are no lines, and their laws."""
        numbers = [k for k, part in enumerate(self.parts) if not part.is_line]
        return list(zip(numbers, self.factors, strict=True))  # type: ignore[arg-type]

    def _log_factor(self, x: Tensor) -> Tensor:
        """Logarithm (n, K) of the product of the laws at the known parts."""
        total = torch.zeros(len(x), len(self.log_weights), dtype=torch.float64)
        for part, factor in self._others():
            known = ~x[:, part].isnan()
            total[known] += factor.log_values(x[known, part])
        return total

    def marginal(self, parts: Sequence[int]) -> "FactoredMixture":
        """Density of some parts, in the order given; the others are integrated out exactly."""
        places, factors = self._places(), dict(self._others())
        lines = tuple(places.index(k) for k in parts if k in places)
        kept = [factors[k] for k in parts if k in factors]
        kinds = [self.parts[k] for k in parts]
        if not lines:
            return FactoredMixture(kinds, self.log_masses(), None, kept)
        mixture = BornMixture(self._marginal_terms(lines))
        return FactoredMixture(kinds, self._level(), mixture, kept)

    def condition(self, parts: Sequence[int], values: Tensor) -> "FactoredMixture":
        """Density of the other parts where `parts` have `values` of shape (t,)."""
        row = torch.full((1, len(self.parts)), torch.nan, dtype=torch.float64)
        row[0, list(parts)] = values
        log_factor = self._log_factor(row)[0]
        rest = [k for k in range(len(self.parts)) if k not in parts]
        given = [c for c, k in enumerate(self._places()) if k in parts]
        z = row[0, self._places()][given]
        kinds = [self.parts[k] for k in rest]
        if len(given) == len(self._places()):
            log_weights = self._log_joint(z[None], given, log_factor[None])[0]
            self._check(z, given, log_weights)
            return self._kept(kinds, log_weights, [], rest)
        terms = [term.condition(z) for term in self._ordered_terms(given)]
        log_weights = self._level() + log_factor
        top = torch.stack([term.log_coefficient for term in terms]) + log_weights
        self._check(z, given, top)
        terms = [replace(t, log_coefficient=torch.zeros_like(t.log_coefficient)) for t in terms]
        return self._kept(kinds, top, terms, rest)

    def _check(self, z: Tensor, given: list[int], log_weights: Tensor) -> None:
        """Refuse conditions without a density."""
        if given:
            check_given(self._marginal_terms(tuple(given)), z[None], log_weights.amax()[None])
        if log_weights.amax() == -torch.inf:
            raise ValueError("the density is zero at the condition: no conditional density")

    def _kept(
        self, kinds: list[Part], log_weights: Tensor, terms: list[Term], rest: list[int]
    ) -> "FactoredMixture":
        """Components that are not impossible."""
        keep = (log_weights > -torch.inf).nonzero()[:, 0]
        mixture = BornMixture(terms[k] for k in keep.tolist()) if terms else None
        factors = [factor.select(keep) for part, factor in self._others() if part in rest]
        level = log_weights[keep] - log_weights.amax()
        return FactoredMixture(kinds, level, mixture, factors)

    def fill(self, x: Tensor, generator: Generator) -> Tensor:
        """A copy of x (n, q) with a draw given the known parts of the row in place of NaN."""
        filled, places = x.clone(), self._places()
        z, log_factor = x[:, places], self._log_factor(x)
        component = torch.empty(len(x), dtype=torch.int64)
        for have, lack, rows in gap_patterns(z):
            chosen, drawn = self._draw(z[rows][:, have], have, log_factor[rows], generator)
            component[rows] = chosen
            if lack:
                at = rows.nonzero(), torch.tensor([places[c] for c in lack])
                filled[at] = drawn
        for part, factor in self._others():
            missing = x[:, part].isnan()
            if missing.any():
                filled[missing, part] = factor.draw(component[missing], generator)
        return filled

    def _draw(
        self, z: Tensor, have: list[int], log_factor: Tensor, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """Components (n,), and the other lines, given some of them (n, t) and the factors."""
        terms = self._ordered_terms(have)
        if have:
            marginal = self._marginal_terms(tuple(have))
            u = [term.whiten(z) for term in marginal]
            found = [term.log_prefactor(v) for term, v in zip(marginal, u, strict=True)]
            log_prefactors = torch.stack(found, 1) + log_factor + self._level()
            check_given(marginal, z, log_prefactors.amax(1))
            log_means = log_values(marginal, u, log_prefactors)
            log_share = log_prefactors + log_means
        else:
            log_share = self.log_masses() + log_factor
            coefficients = [t.log_coefficient for t in terms]
            log_means = log_share.new_zeros(log_share.shape)
            if terms:
                log_means = log_means + self._term_masses()[0] - torch.stack(coefficients)
        chosen = torch.multinomial(log_share.softmax(1), 1, generator=generator)[:, 0]
        drawn = torch.empty(len(z), len(self._places()) - len(have), dtype=torch.float64)
        if drawn.shape[1]:
            for k in chosen.unique().tolist():
                rows = chosen == k
                mean_q = log_means[rows, k].exp()
                drawn[rows] = sampling.sample_term(terms[k], z[rows], mean_q, generator)
        return chosen, drawn

    def probability(self, regions: Sequence[Region]) -> tuple[Tensor, Tensor]:
        """Probabilities (n,) of products of regions, and their errors, zero where exact."""
        n = max((len(region) for region in regions if region is not None), default=1)
        weights = torch.ones(n, len(self.log_weights), dtype=torch.float64)
        for part, factor in self._others():
            region = regions[part]
            if region is not None:
                weights = weights * factor.masses(region)
        infinite = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64).expand(n, 2)
        ends = [regions[k] if regions[k] is not None else infinite for k in self._places()]
        if len(self.parts) == 1 and ends:
            return self.line(0).probability(*ends[0].T[:, :, None])  # type: ignore[union-attr]
        value = weights @ self.log_masses().exp()
        error = torch.zeros_like(value)
        if not ends:
            return value.clamp(0, 1), error
        lower, upper = torch.stack(ends, 1).unbind(2)  # type: ignore[arg-type]
        free = (lower == -torch.inf) & (upper == torch.inf)
        marks = torch.where(free, torch.nan, 0.0)
        for columns, _, rows in gap_patterns(marks):
            if columns:
                low, high = lower[rows][:, columns], upper[rows][:, columns]
                shares = weights[rows] * self._level().exp()
                terms = self._marginal_terms(tuple(columns))
                value[rows], error[rows] = box_probability(terms, low, high, shares)
        return value.clamp(0, 1), error

    def quadrature(
        self, part: int, breaks: Tensor, *, plane: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Nodes and weights (m,) for integrals over a part."""
        if self.parts[part] != LINE:
            return dict(self._others())[part].rule()
        return panel_rule(self.line(part), breaks, plane=plane)

    def rule_given(self, given: Tensor, breaks: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes and masses (n, m) of the last part, row by row given the others (n, q − 1)."""
        last = len(self.parts) - 1
        if not last or self.parts[last] != LINE:
            return super().rule_given(given, breaks)
        log_given = self.log_prob(torch.cat([given, torch.full_like(given[:, :1], torch.nan)], 1))
        places = [k for k in self._places() if k < last]
        if places:
            terms = self._marginal_terms(tuple(range(len(places))))
            check_given(terms, given[:, places], log_given)

        def log_prob_at(z: Tensor) -> Tensor:
            n, m = z.shape
            rows = torch.cat([given.repeat_interleave(m, 0), z.reshape(-1, 1)], 1)
            log_p = torch.cat([self.log_prob(part) for part in rows.split(MAX_ROWS)])
            return log_p.reshape(n, m) - log_given[:, None]

        return row_rules(self.line(last), breaks, log_prob_at, len(given))

    def ppf(self, q: Tensor) -> Tensor:
        """Quantiles (n,) of one part."""
        return self.line(0).ppf(q) if self.parts[0] == LINE else super().ppf(q)
