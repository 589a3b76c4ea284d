"""What every table offers, whatever file it comes from."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from qaffde.files.format import quoted
from qaffde.streams.arrow import import_pyarrow as import_pyarrow

BATCH_ROWS = 32_768
"""Rows in memory at a time, as far as the format allows."""


class DataError(ValueError):
    """Data that cannot be used as they are; the message says what to do."""


class Table(ABC):
    """Columns of a file that can be read from its start as often as needed.

    Parameters
    ----------
    label : str
        What messages call the file.
    names : list of str
        Of the columns; made up where the file has none.
    numeric : list of bool
        Which columns hold numbers, as far as can be told without reading everything.
    named : bool
        Whether the file has names.
    n_rows : int or None
        None where only reading tells.
    n_bytes : int
        About how large all of it would be in memory.
    """

    def __init__(
        self,
        label: str,
        names: list[str],
        numeric: list[bool],
        *,
        named: bool,
        n_rows: int | None,
        n_bytes: int,
    ) -> None:
        self.label, self.names, self.numeric = label, names, numeric
        self.named, self.n_rows, self.n_bytes = named, n_rows, n_bytes
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise DataError(
                f"{label}: the column {quoted(twice)!r} stands twice; rename one of them"
            )
        if n_rows == 0 or not names:
            raise DataError(f"{label} has no rows")

    @abstractmethod
    def read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        """Record batches of some columns, in the order given.

        Parameters
        ----------
        columns : sequence of int
        floats : collection of int
            Columns that are wanted as float64, missing values as nulls.

        Yields
        ------
        pyarrow.RecordBatch
        """


def made_names(n: int) -> list[str]:
    """Names of columns that have none.

    Examples
    --------
    >>> made_names(2)
    ['x0', 'x1']
    """
    return [f"x{k}" for k in range(n)]


@contextmanager
def clear_errors(label: str, kind: str) -> Iterator[None]:
    """Whatever a reader of a format raises on broken content, as one line."""
    try:
        yield
    except DataError:
        raise
    except (OSError, ValueError, TypeError, KeyError, ArithmeticError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
            raise
        raise DataError(f"{label} cannot be read as {kind}: {shortened(error)}") from None


def shortened(error: object) -> str:
    r"""First line of a message, of bounded length and plain characters.

    Examples
    --------
    >>> shortened("wrong value\nin file reader.cc")
    'wrong value'
    """
    lines = [line for line in str(error).splitlines() if line.strip()] or ["it is damaged"]
    line = one_line(lines[0])
    return line if len(line) <= 200 else f"{line[:200]}..."


def one_line(text: str) -> str:
    r"""Text without line ends, and with what cannot be printed escaped.

    Examples
    --------
    >>> one_line("a\tb\nc\x0f")
    'a b c\\x0f'
    """
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)


def as_floats(batch: Any, columns: Sequence[int], floats: Collection[int]) -> Any:
    """Batch whose columns, numbered `columns` in the file, are float64 where they are to be."""
    pa = import_pyarrow()
    arrays = [
        array.cast(pa.float64(), safe=False) if number in floats else array
        for number, array in zip(columns, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def sliced(batch: Any) -> Iterator[Any]:
    """Parts of a batch that are small enough."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)
