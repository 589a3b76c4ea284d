r"""Maps of columns learned from a sample: each column becomes its normal scores.

.. math:: z = \Phi^{-1}(F(x))

with the distribution function F of the column's own sample. The knots of the map are quantiles of
the sample of a :class:`~qaffde.selection.Summary`. That sample is uniform and merges, so it is the
sketch of quantiles that streams, processes and Dask share.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from qaffde.nn import RealColumn
from qaffde.nn.maps import MapTable
from qaffde.parameters import holds_numbers
from qaffde.schema import has_atom
from qaffde.selection.base_measure import n_distinct
from qaffde.selection.plan import ModelSpec
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.search import indistinct
from qaffde.selection.summary import Moments, Summary
from qaffde.training.closed_form import effective_count

Array = NDArray[Any]
Maps = tuple[RealColumn, ...]
"""One for each column."""


def learned_maps(
    summary: Summary,
    ends: Tensor | None,
    policy: SelectionPolicy,
    *,
    show_zero: bool,
    skip_normal: bool = False,
) -> Maps:
    """Maps of columns to their normal scores, through few quantiles or many.

    The likelihood of the column's own values decides, less one over n for every knot (Akaike,
    1974). `ends` of shape (2, d) are known ends, NaN where there is none. With `show_zero`, zero
    is an end where the sample shows it. With `skip_normal`, a column without ends stays as it is
    where, by the same measure, a Gaussian fits it as well, or where one value is common among many
    others: it has no density.
    """
    count, d = effective_count(summary.weight), summary.rows.shape[1]
    n, maps = n_quantiles(count, policy), []
    known = torch.full((2, d), torch.nan).double() if ends is None else ends.clone()
    for k, own in enumerate(known.T):
        values, share = _sorted(summary, k)
        if show_zero and bool(own[0].isnan()) and shows_zero(values, share, policy):
            own[0] = 0.0
        best, worth = _best(values, share, own, n, count, policy)
        is_free = bool(best.ends.isinf().all())
        is_normal = _gaussian_likelihood(values, share, count) > worth
        skipped = is_normal or has_atom(share)
        maps.append(RealColumn() if skip_normal and is_free and skipped else best)
    return tuple(maps)


def _best(
    values: Array, share: Array, ends: Tensor, n: int, count: float, policy: SelectionPolicy
) -> tuple[RealColumn, float]:
    """The best map of a column through at most n even quantiles, and its worth."""
    sizes = [4 * 2**k for k in range(10) if 4 * 2**k < n] + [n]
    maps = [_learned(values, share, ends, size, policy) for size in sizes]
    chosen = slice(None, None, -(-len(values) // policy.fine_rows))
    some = torch.from_numpy(values[chosen].copy()), torch.from_numpy(share[chosen].copy())
    worth = [_likelihood(g, *some) - len(g.knots) / count for g in maps]
    best = int(np.argmax(worth))
    return maps[best], worth[best]


def _likelihood(column: RealColumn, x: Tensor, weight: Tensor) -> float:
    """Mean log-density of a column behind its map, but for the constant of the normal law."""
    z, log_slope = column.encode(x)
    return float(((log_slope - z[:, 0].square() / 2) @ weight) / weight.sum())


def _gaussian_likelihood(values: Array, share: Array, count: float) -> float:
    """The same of the Gaussian with the column's mean and variance."""
    variance = share @ (values - share @ values) ** 2
    return float(-np.log(max(variance, 1e-300)) / 2 - 0.5 - 2 / count)


def bounded_maps(summary: Summary, ends: Tensor, policy: SelectionPolicy = DEFAULT_POLICY) -> Maps:
    """Maps that change columns with known ends near those ends only, and no other columns."""
    return tuple(
        RealColumn() if own.isnan().all() else _bounded(*_sorted(summary, k), own, policy.map_edge)
        for k, own in enumerate(ends.T)
    )


def n_quantiles(count: float, policy: SelectionPolicy) -> int:
    """Number of even quantiles for so many rows: a knot costs 1/(2n) nats, and bends the map."""
    factor, power = policy.knot_growth
    return int(min(policy.max_knots, max(4, round(factor * count**power))))


def n_knots(maps: Maps) -> int:
    """Number of knots of all maps."""
    return sum(len(column.knots) for column in maps)


def known_ends(ends: Tensor) -> Tensor:
    """Ends that are infinite where there is none."""
    return torch.where(ends.isnan(), ends.new_tensor([-torch.inf, torch.inf]), ends)


def _sorted(summary: Summary, column: int) -> tuple[Array, Array]:
    """Distinct values of a column, rising, and their shares of the weight."""
    values, place = np.unique(summary.rows[:, column].numpy(), return_inverse=True)
    share = np.bincount(place, summary.weight.numpy())
    return values, share / share.sum()


def _learned(
    values: Array, share: Array, ends: Tensor, n: int, policy: SelectionPolicy
) -> RealColumn:
    """Map to normal scores through about n quantiles; the identity of a constant."""
    if len(values) < 3:
        return RealColumn()
    lower, upper = known_ends(ends).tolist()
    inside = (values > lower) & (values < upper)
    level = np.cumsum(share) - share / 2
    levels = _levels(n, len(values), policy.tail_rows)
    place = np.unique(np.searchsorted(level, levels).clip(0, len(values) - 1))
    place = place[inside[place]]
    knots, scores = values[place], ndtri(level[place])
    distinct = np.concatenate([[True], np.diff(knots) > 1e-9 * _width(values)])
    knots, scores = knots[distinct], scores[distinct]
    if len(knots) < 2:
        return RealColumn()
    slopes = knot_slopes(knots, scores)
    rates = _rate(scores[::-1], slopes[::-1], policy), _rate(scores, slopes, policy)
    return RealColumn(
        torch.from_numpy(knots),
        torch.from_numpy(scores),
        torch.from_numpy(slopes),
        torch.tensor(rates, dtype=torch.float64),
        known_ends(ends),
        _inset(values, ends),
    )


def _bounded(values: Array, share: Array, ends: Tensor, edge: float) -> RealColumn:
    """Map that is the identity but near the ends."""
    cumulative = np.cumsum(share)
    low, high = values[np.searchsorted(cumulative, (edge, 1 - edge)).clip(0, len(values) - 1)]
    lower, upper = ends.tolist()
    span = _width(values) or 1.0
    low = low if not low <= lower else lower + edge * span
    high = high if not high >= upper else upper - edge * span
    if not low < high:
        low, high = np.nanmax([lower, low - edge * span]), np.nanmin([upper, high + edge * span])
        low, high = 0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high
    knots = torch.tensor([low, high], dtype=torch.float64)
    slopes, inset = torch.ones_like(knots), _inset(values, ends)
    return RealColumn(knots, knots, slopes, ends=known_ends(ends), inset=inset)


def _width(values: Array) -> float:
    """Range of distinct values, rising, but for the outer ones: one corrupt row changes little."""
    return float(np.ptp(np.quantile(values, (0.1, 0.9), method="closest_observation")))


def _levels(n: int, n_values: int, tail_rows: int) -> Array:
    """Levels of the knots: even ones and, down to a few rows, halved ones at both ends."""
    halved = [1 / n]
    while halved[-1] * n_values > tail_rows:
        halved.append(halved[-1] / 2)
    tails = np.array(halved)
    return np.unique(np.concatenate([tails, np.arange(1, n) / n, 1 - tails]))


def knot_slopes(x: Array, z: Array) -> Array:
    """Slopes at knots, positive where z rises: means of those of both sides (Fritsch, Butland).

    At both ends they are no steeper than over the two outer pieces, whose rows are few.

    Examples
    --------
    >>> knot_slopes(np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 6.0]))
    array([2., 2., 2.])
    """
    width = np.diff(x)
    mean = np.diff(z) / width
    if len(mean) == 1:
        return np.repeat(mean, 2)
    before, after = 2 * width[1:] + width[:-1], width[1:] + 2 * width[:-1]
    inner = (before + after) / (before / mean[:-1] + after / mean[1:])
    first, last = (z[2] - z[0]) / (x[2] - x[0]), (z[-1] - z[-3]) / (x[-1] - x[-3])
    first = min(first, mean[0] ** 1.5 / inner[0] ** 0.5)
    last = min(last, mean[-1] ** 1.5 / inner[-1] ** 0.5)
    return np.concatenate([[first], inner, [last]])


def _rate(scores: Array, slopes: Array, policy: SelectionPolicy) -> float:
    """Rate λ of the tail after the last knot: how fast the slope falls in the outer rows."""
    least, most = policy.tail_rates
    least = max(least, policy.tail_knots / len(scores))
    away = np.abs(scores)
    own = np.sign(scores) == np.sign(scores[-1])
    for tail_share in policy.tail_shares:
        outer = own & (away >= -ndtri(tail_share))
        if outer.sum() >= 3:
            steepness = np.polyfit(away[outer], np.log(slopes[outer]), 1)[0]
            return float(np.clip(-steepness, least, most))
    return float(least)


def _inset(values: Array, ends: Tensor) -> Tensor:
    """Half the distance between an end and the next value inside; zero where there is no end."""
    lower, upper = known_ends(ends).tolist()
    least = 1e-9 * (_width(values) or 1.0)
    first = values[values > lower].min(initial=np.inf) - lower
    last = upper - values[values < upper].max(initial=-np.inf)
    room = torch.tensor([first, last], dtype=torch.float64) / 2
    inset = torch.where(room.isfinite(), room.clamp(min=least), least)
    return torch.where(ends.isnan(), 0.0, inset)


def shows_zero(values: Array, share: Array, policy: SelectionPolicy = DEFAULT_POLICY) -> bool:
    """Whether distinct values, rising, with their shares, end at zero.

    They do if none is negative and zero itself is common, or if many lie so close to zero that
    their density does not fade out before it. Positive values that differ by much, and whose
    logarithms are less skewed, count as well.
    """
    shown = policy.edge_rows
    if values[0] < 0 or len(values) < shown:
        return False
    if values[0] == 0 and share[0] > 1 / len(values):
        return True
    if values[shown // 10 - 1] < policy.edge_share * values[shown - 1]:
        return True
    logs = np.log(values[values > 0])
    return bool(np.ptp(logs) > np.log(policy.magnitudes) and _skewness(logs) < _skewness(values))


def _skewness(values: Array) -> float:
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
    return float(abs(high + low - 2 * middle) / max(high - low, 1e-300))


def mapped_summary(summary: Summary, maps: Maps) -> Summary:
    """The summary of the mapped columns: counts and ends of all rows, moments of the sample."""
    table = MapTable.of(maps)
    whole, rows = summary.moments, table(summary.rows)[0]
    sample = Moments.of(rows, summary.weight)
    moments = replace(
        whole, ends=table(whole.ends)[0], mean=sample.mean, covariance=sample.covariance
    )
    return replace(summary, moments=moments, rows=rows)


def maps_of_ends(summary: Summary, spec: ModelSpec, policy: SelectionPolicy) -> Maps | None:
    """Maps to offer beside the box of few columns; None unless one shows an end at zero alone.

    A column that stops as abruptly above keeps its box.
    """
    (_, d), is_auto = summary.rows.shape, (spec.base_measure, spec.transformation) == ("auto",) * 2
    is_free = is_auto and spec.is_free and spec.bounds is None and not spec.open_ended
    if not is_free or d > policy.max_box_columns:
        return None
    if n_distinct(summary.rows) < policy.mapped_rows:
        return None
    columns = (_sorted(summary, k) for k in range(d))
    if not any(
        shows_zero(x, p, policy) and not shows_zero((x[-1] - x)[::-1], p[::-1], policy)
        for x, p in columns
    ):
        return None
    maps = learned_maps(summary, None, policy, show_zero=True, skip_normal=True)
    return maps if any(column.ends.isfinite().any() for column in maps) else None


def is_as_good(
    maps: Maps, after: Tensor, before: Tensor, weight: Tensor, summary: Summary, errors: float
) -> bool:
    """Whether held-out scores behind maps are as good as those before, but for errors.

    Maps are learned from rows that are held out too: every knot makes held-out rows look better by
    1/n nats (Akaike, 1974).
    """
    if len(before) != len(after):  # rows that differ by rounding alone have become the same
        return False
    after = after - n_knots(maps) / effective_count(summary.weight)
    return indistinct(after, before, weight, errors)


Judge = Callable[[Maps | None], tuple[Tensor, Tensor]]
"""Held-out log-densities in the units of the data, and weights, of the best model behind maps."""


def choose_maps(
    summary: Summary, spec: ModelSpec, policy: SelectionPolicy, judge: Judge
) -> Maps | None:
    """Maps of the columns: those that were asked for, or the better ones of two.

    Columns as they are, but for known ends, are compared with normal scores by a mixture of each.
    Maps are learned from rows that are held out too: every knot makes held-out rows look better by
    1/n nats (Akaike, 1974). Maps must win by some standard errors; where they have an end that the
    rows show, or that is known of few columns, it is enough not to lose by them.
    """
    d = summary.rows.shape[1]
    ends, known = spec.ends(d), spec.box_ends(d, policy)
    plain = None if ends is None or known is not None else bounded_maps(summary, ends, policy)
    is_auto, show_zero = spec.transformation == "auto", not spec.open_ended
    if is_auto and (
        holds_numbers(spec.bandwidth) or n_distinct(summary.rows) < policy.mapped_rows
    ):
        return plain
    learned = learned_maps(summary, ends, policy, show_zero=show_zero, skip_normal=is_auto)
    if not n_knots(learned):
        return plain
    if not is_auto:
        return learned
    (before, weight), (after, _) = judge(plain), judge(learned)
    may_be_ended = plain is None or d <= policy.max_box_columns
    ended = may_be_ended and any(column.ends.isfinite().any() for column in learned)
    errors = policy.map_errors if ended else -policy.map_errors
    return learned if is_as_good(learned, after, before, weight, summary, errors) else plain
