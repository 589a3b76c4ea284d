"""Drift: whether new rows come from the distribution of reference rows, and which columns moved.

Rows are put into groups, and of each group only the sum of its features is kept
(:mod:`qaffde.functional.table_features`). A test permutes groups
(:mod:`qaffde.functional.two_samples`): its cost does not see the number of rows.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from qaffde.estimators.base import (
    Array,
    FileMixin,
    RowsLike,
    all_or_nothing,
    declare_columns,
    read_numbers,
)
from qaffde.frames import Values, as_frame, is_gap
from qaffde.functional import two_samples
from qaffde.functional.table_features import TableFeatures
from qaffde.kinds import Real
from qaffde.parameters import check_count, generator_from
from qaffde.schema import Column, Schema
from qaffde.streams import as_chunks

SAMPLE_ROWS = 50_000
"""Reference rows that features are made for."""
MAX_GROUPS = 2048
"""Of the reference rows."""
BLOCK = 16_384
"""Rows whose features are computed at once."""
Result = tuple[float, float, Array]
UNKNOWN = -1.0
"""Code of a label that the reference rows did not have."""


class OpenColumn(Column):
    """Column of a table that takes labels of a category that it does not know."""

    def _places(self, given: Values, first: int) -> Array:
        labels = given.values.tolist()
        codes = [np.nan if is_gap(v) else self.codes.get(v, UNKNOWN) for v in labels]
        return np.array(codes, dtype=np.float64)

    def check(self, numbers: Array, first: int = 0) -> None:
        """Take numbers that the kind does not have, too."""


@dataclass(eq=False, repr=False)
class QAFFDEDriftDetector(FileMixin, BaseEstimator):
    """Test whether new rows come from the distribution of reference rows.

    The statistic is the distance between the mean features of the two samples. The features are
    those of each column, waves of all columns together at three scales, and products of two
    columns. Distances are standardized. Their soft maximum, over columns first, is tested by
    permutations, which is exact for rows that are independent: without drift the p-value is
    uniform.

    Columns may have any kinds, and gaps; labels that the reference rows did not have are drift,
    not an error. Neighboring rows are mixed within what one call is given, and nowhere else.

    Parameters
    ----------
    columns : "auto", kind, list of d kinds, dict of {column: kind} or None, default="auto"
        Kinds of the columns, as in :class:`QAFFDE`.
    n_features : int, default=64
        Waves of each scale.
    n_permutations : int, default=999
        The least p-value is one over one more than this.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    p_value_ : float
        Of all new rows that are not forgotten.
    column_p_values_ : ndarray of shape (d,)
        Of each column alone, corrected for their number by a step-down as Holm's: the probability
        that any column is called moved without drift is below the level.
    statistic_ : float
        Soft maximum of the standardized distances, near zero without drift.
    n_reference_, n_new_, n_features_in_, group_size_ : int
        New rows are tested in groups of as many as the reference rows; the rest waits.
    feature_names_in_ : ndarray of str, where X had names

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> detector = QAFFDEDriftDetector(random_state=0).fit(rng.normal(size=(1000, 2)))
    >>> detector.update(rng.normal(size=(300, 2))).p_value_ > 0.05
    True
    >>> detector.forget().update(rng.normal([0.0, 0.5], size=(300, 2))).p_value_
    0.001
    >>> detector.column_p_values_ < 0.01
    array([False,  True])
    """

    columns: Any = "auto"
    _: KW_ONLY
    n_features: int = 64
    n_permutations: int = 999
    random_state: Any = None

    @all_or_nothing
    def fit(self, X: RowsLike, y: None = None) -> Self:
        """Take reference rows.

        Parameters
        ----------
        X : array-like of shape (n, d), a data frame, or a source of chunks
            Sources are those of :meth:`QAFFDE.fit`, and are read twice.
        y : ignored
        """
        check_count("n_features", self.n_features)
        check_count("n_permutations", self.n_permutations)
        generator = generator_from(self.random_state)
        self._seed = generator.initial_seed()
        read = self._reader(X, reset=True)
        n, some = _sampled(read(), generator)
        if n < 2:
            raise ValueError(f"X has {n} sample{'s' * (n != 1)}; a reference needs at least two")
        schema: Schema | None = self._schema
        kinds = [Real()] * some.shape[1] if schema is None else schema.kinds
        self._features = TableFeatures.of(kinds, some, self.n_features, generator)
        self.n_reference_, self.group_size_ = n, -(-n // MAX_GROUPS)
        self._reference = self._grouped(read(), some[:0])[0]
        self._new, self._waiting = self._reference[:0], some[:0]
        self._tested: Result | None = None
        return self

    @all_or_nothing
    def update(self, X: RowsLike, y: None = None) -> Self:
        """Add new rows, which are tested together with those before.

        Parameters
        ----------
        X : array-like of shape (n, d), a data frame, or a source of chunks
        y : ignored
        """
        check_is_fitted(self)
        sums, self._waiting = self._grouped(self._reader(X)(), self._waiting)
        self._new, self._tested = torch.cat([self._new, sums]), None
        return self

    def forget(self, keep: int = 0) -> Self:
        """Forget new rows, but for the last `keep` of them, as far as these are whole groups."""
        check_is_fitted(self)
        check_count("keep", keep, minimum=0)
        n_groups = max(int(keep) - len(self._waiting), 0) // self.group_size_
        self._new = self._new[max(len(self._new) - n_groups, 0) :]
        self._waiting = self._waiting[: len(self._waiting) if keep else 0]
        self._tested = None
        return self

    def score(self, X: RowsLike, y: None = None) -> float:
        """Soft maximum of the standardized distances of these rows alone, which change nothing.

        It is near zero without drift, and larger with more of it.

        Parameters
        ----------
        X : array-like of shape (n, d), a data frame, or a source of chunks
        y : ignored
        """
        check_is_fitted(self)
        return self._test(self._grouped(self._reader(X)(), self._waiting[:0])[0])[0]

    @property
    def statistic_(self) -> float:
        """Soft maximum of standardized distances; NaN without new rows."""
        return self._result()[0]

    @property
    def p_value_(self) -> float:
        """P-value of all new rows; NaN without any."""
        return self._result()[1]

    @property
    def column_p_values_(self) -> Array:
        """P-values of the columns, of shape (d,), corrected for their number."""
        return self._result()[2]

    @property
    def n_new_(self) -> int:
        """Number of new rows that are tested."""
        return len(self._new) * self.group_size_

    def _result(self) -> Result:
        check_is_fitted(self)
        if self._tested is None:
            self._tested = self._test(self._new)
        return self._tested

    def _test(self, new: Tensor) -> Result:
        """Statistic, p-value, and p-values of columns, of the groups of new rows."""
        d = len(self._features.codes)
        if not len(new):
            return np.nan, np.nan, np.full(d, np.nan)
        generator = torch.Generator().manual_seed(self._seed)
        sums, sizes = torch.cat([self._reference, new]), (len(self._reference), len(new))
        labels = two_samples.random_labels(*sizes, self.n_permutations, generator)
        counts = torch.full_like(sums[:, 0], self.group_size_)
        T = two_samples.squared_distances(sums, counts, labels, self._features.blocks)
        z = two_samples.standardized(T)
        columns = two_samples.standardized(_soft_maximum(z[:, :d]), root=1)
        most = _soft_maximum(torch.cat([columns, z[:, d:]], 1))
        p_values = two_samples.step_down(z[:, :d]).numpy()
        return float(most[0, 0]), two_samples.share_above(most[:, 0]), p_values

    def _grouped(self, blocks: Iterable[Array], waiting: Array) -> tuple[Tensor, Array]:
        """Sums (G, F) of the features of groups of rows, and rows that are too few for one."""
        b, generator = self.group_size_, torch.Generator().manual_seed(self._seed)
        sums = [torch.empty(0, len(self._features.blocks), dtype=torch.float64)]
        for block in blocks:
            mixed = block[torch.randperm(len(block), generator=generator).numpy()]
            rows = np.concatenate([waiting, mixed])
            whole, step = len(rows) // b * b, max(BLOCK // b, 1) * b
            for k in range(0, whole, step):
                phi = self._features(rows[k : min(k + step, whole)])
                sums.append(phi.double().reshape(-1, b, phi.shape[1]).sum(1))
            waiting = rows[whole:]
        return torch.cat(sums), waiting

    def _reader(self, X: Any, *, reset: bool = False) -> Callable[[], Iterable[Array]]:
        """Function that reads blocks of rows; to `reset` is to let their columns be ours."""
        chunks = as_chunks(X, None)
        if chunks is None:
            if reset:
                self._schema = _opened(self._asked(X))
            how: Any = {"reset": reset, "ensure_all_finite": "allow-nan"}
            rows = read_numbers(self, X, self._schema, **how)
            return lambda: [rows]
        declare_columns(self, chunks.n_columns, chunks.names, reset=reset)
        if reset:
            self._schema = _opened(chunks.infer(self.columns))
        chunks.settle(self._schema, gaps=True)
        if chunks.again:
            return lambda: (block.rows for block in chunks.blocks())
        held = [block.rows for block in chunks.blocks()]
        return lambda: held

    def _asked(self, X: Any) -> Schema | None:
        """Schema of a table, or of an array of whose columns something is asked."""
        asked = not isinstance(self.columns, str | None)
        is_frame = not isinstance(X, np.ndarray) and as_frame(X) is not None
        return Schema.infer(X, self.columns) if asked or is_frame else None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_reference")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _soft_maximum(z: Tensor) -> Tensor:
    """Logarithms (P, 1) of the means of the exponentials of rows (P, B)."""
    return z.logsumexp(1, keepdim=True) - math.log(z.shape[1])


def _opened(schema: Schema | None) -> Schema | None:
    """A schema that takes any values."""
    if schema is None:
        return None
    columns = (OpenColumn(column.name, column.kind, column.dtype) for column in schema.columns)
    return replace(schema, columns=tuple(columns))


def _sampled(blocks: Iterable[Array], generator: Generator) -> tuple[int, Array]:
    """Number of rows, and a sample of them."""
    n, kept, keys = 0, None, torch.empty(0)
    for rows in blocks:
        n += len(rows)
        keys = torch.cat([keys, torch.rand(len(rows), generator=generator)])
        order = keys.argsort()[:SAMPLE_ROWS]
        held = rows if kept is None else np.concatenate([kept, rows])
        kept, keys = held[order.numpy()], keys[order]
    return n, np.empty((0, 0)) if kept is None else kept
