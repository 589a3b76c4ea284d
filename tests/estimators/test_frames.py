"""Frames in and out of the calculus: labels, regions, draws and filled gaps of mixed tables."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from qaffde import QAFFDE, Atom, Category, Integer, Periodic, Real, load
from qaffde.estimators.calculus import DerivedDensity
from qaffde.schema import Column, Schema
from tests.table_models import ATOM, random_table

KINDS = ("real", "circle", "integer", "category", "atom")
CITIES = ("Bogotá", "Cali", "Leticia", "Pasto")
COLUMNS = (
    Column("size", Real(), "float64"),
    Column("hour", Periodic(24, -2), "float64"),
    Column("children", Integer(), "int64"),
    Column("city", Category(CITIES), "Categorical"),
    Column("spend", Atom(ATOM), "float32"),
)
NAMES = np.array([column.name for column in COLUMNS], dtype=object)


def mixed(library="pandas"):
    dtypes = {"pandas": None, "polars": ("Float64", "Float64", "Int64", "Categorical", "Float32")}
    columns = COLUMNS
    if dtypes[library]:
        pairs = zip(COLUMNS, dtypes[library], strict=True)
        columns = tuple(Column(c.name, c.kind, dtype) for c, dtype in pairs)
    return DerivedDensity(random_table(KINDS, seed=1), NAMES, Schema(columns, library))


@pytest.fixture(scope="module")
def model():
    return mixed()


@pytest.fixture(scope="module")
def draws(model):
    return model.sample(400, random_state=0)


def test_draws_have_names_dtypes_and_categories(draws):
    assert list(draws.columns) == list(NAMES)
    assert draws["children"].dtype == "int64"
    assert draws["spend"].dtype == "float32"
    assert list(draws["city"].cat.categories) == list(CITIES)
    assert 0 < (draws["spend"] == ATOM).sum() < len(draws)
    assert draws["hour"].between(-2, 22).all()


def test_draws_of_polars_models_are_polars():
    draws = mixed("polars").sample(20, random_state=0)
    assert isinstance(draws, pl.DataFrame)
    assert draws.schema["city"] == pl.Categorical
    assert draws.schema["children"] == pl.Int64


def test_scores_of_frames_are_those_of_their_numbers(model, draws):
    rows = torch.as_tensor(model.schema_.encode(draws))
    np.testing.assert_array_equal(model.score_samples(draws), model.density_.log_prob(rows))


def test_a_condition_takes_labels(model, draws):
    given = model.condition({"city": "Cali"})
    rest = draws[draws["city"] == "Cali"].drop(columns="city").iloc[:5]
    whole = model.score_samples(rest.assign(city="Cali")[list(NAMES)])
    marginal = model.marginal(["city"]).score_samples(pd.DataFrame({"city": ["Cali"]}))
    np.testing.assert_allclose(given.score_samples(rest) + marginal, whole, atol=1e-9)
    several = model.condition({"city": ["Cali", "Pasto"], "children": 1})
    assert [list(one.feature_names_in_) for one in several] == [["size", "hour", "spend"]] * 2


def test_regions_are_sums_over_their_parts(model):
    parts = [model.probability({"city": city, "size": (None, 0)}) for city in CITIES]
    whole = model.probability({"size": (None, 0)})
    np.testing.assert_allclose(sum(parts), whole, atol=1e-9)
    two = model.probability({"city": ["Cali", "Pasto"], "size": (None, 0)})
    np.testing.assert_allclose(two, parts[1] + parts[3], atol=1e-9)
    lower, upper = np.full(5, -np.inf), np.array([0, *[np.inf] * 4])
    np.testing.assert_allclose(whole, model.probability(lower, upper), atol=1e-12)


def test_integers_in_a_list_or_between_ends(model):
    listed = model.probability({"children": [0, 1, 3]})
    alone = sum(model.probability({"children": k}) for k in (0, 1, 3))
    np.testing.assert_allclose(listed, alone, atol=1e-12)
    ranged = model.probability({"children": (0, 1)}) + model.probability({"children": 3})
    np.testing.assert_allclose(listed, ranged, atol=1e-12)


def test_a_period_may_be_crossed(model):
    night, day = (model.probability({"hour": ends}) for ends in ((20, 4), (4, 20)))
    np.testing.assert_allclose(night + day, 1, atol=1e-9)


def test_an_atom_has_a_probability(model, draws):
    share = model.probability({"spend": ATOM})
    assert abs(share - (draws["spend"] == ATOM).mean()) < 0.1


def test_gaps_of_a_frame_are_filled_in_their_dtypes(model, draws):
    holes = draws.iloc[:30].astype({"children": "Int64"})
    holes.loc[holes.index[::3], "city"] = None
    holes.loc[holes.index[1::3], ["children", "spend"]] = None
    holes.index = holes.index + 100
    filled = model.impute(holes, random_state=0)
    assert filled.index.equals(holes.index)
    assert filled.dtypes.equals(draws.dtypes)
    known = holes.notna().to_numpy()
    assert (filled.to_numpy()[known] == draws.iloc[:30].to_numpy()[known]).all()


def test_frames_of_real_columns_come_back_as_frames(tmp_path):
    frame = pl.DataFrame(np.random.default_rng(0).normal(size=(100, 2)), schema=["a", "b"])
    model = QAFFDE(20, 0.5, base_measure="box").fit(frame)
    model.save(tmp_path / "model.qaffde")
    draws = load(tmp_path / "model.qaffde").sample(5, random_state=0)
    assert isinstance(draws, pl.DataFrame)
    assert draws.equals(model.sample(5, random_state=0))
    array = QAFFDE(20, 0.5, base_measure="box").fit(frame.to_numpy()).sample(5, random_state=0)
    np.testing.assert_array_equal(draws.to_numpy(), array)


BAD = {
    "unseen label": (
        lambda m: m.condition({"city": "Tunja"}),
        "column 'city' has no category 'Tunja'",
    ),
    "number for a label": (lambda m: m.condition({"city": 1}), "'city' has no category 1"),
    "label for a number": (lambda m: m.condition({"size": "Cali"}), "'size' holds text"),
    "gap as a condition": (lambda m: m.condition({"city": None}), "leave out what is not known"),
    "unseen label in a region": (
        lambda m: m.probability({"city": ["Cali", "Tunja"]}),
        r"no category 'Tunja' \(row 1\)",
    ),
    "gap in a region": (lambda m: m.probability({"city": ["Cali", None]}), "are no categories"),
    "a number of a real column": (
        lambda m: m.probability({"size": 1.0}),
        r"column 'size' is real: give it a pair \(lower, upper\)",
    ),
    "three ends": (lambda m: m.probability({"size": (0, 1, 2)}), "'size' has 3 ends"),
    "ends swapped": (lambda m: m.probability({"size": (1, 0)}), "'size': lower must not exceed"),
    "NaN as an end": (lambda m: m.probability({"size": (np.nan, 0)}), "use None for an open end"),
    "text as an end": (lambda m: m.probability({"size": ("a", 0)}), "'size' holds text"),
    "value beside the atom": (
        lambda m: m.probability({"spend": 3.0}),
        "only 1 has a probability of its own; give a pair",
    ),
    "no upper": (lambda m: m.probability(np.zeros(5)), "give lower and upper, or one dict"),
    "region and upper": (lambda m: m.probability({"size": (0, 1)}, 3), "a region is one dict"),
    "unknown column": (lambda m: m.probability({"town": "Cali"}), "column 'town' is not known"),
    "no column": (lambda m: m.probability({}), "no column was given"),
    "box over categories": (
        lambda m: m.probability(np.zeros(5), np.ones(5)),
        "a category and has no order",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_questions_are_refused_with_a_sentence(case, model):
    ask, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        ask(model)
