"""Pictures show the numbers that the estimator gives."""

import re

import numpy as np
import pandas as pd
import pytest

from qaffde import QAFFDE
from qaffde.baselines import GMM
from qaffde.plot import KINDS, DensityDisplay

plt = pytest.importorskip("matplotlib.pyplot", reason="pictures need the extra 'plot'")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0], [0, 0, 2]])
FRAME = pd.DataFrame(X, columns=["height", "weight", "age"])


def fit(data):
    return QAFFDE(48, 0.6, base_measure="gaussian", random_state=0).fit(data)


@pytest.fixture(scope="module")
def model():
    return fit(FRAME)


@pytest.fixture(scope="module")
def flat():
    return fit(X[:, :2])


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def means(density, x):
    """Means of a density of one column over even cells about x, by its distribution function."""
    step = x[1] - x[0]
    edges = np.append(x - step / 2, x[-1] + step / 2)
    frame = pd.DataFrame(edges[:, None], columns=getattr(density, "feature_names_in_", None))
    return np.diff(density.cdf(frame)) / step


def mean_in_cell(density, panel, i, j):
    """Mean of a density over the cell of a plane in row i and column j."""
    place = np.array([panel.axes[0][j], panel.axes[1][i]])
    half = np.array([panel.axes[0][1] - panel.axes[0][0], panel.axes[1][1] - panel.axes[1][0]]) / 2
    return density.probability(place - half, place + half) / np.prod(2 * half)


def test_a_curve_is_the_exact_marginal(model):
    display = DensityDisplay.from_estimator(model, FRAME, columns=["height"])
    (line,) = display.ax_.get_lines()
    x, y = line.get_data()
    np.testing.assert_allclose(y, means(model.marginal(["height"]), x), rtol=1e-6, atol=1e-12)
    assert display.ax_.get_xlabel() == "height"
    assert display.figure_ is display.ax_.figure
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["90 % of the mass", "50 % of the mass", "data"]


def test_regions_of_a_curve_hold_their_mass(model):
    panel = DensityDisplay.from_estimator(
        model, columns=[1], masses=(0.5, 0.8), n_points=4000
    ).panel
    for mass, level in zip((0.5, 0.8), panel.levels, strict=True):
        inside = panel.density[panel.density >= level].sum() * (
            panel.axes[0][1] - panel.axes[0][0]
        )
        assert inside == pytest.approx(mass, abs=0.01)


def test_contours_hold_their_mass(flat):
    display = DensityDisplay.from_estimator(flat, X[:, :2])
    panel = display.panel
    cell = (panel.axes[0][1] - panel.axes[0][0]) * (panel.axes[1][1] - panel.axes[1][0])
    for mass, level in zip(panel.masses, panel.levels, strict=True):
        assert panel.density[panel.density >= level].sum() * cell == pytest.approx(mass, abs=0.01)
    assert panel.density[-1, 0] == pytest.approx(mean_in_cell(flat, panel, -1, 0), rel=2e-3)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("x0", "x1")


def test_contours_of_columns_in_the_order_given(model):
    panel = DensityDisplay.from_estimator(model, columns=["age", "height"], n_points=9).panel
    exact = model.marginal(["age", "height"])
    assert panel.density[5, 2] == pytest.approx(mean_in_cell(exact, panel, 5, 2), rel=1e-3)


def test_pairs_are_the_exact_marginals(model):
    display = DensityDisplay.from_estimator(model, FRAME, n_points=12)
    assert display.ax_.shape == (3, 3)
    panel = display.panel
    assert [curve.names[0] for curve in panel.curves] == ["height", "weight", "age"]
    below = panel.planes[2, 0]
    assert below.names == ["height", "age"]
    expected = mean_in_cell(model.marginal(["height", "age"]), below, 4, 3)
    assert below.density[4, 3] == pytest.approx(expected, rel=1e-3)
    assert len(display.ax_[0, 2].collections[0].get_offsets()) == 200
    assert not DensityDisplay.from_estimator(model, n_points=12).ax_[0, 2].axison


def test_slices_are_the_exact_conditionals(model):
    given = {"height": [-1.0, 1.0], "age": [0.0, 2.0]}
    display = DensityDisplay.from_estimator(model, kind="slices", columns=["weight"], given=given)
    for line, condition in zip(display.ax_.get_lines(), model.condition(given), strict=True):
        x, y = line.get_data()
        np.testing.assert_allclose(y, means(condition, x), rtol=1e-6, atol=1e-12)
    assert display.panel.labels == ["-1, 0", "1, 2"]
    free = DensityDisplay.from_estimator(model, kind="slices")
    assert (free.panel.scale.name, free.panel.given, len(free.panel.labels)) == (
        "age",
        "height",
        5,
    )
    first = model.condition({"height": float(model.marginal([0]).ppf(0.1))}).marginal(["age"])
    expected = means(first, free.panel.scale.points)
    np.testing.assert_allclose(free.panel.densities[0], expected, rtol=1e-6, atol=1e-12)


def test_other_estimators_can_be_drawn():
    gmm = GMM(2, random_state=0).fit(X[:, :2])
    panel = DensityDisplay.from_estimator(gmm, n_points=30).panel
    assert panel.density.shape == (30, 30)
    single = DensityDisplay.from_estimator(GMM(2, random_state=0).fit(X[:, :1]), X[:, :1])
    assert single.panel.levels[0] > single.panel.levels[1]


def test_axes_of_the_caller_are_used(flat, model):
    figure, axes = plt.subplots(1, 2)
    display = DensityDisplay.from_estimator(flat, ax=axes[1])
    assert display.ax_ is axes[1]
    assert display.figure_ is figure
    assert not axes[0].has_data()
    again = display.plot()
    assert again is display
    assert display.figure_ is not figure
    with pytest.raises(ValueError, match=r"need axes of shape \(3, 3\)"):
        DensityDisplay.from_estimator(model, kind="pairs", n_points=5, ax=axes)


def test_nothing_global_is_changed(flat):
    before = dict(plt.rcParams)
    DensityDisplay.from_estimator(flat)
    assert dict(plt.rcParams) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "pie"}, "kind='pie' is not known; choose one of auto, curve"),
        ({"kind": "curve"}, "this shows one column, got 2"),
        ({"kind": "contours", "columns": [0]}, "this shows two columns, got 1"),
        ({"kind": "pairs", "columns": [0]}, "pairs show 2 to 8 columns"),
        ({"columns": ["size"]}, "column 'size' is not known"),
        ({"kind": "slices", "columns": [0], "given": {0: 1.0}}, "which is not given itself"),
        ({"X": np.ones((3, 5))}, "X has shape (3, 5), but the density has 2 columns"),
        ({"X": np.full((3, 2), np.nan)}, "X has no finite row"),
    ],
)
def test_bad_input(options, message, flat):
    message = re.escape(message)
    with pytest.raises(ValueError, match=message) as raised:
        DensityDisplay.from_estimator(flat, **options)
    assert "\n" not in str(raised.value)


def test_what_an_estimator_cannot_show():
    gmm = GMM(1, random_state=0).fit(X)
    for kind in ("pairs", "slices"):
        with pytest.raises(ValueError, match=r"GMM|slices need"):
            DensityDisplay.from_estimator(gmm, kind=kind)


def test_every_kind_has_a_test():
    assert set(KINDS) == {"curve", "contours", "pairs", "ridges", "slices"}
