r"""How the density matrices of all classes are read (paper, Section 4.3, in closed form).

With the :class:`~qaffde.training.closed_form.ClassSums` of the rows, their mean density matrix
:math:`\bar\rho = \sum_c \rho_c / \sum_c w_c` and a ridge μ on it, every reading is a factor L_c,
and :math:`m \lVert L_c \phi \rVert^2 / \operatorname{tr}(L_c G L_c^\top)` is a density whatever
L_c is:

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

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor
from torch.nn.functional import normalize

from qaffde import functional as QF
from qaffde.nn.class_density import normalized
from qaffde.training.closed_form import ClassSums

MEASUREMENTS = ("direct", "square_root", "pretty_good", "coherent")
ROUGH = 0.01
"""Relative error of eigenvalues that comparing readings, or starting from one, can bear."""


@dataclass(frozen=True, eq=False)
class ClassReader:
    """All readings of some sums; the parts that they share are computed once.

    Parameters
    ----------
    sums : ClassSums
    G : Tensor of shape (D, D)
        Gram matrix of the features.
    tolerance : float
        Eigenvalues below this share of the largest count as zero.
    error : float, default=0.0
        Relative error of eigenvalues that is good enough.
    max_rank : int or float, default=1
        Largest rank that will be asked for: all ranks share their eigenpairs.
    """

    sums: ClassSums
    G: Tensor
    tolerance: float
    error: float = 0.0
    max_rank: int | float = 1
    _known: dict[tuple[str, float], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def factor(self, measurement: str, ridge: float, rank: int | float | str) -> Tensor:
        """Factor of shape (C, r, D), of mass one."""
        r = QF.resolve_rank(rank, self.G[0], 1.0)
        if (measurement, ridge) not in self._known:
            most = max(r, QF.resolve_rank(self.max_rank, self.G[0], 1.0))
            self._known[measurement, ridge] = self._spectra(measurement, ridge, most)
        lam, V = self._known[measurement, ridge]
        return normalized(lam[:, :r, None].sqrt() * V[:, :r], self.G)

    def _spectra(self, measurement: str, ridge: float, rank: int) -> tuple[Tensor, Tensor]:
        """Eigenpairs (C, n) and (C, n, D) of the matrices of the classes in a measurement."""
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
        return QF.leading_eigenpairs(rho, rank, self.error)

    @cached_property
    def _means(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.sums.means()

    @cached_property
    def _pooled(self) -> tuple[Tensor, Tensor]:
        return QF.range_eigenpairs(self._means[2], self.tolerance)


def _power(spectrum: tuple[Tensor, Tensor], power: float, ridge: float) -> Tensor:
    """(M + μ)^power on the range of M, for μ = ridge times the largest eigenvalue."""
    U, lam = spectrum
    return (U * (lam + ridge * lam[-1]) ** power) @ U.T
