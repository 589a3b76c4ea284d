r"""Closed form: density matrices of all classes in one pass, and how they are read.

Sums over the rows of a class hold all that a reading needs:

.. math:: \rho_c = \sum_{i \in c} w_i \phi_i \phi_i^\top, \quad
          \psi_c = \sum_{i \in c} w_i \phi_i, \quad w_c = \sum_{i \in c} w_i

Every reading is a factor L_c, and :math:`m \lVert L_c \phi \rVert^2 / \operatorname{tr}(L_c G
L_c^\top)` is a density whatever L_c is. With the mean state :math:`\bar\rho = \sum_c \rho_c /
\sum_c w_c` and a ridge μ on it:

``direct``
    :math:`L_c^\top L_c = \rho_c`, the paper's.
``square_root``
    :math:`G^{-1/2} \rho_c G^{-1/2}`: that of :class:`~qaffde.QAFFDE`, a kernel density estimate
    of each class.
``pretty_good``
    :math:`(\bar\rho + \mu)^{-1/2} \rho_c (\bar\rho + \mu)^{-1/2}`: the measurement that tells the
    states of classes apart nearly as well as any (Hausladen and Wootters, 1994). What all classes
    have in common is divided out.
``coherent``
    :math:`(\bar\rho + \mu)^{-1} \psi_c \psi_c^\top (\bar\rho + \mu)^{-1}`: a pure state, whose
    amplitude is the least-squares estimate of the class's share of the rows.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import normalize

from qaffde import functional as QF
from qaffde.estimators.classifier_frame import ClassFrame
from qaffde.nn.class_density import normalized
from qaffde.training.closed_form import row_batches

MEASUREMENTS = ("direct", "square_root", "pretty_good", "coherent")
WITH_RIDGE = ("pretty_good", "coherent")
ROUGH = 0.01
"""Relative error of eigenvalues that comparing readings, or starting from one, can bear."""


@dataclass(frozen=True, eq=False)
class ClassSums:
    """What weighted rows of C classes leave behind in a frame.

    Parameters
    ----------
    rho : Tensor of shape (C, D, D)
    psi : Tensor of shape (C, D)
    weight : Tensor of shape (C,)
    """

    rho: Tensor
    psi: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, frame: ClassFrame, X: Tensor, y: Tensor, weight: Tensor, n_classes: int
    ) -> "ClassSums":
        """Sums over rows (n, d) of classes (n,), each row seen once."""
        D = frame.features.n_features
        rho = torch.zeros(n_classes, D, D, dtype=torch.float64)
        psi = torch.zeros(n_classes, D, dtype=torch.float64)
        Z = frame.coordinates(X)
        for c in y.unique().tolist():
            for z, w in row_batches(Z[y == c], weight[y == c]):
                phi = frame.features(z)
                psi[c] += w @ phi
                QF.add_rank_update(rho[c], phi.mul_(w.sqrt()[:, None]))
            rho[c] = QF.symmetrize_lower(rho[c])
        return cls(rho, psi, torch.zeros_like(psi[:, 0]).index_add_(0, y, weight))

    def __add__(self, other: "ClassSums") -> "ClassSums":
        return ClassSums(self.rho + other.rho, self.psi + other.psi, self.weight + other.weight)

    def means(self) -> tuple[Tensor, Tensor, Tensor]:
        """Means ρ_c and ψ_c, and ρ̄ of all rows; a class without rows has those of all."""
        total = self.weight.sum()
        pooled = self.rho.sum(0) / total
        empty = self.weight == 0
        count = self.weight.masked_fill(empty, 1.0)
        rho = torch.where(empty[:, None, None], pooled, self.rho / count[:, None, None])
        psi = torch.where(empty[:, None], self.psi.sum(0) / total, self.psi / count[:, None])
        return rho, psi, pooled


@dataclass(frozen=True)
class Reading:
    """How sums are read: a measurement, its ridge (a share of ρ̄'s norm), and a rank."""

    measurement: str
    ridge: float
    rank: int | float


@dataclass(frozen=True, eq=False)
class ClassReader:
    """All readings of some sums, with what they have in common computed once.

    Parameters
    ----------
    sums : ClassSums
    G : Tensor of shape (D, D)
        Gram matrix of the features.
    tolerance : float
        Eigenvalues below this share of the largest count as zero.
    """

    sums: ClassSums
    G: Tensor
    tolerance: float

    @cached_property
    def _means(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.sums.means()

    @cached_property
    def _pooled(self) -> tuple[Tensor, Tensor]:
        return QF.range_eigenpairs(self._means[2], self.tolerance)

    def spectra(
        self, measurement: str, ridge: float, rank: int, tolerance: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Eigenpairs (C, n) and (C, n, D) of what a measurement makes of the classes.

        At most `rank` of each class, to a relative error of `tolerance`.
        """
        rho, psi, _ = self._means
        if measurement == "coherent":
            w = psi @ _power(self._pooled, -1.0, ridge)
            return w.square().sum(1, keepdim=True), normalize(w, dim=1)[:, None]
        if measurement == "square_root":
            R = _power(QF.range_eigenpairs(self.G, self.tolerance), -0.5, 0.0)
            rho = R @ rho @ R
        elif measurement == "pretty_good":
            R = _power(self._pooled, -0.5, ridge)
            rho = R @ rho @ R
        return QF.leading_eigenpairs(rho, rank, tolerance)

    def factor(self, reading: Reading, tolerance: float = 0.0) -> Tensor:
        """Factor of shape (C, r, D), of mass one."""
        r = QF.resolve_rank(reading.rank, self.G[0], 1.0)
        lam, V = self.spectra(reading.measurement, reading.ridge, r, tolerance)
        return normalized(lam[..., None].sqrt() * V, self.G)


def _power(spectrum: tuple[Tensor, Tensor], power: float, ridge: float) -> Tensor:
    """(M + μ)^power on the range of M, for μ = ridge times the largest eigenvalue."""
    U, lam = spectrum
    return (U * (lam + ridge * lam[-1]) ** power) @ U.T
