r"""Mixtures of parts: sums of terms on the lines, times independent laws of all other parts.

.. math:: p(x) = \sum_k e^{\lambda_k}\, T_k(x_{\text{lines}}) \prod_t f_{kt}(x_t)

with the terms :math:`T_k` of a :class:`~qaffde.nn.BornMixture` and one-part laws :math:`f_{kt}`.
Within a component the parts other than lines are independent of all else, so every operation on
them only changes the weights of the terms.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Generator, Tensor, nn

from qaffde.nn.calculus.base_laws import NormalLaw
from qaffde.nn.calculus.inner_products import inner_product
from qaffde.nn.calculus.mixture import (
    BornMixture,
    conditional_terms,
    constant_form,
    log_densities,
)
from qaffde.nn.calculus.terms import Term
from qaffde.nn.parts import LINE, Factor, Part, PartsDensity, Region, gap_patterns

TAILS = (1e-9, 1e-6, 1e-4, 1e-3, 0.01)
"""Quantiles, and the same from above, at which panels of a quadrature end."""
N_PANELS = 16
"""Between quantiles at even levels, and as many of even width for gaps between modes."""


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
    def mixture(self) -> BornMixture:
        """The components as terms of the lines, which are terms of no columns without lines."""
        return self.derived("mixture", self._mixture)

    def _mixture(self) -> BornMixture:
        if self.lines is None:
            none = self.log_weights.new_zeros(0)
            nothing = none, none.reshape(0, 0), constant_form(0)
            mixture = BornMixture(Term(w, NormalLaw(), *nothing) for w in self.log_weights)
        elif self.log_weights.any():
            terms = zip(self.lines.terms, self.log_weights, strict=True)
            mixture = BornMixture(term.times(log_weight) for term, log_weight in terms)
        else:
            mixture = BornMixture(self.lines.terms, self.lines.log_mass)
        if len(self.factors):  # a factor may leave nothing but what is negligible without it
            mixture.log_masses = torch.stack([term.log_mass for term in mixture.terms])
        return mixture

    def sum_of_terms(self) -> BornMixture | None:
        """The same density as a sum of terms, where all parts are lines."""
        return None if len(self.factors) or self.lines is None else self.mixture

    def _marginal(self, columns: Sequence[int]) -> BornMixture:
        """Density of some of the lines."""
        return self.derived(("marginal", *columns), lambda: self.mixture.marginal(columns))

    def _ordered(self, first: Sequence[int]) -> BornMixture:
        """Density of the lines, some of them first."""
        order = [*first, *(c for c in range(self.mixture.n_dims) if c not in first)]
        return self.derived(("ordered", *order), lambda: self.mixture.reordered(order))

    def _line(self, part: int) -> BornMixture:
        """Density of one line, by the number of its part."""
        return self._marginal([self._places().index(part)])

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the known parts of x (n, q): NaN is integrated out."""
        z, log_factor = x[:, self._places()], self._log_factor(x)
        log_p = torch.empty(len(x), dtype=torch.float64)
        for have, _, rows in gap_patterns(z):
            log_joint = self.mixture.log_masses + log_factor[rows]
            if have:
                terms = self._marginal(have).terms
                log_joint = log_densities(terms, z[rows][:, have], log_factor[rows])
            log_p[rows] = log_joint.logsumexp(1)
        return log_p - self.mixture.log_mass

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
            return FactoredMixture(kinds, self.mixture.log_masses, None, kept)
        return FactoredMixture(kinds, 0 * self.log_weights, self._marginal(lines), kept)

    def condition(self, parts: Sequence[int], values: Tensor) -> "FactoredMixture":
        """Density of the other parts where `parts` have `values` of shape (t,)."""
        row = torch.full((1, len(self.parts)), torch.nan, dtype=torch.float64)
        row[0, list(parts)] = values
        rest = [k for k in range(len(self.parts)) if k not in parts]
        given = [c for c, k in enumerate(self._places()) if k in parts]
        terms = conditional_terms(
            self._ordered(given).terms, row[0, self._places()][given], self._log_factor(row)[0]
        )
        has_lines = terms[0].n_dims > 0
        level = torch.stack([term.log_coefficient for term in terms])
        if not has_lines:
            level = BornMixture(terms).log_masses
        keep = (level > -torch.inf).nonzero()[:, 0]
        if not len(keep):
            raise ValueError("the density is zero at the condition: no conditional density")
        lines = BornMixture(terms[k] for k in keep.tolist()) if has_lines else None
        factors = [factor.select(keep) for part, factor in self._others() if part in rest]
        log_weights = 0 * level[keep] if has_lines else level[keep]
        return FactoredMixture([self.parts[k] for k in rest], log_weights, lines, factors)

    def fill(self, x: Tensor, generator: Generator) -> Tensor:
        """A copy of x (n, q) with a draw given the known parts of the row in place of NaN."""
        filled, places = x.clone(), self._places()
        z, log_factor = x[:, places], self._log_factor(x)
        component = torch.empty(len(x), dtype=torch.int64)
        for have, lack, rows in gap_patterns(z):
            component[rows], drawn = self._ordered(have).draw_given(
                z[rows][:, have], generator, log_factor[rows]
            )
            if lack:
                filled[rows.nonzero(), torch.tensor([places[c] for c in lack])] = drawn
        for part, factor in self._others():
            missing = x[:, part].isnan()
            if missing.any():
                filled[missing, part] = factor.draw(component[missing], generator)
        return filled

    def probability(self, regions: Sequence[Region]) -> tuple[Tensor, Tensor]:
        """Probabilities (n,) of products of regions, and their errors, zero where exact."""
        n = max((len(region) for region in regions if region is not None), default=1)
        shares = None
        for part, factor in self._others():
            region = regions[part]
            if region is not None:
                masses = factor.masses(region)
                shares = masses if shares is None else shares * masses
        infinite = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)
        ends = torch.empty(n, self.mixture.n_dims, 2, dtype=torch.float64)
        for column, part in enumerate(self._places()):
            region = regions[part]
            ends[:, column] = infinite if region is None else region
        return self.mixture.probability(ends[:, :, 0], ends[:, :, 1], shares)

    def inner_product(
        self, other: "FactoredMixture", codes: Mapping[int, int], lines: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Integral of the product with a density of the same parts, and its error.

        Parameters
        ----------
        other : FactoredMixture
        codes : dict of {int: int}
            Numbers of parts that have one code, and are not summed over.
        lines : sequence of int
            Of the lines; the other lines are integrated out of both densities first.
        """
        weights = torch.ones(1, 1, dtype=torch.float64)
        for (part, factor), (_, law) in zip(self._others(), other._others(), strict=True):
            if part in codes:
                code = torch.tensor([codes[part]])
                at = factor.log_values(code).exp().T * law.log_values(code).exp()
            weights = weights * (at if part in codes else factor.overlaps(law))
        if lines:
            return inner_product(self._marginal(lines), [other._marginal(lines)], weights)
        masses = self.mixture.weights[:, None] * other.mixture.weights
        return (masses * weights).sum(), torch.zeros((), dtype=torch.float64)

    def edges(self, part: int, *, plane: bool) -> Tensor:
        """Ends (k,) of panels of a line: quantiles, ends of its terms, and steps to the last."""
        line, even = self._line(part), torch.linspace(0, 1, N_PANELS + 1, dtype=torch.float64)
        tails = torch.tensor(TAILS, dtype=torch.float64)
        inner = line.ppf(torch.cat([tails, even[1:-1], 1 - tails]))
        reach = torch.stack([term.reach[:, 0] for term in line.terms])
        low, high = reach[:, 0].min(), reach[:, 1].max()
        gaps = torch.lerp(inner.min(), inner.max(), even[:1] if plane else even)
        steps = torch.linspace(0, 1, 9, dtype=torch.float64)
        far = torch.lerp(low, inner.min(), steps), torch.lerp(inner.max(), high, steps)
        ends = [term.reach[:, 0] for term in line.terms if term.law.bounded]
        return torch.cat([inner, gaps, *far, *ends]).clamp(low, high).unique()

    def ppf(self, q: Tensor) -> Tensor:
        """Quantiles (n,) of one part."""
        return self._line(0).ppf(q) if self.parts[0] == LINE else super().ppf(q)
