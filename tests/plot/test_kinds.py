"""Pictures of columns that are not real: bars, stems, closed circles and spikes."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from qaffde.plot import DensityDisplay
from tests.estimators.test_frames import CITIES, mixed
from tests.table_models import ATOM


@pytest.fixture(scope="module")
def model():
    return mixed()


@pytest.fixture(scope="module")
def draws(model):
    return model.sample(300, random_state=0)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_categories_are_bars_with_their_labels(model, draws):
    display = DensityDisplay.from_estimator(model, draws, columns=["city"])
    ax, panel = display.ax_, display.panel
    assert [tick.get_text() for tick in ax.get_xticklabels()] == list(CITIES)
    probabilities = [model.probability({"city": city}) for city in CITIES]
    np.testing.assert_allclose(panel.density, probabilities, atol=1e-9)
    assert ax.get_ylabel() == "probability"
    heights = {round(bar.get_height(), 9) for bar in ax.patches}
    assert heights == {round(p, 9) for p in probabilities}


def test_integers_are_stems_at_whole_numbers(model, draws):
    display = DensityDisplay.from_estimator(model, draws, columns=["children"])
    (points,) = display.panel.axes
    np.testing.assert_array_equal(points, np.rint(points))
    probabilities = [model.probability({"children": k}) for k in points]
    np.testing.assert_allclose(display.panel.density, probabilities, atol=1e-9)
    stems = display.ax_.collections[0].get_segments()
    np.testing.assert_allclose([stem[1] for stem in stems], np.c_[points, probabilities])


def test_a_period_is_closed_at_its_end(model):
    ax = DensityDisplay.from_estimator(model, columns=["hour"], n_points=48).ax_
    x, y = ax.lines[0].get_data()
    assert (x[0], x[-1]) == (-2, 22)
    assert y[0] == y[-1]
    assert ax.get_xlim() == (-2, 22)


def test_an_atom_is_a_spike_with_its_probability(model):
    display = DensityDisplay.from_estimator(model, columns=["spend"])
    (scale,) = display.panel.scales
    np.testing.assert_allclose(scale.atom, model.probability({"spend": ATOM}), atol=1e-9)
    texts = [text.get_text() for text in display.ax_.texts]
    assert any(text.endswith(" % at 1") for text in texts)
    rest = display.panel.density.sum() * scale.step
    np.testing.assert_allclose(rest + scale.atom, 1, atol=0.02)


@pytest.mark.parametrize(
    "columns", [("city", "children"), ("size", "city"), ("hour", "spend"), ("children", "hour")]
)
def test_planes_of_all_kinds_hold_their_mass(model, draws, columns):
    panel = DensityDisplay.from_estimator(model, draws, columns=columns).panel
    drawn = panel.density.sum() * np.prod([scale.step for scale in panel.scales])
    atoms = sum(scale.atom or 0 for scale in panel.scales)
    np.testing.assert_allclose(drawn + atoms, 1, atol=0.02)


def test_all_pairs_and_slices_are_drawn(model, draws):
    pairs = DensityDisplay.from_estimator(model, draws, kind="pairs", n_points=8)
    assert pairs.ax_.shape == (5, 5)
    slices = DensityDisplay.from_estimator(
        model, kind="slices", columns=["children"], given={"city": ["Cali", "Pasto"]}
    )
    assert slices.panel.labels == ["Cali", "Pasto"]
    np.testing.assert_allclose(slices.panel.densities.sum(1), 1, atol=0.02)
    free = DensityDisplay.from_estimator(
        model.marginal(["city", "size"]), kind="slices", columns=["size"], n_points=32
    )
    assert free.panel.labels == list(CITIES)
