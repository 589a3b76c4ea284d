"""Pictures agree with the calculus of the model, which knows nothing of them."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch

from qaffde import QAFFDE, QAFFDESGD, Real, TrainingConfig
from qaffde.explore import Explorer, views
from qaffde.explore.requests import RequestError, State
from qaffde.nn.calculus.families import pivoted_factor
from qaffde.nn.calculus.polynomial import SquaredCoefficients
from tests.explore.data import rows

KINDS = ("box", "gaussian", "mixture")
STATES = {
    "plane, others integrated": State((0, 1), {}),
    "plane, one given": State((3, 1), {2: 0.4}),
    "plane, all given": State((1, 2), {0: -0.8, 3: 0.3}),
    "curve, one given": State((2,), {0: 0.5}),
    "curve, all given": State((0,), {1: 0.2, 2: 0.1, 3: -0.4}),
}


def conditional(model, state):
    """The density of the columns shown, from the estimator's own methods."""
    kept = [*state.given, *state.shown]
    density = model.marginal(kept)
    return density.condition(dict(enumerate(state.given.values()))) if state.given else density


def middles(ends, n):
    return ends[0] + (np.arange(n) + 0.5) / n * (ends[1] - ends[0])


def grid(picture):
    """Middles of the cells."""
    axes = [middles(ends, len(picture.density)) for ends in picture.ends]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_densities_are_those_of_the_model(models, explorers, kind, state):
    picture = explorers[kind].picture(state)
    step = 1 if len(state.shown) == 1 else 37
    points = grid(picture)[::step]
    expected = np.exp(conditional(models[kind], state).score_samples(points))
    found = picture.density.ravel()[::step]
    assert np.abs(found - expected).max() < 1e-3 * expected.max()


@pytest.mark.parametrize("kind", KINDS)
def test_cells_have_the_masses_of_the_calculus(models, explorers, kind):
    state = State((1,), {2: 0.4, 0: -0.3})
    picture = explorers[kind].picture(state)
    edges = np.linspace(*picture.ends[0], len(picture.density) + 1)
    expected = np.diff(conditional(models[kind], state).cdf(edges[:, None]))
    found = picture.density * np.diff(edges)
    np.testing.assert_allclose(found, expected, atol=2e-6 * expected.max())


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_close_to_exact_pictures(explorers, kind, monkeypatch):
    monkeypatch.setattr(views, "BUDGET", 0.0)  # as on a slow machine
    box = ((-1.0, 0.5), (-0.5, 2.0))
    draft = explorers[kind].picture(State((0, 1), {2: 0.35}, box, 50, draft=True))
    exact = explorers[kind].picture(State((0, 1), {2: 0.35}, box, 50))
    assert (draft.nodes, exact.nodes) == (16, 64)
    peak = exact.density.max()
    assert np.abs(draft.density - exact.density).max() < 0.05 * peak
    assert abs(draft.probability - exact.probability) < 0.01
    for side, other in zip(draft.sides, exact.sides, strict=True):
        assert np.abs(side - other).max() < 0.05 * other.max()
    widths = np.ptp(exact.ends, axis=1)
    assert np.median(np.abs(draft.samples - exact.samples) / widths) < 0.02


def test_drafts_of_many_parts_are_within_a_thousandth():
    X = np.random.default_rng(0).normal(size=(4000, 4)) * (1, 2, 0.5, 1)
    X[:, 0] += np.sin(2 * X[:, 1])
    X[:, 2] += X[:, 1] ** 2
    explorer = Explorer(QAFFDE(base_measure=32, random_state=0).fit(X))
    assert len(explorer.density.terms) > 32
    for values in X[:5, 2:].tolist():
        state = State((0, 1), dict(enumerate(values, 2)))
        exact, draft = (explorer.picture(replace(state, draft=rough)) for rough in (False, True))
        area = np.ptp(exact.ends, axis=1).prod() / exact.density.size
        assert np.abs(draft.density - exact.density).sum() * area / 2 < 1e-3


def test_factors_are_the_form_with_the_largest_columns_first():
    rng = torch.Generator().manual_seed(0)
    F = torch.randn(3, 20, dtype=torch.complex128, generator=rng)
    blocks = SquaredCoefficients(F).pairs.blocks
    L = pivoted_factor(blocks)
    theta = torch.rand(7, 20, dtype=torch.float64, generator=rng) * 6
    c, s = theta.cos(), theta.sin()
    expected = (torch.complex(c, s) @ F.T).real.square().sum(1)
    assert L.shape == (40, 3)
    torch.testing.assert_close((torch.cat([c, s], 1) @ L).square().sum(1), expected)
    found = blocks.single().of_waves(c.float(), s.float())
    torch.testing.assert_close(found, expected.float())
    assert (L.square().sum(0).diff() < 0).all()


def test_a_box_moves_over_the_exact_density(explorers):
    explorer, box = explorers["mixture"], ((-1.0, 0.5), (-0.5, 2.0))
    exact = explorer.picture(State((0, 1), {2: 0.4}, box))
    draft = explorer.picture(State((0, 1), {2: 0.4}, box, draft=True))
    np.testing.assert_array_equal(draft.density, exact.density)
    assert draft.probability == pytest.approx(exact.probability, abs=1e-4)
    assert draft.probability != exact.probability
    elsewhere = explorer.picture(State((0, 1), {2: 0.5}, box, draft=True))
    assert (elsewhere.density != exact.density).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("box", [((-1.0, 0.5), (-0.5, 2.0)), ((0.0, np.inf), (-np.inf, np.inf))])
def test_probabilities_are_those_of_the_calculus(models, explorers, kind, box):
    state = State((0, 1), {2: 0.4}, box)
    expected = conditional(models[kind], state).probability(*zip(*box, strict=True))
    assert abs(explorers[kind].picture(state).probability - expected) < 1e-6


def test_sides_are_the_marginals(models, explorers):
    state = State((0, 1), {2: 0.4})
    picture = explorers["mixture"].picture(state)
    density = conditional(models["mixture"], state)
    for k, side in enumerate(picture.sides):
        points = middles(picture.ends[k], len(side))[:, None]
        expected = np.exp(density.marginal([k]).score_samples(points))
        assert np.abs(side - expected).max() < 1e-3 * expected.max()


def test_quantiles_are_those_of_the_conditional(models, explorers):
    state = State((1,), {0: 0.7})
    (found,) = explorers["gaussian"].picture(state).quantiles
    expected = conditional(models["gaussian"], state).ppf([0.05, 0.5, 0.95])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_levels_hold_their_mass(explorers):
    picture = explorers["gaussian"].picture(State((1,), {0: 0.7}))
    density = picture.density
    for mass, level in zip((0.5, 0.9), picture.levels, strict=True):
        step = np.ptp(picture.ends[0]) / len(density)
        assert density[density >= level].sum() * step == pytest.approx(mass, abs=0.01)


def test_samples_follow_the_conditional(models, explorers):
    state = State((0, 1), {2: 0.4}, samples=2000)
    drawn = explorers["gaussian"].picture(state).samples
    density = conditional(models["gaussian"], state)
    assert drawn.shape == (2000, 2)
    spread = np.sqrt(np.diag(density.covariance()) / 2000)
    assert (np.abs(drawn.mean(0) - density.mean()) < 6 * spread).all()


def test_samples_glide_with_a_slider(explorers):
    here = explorers["gaussian"].picture(State((0, 1), {2: 0.4}, samples=100)).samples
    there = explorers["gaussian"].picture(State((0, 1), {2: 0.45}, samples=100)).samples
    assert 0 < np.abs(here - there).max() < 0.2


def test_a_box_base_ends_the_axes_at_the_box(models):
    bounded = QAFFDE(
        n_features=40, bandwidth=0.2, base_measure="box", columns=Real(0, 1), random_state=0
    ).fit(np.random.default_rng(0).random((300, 2)))
    view = Explorer(bounded).view
    assert (view[0] >= 0).all()
    assert (view[1] <= 1).all()


def test_one_column_is_enough():
    model = QAFFDE(n_features=30, bandwidth=0.5, base_measure="gaussian", random_state=0).fit(
        rows(100, 1)
    )
    picture = Explorer(model).picture(State((0,), {}, ((-1.0, 1.0),), 10))
    assert picture.probability == pytest.approx(model.probability(-1, 1), abs=1e-6)


def test_densities_that_are_derived_or_learned_can_be_explored(models):
    derived = Explorer(models["mixture"].condition({0: 0.5}))
    assert derived.names == ["x0", "x1", "x2"]
    learned = QAFFDESGD(
        n_features=16,
        rank=2,
        bandwidth=0.7,
        base_measure="gaussian",
        training=TrainingConfig(max_iter=2),
        random_state=0,
    ).fit(rows(100, 3))
    picture = Explorer(learned).picture(State((0, 1), {2: 0.0}))
    assert picture.density.max() > 0


def test_names_are_those_of_the_fit(named_model):
    assert Explorer(named_model).names == ["height", "weight", "age", "<b>odd</b> name"]


def test_values_without_density_are_refused(explorers):
    with pytest.raises(RequestError, match="move them nearer"):
        explorers["gaussian"].picture(State((0,), {1: 1e200}))


def test_a_kernel_base_says_what_to_do():
    model = QAFFDE(n_features=30, bandwidth=0.5, base_measure="kernel").fit(rows(100, 2))
    with pytest.raises(ValueError, match="fit with base_measure="):
        Explorer(model)


def test_old_slices_are_let_go(models, monkeypatch):
    explorer = Explorer(models["mixture"])
    monkeypatch.setattr(views, "MAX_BYTES", 1)
    for k in range(1, 4):
        explorer.picture(State((0,), {k: 0.1}))
        explorer.picture(State((k,), {0: 0.1}))
    assert len(explorer._slices) == 4


def test_work_stops_where_it_is_told_to(explorers):
    def stop():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        explorers["mixture"].picture(State((0, 1), {2: -0.4}), stop)
    explorers["mixture"].picture(State((0, 1), {2: -0.4}, draft=True), stop)


def held_bytes():
    """Memory of all tensors that there are."""
    gc.collect()
    storages = [o.untyped_storage() for o in gc.get_objects() if type(o) is torch.Tensor]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


def test_the_cache_counts_what_it_holds(models):
    explorer = Explorer(models["mixture"])
    explorer.picture(State((0,), {}))
    before, counted = held_bytes(), sum(s.nbytes for s in explorer._slices.values())
    for state in (State((0, 1), {2: 0.1}), State((1, 2), {0: 0.1, 3: 0.0}), State((3,), {0: 0.2})):
        explorer.picture(state)
        explorer.picture(replace(state, draft=True))
    counted = sum(s.nbytes for s in explorer._slices.values()) - counted
    assert counted == pytest.approx(held_bytes() - before, rel=0.1)
