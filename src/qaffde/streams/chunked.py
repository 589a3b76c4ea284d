"""One face for every source of rows that is read a block at a time."""

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qaffde.frames import as_frame
from qaffde.schema import Schema
from qaffde.streams import blocks, files
from qaffde.streams.blocks import Array, Block, Chunks, Part, Progress
from qaffde.streams.names import find_columns, framed, names_of
from qaffde.streams.schemas import encode_batch, infer_schema
from qaffde.streams.table import DataError, Table, import_pyarrow

Missing = str | Callable[[Array], Array]


class TableChunks(Chunks):
    """Columns of a file, all of them numbers unless a schema says how they become numbers.

    A fit infers the schema if none is given. `weights` is the column of weights; rows without one
    are left out. Of rows that lack a value, `missing` says whether an error names the first
    ("error"), they are left out ("drop"), means of columns or a callable fill them ("impute"), or
    they stay as NaN ("keep").
    """

    def __init__(
        self,
        table: Table,
        columns: Sequence[str],
        weights: str | None = None,
        *,
        missing: Missing = "error",
        progress: Progress | None = None,
        schema: Schema | None = None,
    ) -> None:
        if missing not in ("error", "drop", "impute", "keep") and not callable(missing):
            raise ValueError(
                f"missing={missing!r} is not known; choose error, drop, impute or keep"
            )
        self.table, self.columns, self.missing = table, list(columns), missing
        self.progress, self.framed = progress, table.named
        self.given, self.schema, self.has_gaps = schema, schema, missing == "keep"
        self.weights = [] if weights is None else [weights]
        self.names = self.columns if table.named else None
        self.n_columns, self.n_rows = len(columns), table.n_rows
        self.n_read = self.n_kept = self.n_missing = 0  # rows and values in the last pass
        self._check_numeric(self.weights)

    def _check_numeric(self, wanted: Sequence[str]) -> None:
        table, numbers = self.table, {*self.table.numeric}
        words = [name for name in wanted if name not in numbers]
        if words:
            hint = f"columns={','.join(table.numeric[:12])}" if table.numeric else "other data"
            plural = "column is" if len(words) == 1 else "columns are"
            raise DataError(f"{table.label}: {plural} not numeric: {', '.join(words)}; try {hint}")

    def infer(self, columns: Any) -> Schema | None:
        """The schema that was given, or that of the file."""
        return super().infer(columns) if self.given is None else self.given

    def inferred(self, columns: Any) -> Schema:
        """Schema of the file."""
        schema = infer_schema(self.table, self.columns, columns)
        if self.table.named:
            return schema
        return Schema(tuple(replace(column, name=k) for k, column in enumerate(schema.columns)))

    def settle(self, schema: Schema | None, *, gaps: bool) -> None:
        """Read rows by a schema from now on; NaN are `gaps` where missing values are kept."""
        super().settle(schema, gaps=gaps and self.missing == "keep")

    def frame(self, X: Array) -> Any:
        """Rows that were read as a table, if they have names and are ones that it can have."""
        if self.schema is None:
            return framed(X, self.names)
        self.schema.check(X)
        return self.schema.decode(X)

    def read(self) -> Iterator[Part]:
        """Rows and weights."""
        return ((batch.rows, batch.weight) for batch in self.batches())

    def batches(self, *others: str) -> Iterator[Block]:
        """Rows together with how they stand in the file, which may have `others` as columns."""
        pa, d, label = import_pyarrow(), self.n_columns, self.table.label
        self.n_read = self.n_kept = self.n_missing = 0
        for table, values in self._values(*others):
            gaps, first = np.isnan(values), self.n_read
            if self.missing == "error" and gaps.any():
                row, column = np.argwhere(gaps)[0]
                name = [*self.columns, *self.weights][column]
                raise DataError(
                    f"{label}: column {name!r} has no value in row {first + row}; use "
                    "missing=drop, missing=impute or missing=keep"
                )
            weight = np.where(gaps[:, d:], 0, values[:, d:]).ravel()
            weight = weight if self.weights else np.ones(len(values))
            blocks.checked(values[:, :d], weight, first, self.columns, f"{label}: ", gaps=True)
            keep = ~np.any(gaps if self.missing == "drop" else gaps[:, d:], axis=1)
            rows = np.ascontiguousarray(values[keep, :d])
            self.n_read, self.n_kept = self.n_read + len(keep), self.n_kept + len(rows)
            self.n_missing += int(gaps.sum())
            yield Block(
                rows if self.missing == "keep" or not np.isnan(rows).any() else self._fill(rows),
                weight[keep],
                (first + np.flatnonzero(keep)).tolist(),
                table if keep.all() else table.filter(pa.array(keep)),
            )
        if not self.n_kept:
            without = " without missing values" if self.n_read else "s"
            raise DataError(f"{label} has no row{without}")

    def _values(self, *others: str) -> Iterator[tuple[Any, Array]]:
        if self.schema is None:
            self._check_numeric(self.columns)
        table, numbers, first = self.table, {*self.columns, *self.weights}, 0
        wanted = numbers | {*others}
        columns = [name for name in table.names if name in wanted]
        for batch in table.read(columns, numbers & {*table.numeric}):
            rows = encode_batch(self.schema, batch.select(self.columns), table.label, first)
            weights = files.matrix(batch.select(self.weights))
            first += len(rows)
            yield batch, np.concatenate([rows, weights], axis=1)

    def _fill(self, rows: Array) -> Array:
        if callable(self.missing):
            return self.missing(rows)
        return np.where(np.isnan(rows), self._means, rows)

    @cached_property
    def _means(self) -> Array:
        """Means of the columns, from a pass of its own."""
        if self.schema is not None and not self.schema.is_real:
            raise DataError(
                f"{self.table.label}: missing=impute fills in means, which only real columns "
                "have; use missing=keep or missing=drop"
            )
        total, count = np.zeros(self.n_columns), np.zeros(self.n_columns)
        for _, values in self._values():
            rows = values[~np.isnan(values[:, self.n_columns :]).any(axis=1), : self.n_columns]
            total += np.nansum(rows, axis=0)
            count += (~np.isnan(rows)).sum(0)
        if not count.all():
            name = self.columns[int(np.argmin(count))]
            raise DataError(f"{self.table.label}: column {name!r} has no value at all")
        return np.asarray(total / count)


def pick_columns(
    table: Table, columns: Sequence[str] | None, weights: str | None = None
) -> tuple[list[str], str | None]:
    """Names of the columns picked, or of all but the weights, and of the column of weights."""
    names, label = table.names, table.label
    weight = None
    if weights is not None:
        weight, *more = (names[j] for j in find_columns([weights], names, label))
        if more:
            raise DataError(f"weights takes one column, got {weights!r}")
    if columns is None:
        chosen = [name for name in names if name != weight]
    else:
        chosen = [names[j] for j in find_columns(columns, names, label)]
    if weight in chosen:
        raise DataError(f"the column {weights!r} of weights is among the columns as well")
    if not chosen:
        raise DataError(f"{label} has no column but that of the weights")
    return chosen, weight


LARGE = 1 << 24
"""Numbers in an array, 128 MB, beyond which it is read in blocks."""
EVERY_SECONDS = 5.0


def chunks(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    weights: Any = None,
    missing: Missing = "error",
    progress: bool | Progress = False,
    decimal: str | None = None,
    encoding: str | None = None,
) -> Chunks:
    """Rows for ``fit`` and ``partial_fit`` that need not fit into memory.

    Parameters
    ----------
    source : one of

        - an array, also one that is memory-mapped;
        - the path of a file (CSV, TSV, Parquet, Arrow, Feather, NPY, NPZ) or of a folder of
          Parquet files, or a ``pyarrow.dataset.Dataset``;
        - an iterable of chunks, each an array, a data frame or a pair (rows, weights). A list is
          read as often as needed, an iterator or generator once;
        - a function without arguments that returns such an iterable, called for every pass.
    columns : sequence of str, optional
        Columns of a file by name, number or range, ``["0-3"]``; all but the weights by default.
    weights : str or array-like of shape (n,), optional
        Column of weights of a file; for an array, the weights.
    missing : {"error", "drop", "impute", "keep"} or callable, default="error"
        What becomes of rows of a file that lack a value: an error, they are left out, the mean of
        the column is filled in, or they have gaps, as rows of arrays and chunks have; a callable
        returns rows that have NaN filled in.
    progress : bool or callable, default=False
        True prints a line every five seconds; a function is called after each block with what is
        being done, the rows done and the rows in all, or None where only reading tells.
    decimal, encoding : str, optional
        Decimal sign of CSV, "." or ",", and its encoding, such as "latin-1"; UTF-8 by default.

    Examples
    --------
    >>> import numpy as np
    >>> from qaffde import QAFFDE
    >>> rng = np.random.default_rng(0)
    >>> rows = chunks([rng.normal(size=(500, 2)) for _ in range(4)])
    >>> rows
    <Chunks of rows by 2 columns>
    >>> model = QAFFDE(random_state=0).fit(rows)
    >>> model.sums_.weight
    2000.0
    """
    text = {"decimal": decimal, "encoding": encoding}
    rows = _opened(source, columns, weights, missing, text)
    rows.progress = print_progress() if progress is True else progress or None
    return rows


def _opened(
    source: Any,
    columns: Sequence[str] | None,
    weights: Any,
    missing: Missing,
    text: dict[str, Any],
) -> Chunks:
    is_set = files.is_dataset(source)
    if isinstance(source, str | os.PathLike) or is_set:
        if weights is not None and not isinstance(weights, str):
            raise ValueError("weights as an array belong to an array of rows; name a column")
        if is_set:
            table = files.open_dataset(source, "the data set")
        else:
            table = files.open_table(source, **text)
        return TableChunks(table, *pick_columns(table, columns, weights), missing=missing)
    if any(text.values()):
        raise ValueError("decimal and encoding apply to files of text")
    if missing != "error":
        raise ValueError("missing applies to files; drop rows of arrays and chunks, or fill them")
    if isinstance(source, np.ndarray) and columns is None and not isinstance(weights, str):
        return ArrayChunks(source, weights)
    if columns is not None or weights is not None:
        raise ValueError(
            "columns and weights by name belong to files; give arrays their weights as an array, "
            "and chunks as pairs (rows, weights)"
        )
    if isinstance(source, Chunks):
        return copy(source)
    if callable(source):
        return IterableChunks(source, again=True)
    if not isinstance(source, Iterable):
        raise TypeError(
            "rows come from an array, the path of a file, a data set, an iterable of chunks "
            f"or a function that returns one; got {type(source).__name__}"
        )
    return IterableChunks(lambda: source, again=not isinstance(source, Iterator))


def as_chunks(X: Any, sample_weight: ArrayLike | None) -> Chunks | None:
    """Chunks of what is read in blocks; None for what is checked and kept in memory."""
    if isinstance(X, np.ndarray):
        large = X.ndim == 2 and X.dtype.kind in "fiu" and X.size > LARGE
        return chunks(X, weights=sample_weight) if large else None
    if not isinstance(X, Chunks | str | os.PathLike | Iterator) and not files.is_dataset(X):
        return None
    if sample_weight is not None:
        raise ValueError(
            "sample_weight belongs to arrays; the weights of a stream come with its rows: "
            "chunks(source, weights=column), or chunks as pairs (rows, weights)"
        )
    rows = X if isinstance(X, Chunks) else chunks(X)
    rows.n_seen = None
    return rows


def print_progress(show: Callable[[str], None] = print, unit: str = "rows") -> Progress:
    """Progress that shows a line every few seconds."""
    last = time.monotonic()

    def report(what: str, done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY_SECONDS:
            last = time.monotonic()
            show(f"{what}: {done:,}{'' if total is None else f' of {total:,}'} {unit}")

    return report


class ArrayChunks(Chunks):
    """An array in memory or on the disk, of which only blocks are copied."""

    def __init__(self, X: NDArray[Any], weight: ArrayLike | None) -> None:
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise ValueError(
                f"rows must be an array of numbers of shape (n, d), got {X.dtype} of shape "
                f"{X.shape}"
            )
        self.X = X
        self.n_rows, self.n_columns = X.shape
        self.weight = np.broadcast_to(np.asarray(1.0 if weight is None else weight), (len(X),))

    def read(self) -> Iterator[Part]:
        """Blocks of rows."""
        first, size = 0, blocks.block_size(self.n_columns)
        for part, weight in files.blocks_of([self.X, self.weight], size):
            rows = part if self.schema is None else self.schema.encode(part, first)
            first += len(rows)
            yield np.array(rows, dtype=np.float64, order="C"), np.array(weight, dtype=np.float64)

    def inferred(self, columns: Any) -> Schema:
        """Schema of the array."""
        parts = files.blocks_of([self.X], blocks.block_size(self.n_columns))
        return blocks.schema_of_parts((part for (part,) in parts), columns, again=True)


class IterableChunks(Chunks):
    """Chunks from an iterator, which can be read once, or from a function that makes iterators.

    Chunks are arrays, data frames or pairs (rows, weights).
    """

    def __init__(self, make: Callable[[], Iterable[Any]], *, again: bool) -> None:
        self.make, self.again = make, again
        source = iter(make())
        head = next(source, None)
        if head is None:
            raise ValueError("the source has no chunks; an iterator can be read once only")
        table, _ = _pair(head, 0)
        self.framed, self.names = as_frame(table) is not None, names_of(table)
        self.n_columns = _n_columns(table, 0)
        self.source: Iterator[Any] | None = None if again else chain([head], source)

    def read(self) -> Iterator[Part]:
        """Chunks as they come; those of an iterator are gone afterwards."""
        source, first = self.make() if self.source is None else self.source, 0
        if not self.again:
            self.source = iter(())
        for number, table, weight in self._pairs(source):
            rows = self._numbers(table, number, first)
            part = blocks.as_part(rows, weight, f"chunk {number}")
            first += len(rows)
            if len(rows):
                yield part

    def inferred(self, columns: Any) -> Schema:
        """Schema of the chunks."""
        return blocks.schema_of_parts(self._tables(), columns, again=self.again)

    def _tables(self) -> Generator[Any]:
        """Chunks that are not empty; those of an iterator stay unread."""
        held: list[Any] = []
        source = iter(self.make() if self.source is None else self.source)

        def seen() -> Iterator[Any]:
            for chunk in source:
                if not self.again:
                    held.append(chunk)
                yield chunk

        try:
            for _, table, _ in self._pairs(seen()):
                if len(table):
                    yield table
        finally:
            if not self.again:
                self.source = chain(held, source)

    def _pairs(self, source: Iterable[Any]) -> Iterator[tuple[int, Any, Any]]:
        """Numbers, tables and weights of chunks, which have the same columns."""
        for number, chunk in enumerate(source):
            table, weight = _pair(chunk, number)
            names, n_columns = names_of(table), _n_columns(table, number)
            if n_columns != self.n_columns or names != self.names:
                raise ValueError(
                    f"chunk {number} has the columns {names or n_columns}, but the first one "
                    f"has {self.names or self.n_columns}; give all chunks the same"
                )
            yield number, table, weight

    def _numbers(self, table: Any, number: int, first: int) -> Any:
        """A chunk by the schema, if there is one."""
        if not len(table):
            return np.empty((0, self.n_columns))
        try:
            return table if self.schema is None else self.schema.encode(table, first)
        except ValueError as error:
            raise ValueError(f"chunk {number}: {error}") from None


def _n_columns(table: Any, number: int) -> int:
    """Number of the columns of a chunk."""
    shape = table.shape if hasattr(table, "shape") else np.shape(table)
    if len(shape) != 2:
        raise ValueError(f"chunk {number} must have the shape (n, d), got {shape}")
    return int(shape[1])


def _pair(chunk: Any, number: int) -> tuple[Any, Any]:
    """Rows and weights of a chunk."""
    weight = None
    if isinstance(chunk, tuple):
        if len(chunk) != 2:
            raise ValueError(
                f"chunk {number} is a tuple of {len(chunk)}; a pair is (rows, weights)"
            )
        chunk, weight = chunk
    is_arrow = type(chunk).__module__.startswith("pyarrow.")
    return chunk.to_pandas() if is_arrow else chunk, weight
