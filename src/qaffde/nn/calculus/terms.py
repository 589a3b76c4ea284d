r"""One term of the calculus: a base times a trigonometric polynomial (DESIGN §4, "Calculus").

.. math::

    p(x) = e^{\kappa}\, \frac{l(u)}{|C|}\, q(u), \quad x = m + C u, \quad
    q(u) = \operatorname{Re}\bigl[z^\dagger B z + z^\top E z\bigr], \quad z = e^{i(W u + b)}

The coordinates u are independent under the base l (a :class:`~qaffde.nn.calculus.base_laws.Law`),
C is lower triangular. Integrating columns out changes the coefficients of q
(:mod:`qaffde.nn.calculus.polynomial`), fixing columns moves the phases b: the family is closed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from qaffde import functional as QF
from qaffde.nn.calculus.base_laws import Law, ProductLaw
from qaffde.nn.calculus.column_series import values_of_column
from qaffde.nn.calculus.polynomial import TrigonometricForm


@dataclass(frozen=True)
class Shortcut:
    """Values of one form of two columns by the series, in x = m + C u, of its lattice."""

    form: TrigonometricForm
    series: QF.LatticeSeries
    offset: Tensor
    scale: Tensor

    def on_grid(self, first: Tensor, second: Tensor) -> Tensor:
        """Values (n, m) at all pairs of coordinates u, with the rounding of the largest."""
        x = self.offset + first[:, None] * self.scale[:, 0]
        values = self.series.on_sheared_grid(x[:, 0], x[:, 1], second * self.scale[1, 1])
        return values.clamp_(min=0)


@dataclass(frozen=True)
class Term:
    """A base times a trigonometric polynomial, not necessarily of mass one.

    `log_coefficient` is κ, `law` that of each coordinate of u, `offset` m and `scale` the
    lower-triangular C, of shapes (d,) and (d, d), `form` q. The shortcut is one to the values of
    q, or to those of a form that the term had. Columns of q beyond the d of u are numbers from
    outside (:mod:`qaffde.nn.calculus.factored`): they stand behind those of x, and are no part of
    the base.
    """

    log_coefficient: Tensor
    law: Law
    offset: Tensor
    scale: Tensor
    form: TrigonometricForm
    lattice: Shortcut | None = None

    @property
    def shortcut(self) -> Shortcut | None:
        """The shortcut to the values of this very form, if there is one."""
        has_own = self.lattice is not None and self.lattice.form is self.form
        return self.lattice if has_own else None

    @property
    def n_dims(self) -> int:
        """The number of columns d."""
        return len(self.offset)

    @cached_property
    def log_mass(self) -> Tensor:
        """Logarithm of the integral."""
        every = self.form.integrated(0, self.law)
        return self.log_coefficient + every.coefficients(every.b[None])[0].log()

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
        """The coordinates u of the first columns, given `x` of shape (n, t).

        Infinite where they overflow, also where they are the difference of two that do. Columns
        from outside stay as they are.
        """
        t = min(x.shape[-1], self.n_dims)
        centered = (x[:, :t] - self.offset[:t]).T
        u = torch.linalg.solve_triangular(self.scale[:t, :t], centered, upper=False).T
        u = u.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
        return u if x.shape[-1] == t else torch.cat([u, x[:, t:]], 1)

    def unwhiten(self, u: Tensor, v: Tensor) -> Tensor:
        """The last columns (n, d − t), from u of the first (n, t) and of the last (n, d − t)."""
        t = u.shape[1]
        return self.offset[t:] + u @ self.scale[t:, :t].T + v @ self.scale[t:, t:].T

    def log_prefactor(self, u: Tensor) -> Tensor:
        """Logarithm (n,) of what multiplies q, or its mean, at u of the first columns (n, t)."""
        return self.log_coefficient + self.log_base(u)

    def log_base(self, u: Tensor, start: int = 0) -> Tensor:
        """Log-density (n,) of the base at u of the first columns (n, t), those from `start` on."""
        log_volume = self.scale.diagonal()[start : u.shape[1]].abs().log().sum()
        return self.law.log_density(u[:, start : self.n_dims]) - log_volume

    def log_density(self, x: Tensor) -> Tensor:
        """Logarithm (n,) of the term at x of shape (n, d)."""
        u = self.whiten(x)
        return self.log_prefactor(u) + self.form.coefficients(self.form.phases(u)).log()

    def log_values_outside(self, x: Tensor) -> Tensor:
        """Logarithm (n,) of a term of no columns at values (n, k) from outside."""
        return self.log_coefficient + self.form.coefficients(self.form.phases(x)).log()

    def values(self, u: Tensor) -> Tensor:
        """Values (n,) of q at u of shape (n, d)."""
        if (
            self.n_dims == u.shape[1] == 1 and self.form.coefficients.cancels
        ):  # a series loses no more digits
            return values_of_column(self.form, self.law, u)
        return self.form(u)

    def reordered(self, columns: list[int]) -> "Term":
        """The same term with its columns in another order."""
        if columns == list(range(self.n_dims)):
            return self
        scale, Q = self.law.triangular(self.scale[columns])
        return replace(self, offset=self.offset[columns], scale=scale, form=self.form.rotated(Q))

    def marginal(self, n_keep: int) -> "Term":
        """The term of the first `n_keep` columns."""
        if n_keep == self.n_dims:
            return self
        return replace(
            self,
            offset=self.offset[:n_keep],
            scale=self.scale[:n_keep, :n_keep],
            form=self.form.averaged(range(n_keep, self.n_dims), self.law),
        )

    def condition(self, x: Tensor) -> "Term":
        """The term of the other columns where the first are `x` of shape (t,); not normalized."""
        t = len(x)
        u = self.whiten(x[None])[0]
        return replace(
            self,
            log_coefficient=self.log_prefactor(u[None])[0],
            offset=self.offset[t:] + self.scale[t:, :t] @ u,
            scale=self.scale[t:, t:],
            form=self.form.fixed(u),
        )

    def fixed(self, columns: Mapping[int, Tensor]) -> "Term":
        """The term where some columns from outside, by their numbers, have values."""
        numbers, values = list(columns), torch.stack(list(columns.values()))
        kept = [c for c in range(self.form.W.shape[1]) if c not in columns]
        moved = replace(self.form, b=self.form.b + self.form.W[:, numbers] @ values)
        return replace(self, form=moved.moved(kept))

    def averaged(self, columns: Sequence[int], law: ProductLaw) -> "Term":
        """The term where the law integrates some columns from outside, by their numbers, out."""
        return replace(self, form=self.form.averaged(columns, law))

    def times(self, log_factor: Tensor) -> "Term":
        """The term multiplied with a number."""
        return replace(self, log_coefficient=self.log_coefficient + log_factor)

    def affine(self, location: Tensor, scale: Tensor) -> "Term":
        """The term of location + scale·x."""
        return replace(
            self, offset=location + scale * self.offset, scale=scale[:, None] * self.scale
        )
