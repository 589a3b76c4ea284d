"""Trigonometric forms in single precision, exact or rough, for many points at once."""

from abc import ABC, abstractmethod

import torch
from scipy.linalg import lapack
from torch import Tensor

from qaffde.nn.calculus.polynomial import SquaredCoefficients
from qaffde.nn.calculus.terms import Term

ROUGH = 2e-3
"""Share of its mean that a rough form may be short of, on average."""
WORTH = 2 / 3
"""Share of the work that a rough form may take to be kept beside the exact one."""
ROUNDING = 1e-9


class Form(ABC):
    """A form of cosines and sines."""

    width: int
    """Multiplications of one evaluation, divided by the number of frequencies."""

    @abstractmethod
    def __call__(self, c: Tensor, s: Tensor) -> Tensor:
        """Values (n,) from cosines and sines of shape (n, H)."""


class FactorForm(Form):
    """‖Aᵀc + Sᵀs‖², of factors of shape (H, r); a real factor has no S."""

    def __init__(self, A: Tensor, S: Tensor | None = None) -> None:
        self.A, self.S = A.float(), None if S is None else S.float()
        self.width = A.shape[1] * (1 if S is None else 2)

    def __call__(self, c: Tensor, s: Tensor) -> Tensor:
        """Values (n,): squares do not cancel."""
        y = c @ self.A if self.S is None else torch.addmm(c @ self.A, s, self.S)
        return y.square_().sum(-1)


class PairForm(Form):
    """cᵀPc + sᵀQs − 2cᵀXs; a real B and E have no X."""

    def __init__(self, B: Tensor, E: Tensor) -> None:
        self.P, self.Q = ((B + sign * E).real.float() for sign in (1, -1))
        self.X = (B + E).imag.float() if B.is_complex() else None
        self.width = len(B) * (2 + B.is_complex())

    def __call__(self, c: Tensor, s: Tensor) -> Tensor:
        """Values (n,); rounding may fall below zero where the parts cancel."""
        q = torch.linalg.vecdot(c @ self.P, c) + torch.linalg.vecdot(s @ self.Q, s)
        if self.X is not None:
            q.sub_(torch.linalg.vecdot(c @ self.X, s), alpha=2)
        return q.clamp_(min=0)


def single_forms(term: Term) -> tuple[Form, Form]:
    """The form of a term, exact and rough; one and the same where there is nothing to gain.

    The matrix of an integrated form has no small rank, but its pivoted Cholesky factor starts with
    what matters: the first columns alone are short by no more than the trace that they leave.
    """
    coefficients = term.form.coefficients
    if isinstance(coefficients, SquaredCoefficients):
        F = coefficients.F.T
        whole = FactorForm(F.real, -F.imag) if F.is_complex() else FactorForm(F)
        return whole, whole
    B, E = coefficients.pairs.B, coefficients.pairs.E
    L = pivoted_factor(B, E)
    mean = float((term.log_mass - term.log_coefficient).exp())
    left = L.square().sum() - L.square().sum(0).cumsum(0)  # of the trace, after each column
    n_rough = int((left / 2 > ROUGH * mean).sum()) + 1  # cosines and sines have mean square ½
    whole, rough = (FactorForm(*part.split(len(B))) for part in (L, L[:, :n_rough]))
    pairs = PairForm(B, E)
    exact = whole if whole.width <= pairs.width else pairs
    return exact, rough if rough.width < WORTH * exact.width else exact


def pivoted_factor(B: Tensor, E: Tensor) -> Tensor:
    """Factor L (2H, r), most important columns first, of the form as a matrix LLᵀ.

    Examples
    --------
    >>> B, E = torch.eye(2).double(), torch.zeros(2, 2).double()
    >>> pivoted_factor(B, E).shape
    torch.Size([4, 4])
    """
    P, Q, X = (B + E).real, (B - E).real, (B + E).imag if B.is_complex() else torch.zeros_like(B)
    M = torch.cat([torch.cat([P, -X], 1), torch.cat([-X.mT, Q], 1)])
    tolerance = ROUNDING * float(M.diagonal().max())
    factor, order, rank, _ = lapack.dpstrf(M.numpy(), tol=tolerance, lower=1)
    L = torch.empty(len(M), rank, dtype=torch.float64)
    L[torch.as_tensor(order).long() - 1] = torch.as_tensor(factor).tril()[:, :rank]
    return L
