r"""Updates: more rows, other fits, and less of the past, exactly.

A fit knows its data by three numbers alone, and all three add up over rows:

.. math:: \rho = \sum_i w_i \phi(x_i) \phi(x_i)^\top, \quad \sum_i w_i, \quad \sum_i w_i^2
"""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from qaffde.estimators.calculus import BornEstimator
from qaffde.estimators.frame import Frame
from qaffde.estimators.parameters import check_share
from qaffde.estimators.sources import (
    ChunkSource,
    MemorySource,
    Source,
    all_or_nothing,
    declare_columns,
)
from qaffde.estimators.sums import Sums
from qaffde.nn import Density, find_born
from qaffde.streams import Chunks, as_chunks


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

    @all_or_nothing
    def partial_fit(
        self, X: ArrayLike | Chunks, y: None = None, sample_weight: ArrayLike | None = None
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
        X : array-like of shape (n, d), or a source of chunks as in `fit`
            At least two rows in the first call. Rows beyond the ends of the frame, where it has
            any, are an error.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
        """
        self._check_parameters()
        first = not self.__sklearn_is_fitted__()
        return self._extend(self._source(X, sample_weight, minimum=2 if first else 1, reset=first))

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
    def _settle(self, source: Source, *, stream: bool = False) -> Frame:
        """Settle the frame from rows; for a stream, one that holds any row to come."""

    @abstractmethod
    def _read(self, frame: Frame, sums: Sums) -> Density:
        """Density of the data's columns, in their own units."""

    @property
    def _sums(self) -> Sums:
        return Sums(self.rho_, self.weight_sum_, self.effective_count_)

    def _extend(self, source: Source) -> Self:
        """Add rows, which the first time settle the frame."""
        if self.__sklearn_is_fitted__():
            return self._learn(self.frame_, self._sums + source.sums(self.frame_, self._compute()))
        frame = self._settle(source, stream=True)
        return self._learn(frame, source.sums(frame, self._compute()))

    def _chunk(self, X: ArrayLike | Chunks, sample_weight: ArrayLike | None) -> Sums:
        return self._source(X, sample_weight, minimum=1, reset=False).sums(
            self.frame_, self._compute()
        )

    def _source(
        self,
        X: Any,
        sample_weight: ArrayLike | None,
        *,
        minimum: int = 2,
        reset: bool = True,
    ) -> Source:
        """Rows in memory, checked, or a stream of them, which is checked as it is read."""
        chunks = as_chunks(X, sample_weight)
        if chunks is None:
            rows = self._validated(X, sample_weight, minimum=minimum, reset=reset)
            return MemorySource(*rows)
        declare_columns(self, chunks.n_columns, chunks.names, reset=reset)
        return ChunkSource(chunks, minimum)

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
