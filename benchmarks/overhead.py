"""What the library costs beside the bare matrix products and cosines it consists of.

Fit: Algorithm 2 once its features are drawn (the density matrix and its reading) against the bare
``phi.T @ phi``. Score: ``QAFFDE.score_samples`` against ``x @ W.T``, cosine, ``@ L.T``, square
and sum. Ours and theirs run in turn, repetition by repetition, so that whatever else the machine
does meets both; medians are compared.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qaffde import QAFFDE
from qaffde.experiments.rows import Row, provenance
from qaffde.nn import BornDensity, BoxMeasure, FourierFeatures
from qaffde.training.closed_form import READINGS, density_matrix, row_batches

FIT_BOUND, SCORE_BOUND = 2.0, 1.5
BLOCK = 1024  # rows, for the bare products: their features stay in cache, as ours do
BANDWIDTH = 0.1

Cases = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Sizes:
    """How much is timed, and how often.

    Parameters
    ----------
    n_train : int
        Rows of two columns to fit.
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
    for comparison in (compare_fit, compare_score):
        for row in comparison(sizes):
            yield {**row, **origin}


def compare_fit(sizes: Sizes) -> Iterator[Row]:
    """Algorithm 2 after its features are drawn, against the bare product of the same features."""
    X = _points(sizes.n_train)
    weight = torch.ones(len(X), dtype=torch.float64)
    measure = BoxMeasure(X.amin(0), X.amax(0))
    h = torch.full((2,), BANDWIDTH, dtype=torch.float64)
    features = FourierFeatures.draw("sobol", sizes.n_features, h)
    phi = torch.cat([features(x) for x in X.split(BLOCK)]).numpy()  # (n, D)

    def rho() -> Tensor:
        return density_matrix(features, row_batches(X, weight))

    cases: Cases = {
        "phi.T @ phi": lambda: phi.T @ phi,
        "phi.T @ phi, by blocks": lambda: _product_by_blocks(phi),
        "cosines and phi.T @ phi, by blocks": lambda: _features_and_product(X, features),
        "qaffde: ρ": rho,
        "qaffde: ρ and its reading": lambda: _read(features, rho(), measure),
    }
    settings = {"n": sizes.n_train, "n_features": sizes.n_features}
    yield from _rows("fit", settings, cases, FIT_BOUND, sizes)


def compare_score(sizes: Sizes) -> Iterator[Row]:
    """Log-densities of a fitted estimator against the products and cosines in them."""
    for base_measure, rank in product(sizes.base_measures, sizes.ranks):
        model = _fitted(sizes.n_features, rank, base_measure)
        for n in sizes.n_score:
            settings = {
                "n": n,
                "n_features": model.n_fourier_features_,
                "rank": model.rank_,
                "base_measure": base_measure,
            }
            cases = _score_cases(model, _points(n))
            yield from _rows("score", settings, cases, SCORE_BOUND, sizes)


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
    """One row a case; the last case is the library's, and the bound is on its ratio."""
    times = interleave(cases, sizes.repetitions, sizes.min_seconds)
    bare, *_, ours = times
    for name, seconds in times.items():
        yield {
            "comparison": comparison,
            **settings,
            "case": name,
            "seconds": median(seconds),
            "ratio": median(seconds) / median(times[bare]),
            "bound": bound if name == ours else None,
            "repetitions": len(seconds),
        }


def _points(n: int) -> Tensor:
    return torch.as_tensor(np.random.default_rng(0).normal(size=(n, 2)))


def _read(features: FourierFeatures, rho: Tensor, measure: BoxMeasure) -> BornDensity:
    defaults = QAFFDE().get_params()
    options = {name: defaults[name] for name in ("rank", "min_trace", "tolerance")}
    return READINGS[defaults["measurement"]](features, rho, measure, **options)


def _product_by_blocks(phi: np.ndarray) -> np.ndarray:
    rho = np.zeros((phi.shape[1], phi.shape[1]))
    for start in range(0, len(phi), BLOCK):
        block = phi[start : start + BLOCK]
        rho += block.T @ block
    return rho


def _features_and_product(X: Tensor, features: FourierFeatures) -> np.ndarray:
    W, b, a = features.W, features.b, features.a
    rho = np.zeros((len(b), len(b)))
    for x in X.split(BLOCK):
        phi = torch.addmm(b, x, W.T).cos_().mul_(a).numpy()
        rho += phi.T @ phi
    return rho


def _fitted(n_features: int, rank: int | float, base_measure: str) -> QAFFDE:
    model = QAFFDE(
        n_features,
        bandwidth=BANDWIDTH,
        rank=rank,
        base_measure=base_measure,
        n_base_components=8,
        random_state=0,
    )
    return model.fit(_points(20 * n_features).numpy())


def _score_cases(model: QAFFDE, X: Tensor) -> Cases:
    born = next(m for m in model.density_.modules() if isinstance(m, BornDensity))
    W, L, points = born.features.W, born.factor.detach(), X.numpy()

    def bare() -> Tensor:
        parts = [((x @ W.T).cos_() @ L.T).square_().sum(1) for x in X.split(BLOCK)]
        return torch.cat(parts)

    return {
        "x @ W.T, cos, @ L.T, square, sum": bare,
        "qaffde: score_samples": lambda: model.score_samples(points),
    }
