"""Estimators from options, fitted to a table in memory or as it streams by."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qaffde import QAFFDE, QAFFDESGD
from qaffde.baselines import BASELINES, get_baseline
from qaffde.cli.commands import framed
from qaffde.cli.data.rows import Array, Chunk, Missing, column_means, read_all, read_rows
from qaffde.cli.data.selection import Selection, find_columns
from qaffde.cli.data.table import DataError
from qaffde.cli.errors import usage
from qaffde.cli.output import progress

METHODS = {"qaffde": QAFFDE, "qaffde-sgd": QAFFDESGD}
STREAM_BYTES = 1 << 29
"""Larger tables are not read into memory."""
SAMPLE_ROWS = 50_000
"""Rows that settle the frame of a stream."""
OPTIONS = {
    "features": "n_features",
    "bandwidth": "bandwidth",
    "rank": "rank",
    "base_measure": "base_measure",
    "bounds": "bounds",
    "time_limit": "time_limit",
    "seed": "random_state",
}


@dataclass(frozen=True)
class Fitted:
    """An estimator, and what it was fitted to."""

    model: Any
    n_rows: int
    n_read: int
    n_missing: int
    streamed: bool


def make_estimator(method: str, **options: Any) -> Any:
    """Unfitted estimator of a method, with the options that were given.

    Parameters
    ----------
    method : str
    **options
        Keys of :data:`OPTIONS`; None is left out.
    """
    if method not in METHODS and method not in BASELINES:
        raise usage(
            f"unknown method {method!r}; choose one of {', '.join([*METHODS, *BASELINES])}"
        )
    model = METHODS[method]() if method in METHODS else get_baseline(method)
    parameters = model.get_params(deep=False)
    for option, value in options.items():
        name = OPTIONS[option]
        if value is None or (option == "seed" and name not in parameters):
            continue
        if name not in parameters:
            raise usage(f"--{option.replace('_', '-')} does not apply to {method}")
        model.set_params(**{name: value})
    return model


def number_or_word(text: str | None) -> Any:
    """A number, several by commas, or a word such as "auto".

    Examples
    --------
    >>> number_or_word("16"), number_or_word("0.5"), number_or_word("1,2"), number_or_word("auto")
    (16, 0.5, [1.0, 2.0], 'auto')
    """
    if text is None:
        return None
    try:
        if "," in text:
            return [float(part) for part in text.split(",")]
        return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        return text


def parse_bounds(texts: Sequence[str] | None, selection: Selection) -> Any:
    """Ends of columns from texts such as ``0:1``, ``height=0:`` or ``:5``."""
    if not texts:
        return None
    names = [selection.table.names[j] for j in selection.columns]
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * len(names)
    for text in texts:
        column, _, ends = text.rpartition("=")
        pair = _ends(ends, text)
        chosen = find_columns([column], names, "the fit") if column else range(len(names))
        for j in chosen:
            bounds[j] = pair
    return bounds


def _ends(text: str, whole: str) -> tuple[float | None, float | None]:
    parts = text.split(":")
    try:
        low, high = (float(part) if part.strip() else None for part in parts)
    except ValueError:
        raise usage(
            f"--bounds takes LOW:HIGH or COLUMN=LOW:HIGH, an end may be left out; got {whole!r}"
        ) from None
    return low, high


def fit_table(
    model: Any, selection: Selection, missing: Missing, *, stream: bool | None = None
) -> Fitted:
    """Fit a model to the selected columns; to large tables as they stream by."""
    can_stream = isinstance(model, QAFFDE)
    if stream and not can_stream:
        raise usage("--stream needs --method qaffde: other methods read all rows at once")
    if stream is None:
        stream = can_stream and selection.table.n_bytes > STREAM_BYTES
    if stream:
        return fit_stream(model, selection, missing)
    with progress("reading and fitting", None):
        X, weight, n_read, n_missing = read_all(selection, missing)
        model.fit(framed(X, selection.names), sample_weight=weight)
    return Fitted(model, len(X), n_read, n_missing, streamed=False)


@dataclass
class Survey:
    """What a first pass over a stream finds: a sample, ends and means."""

    sample: Array
    weight: Array
    lower: Array
    upper: Array
    means: Array
    n_rows: int
    n_read: int
    n_missing: int


def fit_stream(model: QAFFDE, selection: Selection, missing: Missing) -> Fitted:
    """Fit in two passes: the first settles the frame, the second sums up all rows."""
    survey = take_survey(selection, missing, model.random_state)
    if model.base_measure == "box" or model.bounds is not None:
        model.set_params(bounds=_closed(model.bounds, survey))
    names, warm = selection.names, model.warm_start
    model.partial_fit(framed(survey.sample, names), sample_weight=survey.weight)
    begun = False
    with progress("fitting", survey.n_read) as tick:
        for X, weight, n_read in _hearty(read_rows(selection, missing, _mean_fill(survey))):
            if not begun:
                model.set_params(warm_start=True).fit(framed(X, names), sample_weight=weight)
                model.set_params(warm_start=warm)
                begun = True
            elif weight.any():
                model.partial_fit(framed(X, names), sample_weight=weight)
            tick(n_read)
    return Fitted(model, survey.n_rows, survey.n_read, survey.n_missing, streamed=True)


def _closed(bounds: Any, survey: Survey) -> list[tuple[float, float]]:
    """Bounds whose open ends are those of all rows."""
    given = bounds or [(None, None)] * len(survey.lower)
    found = zip(survey.lower.tolist(), survey.upper.tolist(), strict=True)
    return [
        (low if a is None else a, high if b is None else b)
        for (a, b), (low, high) in zip(given, found, strict=True)
    ]


def _mean_fill(survey: Survey) -> Any:
    return lambda X: np.where(np.isnan(X), survey.means, X)


def _hearty(chunks: Iterator[Chunk]) -> Iterator[tuple[Array, Array, int]]:
    """Rows, weights and numbers of rows read; the first rows are at least two that weigh."""
    held: list[tuple[Array, Array]] = []
    n_read, begun = 0, False
    for chunk in chunks:
        held.append((chunk.X, _weight(chunk)))
        n_read += chunk.n_read
        begun = begun or sum((weight > 0).sum() for _, weight in held) >= 2
        if begun:
            yield *_joined(held), n_read
            held, n_read = [], 0
    if held:
        yield *_joined(held), n_read


def _joined(held: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    return np.concatenate([X for X, _ in held]), np.concatenate([weight for _, weight in held])


def _weight(chunk: Chunk) -> Array:
    return np.ones(len(chunk.X)) if chunk.weight is None else chunk.weight


def take_survey(selection: Selection, missing: Missing, seed: Any) -> Survey:
    """Read all rows once, and keep what settles a frame."""
    rng = np.random.default_rng(seed if isinstance(seed, int) else 0)
    d = len(selection.columns)
    sample = _Sample(rng, d)
    lower, upper = np.full(d, np.inf), np.full(d, -np.inf)
    total, count = np.zeros(d), np.zeros(d)
    n_rows = n_read = n_missing = 0
    with progress("looking at the rows", selection.table.n_rows) as tick:
        for chunk in read_rows(selection, missing):
            if len(chunk.X):
                lower = np.fmin(lower, np.fmin.reduce(chunk.X))
                upper = np.fmax(upper, np.fmax.reduce(chunk.X))
                total += np.nansum(chunk.X, axis=0)
                count += (~np.isnan(chunk.X)).sum(0)
                sample.add(chunk.X, _weight(chunk))
            n_rows, n_read = n_rows + len(chunk.X), n_read + chunk.n_read
            n_missing += chunk.n_missing
            tick(chunk.n_read)
    if not n_rows:
        raise DataError(f"{selection.table.label} has no row without missing values")
    means = column_means(total, count, selection)
    X = np.where(np.isnan(sample.X), means, sample.X)
    return Survey(X, sample.weight, lower, upper, means, n_rows, n_read, n_missing)


class _Sample:
    """Rows drawn without replacement from a stream of unknown length, in their order."""

    def __init__(self, rng: np.random.Generator, d: int) -> None:
        self.rng = rng
        self.X, self.weight, self.keys = np.empty((0, d)), np.empty(0), np.empty(0)

    def add(self, X: Array, weight: Array) -> None:
        """Let every row so far have the same chance to be in the sample."""
        keys = np.concatenate([self.keys, self.rng.random(len(X))])
        chosen: NDArray[np.intp] = np.arange(len(keys))
        if len(keys) > SAMPLE_ROWS:
            chosen = np.sort(np.argpartition(keys, SAMPLE_ROWS)[:SAMPLE_ROWS])
        self.keys = keys[chosen]
        self.X = np.concatenate([self.X, X])[chosen]
        self.weight = np.concatenate([self.weight, weight])[chosen]
