r"""Tensor trains: the Born rule for a matrix-product state of many parts of a table.

.. math:: p(x) = \lVert \Psi(x) \rVert^2 \prod_t m_t(x_t), \qquad
          \Psi(x) = S\, A_1(x_1)\, A_2(x_2) \cdots A_d(x_d)\, E, \qquad
          A_t(x) = W_t \operatorname{diag}(V_t e_t(x))

with functions :math:`e_t` of each part that are orthonormal under its own law :math:`m_t`
(:mod:`qaffde.nn.column_basis`). The core :math:`A_t^k = W_t \operatorname{diag}(V_t^k)` of the
function k is a matrix of χ × χ numbers, the bond; all K cores of a part share W. At the same cost
for a row, that allows a larger bond than K free matrices (as in trees: Loconte et al., 2024), and
contractions carry a matrix ρ from part to part, whatever K,

.. math:: \rho \leftarrow (W^\top \rho\, W) \circ Q

where the part puts in for Q

====================  =========================================================
has the value x       :math:`v v^\top` with :math:`v = V e(x)`
is integrated out     :math:`V V^\top`
lies in a region      :math:`V G V^\top` with :math:`G_{kl} = \int e_k e_l\, dm`
====================  =========================================================

Marginals and conditionals are trains again: what lies to the left or right of the parts that are
kept becomes S or E, a part at its value a factor of the next W.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Generator, Tensor, nn

from qaffde.functional.contraction import carry, carry_back, log_norm, root_factor, unit_trace
from qaffde.nn.column_basis import ColumnBasis
from qaffde.nn.parts import Part, PartsDensity, Region, gap_patterns

BLOCK_NUMBERS = 2**22
"""Numbers that a contraction takes at once."""
CACHED_NUMBERS = 2**17
"""Numbers that stay in the cache while rows are scored."""
OUT = -1
"""Place of a part that is integrated out."""

Operator = Tensor
"""Vectors v (n, χ) where a part has values, else matrices Q (n, χ, χ)."""


class TensorTrain(PartsDensity):
    r"""Density of d parts by the Born rule of a tensor train.

    Parameters
    ----------
    mixers, loadings, bases : iterables
        Of each part: W (bond, next bond) and V (next bond, K), parameters, and a ColumnBasis.
    places : sequence of int, optional
        Number of each part, −1 where it is integrated out; by default their order.
    start, end : Tensors of shapes (s, first bond) and (last bond, r), optional
        S and E, a parameter; by default one row and one column of ones.

    Examples
    --------
    >>> from qaffde.nn import WaveBasis
    >>> generator = torch.Generator().manual_seed(0)
    >>> mixers = [torch.rand(k, 5, generator=generator).double() for k in (1, 5, 5)]
    >>> loadings = torch.rand(3, 5, 4, generator=generator).double()
    >>> train = TensorTrain(mixers, loadings, [WaveBasis(4)] * 3).normalized()
    >>> x = torch.randn(1, 3, generator=generator).double()
    >>> given = train.condition([1], x[0, 1:2]).log_prob(x[:, [0, 2]])
    >>> torch.allclose(train.log_prob(x), given + train.marginal([1]).log_prob(x[:, 1:2]))
    True
    >>> unknown = torch.tensor([[torch.nan, 0.5, torch.nan]]).double()
    >>> torch.allclose(train.log_prob(unknown), train.marginal([1]).log_prob(unknown[:, 1:2]))
    True
    """

    start: Tensor
    bases: Any
    """One :class:`ColumnBasis` for each part."""

    def __init__(
        self,
        mixers: Iterable[Tensor],
        loadings: Iterable[Tensor],
        bases: Iterable[nn.Module],
        places: Sequence[int] | None = None,
        start: Tensor | None = None,
        end: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.mixers = nn.ParameterList(nn.Parameter(W) for W in mixers)
        self.loadings = nn.ParameterList(nn.Parameter(V) for V in loadings)
        self.bases = nn.ModuleList(bases)
        self.places = list(range(len(self.bases))) if places is None else list(places)
        first, last = self.mixers[0], self.mixers[len(self.mixers) - 1]
        self.register_buffer("start", first.new_ones(1, len(first)) if start is None else start)
        self.end = nn.Parameter(last.new_ones(last.shape[1], 1) if end is None else end)

    @property
    def parts(self) -> tuple[Part, ...]:  # type: ignore[override]
        """Kinds of the parts."""
        return tuple(basis.part for basis in self._own_bases())

    @property
    def n_dims(self) -> int:
        """The number of parts d."""
        return sum(place != OUT for place in self.places)

    @property
    def bonds(self) -> list[int]:
        """The bonds behind the parts."""
        return [W.shape[1] for W in self.mixers]

    def _own_bases(self) -> list[ColumnBasis]:
        """Bases of the parts that are not integrated out, in the order of the parts."""
        at = {place: t for t, place in enumerate(self.places)}
        return [self.bases[at[k]] for k in range(self.n_dims)]

    def _frozen(
        self, sites: Sequence[int], places: Sequence[int], **changes: Any
    ) -> "TensorTrain":
        """A train of some of the parts that does not learn."""
        given: dict[str, Any] = {
            "mixers": [self.mixers[t].detach() for t in sites],
            "loadings": [self.loadings[t].detach() for t in sites],
            "start": self.start,
            "end": self.end.detach(),
        } | changes
        bases = [self.bases[t] for t in sites]
        return TensorTrain(bases=bases, places=places, **given).requires_grad_(False)

    @torch.no_grad()
    def normalized(self) -> "TensorTrain":
        """The same density with mass one, and of all that is before a part of size one."""
        return self._normalized(range(len(self.bases)), self.places, [*self.mixers], self.end)

    def _normalized(
        self, sites: Sequence[int], places: Sequence[int], mixers: Sequence[Tensor], end: Tensor
    ) -> "TensorTrain":
        """A normalized train of some of the parts with other mixers and another end."""
        start, operators, unit = self.start, self._free_operators(), []
        rho, _ = unit_trace((start.T @ start)[None])
        for t, W in zip(sites, mixers, strict=True):
            rho, mass = unit_trace(carry(rho, W, operators[t]))
            unit.append(W.detach() / mass.sqrt())
        end = end.detach() / (rho[0] * (end @ end.T)).sum().sqrt()
        start = start / torch.linalg.norm(start)
        return self._frozen(sites, places, mixers=unit, start=start, end=end)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the known parts of x (n, d): NaN is integrated out."""
        if len(x) and not x.isnan().any():
            if OUT in self.places:
                return self.contract(self.operators(x)) + self._log_laws(x)
            size = self._block_size(min(len(self.start), self.end.shape[1]), CACHED_NUMBERS)
            return torch.cat([self.log_prob_complete(rows) for rows in x.split(size)])
        log_p = self.start.new_zeros(len(x))
        for known, _, rows in gap_patterns(x):
            if known:
                log_p[rows] = self.marginal(known).log_prob(x[rows][:, known])
        return log_p

    def log_prob_complete(self, x: Tensor) -> Tensor:
        """Log-density (n,) of rows (n, d) without gaps, by operations that do not see values."""
        parts = zip(self.bases, self.places, self.loadings, strict=True)
        found = (basis.loaded(x[:, place], V) for basis, place, V in parts)
        return self._log_square(found) + self._log_laws(x)

    def _log_laws(self, x: Tensor) -> Tensor:
        """Log-density (n,) of independent parts (n, d)."""
        bases = self._own_bases()
        return sum(basis.log_law(x[:, k]).to(self.start.dtype) for k, basis in enumerate(bases))  # type: ignore[return-value]

    @torch.no_grad()
    def spectrum(self) -> Tensor:
        """Eigenvalues (r,) of the state that is left of the end, falling, of sum one."""
        *_, (rho, _) = self._carried(self._free_operators())
        lam = torch.linalg.eigvalsh(self.end.T @ rho[0] @ self.end).flip(0).clamp(min=0)
        return lam / lam.sum()

    def log_mass(self) -> Tensor:
        """Logarithm of the integral of the density; zero once it is normalized."""
        return self.contract(self._free_operators())[0]

    def operators(self, x: Tensor) -> list[Operator]:
        """Operators of each part at x (n, d), of those that are NaN in the first row free ones."""
        found = self._free_operators()
        for t, place in enumerate(self.places):
            if place != OUT and not x[0, place].isnan():
                found[t] = self.bases[t].loaded(x[:, place], self.loadings[t])
        return found

    def _free_operators(self) -> list[Operator]:
        return [(V @ V.T)[None] for V in self.loadings]

    def contract(self, operators: Sequence[Operator]) -> Tensor:
        """Logarithm (n,) of the integral of ‖Ψ‖² under the operators of each part."""
        pure = all(Q.ndim == 2 for Q in operators)
        rows = min(len(self.start), self.end.shape[1]) if pure else max(self.bonds)
        n, size = max(map(len, operators)), self._block_size(rows)
        blocks = [
            [Q[k : k + size] if len(Q) > 1 else Q for Q in operators] for k in range(0, n, size)
        ]
        return torch.cat([self._log_square(o) if pure else self._log_trace(o) for o in blocks])

    def _block_size(self, rows: int, numbers: int = BLOCK_NUMBERS) -> int:
        """Points at a time, each with a matrix of some rows."""
        return max(1, numbers // (rows * max(self.bonds)))

    def _log_square(self, v: Iterable[Operator]) -> Tensor:
        """Contraction of amplitudes Ψ, from the side that has fewer of them."""
        mixers = list(self.mixers)
        if len(self.start) <= self.end.shape[1]:
            return log_norm(self.start, mixers, v, self.end)
        back = [torch.eye(len(self.end)).to(self.end), *(W.T for W in mixers[:0:-1])]
        return log_norm(self.end.T, back, list(v)[::-1], mixers[0].T @ self.start.T)

    def _carried(self, operators: Sequence[Operator]) -> Iterator[tuple[Tensor, Tensor]]:
        """Matrices (n, χ, χ) of trace one behind each part, and the traces that they had."""
        rho = (self.start.T @ self.start)[None]
        for W, Q in zip(self.mixers, operators, strict=True):
            rho, mass = unit_trace(carry(rho, W, Q))
            yield rho, mass

    def _log_trace(self, operators: Sequence[Operator]) -> Tensor:
        log_p = self.start.new_zeros(1)
        for step in self._carried(operators):
            rho, log_p = step[0], log_p + step[1].log()
        return log_p + ((rho @ self.end) * self.end).sum((1, 2)).log()

    @torch.no_grad()
    def marginal(self, parts: Sequence[int]) -> "TensorTrain":
        """Density of some parts, in the order given; the others are integrated out."""
        new = {part: k for k, part in enumerate(parts)}
        places = [new.get(place, OUT) for place in self.places]
        kept = [t for t, place in enumerate(places) if place != OUT]
        first, last = kept[0], kept[-1]
        if first == 0 and last == len(places) - 1:
            return self._frozen(range(len(places)), places)
        operators, sites = self._free_operators(), range(first, last + 1)
        rho = (self.start.T @ self.start)[None]
        for t in range(first):
            rho = carry(rho, self.mixers[t], operators[t])
        behind = (self.end @ self.end.T)[None]
        for t in range(len(operators) - 1, last, -1):
            behind = carry_back(behind, self.mixers[t], operators[t])
        if first == last:  # one part has a matrix of K × K numbers, whatever the bond
            Q = carry(rho, self.mixers[first], behind)[0]
            V = root_factor(self.loadings[first].T @ Q @ self.loadings[first]).T
            one, end = V.new_ones(1, len(V)), torch.eye(len(V)).to(V)
            changes = {"mixers": [one], "loadings": [V], "start": one[:, :1], "end": end}
        else:
            changes = {"start": root_factor(rho[0]).T, "end": root_factor(behind[0])}
        return self._frozen(sites, places[first : last + 1], **changes)

    @torch.no_grad()
    def condition(self, parts: Sequence[int], values: Tensor) -> "TensorTrain":
        """Density of the other parts where `parts` have `values` of shape (t,)."""
        x = torch.full((1, self.n_dims), torch.nan, dtype=torch.float64)
        x[0, list(parts)] = values.double()
        rest = x[0].isnan().nonzero()[:, 0].tolist()
        sites = [t for t, p in enumerate(self.places) if p == OUT or p in rest]
        mixers, left = [], torch.eye(self.start.shape[1]).to(self.start)
        for t, Q in enumerate(self.operators(x)):
            left = left @ self.mixers[t]
            if Q.ndim == 2:
                left = left * Q
                left = left / left.abs().max()
            else:
                mixers.append(left)
                left = torch.eye(left.shape[1]).to(left)
        places = [rest.index(p) if (p := self.places[t]) != OUT else OUT for t in sites]
        train = self._normalized(sites, places, mixers, left @ self.end)
        if not train.end.isfinite().all():
            given = values.tolist()
            raise ValueError(f"no conditional density given {given}: the density is zero there")
        return train.marginal(range(len(rest))) if OUT in (places[0], places[-1]) else train

    @torch.no_grad()
    def probability(self, regions: Sequence[Region]) -> tuple[Tensor, Tensor]:
        """Probabilities (n,) of products of regions, in closed form, and zero for their errors."""
        bounded = [k for k, region in enumerate(regions) if region is not None]
        if not bounded:
            return self.start.new_ones(1), self.start.new_zeros(1)
        train = self.marginal(bounded)
        operators = train._free_operators()
        for t, place in enumerate(train.places):
            if place != OUT:
                V, basis = train.loadings[t], train.bases[t]
                operators[t] = V @ basis.gram(regions[bounded[place]]).to(V) @ V.T
        found = train.contract(operators).exp()
        return found.nan_to_num(0.0).clamp(0, 1), torch.zeros_like(found)

    @torch.no_grad()
    def log_prob_along(self, x: Tensor, part: int, nodes: Tensor) -> Tensor:
        """Log-density (n, m) of a part at nodes (m,), given the known parts of rows x (n, d)."""
        basis = self._own_bases()[part]
        e = basis.values(nodes).to(self.start)
        found = self.start.new_empty(len(x), len(nodes))
        site = self.places.index(part % self.n_dims)
        W, V = self.mixers[site], self.loadings[site]
        for rows in self._blocks(x):
            operators = self.operators(x[rows])
            before = [(self.start.T @ self.start)[None]]
            before += [rho for rho, _ in islice(self._carried(operators), site)]
            state, _ = unit_trace(V.T @ carry(before[-1], W, self._behind(operators)[site]) @ V)
            found[rows] = ((state @ e.T) * e.T).sum(1).clamp(min=0).log()
        return found + basis.log_law(nodes).to(found)

    @torch.no_grad()
    def fill(self, x: Tensor, generator: Generator) -> Tensor:
        """A copy of x (n, d) with a draw given the known parts of the row in place of NaN."""
        filled = x.clone()
        for rows in self._blocks(x):
            if x[rows[0]].isnan().any():
                filled[rows] = self._draw(x[rows], generator)
        return filled

    def _blocks(self, x: Tensor) -> list[Tensor]:
        """Numbers of rows that have the same gaps, as many at once as have room for matrices."""
        size = max(1, BLOCK_NUMBERS // max(self.bonds) ** 2)
        blocks = (rows.nonzero()[:, 0].split(size) for *_, rows in gap_patterns(x))
        return [block for each in blocks for block in each]

    def _draw(self, x: Tensor, generator: Generator) -> Tensor:
        """Draws part by part; what is integrated out is drawn too, and left out."""
        x, operators = x.clone(), self.operators(x)
        behind, H = self._behind(operators), self.start.expand(len(x), -1, -1)
        for t, (place, v) in enumerate(zip(self.places, operators, strict=True)):
            H = H @ self.mixers[t]
            if v.ndim == 3:
                basis, V = self.bases[t], self.loadings[t]
                state, _ = unit_trace(V.T @ ((H.mT @ H) * behind[t]) @ V)
                q = torch.rand(len(x), generator=generator, dtype=torch.float64)
                drawn = basis.quantiles(state, q)
                v = basis.values(drawn).to(V) @ V.T
                if place != OUT:
                    x[:, place] = drawn.to(x)
            H = H * v[:, None]
            H = H / torch.linalg.vector_norm(H, dim=(1, 2), keepdim=True)
        return x

    def _behind(self, operators: Sequence[Operator]) -> list[Tensor]:
        """Matrices (n, χ, χ) of the mass behind each part, up to factors."""
        found = [(self.end @ self.end.T)[None]]
        for W, Q in zip(list(self.mixers)[:0:-1], operators[:0:-1], strict=True):
            found.append(unit_trace(carry_back(found[-1], W, Q))[0])
        return found[::-1]

    def edges(self, part: int, *, plane: bool) -> Tensor:
        """Ends (k,) of panels of a line in which the density of the part is smooth."""
        even = torch.linspace(-10, 10, (32 if plane else 128) + 1).double()
        breaks = self._own_bases()[part].breaks()
        return torch.cat([even, breaks.clamp(-10, 10)]).unique()

    def extra_repr(self) -> str:
        """Show the bonds and the numbers of the parts."""
        return f"bonds={self.bonds}, places={self.places}"
