r"""Mixtures of parts: sums of terms on the lines, times independent laws of all other parts.

.. math:: p(x) = \sum_k e^{\lambda_k}\, T_k(x_{\text{lines}}, x_{\text{waves}}) \prod_t f_{kt}(x_t)

with the terms :math:`T_k` of a :class:`~qaffde.nn.BornMixture` and one-part laws :math:`f_{kt}`.
The phases of the waves of a term may also depend on other parts: :math:`\theta = Wu + b + Vv` with
the codes and turns v of some of them. To integrate one of those out multiplies coefficients by the
characteristic function of its law, to fix one moves phases. All other parts are independent of all
else within a component, so every operation on them only changes the weights of the terms.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import torch
from torch import Generator, Tensor, nn

from qaffde.nn.calculus.base_laws import NormalLaw, PartLaw, ProductLaw
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
CIRCLE_NODES = 2048
"""On a circle: more than its waves and laws have turns."""
MAX_PAIRS = 1 << 18
"""Rows and points that draws evaluate at once."""


def product_laws(found: Sequence[list[PartLaw]]) -> list[ProductLaw]:
    """One law of several parts for each component, from those of each part."""
    return [ProductLaw(laws) for laws in zip(*found, strict=True)]


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
    waves : sequence of int, default=()
        Numbers of the other parts that phases depend on: columns of the terms from outside.

    Examples
    --------
    >>> from qaffde.nn import CodeFactor
    >>> coin = CodeFactor(torch.tensor([[0.25, 0.75]]).double().log())
    >>> density = FactoredMixture([coin.part], torch.zeros(1).double(), None, [coin])
    >>> density.log_prob(torch.tensor([[1.0], [torch.nan]]).double()).exp()
    tensor([0.7500, 1.0000], dtype=torch.float64)
    """

    log_weights: Tensor
    factors: Sequence[Factor]

    def __init__(
        self,
        parts: Sequence[Part],
        log_weights: Tensor,
        lines: BornMixture | None,
        factors: Iterable[Factor],
        waves: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.parts, self.waves = tuple(parts), list(waves)
        self.lines = lines
        self.factors = nn.ModuleList(factors)  # type: ignore[assignment]
        self.register_buffer("log_weights", log_weights)

    @property
    def mixture(self) -> BornMixture:
        """The components as terms of the lines, which are terms of no columns without lines."""
        return self._sum(range(len(self._places())), ())

    def _sum(self, lines: Sequence[int], waves: Sequence[int]) -> BornMixture:
        """Terms of some lines, in this order, and of the waves of some parts."""
        d = len(self._places())

        def make() -> BornMixture:
            order = [*lines, *(c for c in range(d) if c not in lines)]
            terms = [term.reordered(order).marginal(len(lines)) for term in self._over(waves)]
            if waves or len(lines) < d:
                return BornMixture(terms, None if waves else self.mixture.log_mass)
            found = BornMixture(terms)
            if len(self.factors):  # a factor may leave nothing but what is negligible without it
                found.log_masses = torch.stack([term.log_mass for term in found.terms])
            elif self.lines is not None and not self.log_weights.any():
                found.log_mass = self.lines.log_mass
            return found

        usual = len(waves) in (0, len(self.waves)) if len(lines) == d else len(lines) == 1
        is_kept = usual or not self.waves  # others are many, and large
        return self.derived(("sum", *lines, -1, *waves), make) if is_kept else make()

    def _over(self, waves: Sequence[int], regions: Mapping[int, Tensor] = {}) -> list[Term]:
        """Terms of the lines and of the waves of some parts; the others are integrated out.

        Over a region, of shape (C,) or (2,), or over all of a part.
        """
        if self.lines is None:
            none = self.log_weights.new_zeros(0)
            nothing = none, none.reshape(0, 0), constant_form(0)
            return [Term(w, NormalLaw(), *nothing) for w in self.log_weights]
        weighted = zip(self.lines.terms, self.log_weights, strict=True)
        terms, factors = [term.times(w) for term, w in weighted], dict(self._others())
        lost = [k for k in self.waves if k not in waves]
        if not lost:
            return terms
        laws = product_laws([factors[k].laws(regions.get(k)) for k in lost])
        columns = [self.lines.n_dims + self.waves.index(k) for k in lost]
        return [term.averaged(columns, law) for term, law in zip(terms, laws, strict=True)]

    def affine(self, location: Tensor, scale: Tensor) -> "FactoredMixture":
        """The density of location + scale·x, of shapes (q,); of lines only they matter."""
        places, lines = self._places(), self.lines
        if lines is not None:
            lines = lines.affine(location[places], scale[places])
        return FactoredMixture(self.parts, self.log_weights, lines, self.factors, self.waves)

    def sum_of_terms(self) -> BornMixture | None:
        """The same density as a sum of terms, where all parts are lines."""
        return None if len(self.factors) or self.lines is None else self.mixture

    def _line(self, part: int) -> BornMixture:
        """Density of one line, by the number of its part."""
        return self._sum([self._places().index(part)], ())

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the known parts of x (n, q): NaN is integrated out."""
        numbers, n_lines = [*self._places(), *self.waves], len(self._places())
        z, log_factor = x[:, numbers], self._log_factor(x)
        log_p = torch.empty(len(x), dtype=torch.float64)
        for have, _, rows in gap_patterns(z):
            log_joint = self.mixture.log_masses + log_factor[rows]
            if have:
                waves = [numbers[c] for c in have if c >= n_lines]
                terms = self._sum([c for c in have if c < n_lines], waves).terms
                log_joint = log_densities(terms, z[rows][:, have], log_factor[rows])
            log_p[rows] = log_joint.logsumexp(1)
        return log_p - self.mixture.log_mass

    def log_prob_complete(self, x: Tensor) -> Tensor:
        """Log-density (n,) of rows (n, q) without gaps, by operations that do not see values."""
        places, total = self._places(), 0 * self.log_weights - self.mixture.log_mass
        for part, factor in self._others():
            total = total + factor.log_values(x[:, part])
        z, terms = x[:, [*places, *self.waves]], self._sum(range(len(places)), self.waves).terms
        values = (t.log_density(z) if places else t.log_values_outside(z) for t in terms)
        return reduce(torch.logaddexp, (v + total[..., k] for k, v in enumerate(values)))

    @property
    def is_gaussian(self) -> bool:
        """Whether the terms are Gaussians alone."""
        terms = self.mixture.terms
        has_waves = bool(self.waves) or any(term.form.W.any() for term in terms)
        return not has_waves and all(isinstance(term.law, NormalLaw) for term in terms)

    def log_prob_gaussian(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the known parts of x (n, q), by operations that do not see values.

        The terms are Gaussians alone. A known line is eliminated from the mean and covariance of
        the lines behind it, row by row: Schur complements, without a pattern of gaps.
        """
        terms, places = self.mixture.terms, self._places()
        total = torch.stack([t.log_mass for t in terms]) - self.mixture.log_mass
        for part, factor in self._others():
            gap = x[:, part].isnan()
            log_values = factor.log_values(torch.where(gap, 0.0, x[:, part]))
            total = total + torch.where(gap[:, None], 0.0, log_values)
        if not places:
            return total.logsumexp(1)
        z = x[:, places][:, None]  # (n, 1, c)
        r = z - torch.stack([t.offset for t in terms])
        S = torch.stack([t.scale @ t.scale.mT for t in terms])[None]  # (n, K, c, c)
        for j in range(len(places)):
            gap, column, own = z[..., j].isnan(), S[..., j], r[..., j]
            variance = column[..., j]
            square = own * own / variance + (2 * math.pi * variance).log()
            total = total + torch.where(gap, 0.0, -0.5 * square)
            slope = column / variance[:, :, None]
            r = torch.where(gap[:, :, None], r, r - own[:, :, None] * slope)
            less = slope[:, :, :, None] * column[:, :, :, None].mT
            S = torch.where(gap[:, :, None, None], S, S - less)
        return total.logsumexp(1)

    def _places(self) -> list[int]:
        return [k for k, part in enumerate(self.parts) if part.is_line]

    def _others(self) -> list[tuple[int, Factor]]:
        """Numbers of the parts that are no lines, and their laws."""
        numbers = [k for k, part in enumerate(self.parts) if not part.is_line]
        return list(zip(numbers, self.factors, strict=True))

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
        lines = [places.index(k) for k in parts if k in places]
        waves = [k for k in self.waves if k in parts]
        kept = [factors[k] for k in parts if k in factors]
        kinds = [self.parts[k] for k in parts]
        if not lines and not waves:
            return FactoredMixture(kinds, self.mixture.log_masses, None, kept)
        terms, numbers = self._sum(lines, waves), [list(parts).index(k) for k in waves]
        return FactoredMixture(kinds, 0 * self.log_weights, terms, kept, numbers)

    def condition(self, parts: Sequence[int], values: Tensor) -> "FactoredMixture":
        """Density of the other parts where `parts` have `values` of shape (t,)."""
        row = torch.full((1, len(self.parts)), torch.nan, dtype=torch.float64)
        row[0, list(parts)] = values
        rest = [k for k in range(len(self.parts)) if k not in parts]
        given = [c for c, k in enumerate(self._places()) if k in parts]
        order = [*given, *(c for c in range(len(self._places())) if c not in given)]
        terms, waves = self._sum(order, self.waves).terms, [k for k in self.waves if k in rest]
        if len(waves) < len(self.waves):
            fixed = {len(order) + self.waves.index(k): row[0, k] for k in self.waves if k in parts}
            terms = [term.fixed(fixed) for term in terms]
        terms = conditional_terms(terms, row[0, self._places()][given], self._log_factor(row)[0])
        has_terms = terms[0].n_dims > 0 or bool(waves)
        level = torch.stack([term.log_coefficient for term in terms])
        if not has_terms:
            level = BornMixture(terms).log_masses
        keep = (level > -torch.inf).nonzero()[:, 0]
        if not len(keep):
            raise ValueError("the density is zero at the condition: no conditional density")
        lines = BornMixture(terms[k] for k in keep.tolist()) if has_terms else None
        factors = [factor.select(keep) for part, factor in self._others() if part in rest]
        log_weights = 0 * level[keep] if has_terms else level[keep]
        kinds, numbers = [self.parts[k] for k in rest], [rest.index(k) for k in waves]
        return FactoredMixture(kinds, log_weights, lines, factors, numbers)

    def fill(self, x: Tensor, generator: Generator) -> Tensor:
        """A copy of x (n, q) with a draw given the known parts of the row in place of NaN."""
        filled, numbers, n_lines = x.clone(), [*self._places(), *self.waves], len(self._places())
        z, log_factor = x[:, numbers], self._log_factor(x)
        component = torch.empty(len(x), dtype=torch.int64)
        for have, lack, rows in gap_patterns(z):
            lines, missing = ([c for c in part if c < n_lines] for part in (have, lack))
            waves, unknown = ([numbers[c] for c in part if c >= n_lines] for part in (have, lack))
            mixture, own = self._sum([*lines, *missing], waves), z[rows]
            outside = x[rows][:, waves] if waves else None
            component[rows], drawn = mixture.draw_given(
                own[:, lines], generator, log_factor[rows], outside
            )
            if missing:
                filled[rows.nonzero(), torch.tensor([numbers[c] for c in missing])] = drawn
            for part in unknown:
                filled[rows, part] = self._draw_wave(
                    filled[rows], component[rows], part, generator
                )
        for part, factor in self._others():
            missing_rows = filled[:, part].isnan()
            if missing_rows.any():
                filled[missing_rows, part] = factor.draw(component[missing_rows], generator)
        return filled

    def _draw_wave(self, x: Tensor, component: Tensor, part: int, generator: Generator) -> Tensor:
        """Draws (n,) of a part from components (n,), given lines and the known ones of waves."""
        known = [k for k in self.waves if k == part or not x[:1, k].isnan()]
        numbers, size = [*self._places(), *known], self.parts[part].size
        terms = self._sum(range(len(self._places())), known).terms
        points = torch.arange(size or CIRCLE_NODES, dtype=torch.float64)
        points = points if size else points / CIRCLE_NODES
        mass = dict(self._others())[part].log_values(points).exp().T
        drawn, step = x.new_empty(len(x)), max(1, MAX_PAIRS // len(points))
        for k in component.unique().tolist():
            for rows in (component == k).nonzero()[:, 0].split(step):
                joint = x[rows].repeat_interleave(len(points), 0)
                joint[:, part] = points.repeat(len(rows))
                q = terms[k].values(terms[k].whiten(joint[:, numbers]))
                level = torch.rand(len(rows), 1, generator=generator, dtype=torch.float64)
                draw = _draw_codes if size else _draw_turns
                drawn[rows] = draw(q.reshape(len(rows), -1) * mass[k], level)
        return drawn

    def probability(self, regions: Sequence[Region]) -> tuple[Tensor, Tensor]:
        """Probabilities (n,) of products of regions, and their errors, zero where exact."""
        n = max((len(region) for region in regions if region is not None), default=1)
        if len(self.parts) == 1 and self.waves and regions[0] is not None:
            return self._probability_of_one(regions[0])
        shares = None
        for part, factor in self._others():
            region = regions[part]
            if region is not None and part not in self.waves:
                masses = factor.masses(region)
                shares = masses if shares is None else shares * masses
        infinite = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)
        ends = torch.empty(n, self.mixture.n_dims, 2, dtype=torch.float64)
        for column, part in enumerate(self._places()):
            region = regions[part]
            ends[:, column] = infinite if region is None else region
        inside = {k: region for k in self.waves if (region := regions[k]) is not None}
        if not inside:
            return self.mixture.probability(ends[..., 0], ends[..., 1], shares)
        value, error = torch.zeros(2, n, dtype=torch.float64)
        every = torch.cat([region.double().expand(n, -1) for region in inside.values()], 1)
        number = every.unique(dim=0, return_inverse=True)[1]
        for group in range(int(number.max()) + 1):
            rows = (number == group).nonzero()[:, 0]
            first = {k: region.expand(n, -1)[rows[0]] for k, region in inside.items()}
            mixture = BornMixture(self._over((), first))
            if mixture.log_masses.max() > -torch.inf:
                share = (mixture.log_mass - self.mixture.log_mass).exp()
                own = None if shares is None else shares.expand(n, -1)[rows]
                found = mixture.probability(ends[rows, :, 0], ends[rows, :, 1], own)
                value[rows], error[rows] = (share * part for part in found)
        return value, error

    def _probability_of_one(self, region: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of regions of the only part, from its density at points."""
        if self.parts[0].size:
            codes = torch.arange(self.parts[0].size, dtype=torch.float64)
            value = region.double() @ self.log_prob(codes[:, None]).exp()
        else:
            nodes = torch.arange(CIRCLE_NODES, dtype=torch.float64) / CIRCLE_NODES
            c = torch.fft.rfft(self.log_prob(nodes[:, None]).exp(), norm="forward")
            turns = 2j * torch.pi * torch.arange(1, len(c), dtype=torch.float64)
            low, high = (
                torch.cat([(turns * u[:, None]).exp() @ (c[1:] / turns) for u in end.split(1024)])
                for end in region.T
            )
            value = (region[:, 1] - region[:, 0]) * c[0].real + 2 * (high - low).real
        return value.clamp(0, 1), torch.zeros_like(value)

    def inner_product(
        self, other: "FactoredMixture", codes: Mapping[int, int], lines: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Integral of the product with a density of the same parts, and its error.

        Neither may have waves over its other parts.

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
            own, its = self._sum(lines, ()), other._sum(lines, ())
            return inner_product(own, [its], weights)
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


def _draw_codes(mass: Tensor, level: Tensor) -> Tensor:
    """Codes (n,) at levels (n, 1) of their masses (n, C)."""
    total = mass.cumsum(1)
    place = torch.searchsorted(total, level * total[:, -1:], right=True)
    return place[:, 0].clamp(max=mass.shape[1] - 1).double()


def _draw_turns(density: Tensor, level: Tensor) -> Tensor:
    """Points (n,) of a circle at levels (n, 1) of densities (n, m) at even points.

    The density is a straight line from one point to the next.
    """
    after, m = density.roll(-1, 1), density.shape[1]
    total = torch.nn.functional.pad(((density + after) / 2).cumsum(1), (1, 0))
    level = level * total[:, -1:]
    place = (torch.searchsorted(total, level, right=True) - 1).clamp(max=m - 1)
    a, b = density.gather(1, place), after.gather(1, place)
    rest = level - total.gather(1, place)  # a t + (b − a) t²/2
    root = (a.square() + 2 * (b - a) * rest).clamp(min=0).sqrt()
    step = 2 * rest / (a + root).clamp(min=1e-300)
    return ((place + step.clamp(0, 1)) / m)[:, 0] % 1
