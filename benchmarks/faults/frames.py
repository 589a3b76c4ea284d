"""Hostile arrays as tables: kinds of columns, gaps and data frames, and what they are asked."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.faults.checks import (
    Question,
    finite,
    log,
    near,
    of_derived,
    of_information,
    of_shape,
    rising,
    within,
)
from qaffde import (
    QAFFDE,
    QAFFDESGD,
    Atom,
    Category,
    Integer,
    Periodic,
    QAFFDEAutoregressive,
    QAFFDETensorTrain,
    Real,
    SelectionPolicy,
    TensorTrainConfig,
    TrainingConfig,
)
from qaffde.frames import is_gap

Array = NDArray[np.float64]
FEW = SelectionPolicy(table_iterations=10, table_choice_iterations=5, code_widths=(1.0,))
QUICK = {"policy": FEW, "random_state": 0}
ESTIMATORS: dict[str, Callable[[Any], Any]] = {
    "table": lambda columns: QAFFDE(columns=columns, **QUICK),
    "mapped table": lambda columns: QAFFDESGD(
        columns=columns, base_measure=2, transformation="normal", **QUICK
    ),
    "waves": lambda columns: QAFFDESGD(
        columns=columns,
        policy=replace(FEW, few_wave_rows=20, mixture_sizes=(1,)),
        training=TrainingConfig(max_iter=2),
        random_state=0,
    ),
    "chain": lambda columns: QAFFDEAutoregressive(
        columns=columns, width=8, training=TrainingConfig(max_steps=4), random_state=0
    ),
    "train": lambda columns: QAFFDETensorTrain(
        columns=columns,
        training=TensorTrainConfig(max_steps=5, bond=4, n_functions=5),
        random_state=0,
    ),
}


def words(x: Array) -> Any:
    """One of three words for each number."""
    return np.array(["a", "b, \n", "ü"], dtype=object)[(np.abs(x) % 3).astype(int)]


KINDS: dict[str, Callable[[Array, Generator], tuple[Any, Callable[[Array], Any]]]] = {
    "found": lambda x, rng: (None, lambda x: x),
    "real": lambda x, rng: ("real", lambda x: x),
    "ends": lambda x, rng: (Real(x.min(), np.nextafter(x.max(), np.inf)), lambda x: x),
    "integer": lambda x, rng: ("integer", np.rint),
    "whole": lambda x, rng: (None, lambda x: np.rint(x % 7)),
    "periodic": lambda x, rng: (Periodic(10.0 ** rng.integers(-320, 308)), lambda x: x),
    "hours": lambda x, rng: (Periodic(24), lambda x: x % 24),
    "atom": lambda x, rng: (Atom(x[0]), lambda x: x),
    "zeros": lambda x, rng: (Atom(0, Real(0)), lambda x: np.abs(np.where(x > 0, x, 0))),
    "words": lambda x, rng: (None, words),
    "categories": lambda x, rng: ("category", np.rint),
    "bools": lambda x, rng: (None, lambda x: x > 0),
}
"""For each kind, from a column: what `columns` says of it, and how numbers become values."""


def tabled(
    rows: Array, asked: Array, rng: Generator, *, gaps: bool = True
) -> tuple[Any, Any, Any]:
    """Two arrays as tables of random kinds, with gaps, and the kinds as `columns` takes them."""
    columns, tables = {}, ({}, {})
    for j, x in enumerate(rows.T):
        kind, values = KINDS[str(rng.choice(list(KINDS)))](x, rng)
        if kind is not None:
            columns[f"c{j}"] = kind
        for table, part in zip(tables, (rows, asked), strict=True):
            share = gaps * float(rng.choice([0, 0, 0.1, 0.7]))
            lost = rng.random(len(part)) < share
            given = pd.Series(values(part[:, j]))
            table[f"c{j}"] = given.astype(object).mask(lost, None) if lost.any() else given
    frames = [pd.DataFrame(table).infer_objects() for table in tables]
    match rng.integers(4):
        case 0:
            frames = [pl.from_pandas(frame) for frame in frames]
        case 1:  # lists of rows
            columns = {int(name[1:]): kind for name, kind in columns.items()}
            frames = [frame.astype(object).where(frame.notna(), None) for frame in frames]
            return *(frame.to_numpy().tolist() for frame in frames), columns
    return *frames, columns


def questions(model: Any, X: Any, Y: Any) -> Iterator[Question]:
    """All that the density of a table can be asked; `X` are rows that it was fitted to."""
    names, turn = [column.name for column in model.schema_.columns], len(Y) % 3
    yield "score", lambda: finite(model.score(X))
    yield "score_samples", lambda: finite(model.score_samples(X))
    yield from _of_table(model, X, Y)
    yield "purity", lambda: within(model.purity(), 0, 1)
    if turn == 0:  # one of three: they cost most
        some = sorted({0, len(names) - 1})
        yield from of_derived(
            "marginal",
            lambda: model.marginal([names[k] for k in some]),
            lambda derived: _of_numbers(derived, _part(X, some), _part(Y, some)),
        )
    elif turn == 1:
        yield from of_derived(
            "one column",
            lambda: model.marginal(names[-1:]),
            lambda derived: _of_one(derived, _part(X, [-1]), _part(Y, [-1])),
        )
    elif len(names) > 1:
        given = _part(X if len(Y) % 2 else Y, [0])
        known = [row for row in _rows(given) if not is_gap(row[0])]
        rest = list(range(1, len(names)))
        yield from of_derived(
            "condition",
            lambda: model.condition({names[0]: known[0][0] if known else None}),
            lambda derived: _of_table(derived, _part(X, rest), _part(Y, rest)),
        )
        yield (
            "conditional_score_samples",
            lambda: log(model.conditional_score_samples(Y, names[:1])),
        )
    for name in ("partial_fit", "forget") if isinstance(model, QAFFDE) else ():
        yield name, lambda name=name: getattr(model, name)(Y)
        yield f"score_samples after {name}", lambda: log(model.score_samples(X))
    if hasattr(model, "plan_"):
        again = type(model)(plan=model.plan_, random_state=0)
        yield "fit of its plan", lambda: finite(again.fit(X).score_samples(X))


def _of_table(model: Any, X: Any, Y: Any) -> Iterator[Question]:
    """Questions to a density of any columns."""
    numbers = model.schema_.encode
    yield "score_samples of other rows", lambda: log(model.score_samples(Y))
    yield "probability of all", lambda: near(model.probability(-np.inf, np.inf), 1)
    yield "sample", lambda: finite(numbers(model.sample(3, random_state=0)))
    yield "impute", lambda: finite(numbers(model.impute(X, random_state=0)))
    yield "impute the mean", lambda: finite(numbers(model.impute(X, method="mean")))
    yield "impute other rows", lambda: finite(numbers(model.impute(Y, random_state=0)))
    yield "hdr_level", lambda: finite(model.hdr_level([0.5, 0.9], 50, random_state=0))
    yield from of_information(model, model)
    yield from of_shape(model, X, Y)
    for k, column in enumerate(model.schema_.columns):
        wanted = tuple(row[0] for row in _rows(_part(Y, [k]))[:2])
        single = isinstance(column.kind, Category | Integer)
        region = {column.name: wanted[0] if single else wanted}
        yield "probability", lambda region=region: within(model.probability(region), 0, 1)


def _of_numbers(model: Any, X: Any, Y: Any) -> Iterator[Question]:
    """The same, and questions that need columns with an order."""
    yield from _of_table(model, X, Y)
    yield "cdf", lambda: within(model.cdf(X[:1]), 0, 1)
    yield "cdf of other rows", lambda: within(model.cdf(Y[:1]), 0, 1)
    yield "mean", lambda: finite(model.mean())
    yield "covariance", lambda: finite(model.covariance())


def _of_one(model: Any, X: Any, Y: Any) -> Iterator[Question]:
    """The same, and quantiles."""
    yield from _of_numbers(model, X, Y)
    yield "ppf", lambda: rising(model.ppf([0.01, 0.5, 0.99]))


def _rows(X: Any) -> list[Any]:
    """Rows of a frame or list as lists."""
    return X if isinstance(X, list) else (X.rows() if hasattr(X, "rows") else X.values.tolist())


def _part(X: Any, columns: list[int]) -> Any:
    """Some columns of a frame or list."""
    if isinstance(X, list):
        return [[row[k] for k in columns] for row in X]
    return X[[X.columns[k] for k in columns]]
