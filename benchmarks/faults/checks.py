"""Questions to a fitted model, and whether an answer is one."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Question = tuple[str, Callable[[], object]]


class WrongError(AssertionError):
    """An answer that is no answer."""


def of_derived(
    name: str, make: Callable[[], Any], questions: Callable[[Any], Iterator[Question]]
) -> Iterator[Question]:
    """Questions to a density that is derived from a model, or the refusal to derive it."""
    made: list[Any] = []
    yield name, lambda: made.append(make())
    for derived in made:
        for asked, question in questions(derived):
            yield f"{name}: {asked}", question


def of_information(model: Any, other: Any) -> Iterator[Question]:
    """Questions about one density and another of the same columns."""
    few: dict[str, Any] = {"n_samples": 20, "random_state": 0}
    for name in ("inner_product", "l2_distance", "cauchy_schwarz_divergence"):
        yield name, lambda name=name: within(getattr(model, name)(other, **few), 0, np.inf)
    yield "kl_divergence", lambda: known(model.kl_divergence(other, **few))
    yield "entropy", lambda: finite(model.entropy(**few))
    yield "renyi_entropy", lambda: finite(model.renyi_entropy(**few))
    yield "expectation", lambda: near(model.expectation(lambda rows: np.ones(len(rows)), **few), 1)
    if model.n_features_in_ > 1:
        for kind in ("shannon", "quadratic"):
            yield (
                f"mutual_information, {kind}",
                lambda kind=kind: finite(model.mutual_information([0], [-1], kind, **few)),
            )


def of_shape(model: Any, X: Any, Y: Any) -> Iterator[Question]:
    """Questions about the derivatives of a density; `X` are rows that it was fitted to."""
    yield "score_function", lambda: finite(model.score_function(X))
    yield "score_function of other rows", lambda: finite(model.score_function(Y))
    yield "hessian", lambda: finite(model.hessian(X[:3]))
    yield "hessian of other rows", lambda: finite(model.hessian(Y[:3]))
    yield "modes", lambda: finite(model.modes(n_samples=5, random_state=0).points)
    yield "ridges", lambda: finite(model.ridges(n_samples=5, random_state=0))


def _check(fine: Any, values: Any) -> None:
    if not np.all(fine):
        raise WrongError(str(np.asarray(values)[~np.broadcast_to(fine, np.shape(values))][:3]))


def finite(values: Any) -> None:
    """All are finite."""
    _check(np.isfinite(values), values)


def known(values: Any) -> None:
    """None is NaN; a distance may be infinite."""
    _check(~np.isnan(values), values)


def log(values: Any) -> None:
    """All are log-densities: less than infinity."""
    _check(np.asarray(values) < np.inf, values)


def within(values: Any, low: float, high: float) -> None:
    """All lie between two numbers."""
    _check((np.asarray(values) >= low) & (np.asarray(values) <= high), values)


def near(values: Any, wanted: float) -> None:
    """All are a number, to 1e-6."""
    _check(np.abs(np.asarray(values) - wanted) < 1e-6, values)


def rising(values: Any) -> None:
    """All are finite, none less than the one before."""
    finite(values)
    _check(np.diff(values, prepend=-np.inf) >= 0, values)
