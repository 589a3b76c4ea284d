"""Tables in files: named columns that are read batch by batch."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class DataError(ValueError):
    """Data that cannot be used as they are; the message says what to do.

    Messages write options as ``missing=drop``, for Python and for the command line.
    """


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
    n_bytes : int, optional
        About how large all of it would be in memory; computed from `n_rows` by default.
    named : bool
        Whether the file has names.
    n_rows : int or None
        None where only reading tells.
    """

    kind: str
    """Name of the format, for messages."""
    batch_rows = 32_768
    """Rows of a batch, at most."""

    def __init__(
        self,
        label: str,
        names: list[str],
        numeric: list[bool],
        n_bytes: int | None = None,
        *,
        named: bool = True,
        n_rows: int | None = None,
    ) -> None:
        self.label, self.names, self.numeric = label, names, numeric
        self.named, self.n_rows = named, n_rows
        self.n_bytes = 8 * (n_rows or 0) * len(names) if n_bytes is None else n_bytes
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise DataError(
                f"{label}: the column {shortened(twice, 60)!r} stands twice; rename one of them"
            )
        if n_rows == 0 or not names:
            raise DataError(f"{label} has no rows")

    def read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        """Record batches of some columns, in the order given.

        Parameters
        ----------
        columns : sequence of int
        floats : collection of int
            Columns that are wanted as numbers, missing values as nulls.

        Yields
        ------
        pyarrow.RecordBatch
        """
        batches = self._read(columns, floats)
        while (batch := self._next(batches)) is not None:
            for start in range(0, batch.num_rows, self.batch_rows):
                yield batch.slice(start, self.batch_rows)

    def _next(self, batches: Iterator[Any]) -> Any:
        with clear_errors(self.label, self.kind):
            batch = next(batches, None)
            if batch is not None:
                batch.validate(full=True)
            return batch

    @abstractmethod
    def _read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        """Record batches of any size; see `read`."""


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
    """Turn whatever a reader of a format raises on broken content into one line."""
    try:
        yield
    except DataError:
        raise
    except (OSError, ValueError, TypeError, KeyError, ArithmeticError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
            raise
        raise DataError(f"{label} cannot be read as {kind}: {shortened(error)}") from None


def shortened(message: object, most: int = 200) -> str:
    r"""First line of a message, of bounded length and plain characters.

    Examples
    --------
    >>> shortened("wrong value\nin file reader.cc")
    'wrong value'
    """
    lines = [line for line in str(message).splitlines() if line.strip()] or ["it is damaged"]
    line = one_line(lines[0])
    return line if len(line) <= most else f"{line[:most]}..."


def one_line(text: str) -> str:
    r"""Text without line ends, and with what cannot be printed escaped.

    Examples
    --------
    >>> one_line("a\tb\nc\x0f")
    'a b c\\x0f'
    """
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
