"""What the library costs beside the bare matrix products and cosines it consists of.

Fit: Algorithm 2 once its features are drawn (the density matrix, and its reading) against cosines
and ``phi.T @ phi``. Score: ``QAFFDE.score_samples`` against ``x @ W.T``, cosine, ``@ L.T``, square
and sum. Call: the same for one row, and its time itself. Epoch: one of gradient descent on a
density matrix against its products, their gradients, and Adam. Ours and theirs run in turn,
repetition by repetition, so that whatever else the machine does meets both; medians are compared.

Frequencies of two columns lie on a lattice, which :mod:`qaffde.functional.fourier` makes use of:
there the library is quicker than the bare products, and ratios are below one.
"""

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.rows import Row, provenance
from qaffde import QAFFDE, SelectionPolicy
from qaffde.nn import BornDensity, BoxMeasure, DensityMatrix, FourierFeatures
from qaffde.training.closed_form import density_matrix, read_density, row_batches
from qaffde.training.likelihood import SOLVERS, state_likelihood, whiten
from qaffde.training.loop import train
from qaffde.training.run import Run

FIT_BOUND, SCORE_BOUND, EPOCH_BOUND = 1.5, 1.5, 1.3
CALLS, CALL_BOUND = 100, 200e-6
"""Calls that follow each other, each with one row, and seconds for one of them."""
OURS = {
    "fit": "qaffde: ρ",
    "score": "qaffde: score_samples",
    "call": "qaffde: score_samples",
    "epoch": "qaffde: solve",
}
EPOCH_RANK = 16
BLOCK = 1024  # rows, for the bare products: their features stay in cache, as ours do
BANDWIDTH = 0.1

Cases = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Sizes:
    """How much is timed, and how often.

    Parameters
    ----------
    n_columns : tuple of int
    n_train : int
        Rows to fit.
    n_score : tuple of int
        Rows to score, one comparison each.
    n_features : int
    ranks : tuple of int or float
        As in :class:`qaffde.QAFFDE`; 1.0 is full.
    base_measures : tuple of str
    repetitions : int
        At least so many rounds of each comparison.
    min_seconds : float
        And more of them until the comparison took so long: short ones need it.
    """

    n_columns: tuple[int, ...] = (2, 8)
    n_train: int = 100_000
    n_score: tuple[int, ...] = (10_000, 50_000)
    n_features: int = 1000
    ranks: tuple[int | float, ...] = (100, 1.0)
    base_measures: tuple[str, ...] = ("box", "mixture")
    repetitions: int = 7
    min_seconds: float = 5.0


def run(sizes: Sizes) -> Iterator[Row]:
    """Rows of all comparisons; the first of each is the bare one, of ratio one."""
    origin = provenance()
    for comparison, d in product((compare_fit, compare_score, compare_call), sizes.n_columns):
        for row in comparison(sizes, d):
            yield {**row, **origin}
    for row in compare_epoch(sizes):
        yield {**row, **origin}


def compare_fit(sizes: Sizes, d: int) -> Iterator[Row]:
    """Algorithm 2 after its features are drawn, against the bare cosines and products."""
    X = _points(sizes.n_train, d)
    weight = torch.ones(len(X), dtype=torch.float64)
    measure = BoxMeasure(X.amin(0), X.amax(0))
    features = _fitted(sizes, d, 1.0, "box").plan_.features

    def rho() -> Tensor:
        return density_matrix(features, row_batches(X, weight))

    cases: Cases = {
        "x @ W.T, cos, phi.T @ phi": lambda: _features_and_product(X, features),
        OURS["fit"]: rho,
        "qaffde: ρ and its reading": lambda: _read(features, rho(), measure),
    }
    settings = {"n": len(X), "d": d, "n_features": features.n_features}
    yield from _rows("fit", settings, cases, FIT_BOUND, sizes)


def compare_score(sizes: Sizes, d: int) -> Iterator[Row]:
    """Log-densities of a fitted estimator against the products and cosines in them."""
    for base_measure, rank in product(sizes.base_measures, sizes.ranks):
        model = _fitted(sizes, d, rank, base_measure)
        for n in sizes.n_score:
            cases = _score_cases(model, _points(n, d))
            yield from _rows("score", _settings(model, n), cases, SCORE_BOUND, sizes)


def compare_call(sizes: Sizes, d: int) -> Iterator[Row]:
    """One row, again and again: what a call costs. The bound is on its seconds."""
    for base_measure in sizes.base_measures:
        model = _fitted(sizes, d, sizes.ranks[0], base_measure)
        cases = {
            name: partial(_in_a_row, case)
            for name, case in _score_cases(model, _points(1, d)).items()
        }
        for row in _rows("call", _settings(model, 1), cases, CALL_BOUND, sizes):
            yield {**row, "seconds": row["seconds"] / CALLS, "bounded": "seconds"}


def _in_a_row(case: Callable[[], Any]) -> None:
    for _ in range(CALLS):
        case()


def compare_epoch(sizes: Sizes) -> Iterator[Row]:
    """An epoch of gradient descent against its products, their gradients, and Adam."""
    d, rank = max(sizes.n_columns), EPOCH_RANK
    model = _fitted(sizes, d, 1.0, "box")
    X, weight = _points(sizes.n_train, d).float(), torch.ones(sizes.n_train)
    space = whiten(model.plan_.features, model.plan_.measure, 1e-3, 1e-6)
    E, state = space.coordinates(X.double()), space.start(X.double(), weight, rank)
    settings = {"n": len(X), "d": d, "n_features": space.features.n_features, "rank": rank}

    def ours() -> None:
        config = SOLVERS["adam"].config(1, len(E), Run())
        train(deepcopy(state), state_likelihood, (E, weight), None, config, _generator())

    cases: Cases = {
        "e @ A.T, square, sum, log, gradient, Adam": lambda: _bare_epoch(deepcopy(state), E),
        OURS["epoch"]: ours,
    }
    yield from _rows("epoch", settings, cases, EPOCH_BOUND, sizes)


def interleave(cases: Cases, repetitions: int, min_seconds: float) -> dict[str, list[float]]:
    """Wall times of each case, in seconds; one round to warm up, then all in turn."""
    _round(cases)
    rounds: list[list[float]] = []
    while len(rounds) < repetitions or sum(map(sum, rounds)) < min_seconds:
        rounds.append(_round(cases))
    return dict(zip(cases, map(list, zip(*rounds, strict=True)), strict=True))


def _round(cases: Cases) -> list[float]:
    seconds = []
    for case in cases.values():
        start = time.perf_counter()
        case()
        seconds.append(time.perf_counter() - start)
    return seconds


def _rows(
    comparison: str, settings: Row, cases: Cases, bound: float, sizes: Sizes
) -> Iterator[Row]:
    """One row a case; the bound is on the ratio of the library's."""
    times = interleave(cases, sizes.repetitions, sizes.min_seconds)
    bare = next(iter(times))
    for name, seconds in times.items():
        yield {
            "comparison": comparison,
            **settings,
            "case": name,
            "seconds": median(seconds),
            "ratio": median(seconds) / median(times[bare]),
            "bound": bound if name == OURS[comparison] else None,
            "repetitions": len(seconds),
        }


def _points(n: int, d: int) -> Tensor:
    return torch.as_tensor(np.random.default_rng(0).normal(size=(n, d)))


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _read(features: FourierFeatures, rho: Tensor, measure: BoxMeasure) -> BornDensity:
    options = {"rank": "auto", "min_trace": SelectionPolicy().min_trace, "tolerance": 1e-6}
    return read_density("square_root", features, rho, measure, **options)


def _features_and_product(X: Tensor, features: FourierFeatures) -> np.ndarray:
    W, b, a = features.W, features.b, features.a
    rho = np.zeros((len(b), len(b)))
    for x in X.split(BLOCK):
        phi = torch.addmm(b, x, W.T).cos_().mul_(a).numpy()
        rho += phi.T @ phi
    return rho


def _bare_epoch(state: DensityMatrix, E: Tensor) -> None:
    """One epoch of Adam on the factor, with the gradient of mean log ‖Ae‖² − log ‖A‖² by hand."""
    A, batch_size = state.factor, SOLVERS["adam"].settings["batch_size"]
    adam = torch.optim.Adam([A])
    for chosen in torch.randperm(len(E), generator=_generator()).split(batch_size):
        with torch.no_grad():
            e = E[chosen]
            Y = e @ A.T
            born = Y.square().sum(1)
            born.log().mean()
            A.grad = 2 * A / A.square().sum() - (2 / len(e)) * (Y / born[:, None]).T @ e
        adam.step()


def _fitted(sizes: Sizes, d: int, rank: int | float, base_measure: str) -> QAFFDE:
    model = QAFFDE(
        sizes.n_features,
        bandwidth=BANDWIDTH * d,
        rank=rank,
        base_measure=8 if base_measure == "mixture" else base_measure,
        random_state=0,
    )
    return model.fit(_points(20 * sizes.n_features, d).numpy())


def _settings(model: QAFFDE, n: int) -> Row:
    return {
        "n": n,
        "d": model.n_features_in_,
        "n_features": model.n_fourier_features_,
        "rank": model.rank_,
        "base_measure": model.base_measure_,
    }


def _score_cases(model: QAFFDE, X: Tensor) -> Cases:
    born = next(m for m in model.density_.modules() if isinstance(m, BornDensity))
    W, L, points = born.features.W, born.factor.detach(), X.numpy()

    def bare() -> Tensor:
        parts = [((x @ W.T).cos_() @ L.T).square_().sum(1) for x in X.split(BLOCK)]
        return torch.cat(parts)

    return {
        "x @ W.T, cos, @ L.T, square, sum": bare,
        OURS["score"]: lambda: model.score_samples(points),
    }
