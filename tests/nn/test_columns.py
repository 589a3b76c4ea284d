"""Maps of columns: inverse, slope, gradients, ends, precision."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qaffde.nn import RealColumn
from qaffde.nn.maps import MapTable
from qaffde.nn.scoring import compiled_score
from tests.mapped_models import ENDS, INF, random_map, random_mapped, random_maps

KINDS = [*ENDS, None]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 99), z=st.floats(-6, 6))
def test_maps_and_their_inverses_round_trip(kind, seed, z):
    maps = random_maps([kind], seed)
    z = torch.tensor([[z]], dtype=torch.float64)
    x = maps.inverse(z)
    torch.testing.assert_close(maps(x)[0], z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_maps_rise(kind):
    maps = random_maps([kind])
    x = maps.inverse(torch.linspace(-7, 7, 4001, dtype=torch.float64)[:, None])
    z, log_slope = maps(x)
    assert (x.diff(dim=0) > 0).all()
    assert (z.diff(dim=0) > 0).all()
    assert log_slope.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_are_derivatives(kind):
    maps = random_maps([kind, kind])
    x = maps.inverse(torch.randn(200, 2, dtype=torch.float64) * 2).requires_grad_()
    z, log_slope = maps(x)
    (slope,) = torch.autograd.grad(z.sum(), x)
    torch.testing.assert_close(slope.log().sum(1), log_slope)


def test_gradients():
    maps = random_maps(KINDS)
    z = torch.randn(6, len(KINDS), dtype=torch.float64, generator=torch.manual_seed(0))
    assert torch.autograd.gradcheck(maps, maps.inverse(z).requires_grad_())


def test_the_identity_is_exact():
    x = torch.randn(50, 2, dtype=torch.float64) * 1e6
    maps = MapTable.of([RealColumn(), random_map("line", 0)])
    z, _ = maps(x)
    assert torch.equal(z[:, 0], x[:, 0])
    assert torch.equal(maps.inverse(z)[:, 0], x[:, 0])
    assert maps.curved.tolist() == [False, True]


@pytest.mark.parametrize("kind", ENDS)
def test_infinite_values_are_the_ends(kind):
    maps, (lower, upper) = random_maps([kind]), ENDS[kind]
    ends = torch.tensor([[lower], [upper]], dtype=torch.float64)
    infinite = torch.tensor([[-INF], [INF]], dtype=torch.float64)
    assert torch.equal(maps.inverse(infinite), ends)
    assert torch.equal(maps.edges(ends), infinite)
    assert torch.equal(maps.edges(infinite), infinite)


def test_impossible_values_have_no_density_and_ends_do():
    maps = random_maps(["between"])
    x = torch.tensor([[-1.1], [-1.0], [3.0], [9.0], [9.1]], dtype=torch.float64)
    z, log_slope = maps(x)
    assert z.isfinite().all()
    assert log_slope.isfinite().tolist() == [False, True, True, True, False]


def test_heavy_tails_keep_far_values_possible():
    heavy = MapTable.of([random_map("line", 0, tails=(1.0, 1.0))])
    straight = MapTable.of([random_map("line", 0, tails=(0.0, 0.0))])
    x = torch.tensor([[-1e12], [1e12], [1e100]], dtype=torch.float64)
    z, log_slope = heavy(x)
    assert z.abs().max() < 1e3
    assert log_slope.isfinite().all()
    assert straight(x)[0].abs().min() > 1e11


def test_single_precision_is_near_double_precision():
    maps = random_maps(KINDS)
    x = maps.inverse(torch.randn(100, len(KINDS), dtype=torch.float64))
    z, log_slope = maps(x)
    single = maps.converted(lambda t: t.float() if t.is_floating_point() else t)(x.float())
    assert single[0].dtype == torch.float32
    torch.testing.assert_close(single[0].double(), z, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(single[1].double(), log_slope, rtol=1e-3, atol=1e-3)


def test_numpy_and_torch_have_one_formula():
    table = random_maps(KINDS)
    x = table.inverse(torch.randn(30, len(KINDS), dtype=torch.float64) * 3)
    x[0, 1], x[1, 3] = -9.0, 9.0
    with np.errstate(divide="ignore"):
        found = table.converted(lambda tensor: tensor.numpy())(x.numpy())
    for ours, theirs in zip(found, table(x), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-12)


def test_maps_are_pickled_and_copied():
    density = random_mapped("mixture", ["from", None, "between"])
    x = density.maps.inverse(torch.randn(20, 3, dtype=torch.float64))
    for twin in (copy.deepcopy(density), pickle.loads(pickle.dumps(density))):
        assert torch.equal(twin.log_prob(x), density.log_prob(x))
    other = random_mapped("mixture", ["from", None, "between"], seed=1)
    other.columns.load_state_dict(density.columns.state_dict())
    assert torch.equal(other.maps(x)[0], density.maps(x)[0])


@pytest.mark.parametrize("base", ["box", "gaussian", "mixture"])
def test_compiled_scores_are_those_of_the_density(base):
    density = random_mapped(base, ["from", None, "between"])
    x = density.maps.inverse(torch.randn(50, 3, dtype=torch.float64))
    x[0, 0], x[1, 2], x[2, 2] = -0.6, 9.5, 9.0
    score, expected = compiled_score(density), density.log_prob(x)
    assert expected[:2].tolist() == [-INF, -INF]
    torch.testing.assert_close(score(x), expected)
    np.testing.assert_allclose(score.of_few(x[:4].numpy()), expected[:4].numpy(), rtol=1e-10)
    single = compiled_score(density, torch.float32)(x)
    torch.testing.assert_close(single.double(), expected, rtol=1e-3, atol=1e-3)


def test_a_changed_map_changes_the_compiled_score():
    density = random_mapped("gaussian", ["line"])
    x = torch.full((1, 1), 2.0, dtype=torch.float64)
    before = compiled_score(density)(x)
    density.column(0).values.add_(0.5)
    after = compiled_score(density)(x)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, density.log_prob(x))


def test_a_log_normal_is_a_mapped_normal():
    knots = torch.tensor([1.0, math.e], dtype=torch.float64)
    slopes = 1 / knots
    ends = torch.tensor([0.0, INF], dtype=torch.float64)
    tails = torch.tensor([0.0, 1.0], dtype=torch.float64)
    maps = MapTable.of([RealColumn(knots, knots.log(), slopes, tails, ends)])
    x = torch.tensor([[0.1], [0.9], [3.0], [50.0]], dtype=torch.float64)
    torch.testing.assert_close(maps(x)[0], x.log())
    torch.testing.assert_close(maps(x)[1], -x[:, 0].log())


def test_values_beyond_the_largest_number_are_that_number() -> None:
    """Draws of a law wider than float64 were infinite."""
    ends = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    column = RealColumn(ends, ends, torch.full((2,), 1e-3, dtype=torch.float64))
    assert column.decode(torch.tensor([[-1e306], [1e306]], dtype=torch.float64)).isfinite().all()
