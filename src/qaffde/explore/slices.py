"""Conditional densities on grids, many a second.

A density of some columns given others is a sum of terms. What does not depend on the values given
is computed once: frequencies in the data's own units, and coefficients in single precision, which
costs 1e-7 of the highest density. What is left for every new condition are waves, which on a grid
are products of waves along its axes, and one matrix product for each term that matters there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qaffde.explore.forms import Form, single_forms
from qaffde.nn import BornMixture
from qaffde.nn.calculus.base_laws import Law
from qaffde.nn.calculus.mixture import constant_form
from qaffde.nn.calculus.polynomial import WAVES
from qaffde.nn.calculus.terms import Term

FAINT = {False: 1e-8, True: 3e-4}
"""Share of the highest prefactor below which a term is left out, of exact pictures and drafts."""


class Slices:
    """A density on grids of its last columns, where its first ones have given values.

    Parameters
    ----------
    density : BornMixture
        Of the columns given, then of those shown.

    Examples
    --------
    >>> from qaffde.nn import BornDensity, BoxMeasure, FourierFeatures, expand
    >>> features = FourierFeatures.draw("paired", 8, bandwidth=torch.ones(2))
    >>> unit = BoxMeasure(torch.zeros(2), torch.ones(2))
    >>> density = expand(BornDensity(features, torch.ones(1, 8), unit))
    >>> given, axis = torch.tensor([0.3]).double(), torch.tensor([0.1, 0.8]).double()
    >>> joint = Slices(density).on_grid(given, [axis])
    >>> torch.allclose(joint[1].log(), density.log_prob(torch.tensor([[0.3, 0.8]]).double()))
    True
    """

    def __init__(self, density: BornMixture) -> None:
        self.log_mass = density.log_mass
        terms = _settled(density.terms)
        self.bases = _bases(terms)
        groups: dict[int, list[int]] = {}
        for k, term in enumerate(terms):
            groups.setdefault(id(term.form.coefficients), []).append(k)
        self.families = [Family.of(terms, members) for members in groups.values()]

    @property
    def nbytes(self) -> int:
        """Memory that is kept."""
        return sum(family.nbytes for family in self.families)

    def log_at(self, given: Tensor, *, draft: bool = False) -> float:
        """Logarithm of the density where no column is left to show."""
        top = float(self.log_prefactors(given[None]).max())
        if not math.isfinite(top):
            return -math.inf
        value = float(self.on_grid(given, (), log_shift=top, draft=draft))
        return top + math.log(value) if value > 0 else -math.inf

    def on_grid(
        self,
        given: Tensor,
        axes: Sequence[Tensor],
        *,
        log_shift: float = 0.0,
        draft: bool = False,
        check: Callable[[], None] | None = None,
    ) -> Tensor:
        """Density times e^{−log_shift} on the grid of all values of the axes.

        Parameters
        ----------
        given : Tensor of shape (t,)
        axes : sequence of Tensors
            Values of each column that is shown.
        log_shift : float, default=0
            Logarithm of the density of the columns given makes the result a conditional density.
        draft : bool, default=False
            Whether to leave out whatever a picture that moves does not show.
        check : callable, optional
            Called before each part of the work; may raise to stop it.
        """
        log_prefactors = self._family_prefactors(given, axes)
        floor = log_prefactors.max() + math.log(FAINT[draft])
        log_scale = float(self.log_mass) + log_shift
        total = torch.zeros(log_prefactors.shape[1], dtype=torch.float64)
        for family, log_prefactor in zip(self.families, log_prefactors, strict=True):
            rows = (log_prefactor >= floor).nonzero()[:, 0]
            if check is not None:
                check()
            if len(rows):
                q = family.on_grid(given, axes, rows, draft=draft)
                total[rows] += (log_prefactor[rows] - log_scale).exp() * q
        return total.reshape([len(axis) for axis in axes])

    def work(self, given: Tensor, axes: Sequence[Tensor], *, draft: bool) -> int:
        """Multiplications that :meth:`on_grid` would take."""
        log_prefactors = self._family_prefactors(given, axes)
        counts = (log_prefactors >= log_prefactors.max() + math.log(FAINT[draft])).sum(1)
        pairs = zip(counts.tolist(), self.families, strict=True)
        return sum(n * family.work(draft=draft) for n, family in pairs)

    def log_prefactors(self, x: Tensor) -> Tensor:
        """Logarithm (K, n) of what multiplies the form of each term at x of shape (n, k)."""
        found = torch.empty(sum(len(base.terms) for base in self.bases), len(x)).double()
        for base in self.bases:
            found[base.terms] = base.log_prefactors(x)
        return found

    def _family_prefactors(self, given: Tensor, axes: Sequence[Tensor]) -> Tensor:
        points = given.new_empty(1, 0)
        if axes:
            points = torch.cartesian_prod(*axes).reshape(-1, len(axes))
        each = self.log_prefactors(torch.cat([given.expand(len(points), -1), points], 1))
        return torch.stack([family.log_prefactor(each) for family in self.families])


@dataclass(frozen=True)
class Bases:
    """Bases of terms of one law: affine images of independent coordinates."""

    law: Law
    terms: list[int]
    inverse: Tensor
    offset: Tensor
    log_constant: Tensor

    def log_prefactors(self, x: Tensor) -> Tensor:
        """Logarithm (m, n) of what multiplies the form of each term at x of shape (n, k)."""
        u = (x - self.offset[:, None]) @ self.inverse.mT
        return self.log_constant[:, None] + self.law.log_density(u)


def _settled(terms: Sequence[Term]) -> list[Term]:
    """The terms, those whose form is constant with one form for all: they are then a family."""
    one = constant_form(terms[0].n_dims)
    return [
        term if term.form.W.any() else replace(term, log_coefficient=term.log_mass, form=one)
        for term in terms
    ]


def _bases(terms: Sequence[Term]) -> list[Bases]:
    found = []
    for kind in {type(term.law) for term in terms}:
        members = [k for k, term in enumerate(terms) if type(term.law) is kind]
        some = [terms[k] for k in members]
        scale = torch.stack([term.scale for term in some])
        log_volume = scale.diagonal(dim1=1, dim2=2).abs().log().sum(1)
        log_coefficient = torch.stack([term.log_coefficient for term in some])
        offset = torch.stack([term.offset for term in some])
        inverse = torch.linalg.inv(scale)
        found.append(Bases(some[0].law, members, inverse, offset, log_coefficient - log_volume))
    return found


@dataclass(frozen=True)
class Family:
    """Terms that share one form of the data's columns: their bases add up before it is evaluated.

    Parameters
    ----------
    terms : list of int
    start, slopes : Tensors of shapes (H,), (H, k)
        Phases are start + slopes·x.
    exact, draft : Form
    """

    terms: list[int]
    start: Tensor
    slopes: Tensor
    exact: Form
    draft: Form

    @classmethod
    def of(cls, terms: Sequence[Term], members: list[int]) -> "Family":
        """The family of some of the terms."""
        term = terms[members[0]]
        W, C = term.form.W, term.scale
        slopes = torch.linalg.solve_triangular(C, W, upper=False, left=False)
        start = term.form.b - slopes @ term.offset
        return cls(members, start, slopes, *single_forms(term))

    @property
    def nbytes(self) -> int:
        """Memory that is kept."""
        forms = {self.exact, self.draft}
        return 8 * len(self.start) * int(sum(form.work for form in forms))  # factors twice

    def log_prefactor(self, log_prefactors: Tensor) -> Tensor:
        """Logarithm (n,) of what multiplies the form, from those of all terms, (K, n)."""
        if len(self.terms) == 1:
            return log_prefactors[self.terms[0]]
        return log_prefactors[self.terms].logsumexp(0)

    def work(self, *, draft: bool) -> int:
        """Multiplications for one point, and its waves in the same currency."""
        form = self.draft if draft else self.exact
        return len(self.start) * int(WAVES + form.work)

    def on_grid(
        self, given: Tensor, axes: Sequence[Tensor], rows: Tensor, *, draft: bool
    ) -> Tensor:
        """Values (m,) of the form at those points of a grid whose numbers are `rows`."""
        t = len(given)
        theta = self.start + self.slopes[:, :t] @ given
        c, s = theta.cos()[None].float(), theta.sin()[None].float()
        index = _places(rows, axes)
        precision = torch.float32 if draft else torch.float64
        for column, (axis, at) in enumerate(zip(axes, index, strict=True), t):
            angle = (axis[:, None] * self.slopes[:, column]).to(precision)
            a, b = angle.cos().float()[at], angle.sin().float()[at]
            c, s = torch.addcmul(c * a, s, b, value=-1), torch.addcmul(s * a, c, b)
        form = self.draft if draft else self.exact
        return form.of_waves(c, s).clamp_(min=0).double()  # rounding may fall below zero


def _places(rows: Tensor, axes: Sequence[Tensor]) -> list[Tensor]:
    """Places along each axis of points of a grid, the last axis fastest."""
    found = []
    for axis in reversed(axes):
        found.append(rows % len(axis))
        rows = rows // len(axis)
    return found[::-1]
