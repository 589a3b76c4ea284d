r"""Updates: more rows, other fits, and less of the past, exactly.

A fit knows its data by three numbers alone, and all three add up over rows:

.. math:: \rho = \sum_i w_i \phi(x_i) \phi(x_i)^\top, \quad \sum_i w_i, \quad \sum_i w_i^2
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from qaffde.estimators.calculus import BornEstimator
from qaffde.estimators.data_measure import effective_count
from qaffde.estimators.frame import Frame
from qaffde.estimators.parameters import check_share
from qaffde.nn import Density, find_born
from qaffde.training.closed_form import density_matrix, row_batches

ROUNDING = 1e-10
"""Share of the whole below which what is left of a difference is rounding."""


@dataclass(frozen=True, eq=False)
class Sums:
    r"""What weighted rows leave behind in a frame.

    Sums of squared weights are kept as Kish's count :math:`n = (\sum w)^2 / \sum w^2`, which does
    not overflow.

    Parameters
    ----------
    rho : Tensor of shape (D, D)
        Σ w φφᵀ.
    weight : float
        Σ w.
    count : float
        Effective number of rows.
    """

    rho: Tensor
    weight: float
    count: float

    @classmethod
    def of(cls, frame: Frame, rows: Tensor, weight: Tensor) -> "Sums":
        """Sums over rows of shape (n, d) with weights of shape (n,)."""
        batches = row_batches(frame.standardize(rows), weight)
        rho = density_matrix(frame.features, batches)
        return cls(rho, float(weight.sum()), effective_count(weight))

    def __add__(self, other: "Sums") -> "Sums":
        weight = self.weight + other.weight
        share = self._square_share(weight) + other._square_share(weight)
        return Sums(self.rho + other.rho, weight, 1 / share)

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


NOT_FITTED = "rows to forget were not all in the fit, or not with this weight"


def _difference(whole: Tensor, part: Tensor) -> Tensor:
    """Difference of density matrices, which must not be negative by more than rounding.

    A Cholesky factor tells at a tenth of the cost of eigenvalues. Negative ones within rounding
    stay in the sum, where rows that return meet them again; every reading clips them.
    """
    rest = whole - part
    slack = ROUNDING * whole.trace() * torch.eye(len(rest), dtype=rest.dtype)
    if torch.linalg.cholesky_ex(rest + slack).info > 0:
        least = float(torch.linalg.eigvalsh(rest)[0])
        raise ValueError(
            f"{NOT_FITTED}: without them the density matrix has the eigenvalue {least:.2g}"
        )
    return rest


class UpdatableEstimator(BornEstimator):
    """Density estimator whose data are summed up in ρ, so that rows can come and go.

    Subclasses say how a frame is settled and how a density is read. The density is read when it
    is first asked for: a thousand small updates cost a thousand small sums and one reading. Every
    update either happens as a whole or, on an error, not at all.
    """

    frame_: Frame
    rho_: Tensor
    weight_sum_: float
    effective_count_: float
    _density: Density | None

    def partial_fit(
        self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Add rows to the fit.

        The first call settles the frame (units, bandwidth, base measure, features) from its rows:
        make them typical ones. Where "auto" is left to choose, it then takes what later rows
        cannot fall out of: the mixture base, frequencies without a period, and as many features
        as a large fit would have. Later calls, and calls after `fit`, keep the frame and add to
        ρ; chunks give the same density as all their rows in one `fit` with ``warm_start=True``,
        in any order. With numbers for `bandwidth` and `bounds` the frame depends on no row, and
        chunks give the same as a plain `fit`.

        Parameters
        ----------
        X : array-like of shape (n, d)
            At least two rows in the first call. Rows beyond the ends of the frame, where it has
            any, are an error.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
        """
        self._check_parameters()
        if not self.__sklearn_is_fitted__():
            rows, weight = self._validated(X, sample_weight)
            frame = self._settle(rows, weight, stream=True)
            return self._learn(frame, Sums.of(frame, rows, weight))
        return self._learn(self.frame_, self._sums + self._chunk(X, sample_weight))

    def merge(self, other: "UpdatableEstimator") -> Self:
        """Add the rows of another fit on the same frame, in place; `other` stays as it is.

        Parameters
        ----------
        other : estimator of the same kind, fitted
            On the same frame: a copy of this one that was updated or, with ``warm_start=True``,
            fitted to other rows; or any fit with the same numbers for `bandwidth`, `bounds` and
            `random_state`.
        """
        check_is_fitted(self)
        if not isinstance(other, UpdatableEstimator):
            raise TypeError(f"only a fit with a density matrix can be merged, got {other!r}")
        check_is_fitted(other)
        if not self.frame_.matches(other.frame_) or not _same_names(self, other):
            raise ValueError(
                "the two fits have different frames (units, bandwidth, base measure, features or "
                "column names), so their sums do not add up. Fit the second one on the frame of "
                "the first: copy.deepcopy(first).set_params(warm_start=True).fit(rows)"
            )
        return self._learn(self.frame_, self._sums + other._sums)

    def forget(
        self,
        X: ArrayLike | None = None,
        *,
        decay: float | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Remove rows from the fit, or let all that it holds fade.

        Parameters
        ----------
        X : array-like of shape (n, d), optional
            Rows that are in the fit.
        decay : float in (0, 1), optional
            Factor for the weight of every row so far. The density, a mean, stays the same, and so
            does the effective count; rows that come later weigh more.
        sample_weight : array-like of shape (n,), optional
            The weights that the rows have now: those they were added with, times all decay since.
        """
        check_is_fitted(self)
        if (X is None) == (decay is None):
            raise ValueError("give either rows to forget or decay, a factor; not both, not none")
        if X is not None:
            return self._learn(self.frame_, self._sums - self._chunk(X, sample_weight))
        check_share("decay", decay)
        if sample_weight is not None:
            raise ValueError("sample_weight belongs to rows; decay is one factor for all of them")
        return self._learn(self.frame_, self._sums * float(decay))  # type: ignore[arg-type]

    @property
    def density_(self) -> Density:  # type: ignore[override]
        """The density, a torch module; read from ρ when first asked for after an update."""
        if self._density is None:
            self._density = self._read(self.frame_, self._sums)
        return self._density

    @property
    def rank_(self) -> int:
        """Number of eigenpairs that the density keeps."""
        return find_born(self.density_).rank

    @abstractmethod
    def _check_parameters(self) -> None:
        """Reject parameters that are wrong whatever the data."""

    @abstractmethod
    def _settle(self, rows: Tensor, weight: Tensor, *, stream: bool = False) -> Frame:
        """Settle the frame from rows; for a stream, one that holds any row to come."""

    @abstractmethod
    def _read(self, frame: Frame, sums: Sums) -> Density:
        """Density of the data's columns, in their own units."""

    @property
    def _sums(self) -> Sums:
        return Sums(self.rho_, self.weight_sum_, self.effective_count_)

    def _chunk(self, X: ArrayLike, sample_weight: ArrayLike | None) -> Sums:
        rows, weight = self._validated(X, sample_weight, minimum=1, reset=False)
        return Sums.of(self.frame_, rows, weight)

    def _learn(self, frame: Frame, sums: Sums, density: Density | None = None) -> Self:
        """Take over a new state; nothing can fail from here on."""
        self.frame_, self._density = frame, density
        self.rho_, self.weight_sum_, self.effective_count_ = sums.rho, sums.weight, sums.count
        self.bandwidth_ = (frame.bandwidth * frame.scale).numpy()
        self.base_measure_ = frame.base_measure
        self.n_fourier_features_ = frame.features.n_features
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "rho_")


def _same_names(first: BornEstimator, second: BornEstimator) -> bool:
    names = first._names(), second._names()
    return any(of is None for of in names) or np.array_equal(*names)
