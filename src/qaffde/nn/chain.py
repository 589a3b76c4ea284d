r"""Chains: the joint density of many parts as a product of conditional Born densities.

.. math:: p(x) = \prod_t p(x_t \mid x_1, \dots, x_{t-1})

One masked network (Germain et al., 2015; Nash and Durkan, 2019) reads all parts, and gives for
each the numbers of its conditional density (:mod:`qaffde.nn.conditional`) from the parts before it
only. Log-densities and draws are exact, and so are marginals and conditionals of the parts that
come first; others would take integrals that a network does not have.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from qaffde.kinds import Category, Kind, Periodic, Real
from qaffde.nn.conditional import PANELS, BornConditional, BornHead, Target
from qaffde.nn.parts import Part, PartsDensity, Region

GIVEN = -1
"""Place of a part that has a fixed value."""
BLOCK_NUMBERS = 2**22
"""Numbers of conditional densities that are computed at once."""
MAX_CASES = 10_000
"""Combinations of codes that a probability sums over."""
FAR = 8.0
"""Values further from zero are as far, for the parts behind."""
LEADING = (
    "a chain has exact marginals and conditionals of its first columns only; put them first "
    "(`order`), or fit QAFFDE, QAFFDESGD or QAFFDETensorTrain, which have all of them"
)


class MaskedLinear(nn.Linear):
    """Linear layer whose outputs see the inputs of no larger, or of smaller, degree only."""

    mask: Tensor

    def __init__(self, seen: Tensor, own: Tensor, *, strict: bool = False) -> None:
        super().__init__(len(seen), len(own))
        mask = seen < own[:, None] if strict else seen <= own[:, None]
        self.register_buffer("mask", mask.to(self.weight.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, o) of inputs (n, i)."""
        return F.linear(x, self.weight * self.mask, self.bias)


class MaskedNetwork(nn.Module):
    """Residual network from inputs of parts to numbers for each, that see the parts before it.

    Parameters
    ----------
    n_inputs, n_outputs : sequences of int
        Of each part.
    width, n_blocks : int
        Of the hidden layers, and residual blocks of two each.
    dropout : float, default=0.0
    """

    def __init__(
        self,
        n_inputs: Sequence[int],
        n_outputs: Sequence[int],
        width: int,
        n_blocks: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.n_inputs, self.n_outputs = list(n_inputs), list(n_outputs)
        self.width, self.n_blocks, self.dropout = width, n_blocks, dropout
        number = torch.arange(len(n_inputs))
        seen, asked = (number.repeat_interleave(torch.tensor(s)) for s in (n_inputs, n_outputs))
        hidden = torch.arange(width) % max(1, len(n_inputs) - 1)
        self.first = MaskedLinear(seen, hidden)
        self.blocks = nn.ModuleList(MaskedLinear(hidden, hidden) for _ in range(2 * n_blocks))
        self.last = MaskedLinear(hidden, asked, strict=True)

    @property
    def layers(self) -> list[MaskedLinear]:
        """All linear layers, the first and the last one included."""
        return [self.first, *self.blocks, self.last]

    def forward(self, e: Tensor) -> Tensor:
        """Numbers (n, Σ o) of the conditional densities from inputs (n, Σ i)."""
        h = self.first(e)
        for first, second in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            inner = F.dropout(F.silu(first(F.silu(h))), self.dropout, self.training)
            h = h + second(inner)
        return self.last(F.silu(h))


class Chain(PartsDensity):
    """Density of parts, each given those before it in the order of the chain.

    Parameters
    ----------
    network : MaskedNetwork
    links : iterable of Part
        Parts in the order of the chain.
    shape : tuple of int, default=(8, 12, 2)
        C, K and r of their densities, as in :class:`ConditionalBorn`.
    places : sequence of int, optional
        Number of each part among the columns of the rows, −1 where it has a fixed value; by
        default their order. Parts of the network behind the last one are integrated out.
    given : Tensor, optional
        Fixed values, of as many parts.
    optional : sequence of int
        Parts, by their place in the chain, that rows do not have where the part before is 1: lines
        beside an atom.

    Examples
    --------
    >>> from qaffde.nn.parts import LINE
    >>> _ = torch.manual_seed(0)
    >>> chain, x = Chain.of([LINE] * 3, width=16, n_blocks=1), torch.randn(1, 3).double()
    >>> given = chain.condition([0], x[0, :1]).log_prob(x[:, 1:])
    >>> torch.allclose(chain.log_prob(x), given + chain.marginal([0]).log_prob(x[:, :1]))
    True
    """

    heads: Any
    given: Tensor

    def __init__(
        self,
        network: MaskedNetwork,
        links: Iterable[Part],
        shape: tuple[int, int, int] = (8, 12, 2),
        places: Sequence[int] | None = None,
        given: Tensor | None = None,
        optional: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.network, self.links, self.shape = network, list(links), shape
        self.heads = nn.ModuleList(head_of(part, shape) for part in self.links)
        self.places = list(range(len(self.links))) if places is None else list(places)
        self.optional = list(optional)
        nothing = torch.full((len(self.places),), torch.nan, dtype=torch.float64)
        self.register_buffer("given", nothing if given is None else given)
        self._ends = [0, *accumulate(network.n_outputs)]

    @classmethod
    def of(
        cls,
        links: Sequence[Part],
        shape: tuple[int, int, int] = (8, 12, 2),
        *,
        width: int,
        n_blocks: int,
        dropout: float = 0.0,
        n_waves: int = 8,
        **parameters: Any,
    ) -> "Chain":
        """A chain of parts with a new network, which sees so many cosines of a line."""
        n_inputs = [n_inputs_of(part, n_waves) for part in links]
        n_outputs = [head_of(part, shape).n_inputs for part in links]
        network = MaskedNetwork(n_inputs, n_outputs, width, n_blocks, dropout).double()
        return cls(network, links, shape, **parameters)

    @property
    def n_dims(self) -> int:
        """The number of parts of a row."""
        return sum(place != GIVEN for place in self.places)

    @property
    def parts(self) -> tuple[Part, ...]:  # type: ignore[override]
        """Kinds of the parts of a row."""
        own = dict(zip(self.places, self.links, strict=False))
        return tuple(own[k] for k in range(self.n_dims))

    def _with(self, places: Sequence[int], given: Tensor) -> "Chain":
        return Chain(self.network, self.links, self.shape, places, given, self.optional)

    def _filled(self, x: Tensor) -> Tensor:
        """Values (n, m) in the order of the chain of rows (n, d)."""
        z = self.given.expand(len(x), -1).clone()
        for t, place in enumerate(self.places):
            if place != GIVEN:
                z[:, t] = x[:, place]
        return z

    def _absent(self, z: Tensor) -> Tensor:
        """Whether values (n, m) are lines beside an atom that is there."""
        absent = torch.zeros_like(z, dtype=torch.bool)
        for t in self.optional:
            if t < z.shape[1]:
                absent[:, t] = z[:, t - 1] == 1
        return absent

    def inputs(self, z: Tensor) -> Tensor:
        """What the network sees of values (n, m), zero of those that are missing."""
        parts = zip(self.links, z.T, self.network.n_inputs, strict=False)
        found = [inputs_of(part, values, size) for part, values, size in parts]
        e = torch.cat(found, 1).to(self.network.first.weight)
        return F.pad(e, (0, sum(self.network.n_inputs) - e.shape[1]))

    def density_of(self, t: int, numbers: Tensor) -> Any:
        """Conditional density of a part of the chain from the numbers (n, Σ o) of all."""
        return self.heads[t](numbers[:, self._ends[t] : self._ends[t + 1]])

    def log_terms(self, z: Tensor) -> Tensor:
        """Log-densities (n, m) of each value given those before it, zero where it is missing."""
        numbers = self.network(self.inputs(z))
        known, terms = ~z.isnan(), [numbers.new_empty(len(z))] * z.shape[1]
        lines = [t for t in range(z.shape[1]) if self.links[t].is_line]
        if lines:  # all at once
            own = [numbers[:, self._ends[t] : self._ends[t + 1]] for t in lines]
            found = self.heads[lines[0]](torch.stack(own, 1)).log_prob(z[:, lines].nan_to_num(0.0))
            for t, term in zip(lines, found.T, strict=True):
                terms[t] = term
        for t in set(range(z.shape[1])) - set(lines):
            terms[t] = self.density_of(t, numbers).log_prob(z[:, t].nan_to_num(0.0))
        return torch.where(known, torch.stack(terms, 1), 0.0)

    @torch.no_grad()
    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the known parts of x (n, d), which come first in the chain."""
        if not len(x):
            return x.new_zeros(0)
        free = torch.tensor([place != GIVEN for place in self.places])
        z = self._filled(x)
        behind = (z.isnan() & ~self._absent(z)).cumsum(1) > 0
        if (behind & ~z.isnan()).any():
            raise ValueError(LEADING)
        blocks = z.split(max(1, BLOCK_NUMBERS // self._ends[-1]))
        return torch.cat([self.log_terms(rows)[:, free].sum(1) for rows in blocks])

    def _leading(self, parts: Sequence[int]) -> int:
        """Length of the chain up to the last of some parts, which must be its first."""
        at = [t for t, place in enumerate(self.places) if place in parts]
        end = max(at, default=-1) + 1
        if any(place not in (GIVEN, *parts) for place in self.places[:end]):
            raise ValueError(LEADING)
        return end

    def marginal(self, parts: Sequence[int]) -> "Chain":
        """Density of the first parts of the chain, in the order given."""
        end, new = self._leading(parts), {part: k for k, part in enumerate(parts)}
        places = [new.get(place, GIVEN) for place in self.places[:end]]
        return self._with(places, self.given[:end])

    def condition_known(self, parts: Sequence[int], values: Tensor) -> "Chain":
        """Density of the others where the first parts have values (t,), NaN beside an atom."""
        self._leading(parts)
        given = self.given.clone()
        rest = [k for k in range(self.n_dims) if k not in parts]
        new = {part: k for k, part in enumerate(rest)}
        at = dict(zip(parts, values, strict=True))
        for t, place in enumerate(self.places):
            if place in at:
                given[t] = at[place]
        return self._with([new.get(place, GIVEN) for place in self.places], given)

    condition = condition_known

    @torch.no_grad()
    def fill(self, x: Tensor, generator: Generator) -> Tensor:
        """A copy of x (n, d) with draws in place of NaN, of the parts that come last."""
        self.log_prob(x)  # refuses other gaps
        blocks = x.split(max(1, BLOCK_NUMBERS // self._ends[-1]))
        return torch.cat([self._draw(rows, generator) for rows in blocks]) if len(x) else x

    def _draw(self, x: Tensor, generator: Generator) -> Tensor:
        x, z = x.clone(), self._filled(x)
        for t, place in enumerate(self.places):
            gap = z[:, t].isnan() & ~self._absent(z)[:, t]
            if place == GIVEN or not gap.any():
                continue
            density = self.density_of(t, self.network(self.inputs(z[gap])))
            level = torch.rand(int(gap.sum()), generator=generator, dtype=torch.float64)
            if isinstance(density, BornConditional):
                drawn = density.icdf(level)
            else:
                cumulative = density.probs.cumsum(-1)
                drawn = torch.searchsorted(cumulative, level[:, None] * cumulative[:, -1:])[:, 0]
            z[gap, t] = drawn.double()
            x[gap, place] = z[gap, t].to(x)
        return x

    @torch.no_grad()
    def probability(self, regions: Sequence[Region]) -> tuple[Tensor, Tensor]:
        """Probabilities (n,) of regions of one part, and of codes before it.

        In closed form, so that the errors are zero; other parts before it must be codes.
        """
        bounded = [k for k, region in enumerate(regions) if region is not None]
        if not bounded:
            return torch.ones(1).double(), torch.zeros(1).double()
        last = max(self.places.index(k) for k in bounded)
        before = [t for t in range(last) if self.places[t] != GIVEN]
        masks = [regions[self.places[t]] for t in before]
        sizes = [self.links[t].size for t in before]
        if 0 in sizes or math.prod(sizes) > MAX_CASES:
            raise ValueError(f"no probability of several columns in closed form: {LEADING}")
        every = [torch.arange(size).double() for size in sizes]
        codes = torch.cartesian_prod(*every) if every else torch.zeros(1, dtype=torch.float64)
        z = self.given[: last + 1].repeat(len(codes), 1)
        z[:, before] = codes.reshape(len(codes), -1)[:, : len(before)]
        mass = self.log_terms(z)[:, before].sum(1).exp()
        total = self._masses_of(last, z, regions[self.places[last]]) * mass  # type: ignore[arg-type]
        for t, mask in zip(before, masks, strict=True):
            if mask is not None:
                total = total * mask[:, z[:, t].long()]
        return total.sum(1).clamp(0, 1), total.new_zeros(len(total))

    def _last_of(self, z: Tensor) -> Any:
        """Conditional density of the last part of values (n, m)."""
        return self.density_of(z.shape[1] - 1, self.network(self.inputs(z)))

    def _masses_of(self, t: int, z: Tensor, region: Tensor) -> Tensor:
        """Masses (n, m) of regions of a part given the values (m, ·) before it."""
        density = self._last_of(z)
        if not isinstance(density, BornConditional):
            return region.double() @ density.probs.T
        low, high = (end[:, None].double() for end in region.T)
        if self.links[t].is_line:
            return density.log_probability(low, high).exp()
        first = density.log_probability(low.clamp(max=1), high.clamp(max=1)).exp()
        over = (high - 1).clamp(min=0)
        return first + density.log_probability(torch.zeros_like(over), over).exp()

    def edges(self, part: int, *, plane: bool) -> Tensor:
        """Ends (k,) of panels of a line in which the density of the part is smooth."""
        t, even = self.places.index(part), torch.linspace(-10, 10, (32 if plane else 128) + 1)
        if any(place != GIVEN for place in self.places[:t]):
            return even.double()
        own = self._last_of(self.given[None, : t + 1])
        steps = torch.tensor(PANELS, dtype=torch.float64)
        edges = (own.center[..., None] + own.deviation[..., None] * steps).flatten()
        return torch.cat([edges, even.double()]).detach().unique()


TURNS = 3
"""Sines and cosines of a circle."""


def n_inputs_of(part: Part, n_waves: int) -> int:
    """Number of inputs of a part; a line has its value and cosines of its level."""
    return {"line": 1 + n_waves, "circle": 2 * TURNS, "codes": part.size}[part.kind]


def inputs_of(part: Part, x: Tensor, size: int) -> Tensor:
    """What a network sees of a part (n,), so many numbers, zeros where it is missing."""
    known, x = ~x.isnan(), x.nan_to_num(0.0)
    if part.kind == "codes":
        found = F.one_hot(x.long(), part.size)
    elif part.is_line:
        k = math.pi * torch.arange(1, size).to(x)
        waves = (torch.special.ndtr(x)[:, None] * k).cos()
        found = torch.cat([x.clamp(-FAR, FAR)[:, None], waves], 1)
    else:
        angle = 2 * math.pi * x[:, None] * torch.arange(1, TURNS + 1).to(x)
        found = torch.cat([angle.cos(), angle.sin()], 1)
    return found * known[:, None]


def head_of(part: Part, shape: tuple[int, int, int]) -> BornHead:
    """Head of the conditional density of a part."""
    kinds: dict[str, Kind] = {"line": Real(), "circle": Periodic(1.0)}
    kind = kinds.get(part.kind) or Category(tuple(range(part.size)))
    return BornHead(*shape, Target(kind))
