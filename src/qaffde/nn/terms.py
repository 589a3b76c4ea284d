r"""One term of the calculus: a base times a trigonometric polynomial (DESIGN §4, "Calculus").

.. math::

    p(x) = e^{\kappa}\, \frac{l(u)}{|C|}\, q(u), \quad x = m + C u, \quad
    q(u) = c^\top P c + s^\top Q s, \quad c, s = \cos, \sin(W u + b)

The coordinates u are independent under the base l (a :class:`~qaffde.nn.laws.Law`), C is lower
triangular. P and Q are positive semidefinite; a Born density starts from P = LᵀL and Q = 0.
Integrating columns out multiplies P and Q entry by entry with Gram matrices (Schur's product
theorem keeps them positive), fixing columns moves the phases b: the family is closed.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from qaffde.nn.laws import Law

BLOCK = 2048


@dataclass(frozen=True)
class TrigonometricForm:
    """The polynomial q.

    Parameters
    ----------
    W, b : Tensors of shapes (D, d), (D,)
        Frequencies and phases.
    P, Q : Tensors of shape (D, D)
        Coefficients of the cosines and of the sines.
    factor : Tensor of shape (r, D), optional
        L, as long as q = ‖L cos(Wu + b)‖²: evaluating it is cheaper, and free of cancellation.
    """

    W: Tensor
    b: Tensor
    P: Tensor
    Q: Tensor
    factor: Tensor | None = None

    @classmethod
    def squared(cls, W: Tensor, b: Tensor, factor: Tensor) -> "TrigonometricForm":
        """The form ‖L cos(Wu + b)‖² of a factor L of shape (r, D)."""
        P = factor.T @ factor
        return cls(W, b, P, torch.zeros_like(P), factor)

    def __call__(self, u: Tensor) -> Tensor:
        """Q of shape (n,) at u of shape (n, d)."""
        return torch.cat([self.at(self.b + v @ self.W.T) for v in u.split(BLOCK)])

    def at(self, theta: Tensor) -> Tensor:
        """Values (n,) of q where the phases Wu + b are `theta` of shape (n, D)."""
        c = theta.cos()
        return self.of_waves(c, c if self.factor is not None else theta.sin())

    def of_waves(self, c: Tensor, s: Tensor) -> Tensor:
        """Values (n,) of q from cosines and sines of shape (n, D); a factor needs no sines.

        Where q is tiny against its maximum, P and Q cancel and rounding may fall below zero.
        """
        if self.factor is not None:
            return (c @ self.factor.T).square().sum(-1)
        return ((c @ self.P) * c).sum(-1).add_(((s @ self.Q) * s).sum(-1)).clamp_(min=0)

    def rotated(self, Q: Tensor) -> "TrigonometricForm":
        """The form of v, where u = Qv."""
        return replace(self, W=self.W @ Q)

    def fixed(self, u: Tensor) -> "TrigonometricForm":
        """The form of the other columns where the first len(u) are `u`."""
        t = len(u)
        return replace(self, W=self.W[:, t:], b=self.b + self.W[:, :t] @ u)

    def integrated(self, n_keep: int, law: Law) -> "TrigonometricForm":
        """The form of the first `n_keep` columns; the law integrates the others out."""
        if n_keep == self.W.shape[1]:
            return self
        cosines, sines = law.grams(self.W[:, n_keep:])
        return TrigonometricForm(self.W[:, :n_keep], self.b, *self.schur(cosines, sines))

    def schur(self, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
        """New P and Q, by cos(α + v) = cos α cos v − sin α sin v and its like for the sine."""
        if self.factor is not None:
            return self.P * cosines, self.P * sines
        return self.P * cosines + self.Q * sines, self.P * sines + self.Q * cosines


@dataclass(frozen=True)
class Term:
    """A base times a trigonometric polynomial, not necessarily of mass one.

    Parameters
    ----------
    log_coefficient : Tensor of shape ()
        κ.
    law : Law
        Of each coordinate of u.
    offset, scale : Tensors of shapes (d,), (d, d)
        m and the lower-triangular C.
    form : TrigonometricForm
        q.
    """

    log_coefficient: Tensor
    law: Law
    offset: Tensor
    scale: Tensor
    form: TrigonometricForm

    @property
    def n_dims(self) -> int:
        """The number of columns d."""
        return len(self.offset)

    @cached_property
    def log_mass(self) -> Tensor:
        """Logarithm of the integral."""
        every = self.form.integrated(0, self.law)
        return self.log_coefficient + every.at(every.b[None])[0].log()

    @property
    def reach(self) -> Tensor:
        """Ends (2, d) of a box that holds all mass, to rounding."""
        spread = self.law.reach * self.scale.abs().sum(1)
        return torch.stack([self.offset - spread, self.offset + spread])

    @property
    def support(self) -> Tensor:
        """Ends (2, d) of the box outside of which the term is exactly zero."""
        infinite = torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64)
        return self.reach if self.law.bounded else infinite.expand(2, self.n_dims)

    def whiten(self, x: Tensor) -> Tensor:
        """The coordinates u of the first columns, given `x` of shape (n, t)."""
        t = x.shape[-1]
        centred = (x - self.offset[:t]).T
        return torch.linalg.solve_triangular(self.scale[:t, :t], centred, upper=False).T

    def log_density(self, x: Tensor) -> Tensor:
        """Logarithm of the term, of shape (n,), at x of shape (n, d)."""
        u = self.whiten(x)
        return self._log_base(u) + self.form(u).log() + self.log_coefficient

    def reordered(self, columns: list[int]) -> "Term":
        """The same term with its columns in another order."""
        if columns == list(range(self.n_dims)):
            return self
        scale, Q = self.law.triangular(self.scale[columns])
        return replace(self, offset=self.offset[columns], scale=scale, form=self.form.rotated(Q))

    def marginal(self, n_keep: int) -> "Term":
        """The term of the first `n_keep` columns."""
        return replace(
            self,
            offset=self.offset[:n_keep],
            scale=self.scale[:n_keep, :n_keep],
            form=self.form.integrated(n_keep, self.law),
        )

    def condition(self, x: Tensor) -> "Term":
        """The term of the other columns where the first are `x` of shape (t,); not normalised."""
        t = len(x)
        u = self.whiten(x[None])[0]
        return replace(
            self,
            log_coefficient=self.log_coefficient + self._log_base(u[None])[0],
            offset=self.offset[t:] + self.scale[t:, :t] @ u,
            scale=self.scale[t:, t:],
            form=self.form.fixed(u),
        )

    def affine(self, location: Tensor, scale: Tensor) -> "Term":
        """The term of location + scale·x."""
        return replace(
            self, offset=location + scale * self.offset, scale=scale[:, None] * self.scale
        )

    def _log_base(self, u: Tensor) -> Tensor:
        """Log l(u)/|C| of the first columns."""
        t = u.shape[-1]
        return self.law.log_density(u) - self.scale.diagonal()[:t].abs().log().sum()
