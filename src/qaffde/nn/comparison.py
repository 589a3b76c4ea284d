"""Two densities of the same columns: inner products, density matrices, expectations."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from qaffde.functional.chebyshev import series_length
from qaffde.nn.calculus.factored import FactoredMixture
from qaffde.nn.calculus.inner_products import Waves
from qaffde.nn.calculus.inner_products import inner_product as inner_product_of_terms
from qaffde.nn.calculus.integrals import legendre
from qaffde.nn.calculus.mixture import BornMixture
from qaffde.nn.calculus.terms import Term
from qaffde.nn.columns import AtomColumn, CircleColumn, RealColumn
from qaffde.nn.density import DefensiveDensity, DensityMatrix, find_born
from qaffde.nn.table import TableDensity

Expansion = BornMixture | TableDensity
MAX_NODES, MAX_RULE = 2_000_000, 2000
"""Of a quadrature, and along one coordinate, for which the cube of it are multiplications."""
LOST = 1e-6
"""Mass that a quadrature may miss."""
SMOOTH = 40
"""Nodes of a quadrature, along one coordinate, more than the density itself needs."""


def inner_product(
    first: Expansion, second: Expansion, *others: Expansion
) -> tuple[Tensor, Tensor] | None:
    """Integral of the product of two densities, and its error; None where it is not closed.

    It is against Lebesgue and counting measure in the units of the data, and closed where real
    columns have no maps. With `others`, the second and these are densities of groups of columns,
    in the order of the first, and their product is taken; that is closed for real columns.
    """
    lines = [_plain_lines(density) for density in (first, second, *others)]
    if all(line is not None for line in lines):
        laws = {type(term.law) for line in lines[1:] for term in line.terms}
        if others and len(laws) > 1:
            return None
        return inner_product_of_terms(lines[0], lines[1:])
    if others or not (isinstance(first, TableDensity) and isinstance(second, TableDensity)):
        return None
    return _table_inner_product(first, second)


def _plain_lines(density: Expansion) -> Any:
    """The sum of terms in the units of the data, if it is one."""
    if isinstance(density, BornMixture):
        return density
    plain = all(isinstance(column, RealColumn) and column.is_identity for column in density.each())
    return density.lines if plain else None


def _table_inner_product(
    first: TableDensity, second: TableDensity
) -> tuple[Tensor, Tensor] | None:
    """Sum over the cases that each atom has its value or not."""
    a, b, columns = first.density, second.density, first.each()
    rests = [c.rest if isinstance(c, AtomColumn) else c for c in columns]
    mapped = any(isinstance(c, RealColumn) and not c.is_identity for c in rests)
    same = [*map(str, columns)] == [*map(str, second.each())]
    if mapped or not (same and isinstance(a, FactoredMixture) and isinstance(b, FactoredMixture)):
        return None
    if a.waves or b.waves:  # over codes and circles too
        return None
    atoms = [k for k, column in enumerate(columns) if isinstance(column, AtomColumn)]
    numbers = [k for k, column in enumerate(columns) for _ in column.parts]
    lines = [numbers[part] for part, kind in enumerate(a.parts) if kind.is_line]
    found = []
    for size in range(len(atoms) + 1):
        for at in combinations(atoms, size):
            codes = {numbers.index(k): int(k in at) for k in atoms}
            kept = [place for place, k in enumerate(lines) if k not in at]
            found.append(torch.stack(a.inner_product(b, codes, kept)))
    turns = math.prod(c.period for c in columns if isinstance(c, CircleColumn))
    value, error = torch.stack(found).sum(0) / turns
    return value, error


def quadrature(density: Expansion) -> tuple[Tensor, Tensor] | None:
    """Points (m, d) and their probabilities (m,), of sum one, in one or two real columns.

    Sums over them are expectations of smooth functions. They are a product of Gauss–Legendre rules
    in the coordinates of each term; None where there are too many nodes, or they miss something.
    """
    lines = density.lines if isinstance(density, TableDensity) else density
    if lines is None or lines.n_dims > 2:
        return None
    terms = [t for t, w in zip(lines.terms, lines.weights, strict=True) if w > 1e-12]
    rules = [_nodes(term) for term in terms]
    longest = max(max(rule) for rule in rules)
    if longest > MAX_RULE or sum(math.prod(rule) for rule in rules) > MAX_NODES:
        return None
    parts = [_rule(term, rule) for term, rule in zip(terms, rules, strict=True)]
    z, mass = (torch.cat(part) for part in zip(*parts, strict=True))
    mass = mass * (-lines.log_mass).exp()
    if not (mass.sum() - 1).abs() < LOST:
        return None
    points = density.decode(z) if isinstance(density, TableDensity) else z
    return points, mass / mass.sum()


def _nodes(term: Term) -> list[int]:
    top = 2 * term.form.W.abs().amax(0) + term.law.bandwidth
    return [series_length(float(omega) * term.law.reach) + SMOOTH for omega in top]


def _rule(term: Term, nodes: Sequence[int]) -> tuple[Tensor, Tensor]:
    reach = torch.tensor(term.law.reach, dtype=torch.float64)
    rules = [legendre(n, -reach, reach) for n in nodes]
    u = torch.cartesian_prod(*(axis for axis, _ in rules)).reshape(-1, len(nodes))
    weight = torch.cartesian_prod(*(w for _, w in rules)).reshape(u.shape).prod(1)
    log_law = term.law.log_density(u) + term.log_coefficient
    return term.offset + u @ term.scale.mT, weight * log_law.exp() * term.values(u)


def characteristic(density: BornMixture, t: Tensor) -> Tensor:
    r"""Characteristic function :math:`E[e^{i t \cdot X}]`, complex (n,), at t of shape (n, d)."""
    total = torch.zeros(len(t), dtype=torch.complex128)
    for term in density.terms:
        waves, at = Waves.of(term).moved(term.offset, term.scale), t @ term.scale
        each = torch.zeros_like(total)
        for sign, alpha in ((1, waves.alpha), (-1, waves.alpha.conj())):
            columns = zip(at.T, waves.omega.T, strict=True)
            chi = (term.law.characteristic(a[:, None] + sign * b) for a, b in columns)
            each += math.prod(chi, start=torch.ones((), dtype=torch.float64)).to(alpha) @ alpha / 2
        phase = torch.exp(1j * (t @ term.offset))
        total += (term.log_coefficient - density.log_mass).exp() * phase * each
    return total


def fidelity(first: torch.nn.Module, second: torch.nn.Module) -> Tensor:
    r"""Fidelity :math:`(\operatorname{tr} \sqrt{\sqrt\sigma \tau \sqrt\sigma})^2` of two states.

    With σ = AᵀA and τ = BᵀB it is the squared nuclear norm of ABᵀ.
    """
    A, B = _states(first, second)
    return torch.linalg.svdvals(A @ B.T).sum().square().clamp(max=1)


def trace_distance(first: torch.nn.Module, second: torch.nn.Module) -> Tensor:
    """Half the sum of the absolute eigenvalues of σ − τ."""
    A, B = _states(first, second)
    return (torch.linalg.eigvalsh(A.T @ A - B.T @ B).abs().sum() / 2).clamp(max=1)


@torch.no_grad()
def _states(first: torch.nn.Module, second: torch.nn.Module) -> list[Tensor]:
    """Factors (r, D) of two density matrices, of norm one, in coordinates where G is one."""
    a, b = find_born(first), find_born(second)
    if not _same_space(first, second):
        raise ValueError(
            "density matrices can be compared on the same features only: fit the second with the "
            "plan of the first, QAFFDE(plan=first.plan_).fit(rows)"
        )
    lam, U = torch.linalg.eigh(a.measure.gram(a.features).double())
    root = U * lam.clamp(min=0).sqrt()
    factors = (born.factor.double() @ root for born in (a, b))
    return [A / torch.linalg.norm(A) for A in factors]


def _same_space(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    """Whether two densities agree in all but their factors and backgrounds."""
    states = [_space(density) for density in (first, second)]
    return states[0].keys() == states[1].keys() and all(
        torch.equal(value, states[1][name]) for name, value in states[0].items()
    )


def _space(density: torch.nn.Module) -> dict[str, Tensor]:
    """Tensors of features, base measure, units and maps, by number and name."""
    parts = [m for m in density.modules() if not isinstance(m, DefensiveDensity | DensityMatrix)]
    names = [(m, name) for m in parts for name in (*m._buffers, *m._parameters)]
    found = {f"{k} {name}": getattr(m, name) for k, (m, name) in enumerate(names)}
    return {name: value for name, value in found.items() if value is not None}
