"""Mixtures of parts as base measures of Fourier features."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from qaffde import functional as QF
from qaffde.nn.calculus.base_laws import NormalLaw, ProductLaw
from qaffde.nn.calculus.factored import FactoredMixture, product_laws
from qaffde.nn.calculus.mixture import BornMixture, born_terms
from qaffde.nn.calculus.polynomial import TrigonometricForm
from qaffde.nn.features import BaseMeasure, Formula, GaussianMeasure
from qaffde.nn.parts import Factor, Part


class FactoredMeasure(BaseMeasure):
    """Base measure of parts: a mixture of Gaussians on the lines times laws of the other parts.

    Points have the parts as columns: a code has the frequency of its number, and the frequency of
    a circle is a multiple of 2π.

    Parameters
    ----------
    parts : sequence of Part
    lines : GaussianMeasure
        Of K components, and of no columns where there are no lines.
    factors : iterable of Factor
        Laws of the other parts, in their order, each of K components.
    """

    factors: Sequence[Factor]

    def __init__(
        self, parts: Sequence[Part], lines: GaussianMeasure, factors: Iterable[Factor]
    ) -> None:
        super().__init__()
        self.parts, self.lines = tuple(parts), lines
        self.factors = nn.ModuleList(factors)  # type: ignore[assignment]
        self.width = len(lines.weights)

    @property
    def places(self) -> list[int]:
        """Numbers of the parts that are lines."""
        return [k for k, part in enumerate(self.parts) if part.is_line]

    @property
    def others(self) -> list[int]:
        """Numbers of the other parts."""
        return [k for k, part in enumerate(self.parts) if not part.is_line]

    def formula(self, *, shortcuts: bool = False) -> Formula:
        """Logarithm of the sum of the products; it is not closed."""
        return Formula(lambda x, measure: measure.log_terms(x).logsumexp(1), self)

    def log_terms(self, x: Tensor) -> Tensor:
        """Logarithm (n, K) of the weighted products at points (n, q)."""
        lines = self.lines
        centered = x[:, self.places].T - lines.means[:, :, None]
        u = torch.linalg.solve_triangular(lines.cholesky, centered, upper=False)
        log_volume = lines.cholesky.diagonal(dim1=1, dim2=2).log().sum(1)
        total = NormalLaw().log_density(u.mT).T - log_volume + lines.weights.log()
        for part, factor in zip(self.others, self.factors, strict=True):
            total = total + factor.log_values(x[:, part])
        return total

    def characteristic(self, omega: Tensor) -> Tensor:
        """Weighted sum of products of those of the parts."""
        lines, W, V = self.lines, omega[:, self.places], omega[:, self.others].T
        found = torch.zeros(len(omega), dtype=torch.complex128)
        components = zip(lines.weights, lines.means, lines.covariances, self.laws, strict=True)
        for weight, mean, covariance, law in components:
            own = (part.characteristic(v) for part, v in zip(law.laws, V, strict=True))
            found += weight * math.prod(own) * QF.gaussian_characteristic(W, mean, covariance)
        return found

    def _pairs(self, W: Tensor, b: Tensor) -> Tensor:
        unique, group = W.unique(dim=0, return_inverse=True)
        found = torch.zeros(len(b), len(b), dtype=torch.float64)
        for sign in (-1, 1):
            phases = _waves(b, sign) * self._characteristics(unique, sign)[group][:, group]
            found += phases.real
        return found

    def _characteristics(self, W: Tensor, sign: int) -> Tensor:
        """χ(w_j + sign·w_i) of shape (H, H)."""
        V, Z, lines = W[:, self.others], W[:, self.places], self.lines
        found = torch.zeros(len(W), len(W), dtype=torch.complex128)
        components = zip(lines.weights, lines.means, lines.cholesky, self.laws, strict=True)
        for weight, mean, C, law in components:
            gaussian = NormalLaw().pair_characteristic(Z @ C, sign) * _waves(Z @ mean, sign)
            found += weight * gaussian * law.pair_characteristic(V, sign)
        return found

    @property
    def laws(self) -> list[ProductLaw]:
        """Laws of the other parts in each component."""
        return product_laws([factor.laws() for factor in self.factors])

    def times(self, form: TrigonometricForm) -> "FactoredMixture":
        """The measure times a polynomial in the parts."""
        waves = [part for part in self.others if form.W[:, part].any()]
        terms = born_terms(form.moved([*self.places, *waves]), None, self.lines)
        level = torch.zeros(self.width, dtype=torch.float64)
        return FactoredMixture(self.parts, level, BornMixture(terms), self.factors, waves)


def _waves(b: Tensor, sign: int) -> Tensor:
    """Waves exp(i(b_j + sign·b_i)) of shape (H, H)."""
    z = torch.exp(1j * b)
    return torch.outer(z.conj() if sign < 0 else z, z)
