r"""Tensor trains: the Born rule for a matrix-product state of many parts of a table.

.. math:: p(x) = \lVert \Psi(x) \rVert^2 \prod_t m_t(x_t), \qquad
          \Psi(x) = S\, A_1[e_1(x_1)]\, A_2[e_2(x_2)] \cdots A_d[e_d(x_d)], \qquad
          A_t[e] = \sum_k e_k A_t^k

with functions :math:`e_t` of each part that are orthonormal under its own law :math:`m_t`
(:mod:`qaffde.nn.column_basis`). Where only the constants count, the parts are independent. S has
one row, the last core has r columns; a train whose first parts were integrated out has more rows
in S.

In canonical form, :math:`\sum_k A_t^k A_t^{k\top} = I` and :math:`\lVert S \rVert = 1`. All mass
behind a core is then one, so the mass is one, and last parts are integrated out by leaving them
out. Any other contraction carries the matrix :math:`\rho = \Psi^\top \Psi` from core to core:

====================  ====================================================
part                  ρ becomes
====================  ====================================================
has the value x       :math:`A[e(x)]^\top \rho\, A[e(x)]`
is integrated out     :math:`\sum_k A^{k\top} \rho\, A^k`
lies in a region      :math:`\sum_{kl} G_{kl} A^{k\top} \rho\, A^l` with
                      :math:`G_{kl} = \int e_k e_l\, dm`
====================  ====================================================

The cost is linear in the parts: K χ² for a row of values with bond χ, K χ³ for a matrix ρ.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from qaffde.nn.calculus.integrals import legendre
from qaffde.nn.column_basis import ColumnBasis
from qaffde.nn.parts import Part, PartsDensity, Region, circle_rule

BLOCK_NUMBERS = 2**22
"""Numbers that a contraction takes at once."""
OUT = -1
"""Place of a core whose part is integrated out."""
REACH, PANELS, PLANE_PANELS = 10.0, 128, 32
"""Of the quadrature on a line: its ends, and its panels, fewer in a plane."""

Operator = Tensor | None
"""On a core: functions (n, K) at values, integrals (n, K, K), or None: integrated out."""


class TensorTrain(PartsDensity):
    r"""Density of d parts by the Born rule of a tensor train.

    Parameters
    ----------
    cores : iterable of Tensors of shape (bond, K, next bond)
        Parameters; the first bond is that of `start`, the last one is the rank.
    bases : iterable of ColumnBasis
        Of each core.
    places : sequence of int, optional
        Number of each core's part, −1 where it is integrated out; by default their order.
    start : Tensor of shape (s, bond), optional
        S; by default one row of length one.

    Examples
    --------
    >>> from qaffde.nn import WaveBasis
    >>> generator = torch.Generator().manual_seed(0)
    >>> train = TensorTrain.draw([WaveBasis(4)] * 3, bond=5, generator=generator)
    >>> x = torch.randn(1, 3, generator=generator).double()
    >>> given = train.condition([1], x[0, 1:2]).log_prob(x[:, [0, 2]])
    >>> torch.allclose(train.log_prob(x), given + train.marginal([1]).log_prob(x[:, 1:2]))
    True
    >>> unknown = torch.tensor([[torch.nan, 0.5, torch.nan]]).double()
    >>> torch.allclose(train.log_prob(unknown), train.marginal([1]).log_prob(unknown[:, 1:2]))
    True
    """

    start: Tensor

    def __init__(
        self,
        cores: Iterable[Tensor],
        bases: Iterable[nn.Module],
        places: Sequence[int] | None = None,
        start: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.cores = nn.ParameterList(nn.Parameter(core) for core in cores)
        self.bases = nn.ModuleList(bases)
        self.places = list(range(len(self.cores))) if places is None else list(places)
        self.register_buffer("start", self.cores[0].new_ones(1, 1) if start is None else start)

    @classmethod
    def draw(
        cls,
        bases: Sequence[ColumnBasis],
        bond: int,
        *,
        rank: int = 1,
        noise: float = 0.3,
        places: Sequence[int] | None = None,
        generator: Generator,
    ) -> "TensorTrain":
        """Independent parts and some noise, which falls with the frequency of a function."""
        bonds = [1, *[bond] * (len(bases) - 1), rank]
        cores = []
        for basis, a, b in zip(bases, bonds[:-1], bonds[1:], strict=True):
            shape = a, basis.n_functions, b
            core = torch.randn(shape, generator=generator, dtype=torch.float64)
            core *= noise / (1 + basis.roughness[:, None]).sqrt()
            core[:, 0] += torch.eye(a, b)
            cores.append(core)
        return cls(cores, bases, places).canonical()

    @property
    def parts(self) -> tuple[Part, ...]:  # type: ignore[override]
        """Kinds of the parts."""
        kinds = {place: cast("Any", basis).part for basis, place in self._sites()}
        return tuple(kinds[place] for place in range(len(kinds)))

    @property
    def n_dims(self) -> int:
        """The number of parts d."""
        return sum(place != OUT for place in self.places)

    @property
    def bonds(self) -> list[int]:
        """Bonds behind the cores; the last one is the rank."""
        return [core.shape[2] for core in self.cores]

    def _sites(self) -> list[tuple[ColumnBasis, int]]:
        """Bases and places of the parts that are not integrated out."""
        pairs = zip(self.bases, self.places, strict=True)
        return [(cast("ColumnBasis", basis), place) for basis, place in pairs if place != OUT]

    @torch.no_grad()
    def canonical(self) -> "TensorTrain":
        """The same density in canonical form: all mass behind a core is one."""
        cores: list[Tensor] = [core.detach() for core in self.cores]
        start = self.start
        for t in reversed(range(len(cores))):
            a, K, b = cores[t].shape
            Q, R = torch.linalg.qr(cores[t].reshape(a, K * b).T)
            cores[t] = Q.T.reshape(-1, K, b)
            R = R / torch.linalg.norm(R)
            if t:
                cores[t - 1] = cores[t - 1] @ R.T
            else:
                start = start @ R.T
        return frozen(cores, self.bases, self.places, start / torch.linalg.norm(start))

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the known parts of x (n, d): NaN is integrated out.

        Of mass one in canonical form; see :meth:`log_normalizer`.
        """
        unknown = x.isnan()
        if not unknown.any():
            laws = [basis.log_law(x[:, place]) for basis, place in self._sites()]
            return self.contract(self.operators(x)) + torch.stack(laws).sum(0).to(self.start)
        patterns, group = unknown.unique(dim=0, return_inverse=True)
        log_p = self.start.new_zeros(len(x))
        for number, pattern in enumerate(patterns):
            known, rows = (~pattern).nonzero()[:, 0].tolist(), group == number
            if known:
                log_p[rows] = self.marginal(known).log_prob(x[rows][:, known])
        return log_p

    def log_normalizer(self) -> Tensor:
        """Logarithm of the integral of the density, zero in canonical form."""
        return self.contract([None] * len(self.cores))[0]

    def operators(self, x: Tensor) -> list[Operator]:
        """Functions (n, K) of each core at x (n, d); none for NaN in the first row."""
        pairs = zip(self.bases, self.places, strict=True)
        return [
            None
            if place == OUT or x[0, place].isnan()
            else cast("ColumnBasis", basis).values(x[:, place]).to(self.start)
            for basis, place in pairs
        ]

    def contract(self, operators: Sequence[Operator]) -> Tensor:
        """Logarithm (n,) of the integral of ‖Ψ‖² with an operator on each core."""
        vectors = [part for part in operators if part is not None and part.ndim == 2]
        if len(self.start) == 1 and len(vectors) == len(self.cores):
            size = self._block(lambda core: core[:, :, 0].numel())
            blocks = zip(*(part.split(size) for part in vectors), strict=True)
            return torch.cat([log_square(part, list(self.cores), self.start) for part in blocks])
        n = max((len(part) for part in operators if part is not None), default=1)
        size = self._block(Tensor.numel)
        return torch.cat(
            [self._carried(_rows(operators, k, size), min(size, n - k)) for k in range(0, n, size)]
        )

    def _block(self, numbers: Any) -> int:
        """Rows at once, of so many numbers each."""
        return int(max(1, BLOCK_NUMBERS // max(numbers(core) for core in self.cores)))

    def _carried(self, operators: Sequence[Operator], n: int) -> Tensor:
        rho, log_p = self._first(n), self.start.new_zeros(n)
        for core, operator in zip(self.cores, operators, strict=True):
            rho, mass = normalized(carry(rho, core, operator))
            log_p = log_p + mass.log()
        return log_p

    def _first(self, n: int = 1) -> Tensor:
        return (self.start.T @ self.start).expand(n, -1, -1)

    @torch.no_grad()
    def marginal(self, parts: Sequence[int]) -> "TensorTrain":
        """Density of some parts, in the order given; the others are integrated out.

        The first cores that are integrated out become part of S, the last ones are left out.
        """
        new = {part: k for k, part in enumerate(parts)}
        places = [new.get(place, OUT) for place in self.places]
        kept = [t for t, place in enumerate(places) if place != OUT]
        start, inner = self.start, slice(kept[0], kept[-1] + 1)
        for core in list(self.cores)[: kept[0]]:
            start = _triangle((start @ core.flatten(1)).reshape(-1, core.shape[2]))
        cores, bases = list(self.cores)[inner], list(self.bases)[inner]
        if len(cores) == 1:  # one part has a matrix of K × K numbers, whatever the bonds were
            flat = torch.einsum("sa,akb->sbk", start, cores[0]).flatten(0, 1)
            cores, start = [_triangle(flat).T[None]], flat.new_ones(1, 1)
        return frozen(cores, bases, places[inner], start)

    def reordered(self, parts: Sequence[int]) -> "TensorTrain":
        """The density of the same parts in another order; the cores stay as they are."""
        return self.marginal(parts)

    @torch.no_grad()
    def condition(self, parts: Sequence[int], values: Tensor) -> "TensorTrain":
        """Density of the other parts where `parts` have `values` of shape (t,).

        A core at its value is a matrix, which the next core takes up.
        """
        x = torch.full((1, self.n_dims), torch.nan, dtype=torch.float64)
        x[0, list(parts)] = values.double()
        rest = x[0].isnan().nonzero()[:, 0].tolist()
        cores: list[Tensor] = []
        left = torch.eye(self.start.shape[1]).to(self.start)
        for core, e in zip(self.cores, self.operators(x), strict=True):
            if e is None:
                cores.append(torch.tensordot(left, core, 1))
                left = torch.eye(core.shape[2]).to(core)
            else:
                left = left @ torch.einsum("k,akb->ab", e[0], core)
                left = left / left.abs().max()
        cores[-1] = cores[-1] @ left
        kept = [t for t, e in enumerate(self.operators(x)) if e is None]
        places = [rest.index(p) if (p := self.places[t]) != OUT else OUT for t in kept]
        train = frozen(cores, [self.bases[t] for t in kept], places, self.start).canonical()
        if not train.start.isfinite().all():
            given = values.tolist()
            raise ValueError(f"no conditional density given {given}: the density is zero there")
        return train.marginal(range(len(rest)))

    @torch.no_grad()
    def probability(self, regions: Sequence[Region]) -> tuple[Tensor, Tensor]:
        """Probabilities (n,) of products of regions, in closed form, and zero for their errors."""
        bounded = [k for k, region in enumerate(regions) if region is not None]
        if not bounded:
            return self.start.new_ones(1), self.start.new_zeros(1)
        train = self.marginal(bounded)
        operators = [
            None
            if place == OUT
            else cast("ColumnBasis", basis).gram(cast("Tensor", regions[bounded[place]]))
            for basis, place in zip(train.bases, train.places, strict=True)
        ]
        found = train.contract([o if o is None else o.to(self.start) for o in operators]).exp()
        return found.nan_to_num(0.0).clamp(0, 1), torch.zeros_like(found)

    @torch.no_grad()
    def fill(self, x: Tensor, generator: Generator) -> Tensor:
        """A copy of x (n, d) with a draw given the known parts of the row in place of NaN."""
        patterns, group = x.isnan().unique(dim=0, return_inverse=True)
        filled = x.clone()
        for number, pattern in enumerate(patterns):
            if pattern.any():
                rows = group == number
                filled[rows] = self._drawn(x[rows], generator)
        return filled

    def _drawn(self, x: Tensor, generator: Generator) -> Tensor:
        size = self._block(lambda core: len(self.start) * core[0].numel())
        return torch.cat([self._draw(part, generator) for part in x.split(size)])

    def _draw(self, x: Tensor, generator: Generator) -> Tensor:
        """Draws core by core, given what is known or drawn before it, and known behind it.

        What is integrated out is drawn too, and left out: amplitudes H (n, s, a) are less than
        matrices ρ = HᵀH.
        """
        x, operators = x.clone(), self.operators(x)
        H = self.start.expand(len(x), -1, -1)
        sites = zip(self.cores, self.bases, self.places, strict=True)
        for (core, module, place), e, after in zip(
            sites, operators, self.behind(operators), strict=True
        ):
            basis, (a, K, b) = cast("ColumnBasis", module), core.shape
            F = (H.reshape(-1, a) @ core.flatten(1)).view(len(x), -1, K, b)
            if e is None:
                moved = F if after is None else F @ after[:, None]
                state, _ = normalized(
                    moved.transpose(1, 2).flatten(2) @ F.transpose(1, 2).flatten(2).mT
                )
                q = torch.rand(len(x), generator=generator, dtype=torch.float64)
                drawn = basis.quantiles(state, q)
                e = basis.values(drawn).to(core)
                if place != OUT:
                    x[:, place] = drawn.to(x)
            H = torch.einsum("nk,nskb->nsb", e, F)
            H = H / torch.linalg.vector_norm(H, dim=(1, 2), keepdim=True)
        return x

    def behind(self, operators: Sequence[Operator]) -> list[Operator]:
        """Matrices (n, b, b) of the mass behind each core, None for identities."""
        found: list[Operator] = [None]
        for core, operator in zip(list(self.cores)[:0:-1], operators[:0:-1], strict=True):
            after = found[-1]
            if operator is not None or after is not None:
                if after is None:
                    after = torch.eye(core.shape[2]).to(core)[None]
                after, _ = normalized(carry(after, core.transpose(0, 2), operator))
            found.append(after)
        return found[::-1]

    def state(self) -> Tensor:
        """Matrix σ (K, K) of a density m eᵀσe of one part."""
        core = self.marginal([0]).cores[0].detach()[0]
        return core @ core.T

    def quadrature(
        self, part: int, breaks: Tensor, *, plane: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Nodes and weights (m,) for integrals of smooth functions times the density of a part."""
        kind = self.parts[part]
        if kind.kind == "codes":
            codes = torch.arange(kind.size, dtype=torch.float64)
            return codes, torch.ones_like(codes)
        if not kind.is_line:
            return circle_rule()
        even = torch.linspace(-REACH, REACH, (PLANE_PANELS if plane else PANELS) + 1).double()
        edges = torch.cat([even, breaks.double().clamp(-REACH, REACH)]).unique()
        nodes, weights = legendre(8, edges[:-1, None], edges[1:, None])
        return nodes.flatten(), weights.flatten()

    def extra_repr(self) -> str:
        """Show the bonds and the parts of the cores."""
        return f"bonds={self.bonds}, places={self.places}"


def frozen(
    cores: Iterable[Tensor], bases: Iterable[nn.Module], places: Sequence[int], start: Tensor
) -> TensorTrain:
    """A train that does not learn."""
    return TensorTrain(cores, bases, places, start).requires_grad_(False)


def carry(rho: Tensor, core: Tensor, operator: Operator) -> Tensor:
    """The matrices (n, b, b) that a core (a, K, b) makes of matrices ρ (n, a, a)."""
    if operator is not None and operator.ndim == 2:
        matrix = torch.tensordot(operator, core, dims=([1], [1]))
        return matrix.mT @ (rho @ matrix)
    a, K, b = core.shape
    moved = (rho.reshape(-1, a) @ core.flatten(1)).view(-1, a, K, b)
    if operator is not None:
        moved = torch.einsum("nkl,nalb->nakb", operator, moved)
    return core.flatten(0, 1).T @ moved.reshape(-1, a * K, b)


def normalized(rho: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices (n, a, a) of trace one, and the traces (n,) they had."""
    mass = rho.diagonal(dim1=1, dim2=2).sum(1)
    return rho / mass[:, None, None], mass


def log_square(values: Sequence[Tensor], cores: Sequence[Tensor], start: Tensor) -> Tensor:
    r"""Logarithm (n,) of :math:`\lVert S A_1[e_1] \cdots A_d[e_d] \rVert^2`.

    Vectors are divided by their norms on the way: products of many cores stay numbers.

    Parameters
    ----------
    values : sequence of Tensors of shape (n, K)
        e, of each core.
    cores : sequence of Tensors of shape (a, K, b)
    start : Tensor of shape (1, a)
    """
    h = start.expand(len(values[0]), -1)
    log_p = h.new_zeros(len(h))
    for e, core in zip(values, cores, strict=True):
        h = (h[:, :, None] * e[:, None, :]).flatten(1) @ core.flatten(0, 1)
        scale = torch.linalg.vector_norm(h.detach(), dim=1).clamp(min=torch.finfo(h.dtype).tiny)
        h, log_p = h / scale[:, None], log_p + 2 * scale.log()
    return log_p + h.square().sum(1).log()


def _triangle(matrix: Tensor) -> Tensor:
    """A matrix R with RᵀR = MᵀM and no more rows than columns."""
    return matrix if len(matrix) <= matrix.shape[1] else torch.linalg.qr(matrix, mode="r").R


def _rows(operators: Sequence[Operator], first: int, size: int) -> list[Operator]:
    """Some of the rows of operators; those of one row stand for all."""
    return [o if o is None or len(o) == 1 else o[first : first + size] for o in operators]
