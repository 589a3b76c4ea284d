"""Pictures of tables on the page: masses of cells, boxes, quantiles, what the page is told."""

import numpy as np
import pytest

from qaffde.explore import Explorer
from qaffde.explore.requests import RequestError, State
from tests.estimators.test_frames import CITIES, NAMES, mixed
from tests.table_models import ATOM

SIZE, HOUR, CHILDREN, CITY, SPEND = range(5)


@pytest.fixture(scope="module")
def model():
    return mixed()


@pytest.fixture(scope="module")
def explorer(model):
    return Explorer(model)


def cells(picture):
    areas = [(high - low) / len(picture.density) for low, high in picture.ends]
    return picture.density * np.prod(areas)


def test_the_page_is_told_the_kinds_of_columns(explorer):
    assert explorer.names == list(NAMES)
    told = {"name": "city", "kind": "category", "labels": list(CITIES)}
    assert told.items() <= explorer.columns[CITY].items()
    assert [told["kind"] for told in explorer.columns[:3]] == ["real", "periodic", "integer"]
    assert explorer.view[:, HOUR].tolist() == [-2, 22]
    assert explorer.view[:, CITY].tolist() == [-0.5, 3.5]


def test_categories_fill_unit_intervals(explorer, model):
    picture = explorer.picture(State((CITY,), {}))
    expected = [model.probability({"city": city}) for city in CITIES]
    heights = picture.density.reshape(len(CITIES), -1)
    np.testing.assert_allclose(heights, np.array(expected)[:, None] + 0 * heights, atol=1e-9)
    assert picture.quantiles[0].tolist() == [np.argmax(expected)] * 3


def test_an_atom_fills_its_cell(explorer, model):
    picture = explorer.picture(State((SPEND,), {}))
    (low, high), n = picture.ends[0], len(picture.density)
    mass = cells(picture)[int((ATOM - low) / (high - low) * n)]
    share = model.probability({"spend": ATOM})
    assert share <= mass < share + 0.05
    quantile = model.marginal(["spend"]).ppf([0.05, 0.5, 0.95])
    np.testing.assert_allclose(picture.quantiles[0], quantile, atol=2 * (high - low) / n)


@pytest.mark.parametrize("shown", [(SIZE, CITY), (CHILDREN, HOUR), (SPEND, SIZE), (CITY, SPEND)])
def test_planes_hold_the_masses_of_their_sides(explorer, shown):
    picture = explorer.picture(State(shown, {}, samples=50))
    assert picture.covered == pytest.approx(1, abs=0.05)
    for k, column in enumerate(shown):
        alone = explorer.picture(State((column,), {}))
        assert picture.quantiles[k][1] == pytest.approx(alone.quantiles[0][1], abs=0.2)
    assert picture.samples.shape == (50, 2)
    draft = explorer.picture(State(shown, {}, draft=True))
    assert draft.covered == pytest.approx(picture.covered, abs=0.05)


def test_boxes_are_regions(explorer, model):
    box = explorer.picture(State((SIZE, CITY), {}, ((0.0, np.inf), (0.6, 2.4)))).probability
    region = {"size": (0, None), "city": [CITIES[1], CITIES[2]]}
    np.testing.assert_allclose(box, model.probability(region), atol=1e-9)
    given = explorer.picture(State((CHILDREN,), {CITY: 1.0}, ((0.0, 2.0),))).probability
    conditional = model.condition({"city": CITIES[1]})
    np.testing.assert_allclose(given, conditional.probability({"children": (0, 2)}), atol=1e-9)


def test_values_that_cannot_be_are_refused(explorer):
    with pytest.raises(RequestError, match="no density at these values"):
        explorer.picture(State((SIZE,), {CHILDREN: 1.5}))
