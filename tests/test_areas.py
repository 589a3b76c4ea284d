"""Every picture of a density has area one, counting what it says to lie beyond its axes."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from qaffde import QAFFDE, QAFFDETensorTrain, Real, SelectionPolicy, TensorTrainConfig
from qaffde.explore import Explorer
from qaffde.explore.requests import State
from qaffde.plot import KINDS, DensityDisplay
from qaffde.plot.cells import Scale, cell_density, cell_size
from tests import narrow_models

STATES = {
    "curve": State((0,), {}, samples=2000),
    "plane": State((0, 1), {}, samples=2000),
    "swapped plane": State((1, 0), {}, samples=2000),
    "curve given a value": State((0,), {1: 0.5}, samples=2000),
}


@pytest.fixture(scope="module", params=narrow_models.KINDS)
def case(request):
    return request.param, narrow_models.rows(request.param), narrow_models.fit(request.param)


@pytest.fixture(scope="module")
def explorer(case):
    return Explorer(case[2])


def ends_of(axis):
    half = (axis[1] - axis[0]) / 2
    return axis[0] - half, axis[-1] + half


def check(density, masses, axes):
    """Cells hold what the calculus has between their ends, as a whole and in halves."""
    step = np.prod([axis[1] - axis[0] for axis in axes])
    ends = np.array([ends_of(axis) for axis in axes])
    inside = density.probability(*ends.T)
    assert masses.sum() * step == pytest.approx(inside, abs=1e-3)
    upper, half = ends[:, 1].copy(), len(masses) // 2
    upper[0] = ends[0].mean()
    expected = density.probability(ends[:, 0], upper)
    assert masses[:half].sum() * step == pytest.approx(expected, abs=2e-3)
    beyond = 1 - inside
    assert masses.sum() * step + beyond == pytest.approx(1, abs=1e-3)
    return masses.sum() * step


def said(text):
    """Mass that a picture says to be drawn; all of it where it says nothing."""
    return float(text.split(" % drawn")[0].split()[-1]) / 100 if "drawn" in text else 1.0


def panels(kind, model, X):
    """Density, masses along the first axis first, axes and words of each part of a picture."""
    display = DensityDisplay.from_estimator(model, X, kind=kind, **CHOICES[kind])
    panel, ax = display.panel, display.ax_
    if kind == "curve":
        (line,) = ax.get_lines()
        words = " ".join(text.get_text() for text in ax.texts)
        return [(model.marginal([0]), line.get_ydata(), [line.get_xdata()], words)]
    if kind == "slices":
        conditions = model.condition({1: GIVEN})
        words = ax.get_title(loc="left")
        lines = zip(conditions, ax.get_lines(), strict=True)
        return [(c, line.get_ydata(), [line.get_xdata()], words) for c, line in lines]
    if kind == "pairs":
        words = ax[0, 0].get_title(loc="left")
        parts = enumerate(panel.curves)
        curves = [(model.marginal([k]), c.density, c.axes, words) for k, c in parts]
        plane = panel.planes[1, 0]
        return [*curves, (model, plane.density.T, plane.axes, words)]
    return [(model, panel.density.T, panel.axes, ax.get_title(loc="left"))]


GIVEN = [0.0, 0.5]
CHOICES = {
    "curve": {"columns": [0]},
    "contours": {},
    "pairs": {},
    "ridges": {},
    "slices": {"columns": [0], "given": {1: GIVEN}},
}


def test_every_picture_of_a_density_is_looked_at():
    assert CHOICES.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", CHOICES)
def test_areas_of_plots(kind, case):
    _, X, model = case
    found = panels(kind, model, X)
    least = min(check(*part[:3]) for part in found)
    assert said(found[0][3]) == pytest.approx(least, abs=1e-3)
    assert "exact" not in found[0][3] or least > 0.999
    plt.close("all")


@pytest.mark.parametrize("kind", ["contours", "curve"])
def test_regions_hold_their_mass(kind, case):
    _, X, model = case
    panel = DensityDisplay.from_estimator(model, X, kind=kind, **CHOICES[kind]).panel
    cells = panel.density * panel.mass / panel.density.sum()
    for mass, level in zip(panel.masses, panel.levels, strict=True):
        inside = panel.density >= level
        # the last cell may be a spike, which is in the region or not
        assert cells[inside].sum() == pytest.approx(mass, abs=max(0.01, cells[inside].min()))
    plt.close("all")


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_areas_of_the_explorer(state, case, explorer):
    picture = explorer.picture(state)
    density = case[2].condition(state.given) if state.given else case[2].marginal(state.shown)
    axes = [middles(ends, len(picture.density)) for ends in picture.ends]
    area = check(density, picture.density, axes)
    assert picture.covered == pytest.approx(area, abs=1e-9)
    columns = [density.marginal([k]) for k in range(len(axes))]
    for column, three in zip(columns, picture.quantiles, strict=True):
        np.testing.assert_allclose(column.cdf(three[:, None]), [0.05, 0.5, 0.95], atol=1e-5)
    for column, side, axis in zip(columns, picture.sides, axes, strict=False):
        check(column, side, [axis])
    low, high = np.array(picture.ends).T
    middle = (low + high) / 2
    expected = density.probability(low, middle) / area
    drawn = (picture.samples <= middle).all(1).mean()
    assert drawn == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize("shown", [(0,), (0, 1)], ids=["curve", "plane"])
def test_drafts_lose_nothing(shown, case):
    explorer = Explorer(case[2])
    draft = explorer.picture(State(shown, {}, draft=True))
    exact = explorer.picture(State(shown, {}))
    step = np.prod(np.ptp(exact.ends, axis=1)) / exact.density.size
    assert draft.covered == pytest.approx(exact.covered, abs=0.02)
    assert np.abs(draft.density - exact.density).sum() * step < 0.25


def test_boxes_of_the_explorer(case, explorer):
    (a, b), (c, d) = explorer.view.T
    for box in (((a, (a + b) / 2), (c, d)), ((-np.inf, b), ((c + d) / 2, np.inf))):
        picture = explorer.picture(State((0, 1), {}, box))
        expected = case[2].probability(*np.transpose(box))
        assert picture.probability == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("base", ["box", "gaussian", 3])
@pytest.mark.parametrize("tail", [0.025, 0.2])
def test_planes_whose_window_leaves_much_out(base, tail):
    """Cells beyond the window are known by their sums only, which must not move those within."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    X[:, 1] += X[:, 0] ** 2
    model = QAFFDE(200, 0.4, base_measure=base, random_state=0).fit(X)
    ends = np.quantile(X, [tail, 1 - tail], axis=0)
    scales = [Scale("", Real(), np.linspace(*pair, 65)) for pair in ends.T]
    mass = cell_density(model, scales) * cell_size(scales)
    assert mass.sum() == pytest.approx(model.probability(*ends), abs=1e-3)


def middles(ends, n):
    return ends[0] + (np.arange(n) + 0.5) / n * (ends[1] - ends[0])


@pytest.fixture(scope="module", params=["mixture", "train"])
def table(request):
    """A narrow mode of a third of the rows in a table of other kinds, which points would miss."""
    rng = np.random.default_rng(0)
    few, wide = rng.random(600), rng.lognormal(3, 0.8, 600)
    x = np.where(few < 0.35, 5 + 1e-3 * rng.normal(size=600), wide)
    X = pd.DataFrame({"x": x, "k": rng.poisson(3, 600), "y": x + rng.normal(size=600)})
    if request.param == "mixture":
        return QAFFDE(policy=SelectionPolicy(mixture_sizes=(4,)), random_state=0).fit(X)
    training = TensorTrainConfig(max_steps=30)
    return QAFFDETensorTrain(training=training, random_state=0).fit(X)


@pytest.mark.parametrize("shown", [(0,), (0, 1), (2, 0)], ids=str)
def test_areas_of_tables(shown, table):
    explorer, density = Explorer(table), table.marginal(["x", "k", "y"][shown[0]])
    picture = explorer.picture(State(shown, {}))
    inside = table.marginal(shown).probability(*np.transpose(picture.ends))
    assert picture.covered == pytest.approx(inside, abs=1e-3 * len(shown))
    np.testing.assert_allclose(picture.quantiles[0], density.ppf([0.05, 0.5, 0.95]), rtol=1e-9)
    draft = explorer.picture(State(shown, {}, draft=True))
    assert draft.covered == pytest.approx(picture.covered, abs=0.02)
    panel = DensityDisplay.from_estimator(table, columns=shown).panel
    ends = [scale.ends for scale in panel.scales]
    assert panel.mass == pytest.approx(
        table.marginal(shown).probability(*np.transpose(ends)), abs=2e-3
    )
    plt.close("all")


def test_windows_of_tables_leave_much_out(table):
    pair = table.marginal(["x", "y"])
    ends = np.array([pair.marginal([k]).ppf([0.05, 0.95]) for k in (0, 1)])
    scales = [Scale("", Real(), np.linspace(*each, 65)) for each in ends]
    mass = cell_density(pair, scales) * cell_size(scales)
    assert mass.sum() == pytest.approx(pair.probability(*ends.T), abs=1e-3)


def test_tables_of_arrays_have_an_explorer():
    """A train of an array has no schema."""
    X = np.random.default_rng(0).normal(size=(80, 2))
    model = QAFFDETensorTrain(training=TensorTrainConfig(max_steps=5), random_state=0).fit(X)
    picture = Explorer(model).picture(State((0, 1), {}))
    assert picture.covered > 0.9
