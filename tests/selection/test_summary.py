"""Summaries of disjoint parts add up, in any order, to the summary of all rows."""

from functools import reduce
from itertools import pairwise, permutations
from operator import add

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qaffde import ModelSpec, SelectionPolicy, select, solve, summarize
from qaffde.selection import Moments, Summary
from qaffde.selection.sources import ChunkSource
from qaffde.selection.summary import MemorySource, robust_units, units
from qaffde.streams import chunks
from qaffde.training.run import Peers

N = 900
X = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=(N, 2)) * [1.0, 3.0] + [0.0, 5.0])
WEIGHT = torch.from_numpy(np.random.default_rng(1).choice([0.5, 1.0, 2.5], N))
ONES = torch.ones(N, dtype=torch.float64)


def assert_same_moments(first, second):
    assert (first.n, first.weight) == (second.n, pytest.approx(second.weight))
    assert first.count == pytest.approx(second.count)
    assert first.ends.equal(second.ends)
    torch.testing.assert_close(first.mean, second.mean, rtol=1e-13, atol=0)
    torch.testing.assert_close(first.covariance, second.covariance, rtol=1e-9, atol=1e-9)


def assert_same_summaries(first, second):
    assert_same_moments(first.moments, second.moments)
    first, second = first.sorted_by_keys(), second.sorted_by_keys()
    for name in ("rows", "weight", "keys"):
        assert getattr(first, name).equal(getattr(second, name))


def parts_of(sizes, seed=0, max_rows=200):
    parts = zip(X.split(sizes), WEIGHT.split(sizes), strict=True)
    return [Summary.of(rows, weight, seed, max_rows) for rows, weight in parts]


# Moments


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, N - 1), max_size=6, unique=True), st.floats(-1e6, 1e6))
def test_moments_add_up(cuts, offset):
    edges = [0, *sorted(cuts), N]
    sizes = [b - a for a, b in pairwise(edges)]
    rows = X + offset
    parts = [Moments.of(*p) for p in zip(rows.split(sizes), WEIGHT.split(sizes), strict=True)]
    assert_same_moments(reduce(add, parts), Moments.of(rows, WEIGHT))
    assert_same_moments(reduce(add, parts[::-1]), Moments.of(rows, WEIGHT))


def test_moments_are_those_of_the_definition():
    found, w = Moments.of(X, WEIGHT), WEIGHT.numpy()
    np.testing.assert_allclose(found.mean, np.average(X, axis=0, weights=w))
    np.testing.assert_allclose(found.covariance, np.cov(X.T, aweights=w, ddof=0))
    assert found.count == pytest.approx(w.sum() ** 2 / (w**2).sum())


def test_standardized_moments_are_those_of_standardized_rows():
    location, scale = torch.tensor([[1.0, 2.0], [3.0, 0.5]], dtype=torch.float64)
    found = Moments.of(X, WEIGHT).standardized(location, scale)
    assert_same_moments(found, Moments.of((X - location) / scale, WEIGHT))


# Summaries


def test_parts_add_up_in_any_order():
    parts = parts_of([100, 350, 1, 449])
    expected = reduce(add, parts)
    assert len(expected.rows) == 200
    for order in permutations(parts):
        assert_same_summaries(reduce(add, order), expected)
    grouped = (parts[3] + parts[0]) + (parts[2] + parts[1])
    assert_same_summaries(grouped, expected)


def test_parts_have_the_moments_of_the_whole_and_all_rows_where_there_is_room():
    whole = Summary.of(X, WEIGHT, seed=0)
    parts = reduce(add, parts_of([100, 350, 450], max_rows=N))
    assert_same_moments(parts.moments, whole.moments)
    assert parts.rows.equal(X)
    assert parts.weight.equal(WEIGHT)


def test_samples_are_uniform_and_in_the_order_of_the_rows():
    parts = [torch.arange(k, k + 50.0)[:, None] for k in range(0, 1000, 50)]
    found = [Summary.of(part, torch.ones(50), seed=3, max_rows=200) for part in parts]
    sample = reduce(add, found).rows
    assert len(sample) == 200
    assert 400 < sample.mean() < 600
    assert (sample.diff(dim=0) > 0).all()


def test_the_seed_and_the_content_of_a_part_draw_its_sample():
    first, again, other = (Summary.of(X, ONES, seed, 20).rows for seed in (3, 3, 4))
    assert first.equal(again)
    assert not first.equal(other)
    shifted = Summary.of(X + 1, ONES, 3, 20).rows - 1
    assert not torch.allclose(first, shifted)


def test_a_public_summary_is_that_of_its_parts():
    whole = summarize(X.numpy(), WEIGHT.numpy(), random_state=0)
    parts = [
        summarize(rows.numpy(), weight.numpy(), random_state=0)
        for rows, weight in zip(X.split(300), WEIGHT.split(300), strict=True)
    ]
    assert_same_moments((parts[2] + parts[0] + parts[1]).moments, whole.moments)
    assert len(whole.rows) == N


# One plan, wherever the rows are


class Halves(Peers):
    """Two processes, of which this one is the first, with half of the rows each."""

    def __init__(self, others):
        self.size, self.rank, self.others = 2, 0, others

    def gather(self, make):
        return [make(), self.others]


def dask_source(rows):
    da = pytest.importorskip("dask.array")
    from qaffde.distributed import DaskSource

    return DaskSource(da.from_array(rows.numpy(), chunks=(N // 2, 2)))


def processes(rows, seed):
    first, second = rows.split(N // 2)
    others = Summary.of(second, ONES[: N // 2], seed)
    return MemorySource(first, ONES[: N // 2], peers=Halves(others))


SOURCES = {
    "memory": lambda rows, seed: MemorySource(rows, ONES),
    "chunks": lambda rows, seed: ChunkSource(chunks(list(rows.numpy().reshape(9, -1, 2)))),
    "iterator": lambda rows, seed: ChunkSource(chunks(iter(rows.numpy().reshape(9, -1, 2)))),
    "Dask": lambda rows, seed: dask_source(rows),
    "processes": processes,
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_has_the_same_moments_and_rows(name):
    found = SOURCES[name](X, 0).summarize(0)
    assert_same_moments(found.moments, Moments.of(X, ONES))
    assert sorted(found.rows.tolist()) == sorted(X.tolist())


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_leads_to_the_same_plan(name):
    """With rules for the choice, which the order of rows has no say in."""
    spec = ModelSpec(n_features=24, bandwidth="scott", base_measure="gaussian", features="sobol")
    plan = select(SOURCES[name](X, 0).summarize(0), spec)
    expected = select(summarize(X.numpy(), random_state=0), spec)
    assert (plan.base, plan.rank, plan.measurement) == (
        expected.base,
        expected.rank,
        expected.measurement,
    )
    for value in ("location", "scale", "bandwidth", "reach"):
        torch.testing.assert_close(getattr(plan, value), getattr(expected, value))
    for module in ("measure", "features"):
        for found, wanted in zip(
            getattr(plan, module).state_dict().values(),
            getattr(expected, module).state_dict().values(),
            strict=True,
        ):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["memory", "chunks"])
def test_rows_in_one_block_have_the_same_plan_to_the_bit(name):
    spec = ModelSpec(n_features=60)
    plan = select(SOURCES[name](X, 0).summarize(0), spec, seed=0)
    assert plan.matches(select(summarize(X.numpy(), random_state=0), spec, seed=0))
    assert plan.trials


# Units


def with_far_rows(n_far, distance, n=2000):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 2)) * [1.0, 3.0] + [0.0, 5.0]
    rows[:n_far, 0] = distance
    return rng.permutation(rows)


@pytest.mark.parametrize("weight", [None, np.random.default_rng(1).integers(1, 4, 2000)])
def test_units_are_mean_and_deviation_where_no_row_is_far(weight):
    summary = summarize(with_far_rows(0, 0.0), weight)
    for found, expected in zip(robust_units(summary), units(summary.moments), strict=True):
        assert torch.equal(found, expected)
    rows = with_far_rows(0, 0.0)
    np.testing.assert_allclose(robust_units(summary)[0], np.average(rows, axis=0, weights=weight))


@pytest.mark.parametrize("distance", [1e4, -1e8, 1e11])
def test_a_few_far_rows_do_not_change_units(distance):
    summary, plain = (summarize(with_far_rows(n, distance)) for n in (2, 0))
    expected = units(plain.moments)
    for number, found in enumerate(robust_units(summary)):
        torch.testing.assert_close(found, expected[number], rtol=0.1, atol=0.1)
    assert units(summary.moments)[1][0] > SelectionPolicy().far_spread


def test_a_column_without_far_rows_keeps_mean_and_deviation():
    summary = summarize(with_far_rows(2, 1e6))
    location, scale = units(summary.moments)
    found = robust_units(summary)
    assert found[0][1].item() == pytest.approx(location[1].item())
    assert found[1][1].item() == pytest.approx(scale[1].item())


def test_whole_weights_are_copies_in_units():
    rows = with_far_rows(3, 1e6, n=200)
    copies = np.random.default_rng(1).integers(1, 4, 200)
    weighted = robust_units(summarize(rows, copies))
    repeated = robust_units(summarize(np.repeat(rows, copies, axis=0)))
    for one, two in zip(weighted, repeated, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("method", ["closed_form", "likelihood"])
def test_a_plan_resolves_the_many_rows_beside_a_few_far_ones(method):
    rows = with_far_rows(2, 1e6)
    plan = select(summarize(rows), ModelSpec(method=method, n_features=64))
    assert plan.scale[0] < 2
    many = torch.from_numpy(rows[rows[:, 0] < 1e5])
    entropy = np.log(2 * np.pi * np.e * 3.0)  # of the law of the many
    assert -solve(plan, rows).log_prob(many).mean() < entropy + 0.05
