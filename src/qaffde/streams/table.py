"""Tables in files: named columns that are read batch by batch."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from qaffde.extras import one_line


class DataError(ValueError):
    """Data that cannot be used as they are; the message says what to do.

    Messages write options as ``missing=drop``, for Python and for the command line.
    """


@dataclass(eq=False)
class Table:
    """Columns of a file that can be read from its start as often as needed.

    `open` makes record batches, of any size, from names of columns, those among them that must be
    numbers or nulls, and the rows that a batch should have.
    """

    label: str  # what messages call the file
    kind: str  # and its format
    names: list[str]
    numeric: list[str]  # names of numbers, as far as can be told without reading all
    open: Callable[[Sequence[str], Collection[str], int], Iterator[Any]]
    n_rows: int | None = None  # where it is known before reading
    named: bool = True  # else names are made up
    signed: dict[str, str] = field(default_factory=dict)
    """Columns whose text is read as numbers, such as "$1,200", with a cell of each."""
    batch_rows = 32_768  # at most

    def __post_init__(self) -> None:
        names, label = self.names, self.label
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise DataError(
                f"{label}: the column {shortened(twice, 60)!r} stands twice; rename one of them"
            )
        if self.n_rows == 0 or not names:
            raise DataError(f"{label} has no rows")
        self.batch_rows = max(1, min(self.batch_rows, (1 << 22) // len(names)))

    def read(self, columns: Sequence[str], floats: Collection[str]) -> Iterator[Any]:
        """Record batches of some columns, `floats` among them as numbers or nulls."""
        batches = self.open(columns, floats, self.batch_rows)
        while (batch := self._next(batches)) is not None:
            for start in range(0, batch.num_rows, self.batch_rows):
                yield batch.slice(start, self.batch_rows)

    def _next(self, batches: Iterator[Any]) -> Any:
        with clear_errors(self.label, self.kind):
            batch = next(batches, None)
            if batch is not None:
                batch.validate(full=True)
            return batch


def import_pyarrow() -> Any:
    """The package pyarrow, loaded when it is first used."""
    return import_module("pyarrow")


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
    except Exception as error:
        is_told = isinstance(error, OSError) and None not in (error.errno, error.filename)
        if is_told or isinstance(error, DataError):
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
    return one_line(lines[0], most)
