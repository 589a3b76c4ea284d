"""The untuned choice between closed form, maximum likelihood and tensor train."""

import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Generator, Tensor

from qaffde.estimators.base import read_weight
from qaffde.estimators.calculus import BornEstimator
from qaffde.estimators.qaffde import QAFFDE
from qaffde.estimators.qaffde_sgd import QAFFDESGD
from qaffde.estimators.tensor_train import QAFFDETensorTrain
from qaffde.extras import Printed
from qaffde.frames import as_frame
from qaffde.parameters import Seed, check_positive, generator_from, with_own_settings
from qaffde.schema import Schema
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.search import indistinct, weighted_mean
from qaffde.selection.sources import as_source
from qaffde.selection.summary import Source
from qaffde.streams import Chunks, as_chunks
from qaffde.training.closed_form import effective_count
from qaffde.training.run import Run

__all__ = ["fit"]

KINDS: tuple[Any, ...] = (QAFFDE, QAFFDESGD, QAFFDETensorTrain)
"""Candidates, the simplest first."""

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Candidate:
    """An estimator and its mean log-likelihood of held-out rows.

    `loss` is how far it is below that of the best candidate, `error` the standard error of that.
    """

    name: str
    log_likelihood: float
    loss: float
    error: float
    seconds: float
    chosen: bool

    def __str__(self) -> str:
        loss = f"{self.loss:.4f} ± {self.error:.4f} below" if self.loss else "best"
        mark = "  chosen" if self.chosen else ""
        return f"{self.name:17} {self.log_likelihood:9.4f}  {loss:24} {self.seconds:6.1f} s{mark}"


@dataclass(frozen=True)
class Comparison(Printed):
    """Candidates of :func:`qaffde.fit`, by `n_rows` held-out rows; none where rows are few."""

    candidates: tuple[Candidate, ...]
    n_rows: int

    def __str__(self) -> str:
        if not self.candidates:
            return "too few different rows: not compared"
        head = f"held-out log-likelihood ({self.n_rows:,} rows); of those within one standard "
        head += "error of the best, the first is chosen"
        return "\n  ".join([head, *map(str, self.candidates)])


@with_own_settings
def fit(
    X: Any,
    sample_weight: ArrayLike | None = None,
    *,
    columns: Any = "auto",
    time_limit: float | None = 120.0,
    verbose: bool = False,
    policy: SelectionPolicy | None = None,
    random_state: Seed = None,
) -> BornEstimator:
    """Fit the estimator that suits the rows best.

    :class:`QAFFDE`, :class:`QAFFDESGD` and :class:`QAFFDETensorTrain` are compared by their
    likelihood of held-out rows: a tenth of them, or all in three folds where they are fewer than
    ten thousand. The simplest whose mean is within one standard error of the best is then fitted
    to all rows (unless, after a single split, time is short).

    Parameters
    ----------
    X : array-like of shape (n, d), a data frame, or a source of chunks
        Of a source, a sample of a million rows is compared; of an iterator, only the first million
        are fitted.
    sample_weight : array-like of shape (n,), optional
    columns : "auto", kind, list of d kinds, dict of {column: kind} or None, default="auto"
        Kinds of the columns, as in :class:`QAFFDE`.
    time_limit : float or None, default=120.0
        Seconds for all fits together. Where they are few, only one part of the rows is held
        out, and estimators that there is no time for are not tried.
    verbose : bool, default=False
        Print progress: a line for each candidate of a search and each evaluation of a training.
    policy : SelectionPolicy, optional
        Constants of this choice and of the estimators.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    QAFFDE, QAFFDESGD or QAFFDETensorTrain
        Fitted. Its attribute ``choice_`` says what was compared; print it.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 1))
    >>> model = fit(X, random_state=0)
    >>> type(model).__name__, len(model.choice_.candidates)
    ('QAFFDE', 3)
    """
    check_positive("time_limit", time_limit, optional=True)
    run, generator = Run(time_limit, verbose=verbose), generator_from(random_state)
    source = X if isinstance(X, Source) else as_chunks(X, sample_weight)
    rows, weight = X, sample_weight
    if source is not None:
        encoded = as_source(source, columns=columns)
        sample = encoded.rows(generator.initial_seed())
        rows, weight = (tensor.numpy() for tensor in sample)
        if encoded.schema is not None and encoded.schema.is_table:
            rows = encoded.schema.decode(rows)
        is_spent = isinstance(source, Chunks) and not source.again
        X, sample_weight = (rows, weight) if is_spent else (source, None)
    table = as_frame(rows)
    if table is None:
        table = numbers = np.asarray(rows)
    else:
        schema = Schema.infer(rows, columns)
        columns = dict(zip(schema.names, schema.kinds, strict=True))
        numbers = schema.encode(rows)
    given = {
        "columns": columns,
        "policy": policy,
        "verbose": verbose,
        "random_state": random_state,
    }
    own, constants = read_weight(weight, numbers), policy or DEFAULT_POLICY
    splits = _splits(numbers, own, generator, constants)
    entries: list[tuple[Any, Tensor, float]] = []
    candidates = zip(KINDS, constants.choice_shares, strict=False)
    for kind, share in candidates if splits else ():
        if entries and run.left is not None and run.left < entries[-1][2]:
            break
        began = time.monotonic()
        found: list[Tensor] = []
        for train, valid in splits:
            limit = None if time_limit is None else share * time_limit / len(splits)
            model = kind(**given, time_limit=limit)
            run.say(f"{kind.__name__}: fit {len(found) + 1} of {len(splits)} to compare")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(_take(table, train), sample_weight=own[train])
            found.append(torch.from_numpy(model.score_samples(_take(table, valid))))
            if limit is not None and not entries and time.monotonic() - began > 2 * limit:
                splits, found = splits[:1], found[:1]  # fits take too long for folds
                break
        score = torch.cat(found).clamp(min=-constants.worst)
        entries.append((model, score, time.monotonic() - began))
    judged = np.concatenate([np.empty(0, np.int64), *(valid for _, valid in splits)])
    choice, number = _compare(entries, torch.from_numpy(own[judged]))
    kind, left = KINDS[number], run.left
    in_time = left is None or len(splits) != 1 or left > entries[number][2]
    model = entries[number][0] if entries else None
    if in_time or source is not None:
        run.say(f"{kind.__name__}: fit of all rows")
        model = kind(**given, time_limit=left).fit(X, sample_weight=sample_weight)
    model.choice_ = choice
    return model


def _take(table: Any, rows: Index) -> Any:
    """Some rows of an array, or of a frame of narwhals as one of its own library."""
    return table[rows] if isinstance(table, np.ndarray) else table[rows].to_native()


def _splits(
    X: Any, weight: Any, generator: Generator, policy: SelectionPolicy = DEFAULT_POLICY
) -> list[tuple[Index, Index]]:
    """Numbers of rows to fit on and to judge by; copies of a row fall on the same side."""
    counted = np.flatnonzero(weight)
    n = len(counted)
    if n < policy.choice_rows:
        return []
    line = torch.randn(X.shape[1], generator=generator, dtype=torch.float64).numpy()
    place = np.nan_to_num(X[counted].astype(float)) @ line
    different, copy_of = np.unique(place, return_inverse=True)
    if len(different) < 2 * policy.choice_folds:  # copies of a few rows: no two in each part
        return []
    order = torch.randperm(len(different), generator=generator).numpy()
    one = order[: min(round(policy.choice_valid_share * len(order)), policy.choice_valid_rows)]
    few = n < policy.choice_fold_rows
    parts = np.array_split(order, policy.choice_folds) if few else [one]
    masks = [np.isin(copy_of, part) for part in parts]
    return [(counted[~mask], counted[mask]) for mask in masks]


def _compare(entries: list[tuple[Any, Tensor, float]], weight: Tensor) -> tuple[Comparison, int]:
    """Comparison of models by their scores (n,), and the number of the chosen one."""
    if not entries:
        return Comparison((), 0), 0
    best = max((score for _, score, _ in entries), key=lambda s: weighted_mean(s, weight))
    chosen = [indistinct(score, best, weight) for _, score, _ in entries].index(True)
    found = []
    for number, (model, score, seconds) in enumerate(entries):
        loss = weighted_mean(best - score, weight)
        spread = weighted_mean((best - score - loss).square(), weight)
        error = math.sqrt(spread / effective_count(weight))
        name, mean = type(model).__name__, weighted_mean(score, weight)
        found.append(Candidate(name, mean, loss, error, seconds, number == chosen))
    return Comparison(tuple(found), len(weight)), chosen
