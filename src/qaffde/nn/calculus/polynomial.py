r"""Trigonometric polynomials: their coefficients, and their frequencies and phases.

.. math::

    q(\theta) = \operatorname{Re}\bigl[z^\dagger B z + z^\top E z\bigr], \quad
    z_h = e^{i\theta_h}, \quad B = B^\dagger, \quad E = E^\top

A Born density starts from :math:`q = \lVert \operatorname{Re} F z \rVert^2`, that is from
:math:`B = \tfrac12 F^\dagger F` and :math:`E = \tfrac12 F^\top F`. Averaging over a part of the
phases multiplies B and E entry by entry with expectations of :math:`\bar z_h z_g` and
:math:`z_h z_g` (Schur's product theorem keeps q ≥ 0): the family is closed. A cosine and a sine of
one frequency are one complex column, so that pairs of features cost H² = D²/4 entries each; where
no frequency repeats, B and E are real and H = D.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from qaffde.nn.calculus.base_laws import Law, ProductLaw

BLOCK = 2048
"""Rows whose waves are computed at once."""
WAVES = 128.0
"""Multiplications that a cosine and a sine cost as much as."""
FEW_ROWS = 8
ROUNDING = 1 + 1e-9
"""Relative error allowed for an eigenvalue, so that a bound holds."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """The form cᵀPc + sᵀQs − 2cᵀXs of cosines and sines, each block of shape (H, H).

    X is None where B and E are real.
    """

    P: Tensor
    Q: Tensor
    X: Tensor | None

    @property
    def work(self) -> float:
        """Multiplications of one evaluation, divided by the number of frequencies."""
        return len(self.P) * (2 if self.X is None else 3)

    def single(self) -> "Blocks":
        """The same in single precision."""
        return Blocks(self.P.float(), self.Q.float(), None if self.X is None else self.X.float())

    def of_waves(self, c: Tensor, s: Tensor) -> Tensor:
        """Values (n,) of q from the cosines and sines, (n, H), of its phases."""
        q = torch.linalg.vecdot(c @ self.P, c).add_(torch.linalg.vecdot(s @ self.Q, s))
        return q if self.X is None else q.sub_(torch.linalg.vecdot(c @ self.X, s), alpha=2)


@dataclass(frozen=True, eq=False)
class Pairs:
    """B and E, each of shape (H, H); q need not be positive."""

    B: Tensor
    E: Tensor

    def schur(self, difference: Tensor, total: Tensor) -> "Pairs":
        """Entrywise products with values at differences and at sums of frequencies, (H, H)."""
        return Pairs(self.B * difference, self.E * total)

    @cached_property
    def blocks(self) -> Blocks:
        """The same as blocks of real numbers."""
        B, E = self.B, self.E
        if not B.is_complex():
            return Blocks(B + E, B - E, None)
        return Blocks(B.real + E.real, B.real - E.real, B.imag + E.imag)

    def of_waves(self, c: Tensor, s: Tensor) -> Tensor:
        """Values (n,) of q from the cosines and sines, (n, H), of its phases.

        Few rows are read from B and E as they are: making the blocks would take longer.
        """
        if len(c) <= FEW_ROWS and self.B.is_complex():
            z = torch.complex(c, s)
            return (z.conj() * (z @ self.B.mT) + z * (z @ self.E)).sum(-1).real
        return self.blocks.of_waves(c, s)


class Coefficients(ABC):
    """Coefficients of q: they evaluate it, bound it, and give its B and E."""

    needs_sines: bool
    """Whether :meth:`of_waves` looks at the sines."""
    cancels: bool
    """Whether rounding is relative to the maximum of q, not to its value."""
    work: float
    """Multiplications of one evaluation, divided by the number of frequencies."""

    @property
    @abstractmethod
    def pairs(self) -> Pairs:
        """B and E."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """No value of q is larger."""

    @property
    def cost(self) -> float:
        """Multiplications of one evaluation, and its waves in the same currency, over H."""
        return WAVES + self.work

    @abstractmethod
    def of_waves(self, c: Tensor, s: Tensor) -> Tensor:
        """Values (n,) of q from the cosines and sines, (n, H), of its phases."""

    def __call__(self, theta: Tensor) -> Tensor:
        """Values (n,) of q at phases of shape (n, H)."""
        c = theta.cos()
        return self.of_waves(c, theta.sin() if self.needs_sines else c)


class SquaredCoefficients(Coefficients):
    r"""The form :math:`\lVert \operatorname{Re} F z \rVert^2` of a real or complex F, (r, H).

    Cheaper to evaluate than B and E as long as r is small against H, and free of cancellation.

    Examples
    --------
    >>> pair = SquaredCoefficients(torch.tensor([[3 - 4j]]))  # 3 cos θ + 4 sin θ
    >>> pair(torch.tensor([[0.0], [torch.pi / 2]])).round(decimals=4), round(pair.bound, 4)
    (tensor([ 9., 16.]), 25.0)
    """

    cancels = False

    def __init__(self, F: Tensor) -> None:
        self.F = F
        self.needs_sines = F.is_complex()
        self.work = len(F) * (1 + self.needs_sines)

    def single(self) -> "SquaredCoefficients":
        """The same in single precision."""
        return SquaredCoefficients(
            self.F.to(torch.complex64 if self.needs_sines else torch.float32)
        )

    @cached_property
    def pairs(self) -> Pairs:
        """½F†F and ½FᵀF."""
        half = self.F / 2
        return Pairs(half.mH @ self.F, half.mT @ self.F)

    @cached_property
    def bound(self) -> float:
        r"""Upper bound of q, by one eigenvalue.

        For any positive weights s, :math:`\lVert \operatorname{Re} F z \rVert^2 \le
        \lambda_{\max}(R S^{-1} R^\top) \sum_h s_h |z_h|^2` with R = [Re F, −Im F] and
        :math:`|z_h| = 1`. The weights here are the norms of the columns of F: best possible for
        r = 1, where the bound is :math:`(\sum_h |F_h|)^2`.
        """
        s = self.F.abs().square().sum(0).sqrt()
        half = self.F / s.clamp(min=torch.finfo(s.dtype).tiny).sqrt()
        top = torch.linalg.eigvalsh((half @ half.mH).real)[-1]
        return float(ROUNDING * top.clamp(min=0) * s.sum())

    @cached_property
    def _transposed(self) -> tuple[Tensor, Tensor]:
        """F as the two factors that cosines and sines are multiplied with, each (H, r)."""
        F = self.F.T
        return (F.real.contiguous(), F.imag.contiguous()) if self.needs_sines else (F, F)

    def of_waves(self, c: Tensor, s: Tensor) -> Tensor:
        """Values (n,) of q; a real F needs no sines."""
        real, imaginary = self._transposed
        y = torch.addmm(c @ real, s, imaginary, alpha=-1) if self.needs_sines else c @ real
        return y.square_().sum(-1)


class IntegratedCoefficients(Coefficients):
    """The form that integration leaves of a source; its B and E are computed when first needed.

    Columns of a law, of frequencies W of shape (H, k), are integrated out.
    """

    needs_sines = cancels = True

    def __init__(self, source: Coefficients, law: Law | ProductLaw, W: Tensor) -> None:
        self.source, self.law, self.W = source, law, W
        self.work = 3.0 * len(W)

    @cached_property
    def pairs(self) -> Pairs:
        """B and E of the source, times expectations over the law."""
        difference, total = (self.law.pair_characteristic(self.W, sign) for sign in (-1, 1))
        return self.source.pairs.schur(difference, total)

    @property
    def bound(self) -> float:
        """The bound of the source: an average has no larger value."""
        return self.source.bound

    def of_waves(self, c: Tensor, s: Tensor) -> Tensor:
        """Values (n,) of q.

        Where q is tiny against its maximum the parts cancel, and rounding may fall below zero.
        """
        return self.pairs.of_waves(c, s).clamp_(min=0)


def merged_frequencies(W: Tensor, b: Tensor, L: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Write L cos(Wu + b) as Re F e^{i(W′u + b′)} with every frequency only once.

    For W, b and L of shapes (D, d), (D,) and (r, D) these are W′, b′ and F of shapes (H, d), (H,)
    and (r, H): as they were where no frequency repeats; otherwise b′ is zero and F complex.

    Examples
    --------
    >>> W, b = torch.tensor([[1.0], [1.0]]), torch.tensor([0.0, -torch.pi / 2])
    >>> F = merged_frequencies(W, b, torch.tensor([[3.0, 4.0]]))[2]
    >>> F.real.round(decimals=4), F.imag.round(decimals=4)
    (tensor([[3.]]), tensor([[-4.]]))
    """
    unique, group = W.unique(dim=0, return_inverse=True)
    if len(unique) == len(W):
        return W, b, L
    columns = L * torch.exp(1j * b)
    F = columns.new_zeros(len(L), len(unique)).index_add_(1, group, columns)
    return unique, b.new_zeros(len(unique)), F


@dataclass(frozen=True)
class TrigonometricForm:
    """The polynomial q(Wu + b), with frequencies and phases of shapes (H, d), (H,).

    Forms that differ in these alone share the coefficients of q.
    """

    W: Tensor
    b: Tensor
    coefficients: Coefficients

    @classmethod
    def squared(cls, W: Tensor, b: Tensor, factor: Tensor) -> "TrigonometricForm":
        """The form ‖L cos(Wu + b)‖² of a factor L of shape (r, D)."""
        W, b, F = merged_frequencies(W, b, factor)
        return cls(W, b, SquaredCoefficients(F))

    def __call__(self, u: Tensor) -> Tensor:
        """Values (n,) of the form at u of shape (n, d)."""
        return torch.cat([self.coefficients(self.phases(v)) for v in u.split(BLOCK)])

    def phases(self, u: Tensor) -> Tensor:
        """Phases (n, H) where the first columns are `u` of shape (n, t), the others zero."""
        return torch.addmm(self.b, u, self.W[:, : u.shape[1]].T)

    def rotated(self, Q: Tensor) -> "TrigonometricForm":
        """The form of v, where u = Qv are the first columns."""
        k = len(Q)
        return replace(self, W=torch.cat([self.W[:, :k] @ Q, self.W[:, k:]], 1))

    def fixed(self, u: Tensor) -> "TrigonometricForm":
        """The form of the other columns where the first len(u) are `u`."""
        return replace(self, W=self.W[:, len(u) :], b=self.phases(u[None])[0])

    def integrated(self, n_keep: int, law: Law) -> "TrigonometricForm":
        """The form of the first `n_keep` columns; the law integrates the others out."""
        return self.averaged(range(n_keep, self.W.shape[1]), law)

    def averaged(self, columns: Sequence[int], law: Law | ProductLaw) -> "TrigonometricForm":
        """The form of all other columns; the law integrates these out."""
        if not len(columns):
            return self
        kept = [c for c in range(self.W.shape[1]) if c not in columns]
        integrated = IntegratedCoefficients(self.coefficients, law, self.W[:, list(columns)])
        return TrigonometricForm(self.W[:, kept], self.b, integrated)

    def moved(self, columns: Sequence[int]) -> "TrigonometricForm":
        """The form with its columns in another order, or with some that do not matter left out."""
        return replace(self, W=self.W[:, list(columns)])
