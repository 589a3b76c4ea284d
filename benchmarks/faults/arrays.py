"""Hostile arrays, found by hypothesis, through every public method of every estimator.

Every value is finite, and yet hard: scales from 1e-320 to 1e307, far offsets, constant columns,
copies, near copies, few distinct values, a corrupt row, magnitudes that have nothing in common.
Each array is fitted, and the fit asked all that it can be asked, at its own rows and at hostile
ones. What is wanted is a finite answer (where rows are far, a log-density may be −inf) or a
message of ours: an error that comes from within NumPy, SciPy or torch does not count as one.
"""

import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.faults import frames
from benchmarks.faults.attempts import Attempt
from benchmarks.faults.checks import (
    Question,
    WrongError,
    finite,
    known,
    log,
    near,
    of_derived,
    of_information,
    of_shape,
    rising,
    within,
)
from benchmarks.faults.inputs import TRAINED
from qaffde import (
    QAFFDE,
    QAFFDESGD,
    FourierFeatures,
    QAFFDEClassifier,
    QAFFDEDriftDetector,
    QAFFDEOutlierDetector,
    QAFFDERegressor,
    Real,
    TrainingConfig,
    compare,
    load,
)
from qaffde.estimators.calculus import BornEstimator
from qaffde.nn.calculus import integrals
from qaffde.schema import Schema
from qaffde.training import TrainingDiverged

Array = NDArray[np.float64]
BATCH = 50
FAST = {"n_features": 6, "random_state": 0}
"""It is the rows that are hostile: more features would cost time and show the same."""
STEPS = TrainingConfig(max_steps=3)
OURS = ("/qaffde/", "/sklearn/")
"""Folders whose errors are messages; scikit-learn checks shapes and types for us."""
ESTIMATORS: dict[str, Callable[..., Any]] = {
    "gaussian": lambda: QAFFDE(**FAST, bandwidth=0.7, base_measure="gaussian"),
    "box": lambda: QAFFDE(**FAST, bandwidth="scott", base_measure="box"),
    "mixture": lambda: QAFFDE(**FAST, bandwidth="silverman", base_measure=2),
    "bounds": lambda: QAFFDE(**FAST, bandwidth=0.7, columns=Real(-9, 9)),
    "trained": lambda: QAFFDESGD(**FAST, **TRAINED),
    "classifier": lambda: QAFFDEClassifier(**FAST, bandwidth=0.7, method="square_root"),
    "detector": lambda: QAFFDEOutlierDetector(
        QAFFDE(**FAST, bandwidth="scott", base_measure="gaussian"), random_state=0
    ),
    "drift": lambda: QAFFDEDriftDetector(n_features=4, n_permutations=19, random_state=0),
    "features": lambda: FourierFeatures(8, random_state=0),
    "regressor": lambda: QAFFDERegressor(
        2, n_hidden=8, n_components=2, n_functions=3, training=STEPS, random_state=0
    ),
    **frames.ESTIMATORS,
}


@dataclass(frozen=True)
class Case:
    """An estimator, rows to fit, and rows of as many columns to ask for.

    `seed` says which kinds the columns of tables have, and where their gaps are.
    """

    estimator: str
    rows: Array
    asked: Array
    seed: int = 0


@st.composite
def columns(draw: Any, n: int, first: Array) -> Array:
    """One column of n finite numbers, made in some hostile way; `first` stands before it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    z, power = rng.normal(size=n), draw(st.integers(-320, 307))
    values = draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
    makes: dict[str, Callable[[], Any]] = {
        "plain": lambda: z,
        "scaled": lambda: z * 10.0**power,
        "far": lambda: z + 10.0 ** (power % 25),
        "constant": lambda: np.full(n, values[0]),
        "copy": lambda: first,
        "near copy": lambda: first + z * 10.0 ** -(power % 17),
        "whole": lambda: np.round(z * 10.0 ** (power % 10)),
        "few": lambda: rng.choice(np.array([values[0], 0.0, 1.0]), n),
        "zeros": lambda: rng.choice(np.array([0.0, -0.0, 5e-324]), n),
        "mostly zero": lambda: np.where(rng.random(n) < 0.7, 0.0, z),
        "mixed": lambda: z * 10.0 ** rng.uniform(-abs(power), abs(power), n),
        "heavy": lambda: z / rng.random(n) ** 4,
        "found": lambda: rng.choice(np.array(values), n),
    }
    name = draw(st.sampled_from([*makes, *len(makes) * ["plain"]]))
    with np.errstate(all="ignore"):
        return np.nan_to_num(makes[name]())


@st.composite
def tables(draw: Any, d: int) -> Array:
    """Rows of d columns in some unit; now and then one is corrupt, or half are copies."""
    n = draw(st.integers(2, 60))
    parts = [draw(columns(n, np.arange(n) / n))]
    for _ in range(d - 1):
        parts.append(draw(columns(n, parts[0])))
    table = np.column_stack(parts)
    if draw(st.integers(0, 4)) == 4:
        table[draw(st.integers(0, n - 1))] = draw(st.sampled_from([1e3, -1e9, 1e100, 1e-300]))
    if draw(st.integers(0, 4)) == 4:
        table[: n // 2] = table[0]
    if draw(st.integers(0, 2)) == 2:
        with np.errstate(all="ignore"):
            table = np.nan_to_num(table * 10.0 ** draw(st.integers(-320, 307)))
    return table


@st.composite
def cases(draw: Any) -> Case:
    """An estimator and what is hostile to it."""
    d = draw(st.integers(1, 6))
    name = draw(st.sampled_from(list(ESTIMATORS)))
    rows, asked = draw(tables(d)), draw(tables(d))
    if draw(st.booleans()):
        asked = np.clip(asked, rows.min(0), rows.max(0))
    return Case(name, rows, asked, draw(st.integers(0, 2**32 - 1)))


def outcome(case: Case, folder: Path) -> str:
    """What came of a case: answered, refused, or what was wrong."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        X, Y = case.rows, case.asked
        try:
            if case.estimator in frames.ESTIMATORS:
                rng, gaps = np.random.default_rng(case.seed), case.estimator != "chain"
                X, Y, columns = frames.tabled(X, Y, rng, gaps=gaps)
                model = ESTIMATORS[case.estimator](columns)
            else:
                model = ESTIMATORS[case.estimator]()
            _fit(model, X)
        except (ValueError, TrainingDiverged) as error:
            return _refusal(error, f"{case.estimator}: fit")
        refused = 0
        for name, question in _questions(model, X, Y, folder):
            try:
                question()
            except WrongError as error:
                return f"{case.estimator}: {name} gave {error}"
            except (ValueError, TrainingDiverged) as error:
                refused += 1
                if (said := _refusal(error, f"{case.estimator}: {name}")) != "refused":
                    return said
    return "answered, in part" if refused else "answered"


def drawn(number: int, n: int) -> list[Case]:
    """Cases that hypothesis finds from a seed, but for its first, which is the simplest."""
    found: list[Case] = []

    @seed(number)
    @settings(
        max_examples=n + 1,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def keep(case: Case) -> None:
        found.append(case)

    keep()
    return found[1:]


def start(folder: Path) -> Attempt:
    """Cases are drawn a batch at a time; boxes get fewer points and nodes than usual."""
    integrals.AFFORDABLE = 1e8
    waiting: list[Case] = []

    def attempt(rng: Generator) -> str:
        if not waiting:
            waiting.extend(drawn(int(rng.integers(2**32)), BATCH))
        name = str(rng.choice(list(ESTIMATORS)))  # hypothesis would favor some
        return outcome(replace(waiting.pop(), estimator=name), folder)

    return attempt


def _fit(model: Any, X: Array) -> None:
    if isinstance(model, QAFFDEClassifier):
        model.fit(X, np.arange(len(X)) % 2)
    elif isinstance(model, QAFFDERegressor):
        model.fit(X, X[:, -1])
    else:
        model.fit(X)


def _refusal(error: Exception, where: str) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    if str(error).strip() and any(folder in place.filename for folder in OURS):
        return "refused"
    at = f"{Path(place.filename).name}:{place.lineno}"
    return f"{where} raised {type(error).__name__} at {at}: {' '.join(str(error).split())[:150]}"


def _questions(model: Any, X: Any, Y: Any, folder: Path) -> Iterator[Question]:
    match model:
        case FourierFeatures():
            yield "transform", lambda: [finite(model.transform(Z)) for Z in (X, Y)]
        case QAFFDEClassifier():
            yield from _of_classifier(model, X, Y)
        case QAFFDEOutlierDetector():
            yield from _of_detector(model, X, Y)
        case QAFFDEDriftDetector():
            yield from _of_drift(model, X, Y)
        case QAFFDERegressor():
            yield from _of_regressor(model, X, Y)
        case BornEstimator(schema_=Schema()):
            yield from frames.questions(model, X, Y)
        case _:
            yield from _of_density(model, np.array(X, dtype=float), np.array(Y, dtype=float))
    if not isinstance(model, FourierFeatures):
        yield "save and load", lambda: _saved(model, X, folder)


def _of_classifier(model: Any, X: Array, Y: Array) -> Iterator[Question]:
    for where, Z in (("", X), (" of other rows", Y)):
        yield f"log_density{where}", lambda Z=Z: log(model.log_density(Z))
        yield f"predict_log_proba{where}", lambda Z=Z: log(model.predict_log_proba(Z))
        yield f"predict_proba{where}", lambda Z=Z: near(model.predict_proba(Z).sum(1), 1)
        yield f"predict{where}", lambda Z=Z: within(model.predict(Z), 0, 1)
    yield "score", lambda: within(model.score(X, np.arange(len(X)) % 2), 0, 1)
    if hasattr(model, "partial_fit"):
        yield "partial_fit", lambda: model.partial_fit(Y, np.arange(len(Y)) % 2)
        yield "predict_proba after it", lambda: near(model.predict_proba(X).sum(1), 1)


def _of_detector(model: Any, X: Array, Y: Array) -> Iterator[Question]:
    for where, Z in (("", X), (" of other rows", Y)):
        yield f"score_samples{where}", lambda Z=Z: log(model.score_samples(Z))
        yield f"decision_function{where}", lambda Z=Z: log(model.decision_function(Z))
        yield f"predict{where}", lambda Z=Z: within(model.predict(Z), -1, 1)
    yield "out_of_fold_scores_", lambda: log(model.out_of_fold_scores_)


def _of_drift(model: Any, X: Array, Y: Array) -> Iterator[Question]:
    for where, Z in (("", X), (" of other rows", Y)):
        yield f"score{where}", lambda Z=Z: finite(model.score(Z))
        yield f"update{where}", lambda Z=Z: within(model.update(Z).p_value_, 0, 1)
        yield f"columns{where}", lambda: within(model.column_p_values_, 0, 1)
        yield f"statistic{where}", lambda: finite(model.statistic_)
    yield "forget", lambda: within(model.forget(2).p_value_, 0, 1)


def _of_regressor(model: Any, X: Array, Y: Array) -> Iterator[Question]:
    """Questions about y, the last column of the rows."""
    for where, Z in (("", X), (" of other rows", Y)):
        yield f"predict{where}", lambda Z=Z: finite(model.predict(Z))
        yield f"standard deviations{where}", lambda Z=Z: finite(model.predict(Z, return_std=True))
        yield (
            f"predict_quantile{where}",
            lambda Z=Z: [rising(row) for row in model.predict_quantile(Z, [0.01, 0.5, 0.99])],
        )
        yield (
            f"predict_interval{where}",
            lambda Z=Z: [rising(row) for row in model.predict_interval(Z)],
        )
        yield f"log_likelihood{where}", lambda Z=Z: log(model.log_likelihood(Z, Z[:, -1]))
        yield f"sample{where}", lambda Z=Z: finite(model.sample(Z, 2, random_state=0))
        yield (
            f"predict_distribution{where}",
            lambda Z=Z: within(model.predict_distribution(Z).cdf(torch.tensor(Z[:, -1])), 0, 1),
        )
    yield "calibration", lambda: within(model.calibration(X, X[:, -1])["coverage"], 0, 1)
    yield "score", lambda: log(model.score(X, X[:, -1]))


def _of_density(model: Any, X: Array, Y: Array) -> Iterator[Question]:
    d = X.shape[1]
    yield "score_samples", lambda: finite(model.score_samples(X))
    yield "score_samples of other rows", lambda: log(model.score_samples(Y))
    yield "score", lambda: finite(model.score(X))
    yield "purity", lambda: within(model.purity(), 0, 1)
    yield "von_neumann_entropy", lambda: finite(model.von_neumann_entropy())
    yield "effective_rank", lambda: within(model.effective_rank(), 1 - 1e-9, np.inf)
    yield from _of_calculus(model, X, Y)
    columns, turn = sorted({0, d - 1}), len(Y) % 3 if d > 1 else 0  # one of three: they cost most
    if turn == 0:
        yield from of_derived(
            "marginal",
            lambda: model.marginal(columns),
            lambda derived: _of_calculus(derived, X[:, columns], Y),
        )
    else:
        given = dict(enumerate((X if turn == 1 else Y)[0, :-1]))
        name = "condition" if turn == 1 else "condition at other rows"
        yield from of_derived(
            name,
            lambda: model.condition(given),
            lambda derived: _of_calculus(derived, X[:, -1:], Y),
        )
    if d > 1:
        yield (
            "conditional_score_samples",
            lambda: finite(model.conditional_score_samples(X, [0])),
        )
        yield (
            "conditional_score_samples of other rows",
            lambda: log(model.conditional_score_samples(Y, [0])),
        )
    if isinstance(model, QAFFDE):
        other = QAFFDE(plan=model.plan_).fit(X[: len(X) // 2 + 1])
        yield from of_information(model, other)
        yield "fidelity", lambda: within(model.fidelity(other), 0, 1)
        yield "trace_distance", lambda: within(model.trace_distance(other), 0, 1)
        yield "compare", lambda: known(compare(model, other, n_samples=20).kl_divergence)
        yield "partial_fit", lambda: model.partial_fit(Y)
        yield "score_samples after it", lambda: finite(model.score_samples(X))
        yield "forget", lambda: model.forget(Y)
        yield "score_samples after that", lambda: log(model.score_samples(X))
        yield "decay", lambda: model.forget(decay=1e-3)
        yield "merge", lambda: model.merge(QAFFDE(plan=model.plan_).fit(X))
        yield "score_samples after all", lambda: log(model.score_samples(X))


def _of_calculus(model: BornEstimator, X: Array, Y: Array) -> Iterator[Question]:
    """Questions to any density with the calculus; `X` are rows that it was fitted to."""
    d, some, low, high = X.shape[1], X[:1], X.min(0), X.max(0)
    holes = np.where(np.eye(d, dtype=bool)[:1], np.nan, some)
    yield "score_samples", lambda: log(model.score_samples(X))
    yield "cdf", lambda: within(model.cdf(some), 0, 1)
    yield "cdf of other rows", lambda: within(model.cdf(Y[:1, :d]), 0, 1)
    yield "probability", lambda: within(model.probability(low, high), 0, 1)
    yield "probability of all", lambda: near(model.probability(-np.inf, np.inf), 1)
    yield "mean", lambda: finite(model.mean())
    yield "covariance", lambda: finite(model.covariance())
    yield "sample", lambda: finite(model.sample(3, random_state=0))
    yield "impute", lambda: finite(model.impute(holes, random_state=0))
    yield "impute the mean", lambda: finite(model.impute(holes, method="mean"))
    yield "hdr_level", lambda: finite(model.hdr_level([0.5, 0.9], 50, random_state=0))
    yield "characteristic_function", lambda: finite(model.characteristic_function(Y[:2, :d]))
    if not isinstance(model, QAFFDE):  # that has another one beside it
        yield from of_information(model, model)
    yield from of_shape(model, X, Y[:, :d])
    if d == 1:
        levels = np.array([0.01, 0.5, 0.99])
        yield "ppf", lambda: rising(model.ppf(levels))


def _saved(model: Any, X: Array, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        model.save(Path(place) / "model")
        again = load(Path(place) / "model")
    ask = next(a for a in ("score_samples", "predict", "score") if hasattr(model, a))
    if not np.array_equal(getattr(again, ask)(X), getattr(model, ask)(X)):
        raise WrongError("another model")
