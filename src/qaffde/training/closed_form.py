r"""Algorithm 2: the density matrix in one pass, and the density that is read from it.

The paper reads the state ρ with the features that prepared it, :math:`\phi^\top \rho \phi`. Those
are not orthonormal, so the reading has a floor and no finite integral. Two exact readings replace
it, both of the form :math:`p(x) = m(x) \lVert L \phi(x) \rVert^2` with integral one:

``direct``
    :math:`L^\top L = \rho / \operatorname{tr}(\rho G)`: the paper's function, restricted to the
    base measure and divided by its integral.
``square_root``
    :math:`L^\top L = G^{-1/2} \rho\, G^{-1/2}`: φ prepares the state, and the orthonormal features
    :math:`G^{-1/2} \phi` closest to φ measure it, by the square-root or "pretty good" measurement
    of quantum information (Hausladen and Wootters, 1994). There is no floor, and
    :math:`G^{-1/2}` halves the exponent of the spectrum, so frequencies of bandwidth √2·h resolve
    a kernel of bandwidth h: in d dimensions 2^{d/2} times fewer features.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, BornDensity, FourierFeatures, KernelMeasure
from qaffde.parameters import DOUBLE, ComputeConfig

ROUNDING = 1e-10
"""Share of the whole below which what is left of a difference is rounding."""
NOT_FITTED = "rows to forget were not all in the fit, or not with this weight"
SPECTRUM_WIDENING = {"direct": 1.0, "square_root": math.sqrt(2)}
"""Bandwidth of the frequencies, in bandwidths of the kernel that each reading then resolves."""


def effective_count(weight: Tensor) -> float:
    """Kish's effective sample size (Σw)²/Σw², whatever the unit of the weights."""
    share = weight / weight.max()
    return float(share.sum() ** 2 / share.square().sum())


def joint_count(*parts: tuple[float, float]) -> float:
    """Effective size of several samples together, from their weights and effective sizes.

    Examples
    --------
    >>> joint_count((2.0, 2.0), (3.0, 3.0))  # five rows of equal weight
    5.0
    """
    total = sum(weight for weight, _ in parts)
    return 1 / sum((weight / total) ** 2 / count for weight, count in parts)


@dataclass(frozen=True, eq=False)
class Sums:
    r"""Sufficient statistics of weighted rows: :math:`\rho = \sum w \phi \phi^\top`, Σw and Σw².

    The last is kept as Kish's effective count :math:`n = (\sum w)^2 / \sum w^2`, which does not
    overflow. They add up over rows, and rows can be subtracted. Of a mixture, ρ are its sufficient
    statistics, of shape (S,).
    """

    rho: Tensor
    weight: float
    count: float

    @classmethod
    def of(
        cls,
        features: FourierFeatures,
        Z: Tensor,
        weight: Tensor,
        compute: ComputeConfig = DOUBLE,
    ) -> "Sums":
        """Sums over rows of shape (n, d) with weights of shape (n,), in blocks."""
        blocks = row_batches(Z, weight, compute.rows(features.n_features))
        batches = ((compute.tensor(z), compute.tensor(w)) for z, w in blocks)
        rho = density_matrix(compute.module(features), batches).cpu()
        return cls(rho, float(weight.sum()), effective_count(weight))

    def __add__(self, other: "Sums") -> "Sums":
        count = joint_count((self.weight, self.count), (other.weight, other.count))
        return Sums(self.rho + other.rho, self.weight + other.weight, count)

    def __sub__(self, other: "Sums") -> "Sums":
        weight = self.weight - other.weight
        if weight <= ROUNDING * self.weight:
            raise ValueError(
                f"rows of weight {other.weight:g} cannot be forgotten: the fit holds "
                f"{self.weight:g}, and something must be left; fit anew instead"
            )
        share = self._square_share(weight) - other._square_share(weight)
        if not 0 < share <= 1 + ROUNDING * self._square_share(weight):
            raise ValueError(f"{NOT_FITTED}: their weights do not fit those that were added")
        return Sums(_difference(self.rho, other.rho), weight, 1 / min(share, 1.0))

    def __mul__(self, factor: float) -> "Sums":
        return Sums(factor * self.rho, factor * self.weight, self.count)

    def _square_share(self, total: float) -> float:
        """Sum of squares of the weights, in units of `total`²."""
        return (self.weight / total) ** 2 / self.count


def _difference(whole: Tensor, part: Tensor) -> Tensor:
    """Difference of density matrices, which must not be negative by more than rounding.

    A Cholesky factor tells at a tenth of the cost of eigenvalues. Negative ones within rounding
    stay in the sum; every reading clips them.
    """
    rest = whole - part
    if rest.ndim == 1:
        return rest
    slack = ROUNDING * whole.trace() * torch.eye(len(rest), dtype=rest.dtype)
    if torch.linalg.cholesky_ex(rest + slack).info > 0:
        least = f"{float(torch.linalg.eigvalsh(rest)[0]):.2g}"
        raise ValueError(
            f"{NOT_FITTED}: without them the density matrix has the eigenvalue {least}"
        )
    return rest


def density_matrix(features: FourierFeatures, batches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Sum (D, D) of w φ(x) φ(x)ᵀ over batches of points (n, d) and weights (n,).

    From the second batch on, features on a lattice leave their moments of waves behind, which is
    much shorter (see :mod:`qaffde.functional.fourier`), and enter ρ in the end.
    """
    D, lattice = features.n_features, QF.Lattice.of(features.W.detach())
    rho = torch.zeros(D, D, dtype=torch.float64, device=features.W.device)
    moments = None
    with torch.no_grad():
        for number, (x, weight) in enumerate(batches):
            if number and lattice is not None:
                moments = lattice.add_moments(moments, x, weight)
            else:
                QF.add_rank_update(rho, features(x).mul_(weight.sqrt()[:, None]))
        rho = QF.symmetrize_lower(rho)
        if lattice is not None and moments is not None:
            rho += lattice.gram(lattice.characteristic(moments), features.b, features.a)
    return rho


def row_batches(
    X: Tensor, weight: Tensor, batch_size: int = 1024
) -> Iterable[tuple[Tensor, Tensor]]:
    """Blocks of rows small enough for their features to stay in cache."""
    return zip(X.split(batch_size), weight.split(batch_size), strict=True)


def read_density(
    measurement: str,
    features: FourierFeatures,
    rho: Tensor,
    measure: BaseMeasure,
    *,
    rank: int | float | str,
    min_trace: float,
    tolerance: float,
) -> BornDensity:
    """Density of the leading eigenpairs of ρ, for "square_root" on the range of G.

    "direct" is m φᵀρφ / tr(ρG) (paper, Eq. 4), "square_root" m φᵀG^{−1/2} ρ G^{−1/2}φ.
    """
    if measurement == "direct":
        lam, V = QF.leading_eigenpairs(rho, len(rho))
        r = QF.resolve_rank(rank, lam, min_trace)
        density = BornDensity(features, lam[:r, None].sqrt() * V[:r], measure)
        return density if isinstance(measure, KernelMeasure) else density.normalize_()
    U, gram_lam = QF.range_eigenpairs(measure.gram(features), tolerance)
    lam, V = QF.leading_eigenpairs(U.T @ rho @ U, U.shape[1])
    r = QF.resolve_rank(rank, lam, min_trace)
    factor = (lam[:r, None] / lam[:r].sum()).sqrt() * V[:r] * gram_lam.rsqrt()
    return BornDensity(features, factor @ U.T, measure)


def square_root_values(
    features: FourierFeatures, rho: Tensor, measure: BaseMeasure, x: Tensor, tolerance: float
) -> Tensor:
    """Density over m of the full rank at x of shape (n, d), to judge a candidate.

    On a lattice that takes neither the eigenpairs of ρ nor the features of the rows.
    """
    U, lam = QF.range_eigenpairs(measure.gram(features), tolerance)
    inner = U.T @ rho @ U
    lattice = QF.Lattice.of(features.W)
    if lattice is None:
        white = (features(x) @ U) * lam.rsqrt()
        values = ((white @ inner) * white).sum(1)
    else:
        root = U * lam.rsqrt()
        values = lattice.quadratic(root @ inner @ root.T, features.b, features.a, x)
    return values.clamp(min=0.0) / inner.trace()
