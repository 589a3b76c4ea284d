"""Trigonometric forms in single precision, exact or rough, for many points at once."""

import torch
from scipy.linalg import lapack
from torch import Tensor

from qaffde.nn.calculus.polynomial import Blocks, SquaredCoefficients
from qaffde.nn.calculus.terms import Term

ROUGH = 2e-3
"""Share of its mean that a rough form may be short of, on average."""
WORTH = 2 / 3
"""Share of the work that a rough form may take to be kept beside the exact one."""
ROUNDING = 1e-9

Form = SquaredCoefficients | Blocks


def single_forms(term: Term) -> tuple[Form, Form]:
    """The form of a term, exact and rough; one and the same where there is nothing to gain.

    The matrix of an integrated form has no small rank, but its pivoted Cholesky factor starts with
    what matters: the first columns alone are short by no more than the trace that they leave.
    """
    coefficients = term.form.coefficients
    if isinstance(coefficients, SquaredCoefficients):
        whole = coefficients.single()
        return whole, whole
    blocks = coefficients.pairs.blocks
    L = pivoted_factor(blocks)
    mean = float((term.log_mass - term.log_coefficient).exp())
    left = L.square().sum() - L.square().sum(0).cumsum(0)  # of the trace, after each column
    n_rough = int((left / 2 > ROUGH * mean).sum()) + 1  # cosines and sines have mean square ½
    factor, rough = (_squared(part) for part in (L, L[:, :n_rough]))
    exact = factor if factor.work <= blocks.work else blocks.single()
    return exact, rough if rough.work < WORTH * exact.work else exact


def _squared(L: Tensor) -> SquaredCoefficients:
    """The form of a factor (2H, r) of cosines and sines."""
    c, s = L.T.float().chunk(2, 1)
    return SquaredCoefficients(torch.complex(c, -s))


def pivoted_factor(blocks: Blocks) -> Tensor:
    """Factor L (2H, r), most important columns first, of the form as a matrix LLᵀ.

    Examples
    --------
    >>> one = torch.eye(2).double()
    >>> pivoted_factor(Blocks(one, one, None)).shape
    torch.Size([4, 4])
    """
    P, Q, X = blocks.P, blocks.Q, blocks.X
    X = torch.zeros_like(P) if X is None else X
    M = torch.cat([torch.cat([P, -X], 1), torch.cat([-X.mT, Q], 1)])
    tolerance = ROUNDING * float(M.diagonal().max())
    factor, order, rank, _ = lapack.dpstrf(M.numpy(), tol=tolerance, lower=1)
    L = torch.empty(len(M), rank, dtype=torch.float64)
    L[torch.as_tensor(order).long() - 1] = torch.as_tensor(factor).tril()[:, :rank]
    return L
