"""Forms of terms in the units of the data and in single precision, exact and rough."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.linalg import lapack
from torch import Tensor

from qaffde.nn.calculus.polynomial import WAVES, Blocks, SquaredCoefficients
from qaffde.nn.calculus.terms import Term

ROUGH = 2e-3
"""Share of its mean that a rough form may be short of, on average."""
WORTH = 2 / 3
"""Share of the work that a rough form may take to be kept beside the exact one."""
ROUNDING = 1e-9
MAX_POINTS = 8192
"""Of a grid at a time: what they take, some megabytes, is given back before the next ones."""
Form = SquaredCoefficients | Blocks


@dataclass(frozen=True)
class Family:
    """Terms that share one form of the data's columns: their bases add up before it is evaluated.

    Phases are start + slopes·x.
    """

    start: Tensor  # (H,)
    slopes: Tensor  # (H, k)
    exact: Form
    draft: Form

    @classmethod
    def of(cls, term: Term) -> "Family":
        """The family of the form of a term."""
        W, C = term.form.W, term.scale
        slopes = torch.linalg.solve_triangular(C, W, upper=False, left=False)
        start = term.form.b - slopes @ term.offset
        return cls(start, slopes, *single_forms(term))

    @property
    def nbytes(self) -> int:
        """Memory that is kept, by the tensors that hold it."""
        found = [self.slopes, *vars(self.exact).values(), *vars(self.draft).values()]
        found += [item for part in found if isinstance(part, tuple) for item in part]
        storages = [item.untyped_storage() for item in found if isinstance(item, Tensor)]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def work(self, *, draft: bool) -> int:
        """Multiplications for one point, and its waves in the same currency."""
        form = self.draft if draft else self.exact
        return len(self.start) * int(WAVES + form.work)

    def on_grid(
        self,
        given: Tensor,
        axes: Sequence[Tensor],
        rows: Tensor | None = None,
        *,
        draft: bool = False,
    ) -> Tensor:
        """Values (m,) of the form at points of a grid: those whose numbers are `rows`, or all."""
        t = len(given)
        if rows is None:
            rows = torch.arange(math.prod(len(axis) for axis in axes))
        if len(rows) > MAX_POINTS:
            parts = rows.split(MAX_POINTS)
            return torch.cat([self.on_grid(given, axes, part, draft=draft) for part in parts])
        theta = self.start + self.slopes[:, :t] @ given
        c, s = theta.cos()[None].float(), theta.sin()[None].float()
        index = torch.unravel_index(rows, [len(axis) for axis in axes])
        precision = torch.float32 if draft else torch.float64
        for column, (axis, at) in enumerate(zip(axes, index, strict=True), t):
            angle = (axis[:, None] * self.slopes[:, column]).to(precision)
            a, b = angle.cos().float()[at], angle.sin().float()[at]
            c, s = torch.addcmul(c * a, s, b, value=-1), torch.addcmul(s * a, c, b)
        form = self.draft if draft else self.exact
        return form.of_waves(c, s).clamp_(min=0).double()  # rounding may fall below zero


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
