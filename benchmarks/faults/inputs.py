"""Bad rows through the estimators: numbers or a one-line message, never NaN."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from numpy.random import Generator
from scipy import sparse

from benchmarks.faults import frames
from qaffde import (
    QAFFDE,
    QAFFDESGD,
    FourierFeatures,
    QAFFDEClassifier,
    QAFFDEDriftDetector,
    QAFFDEOutlierDetector,
    TrainingConfig,
)
from qaffde.training import TrainingDiverged

SPECIAL = (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-308, 1e100, 1e16, 0.0, -0.0, 1e-300)
SHAPES = ((0, 2), (1, 2), (2, 2), (5, 1), (40, 2), (40, 3), (60, 1), (3, 40), (40, 0), (7,), ())
FAST = {"n_features": 12, "random_state": 0}
TRAINED = {
    "bandwidth": 0.7,
    "base_measure": "gaussian",
    "ridge": 0.01,
    "training": TrainingConfig(max_iter=3, max_steps=3),
}
ESTIMATORS: tuple[Callable[[], Any], ...] = (
    lambda: QAFFDE(**FAST, bandwidth=0.7),
    lambda: QAFFDE(**FAST, bandwidth="scott", base_measure="box"),
    lambda: QAFFDE(**FAST, bandwidth=0.7, base_measure=2),
    lambda: QAFFDESGD(**FAST, **TRAINED),
    lambda: QAFFDEClassifier(**FAST, bandwidth=0.7),
    lambda: QAFFDEOutlierDetector(
        QAFFDE(**FAST, bandwidth=0.7, base_measure="box"), random_state=0
    ),
    lambda: FourierFeatures(8, random_state=0),
    lambda: QAFFDEDriftDetector(n_features=4, n_permutations=19, random_state=0),
    *(partial(make, "auto") for make in frames.ESTIMATORS.values()),
)
METHODS = (
    *("score_samples", "predict_log_proba", "predict", "transform", "cdf", "sample", "mean"),
    *("covariance", "log_prob", "score"),
)


def spoil_entries(X: Any, rng: Generator) -> Any:
    """Special numbers in a few places."""
    X = np.array(X)
    for _ in range(rng.integers(1, 4)) if X.size else ():
        X.flat[rng.integers(X.size)] = SPECIAL[rng.integers(len(SPECIAL))]
    return X


def spoil_column(X: Any, rng: Generator) -> Any:
    """A column that is constant, a copy, huge, tiny, far away, or mostly zero."""
    if X.ndim < 2 or not X.shape[1]:
        return X
    X, j = np.array(X), rng.integers(X.shape[1])
    makes = (
        lambda x: np.full_like(x, 3.0),
        lambda x: X[:, 0],
        lambda x: x * 10.0 ** rng.integers(-300, 300),
        lambda x: x + 10.0 ** rng.integers(0, 20),
        lambda x: np.where(rng.random(len(x)) < 0.7, 0.0, x),
        lambda x: X[:, 0] + 1e-12 * x,
    )
    with np.errstate(over="ignore", under="ignore"):
        X[:, j] = makes[rng.integers(len(makes))](X[:, j])
    return X


def spoil_kind(X: Any, rng: Generator) -> Any:
    """Another container or type."""
    makes: tuple[Callable[[], Any], ...] = (
        lambda: X.tolist(),
        lambda: X.astype(object),
        lambda: X.astype(str),
        lambda: X.astype(np.float16),
        lambda: X.astype(complex),
        lambda: X > 0,
        lambda: np.ma.masked_greater(X, 0),
        lambda: sparse.csr_matrix(X if X.ndim == 2 else [[0.0]]),
        lambda: pd.DataFrame(X).astype("Float64") if X.ndim == 2 else pd.Series(X.ravel()),
        lambda: pd.DataFrame(X).map(lambda x: None if x > 0 else x) if X.ndim == 2 else None,
        lambda: pd.DataFrame(X).assign(word="a") if X.ndim == 2 else None,
        lambda: pd.DataFrame(X > 0).astype("category") if X.ndim == 2 else None,
        lambda: pl.DataFrame(X).cast(pl.String) if X.ndim == 2 else None,
        lambda: pl.DataFrame(X).with_columns(day=pl.date(2026, 1, 1)) if X.ndim == 2 else None,
        lambda: np.asfortranarray(X)[::-1],
        lambda: "rows.csv",
        lambda: {"a": 1},
        lambda: 3,
    )
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return makes[rng.integers(len(makes))]()


def same(X: Any, rng: Generator) -> Any:
    """The rows as they are."""
    return X


def hostile_rows(rng: Generator) -> Any:
    """Rows of some shape, spoilt in up to two ways."""
    shape = SHAPES[rng.integers(len(SHAPES))] if rng.random() < 0.4 else (50, 2)
    X = rng.normal(size=shape)
    X = (spoil_entries, spoil_column, same)[rng.integers(3)](X, rng)
    return spoil_kind(X, rng) if rng.random() < 0.3 else X


def answers(rng: Generator) -> str:
    """Fit one estimator and ask it, with rows of which some are hostile."""
    good = rng.normal(size=(60, 2))
    X = hostile_rows(rng) if rng.random() < 0.7 else good
    searches = rng.random() < 0.01  # for which one takes seconds
    model = QAFFDE(8) if searches else ESTIMATORS[rng.integers(len(ESTIMATORS))]()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            weight = hostile_weight(rng, X)
            fit(model, X, weight, rng)
            for name in METHODS:
                if hasattr(model, name) and rng.random() < 0.4:
                    given = X if rng.random() < 0.5 else hostile_rows(rng)
                    found = ask(model, name, given)
                    if np.isnan(np.asarray(found, dtype=float)).any():
                        return f"NaN of {type(model).__name__}.{name}"
    except (ValueError, TypeError, FileNotFoundError, TrainingDiverged) as error:
        return "refused" if str(error).strip() else f"{type(error).__name__} without a message"
    return "answered"


def hostile_weight(rng: Generator, X: Any) -> Any:
    """No weights, or weights of which some are hostile."""
    if rng.random() < 0.8 or not hasattr(X, "shape") or not X.shape:
        return None
    weight = rng.random(X.shape[0])
    return spoil_entries(weight, rng) * (1, -1, 0, 1e307)[rng.integers(4)]


def fit(model: Any, X: Any, weight: Any, rng: Generator) -> None:
    """Fit, by parts where there is ``partial_fit`` and chance wants it."""
    given = {} if weight is None else {"sample_weight": weight}
    if isinstance(model, QAFFDEClassifier):
        n = X.shape[0] if hasattr(X, "shape") and X.shape else 50
        model.fit(X, np.arange(n) % 2, **given)
    elif isinstance(model, QAFFDEDriftDetector):
        model.fit(X).update(X)
    elif weight is not None and not isinstance(model, QAFFDE | QAFFDESGD):
        model.fit(X)
    elif isinstance(model, QAFFDE) and rng.random() < 0.3:
        model.partial_fit(X, **given).partial_fit(X, **given)
    else:
        model.fit(X, **given)


def ask(model: Any, name: str, X: Any) -> Any:
    """Answer of one method."""
    match name:
        case "mean" | "covariance":
            return getattr(model, name)()
        case "sample":
            found = model.sample(5, random_state=0)
            return found if model.schema_ is None else model.schema_.encode(found)
        case "score" if isinstance(model, QAFFDEClassifier):
            return 0.0
        case "cdf":
            return model.cdf(X[:2] if np.ndim(X) == 2 and len(X) else X)
    found = getattr(model, name)(X)
    return found.toarray() if sparse.issparse(found) else found


def start(folder: Path) -> Callable[[Generator], str]:
    """Nothing to prepare."""
    return answers
