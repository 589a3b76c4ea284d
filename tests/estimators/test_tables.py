"""Tables with kinds of columns and gaps, fitted: quality, impossible values, files, refusals."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.mixed_table import NAMES, draw, log_density
from qaffde import (
    QAFFDE,
    QAFFDESGD,
    Atom,
    Category,
    Integer,
    ModelSpec,
    Periodic,
    Real,
    SelectionPolicy,
    load,
    select,
    solve,
    summarize,
)

REGIONS = ("north", "south", "east", "west", "isles")
KINDS = {"hour": Periodic(24), "income": Real(lower=0), "region": Category(REGIONS)}
QUICK = SelectionPolicy(mixture_sizes=(8,), table_iterations=30)


def framed(rows):
    table = pd.DataFrame(rows, columns=NAMES)
    codes = table["region"]
    table["region"] = [None if np.isnan(k) else REGIONS[int(k)] for k in codes]
    return table


ROWS = draw(3000, 0)
TABLE, TEST = framed(ROWS), draw(400, 1)


@pytest.fixture(scope="module", params=[QAFFDE, QAFFDESGD])
def model(request):
    return request.param(columns=KINDS, policy=QUICK, random_state=0).fit(TABLE)


def test_kinds_are_found_or_given(model):
    kinds = dict(zip(NAMES, model.schema_.kinds, strict=True))
    assert kinds == KINDS | {"age": Integer(), "amount": Atom(0, Real(lower=0))}
    shown = str(model.plan_)
    for text in ("mixture of 8", "periodic, 0 to 24", "category of 5", "chosen", "integer"):
        assert text in shown


def test_the_density_comes_close_to_the_true_one(model):
    excess = log_density(TEST).mean() - model.score(framed(TEST))
    assert -0.1 < excess < 0.25


def test_a_larger_mixture_comes_closer():
    rows, test = draw(5000, 2), draw(500, 3)
    policy = SelectionPolicy(mixture_sizes=(16,), table_iterations=30)
    kinds = [Category(range(5)), Integer(), Real(lower=0), Periodic(24), Atom(0, Real(lower=0))]
    model = QAFFDE(columns=kinds, policy=policy, random_state=0).fit(rows)
    assert log_density(test).mean() - model.score(test) < 0.1


def test_no_mass_at_impossible_values(model):
    row = TABLE.dropna().iloc[[0, 0, 0]].copy()
    row["age"] = row["age"].astype(float)
    row.iloc[0, 1], row.iloc[1, 4], row.iloc[2, 2] = -1, -3.0, -1.0
    assert (model.density_.log_prob(torch.tensor(model.schema_.encode(row[:1]))) == -np.inf).all()
    assert model.probability({"income": (None, 0)}) == 0
    assert model.probability({"amount": (None, -1e-9)}) == 0
    total = sum(model.probability({"region": region}) for region in REGIONS)
    assert total == pytest.approx(1, abs=1e-12)


def test_gaps_have_marginal_densities(model):
    row = TABLE.dropna().iloc[:5].copy()
    known = model.marginal(["region", "income"]).score_samples(row[["region", "income"]])
    row[["age", "hour", "amount"]] = np.nan
    np.testing.assert_allclose(model.score_samples(row), known, atol=1e-9)


def test_imputed_rows_are_whole(model):
    gaps = TABLE[TABLE.isna().any(axis=1)].iloc[:50]
    for method in ("sample", "mean"):
        filled = model.impute(gaps, method=method, random_state=0)
        assert not filled.isna().any(axis=None)
        assert set(filled["region"]) <= set(REGIONS)
        known = gaps["income"].notna()
        np.testing.assert_allclose(filled["income"][known.to_numpy()], gaps["income"][known])


def test_files_hold_tables(model, tmp_path):
    model.save(tmp_path / "model.qaffde")
    again = load(tmp_path / "model.qaffde")
    np.testing.assert_array_equal(again.score_samples(TABLE[:20]), model.score_samples(TABLE[:20]))
    assert again.columns == model.columns
    assert str(again.plan_) == str(model.plan_)
    part = model.condition({"region": "east"})
    part.save(tmp_path / "part.qaffde")
    rest = TABLE.drop(columns="region")[:20]
    found = load(tmp_path / "part.qaffde").score_samples(rest)
    np.testing.assert_array_equal(found, part.score_samples(rest))


def test_a_plan_is_used_again(model):
    again = type(model)(plan=model.plan_, policy=QUICK, random_state=0).fit(TABLE)
    assert again.plan_ is model.plan_
    assert again.score(TABLE) == pytest.approx(model.score(TABLE), abs=0.1)


def test_a_mixture_alone_is_a_pure_state(model):
    if model.plan_.has_waves:
        assert 0 < model.purity() < 1
    else:
        assert model.purity() == pytest.approx(1)
    with pytest.raises(ValueError, match="have no density matrix"):
        model.marginal(["age"]).purity()


SOME, FEW = TABLE[:600], SelectionPolicy(mixture_sizes=(3,), table_iterations=10)


def test_rows_are_added_merged_and_forgotten():
    """Statistics of disjoint rows add up, so all ways to the same rows give one density."""
    whole = QAFFDE(columns=KINDS, policy=FEW, random_state=0).fit(SOME)
    options = {"plan": whole.plan_, "policy": FEW}
    parts = [QAFFDE(**options).fit(part) for part in (SOME[:300], SOME[300:])]
    streamed = QAFFDE(**options)
    for part in (SOME[:10], SOME[10:400], SOME[400:]):
        streamed.partial_fit(part)
    less = copy.deepcopy(whole).forget(SOME[300:])
    wanted = whole.score_samples(SOME[:50])
    merged = copy.deepcopy(parts[0]).merge(parts[1])
    for model in (merged, streamed, copy.deepcopy(less).partial_fit(SOME[300:])):
        np.testing.assert_allclose(model.score_samples(SOME[:50]), wanted, atol=1e-8)
    first = parts[0].score_samples(SOME[:50])
    np.testing.assert_allclose(less.score_samples(SOME[:50]), first, atol=1e-6)
    assert np.abs(first - wanted).max() > 1e-3
    assert parts[0].plan_.matches(parts[1].plan_)
    with pytest.raises(ValueError, match="different plans"):
        merged.merge(QAFFDE(columns=KINDS, policy=FEW, random_state=1).fit(SOME))


def test_three_functions_fit_tables(model):
    summary = summarize(SOME, columns=KINDS, random_state=0)
    plan = select(summary, ModelSpec(method=model.plan_.method), policy=FEW)
    density = solve(plan, SOME)
    rows = torch.tensor(plan.schema.encode(TABLE))
    assert density.log_prob(rows).mean() == pytest.approx(model.score(TABLE), abs=0.5)


def test_a_plan_of_numbers_takes_no_table():
    plain = QAFFDE(24, 0.5, base_measure="gaussian").fit(X)
    rows = X.copy()
    rows[7, 1] = np.nan
    with pytest.raises(ValueError, match="first in row 7; fit without plan"):
        QAFFDE(plan=plain.plan_).fit(rows)
    with pytest.raises(ValueError, match="the table has kinds or gaps"):
        QAFFDE(plan=plain.plan_, columns={0: "periodic:3"}).fit(X)


X = np.random.default_rng(0).normal(size=(300, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0], [0, 0, 2]])


@pytest.mark.parametrize("kind", [QAFFDE, QAFFDESGD])
def test_arrays_with_gaps_are_fitted(kind):
    rows = X.copy()
    rows[::5, 1] = np.nan
    policy = SelectionPolicy(mixture_sizes=(2,))
    model = kind(policy=policy, random_state=0).fit(rows)
    np.testing.assert_allclose(model.mean(), np.nanmean(rows, axis=0), atol=0.15)
    np.testing.assert_allclose(model.covariance(), np.cov(X.T), atol=0.6)
    assert model.sample(5, random_state=0).shape == (5, 3)
    assert np.isfinite(model.impute(rows, random_state=0)).all()


def test_gaps_at_scoring_are_integrated_out_of_plain_fits():
    model = QAFFDE(24, 0.5, base_measure="gaussian", random_state=0).fit(X)
    rows = X[:6].copy()
    rows[:3, 0], rows[3:5, 1:], rows[5] = np.nan, np.nan, np.nan
    found = model.score_samples(rows)
    np.testing.assert_allclose(found[:3], model.marginal([1, 2]).score_samples(rows[:3, 1:]))
    np.testing.assert_allclose(found[3:5], model.marginal([0]).score_samples(rows[3:5, :1]))
    assert found[5] == 0


def test_plain_rows_are_fitted_as_ever():
    options = {"n_features": 24, "bandwidth": 0.5, "random_state": 0}
    plain = QAFFDE(**options).fit(X)
    for columns in (None, "real", {0: "real"}, [Real(), Real(), Real()]):
        same = QAFFDE(**options, columns=columns).fit(X)
        np.testing.assert_array_equal(same.score_samples(X), plain.score_samples(X))
    named = QAFFDE(**options).fit(pd.DataFrame(X, columns=list("abc")))
    np.testing.assert_array_equal(
        named.score_samples(pd.DataFrame(X, columns=list("abc"))), plain.score_samples(X)
    )


def test_weights_count_rows():
    weight = np.where(TABLE["region"] == "north", 3.0, 1.0)
    model = QAFFDE(policy=QUICK, random_state=0).fit(TABLE, sample_weight=weight)
    known = TABLE["region"].notna().to_numpy()
    share = weight[(TABLE["region"] == "north").to_numpy()].sum() / weight[known].sum()
    assert model.probability({"region": "north"}) == pytest.approx(share, abs=0.02)


def test_tables_without_real_columns():
    table = TABLE[["region", "hour"]]
    model = QAFFDE(columns={"hour": Periodic(24)}, policy=QUICK, random_state=0).fit(table)
    assert np.isfinite(model.score(table))
    assert model.probability({"hour": (0, 24)}) == pytest.approx(1)


def test_few_rows():
    table = pd.DataFrame({"a": ["x", "y", "x"], "b": [1.0, 2.0, np.nan]})
    assert np.isfinite(QAFFDE(random_state=0).fit(table).score(table))


BAD = {
    "bandwidth=0.3, but a table .* has no Fourier features": (
        {"bandwidth": 0.3, "columns": KINDS},
        TABLE,
    ),
    "base_measure='box', but the base measure of a table": (
        {"base_measure": "box", "columns": KINDS},
        TABLE,
    ),
    "columns names 'town', but the table has": ({"columns": {"town": "real"}}, TABLE),
    "column 'age': 'ratio' is not a kind": ({"columns": {"age": "ratio"}}, TABLE),
    "column 'region' holds text": ({"columns": None}, TABLE),
    "more than 2000 values; make it real": ({"columns": ["integer"] * 2}, [[1, 2], [1e6, 3]]),
    "columns has 2 kinds for 3 columns": ({"columns": ["integer"] * 2}, X),
    "not a whole number; make it real": ({"columns": {0: "integer"}}, X),
    "'atom' needs its value": ({"columns": {0: "atom"}}, X),
    "has no value at all": ({}, np.column_stack([X, np.full(300, np.nan)])),
    "fewer than two rows have a value": ({}, np.array([[1.0, 2.0], [np.nan, np.nan]])),
    "but it is real, at least 9": ({"columns": {"hour": Real(lower=9)}}, TABLE),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_tables_are_refused_with_a_sentence(message):
    options, rows = BAD[message]
    with pytest.raises(ValueError, match=message):
        QAFFDE(**options).fit(rows)


def with_value(column, value):
    """Two rows, of which the second has another value in a column."""
    rows = TABLE[TABLE.notna().all(axis=1)][:2].reset_index(drop=True)
    rows[column] = pd.Series([rows[column][0], value], dtype=object)
    return rows


SCORED = {
    "unseen category": (("region", "moon"), r"'region' has no category 'moon' \(row 1\)"),
    "number for a category": (("region", 3), "column 'region' mixes str .* and int"),
    "bool for a category": (("region", True), "column 'region' mixes str .* and bool"),
    "list for a category": (("region", ["north"]), "column 'region' mixes str .* and list"),
    "category for an integer": (("age", "north"), "column 'age' mixes str .* and float"),
    "category for a period": (("hour", "noon"), "column 'hour' mixes str .* and float"),
    "list for a number": (("income", [1.0]), "'income' holds objects of the type list"),
    "complex for a number": (("income", 1j), "'income' holds objects of the type complex"),
    "infinite": (("income", np.inf), "contains infinity"),
    "minus infinity for an integer": (("age", -np.inf), "contains infinity"),
    "infinite hour": (("hour", np.inf), "contains infinity"),
    "infinite amount": (("amount", np.inf), "contains infinity"),
}


@pytest.mark.parametrize("case", SCORED)
def test_bad_rows_are_not_scored(case, model):
    change, message = SCORED[case]
    for question in (model.score_samples, model.impute):
        with pytest.raises(ValueError, match=message):
            question(with_value(*change))


WRONG = {
    "columns lack": (lambda t: t.drop(columns="age"), "age|feature names"),
    "columns more": (lambda t: t.assign(more=1), "more|feature names"),
    "all text": (lambda t: t.assign(age="old"), "column 'age' holds text .* numbers are wanted"),
    "all numbers": (lambda t: t.assign(region=1.0), "column 'region' has no category 1"),
    "durations": (lambda t: t.assign(age=pd.to_timedelta(30, "s")), "has the dtype timedelta64"),
    "no rows": (lambda t: t[:0], "minimum of 1 is required|no rows"),
}


@pytest.mark.parametrize("case", WRONG)
def test_other_tables_are_not_scored(case, model):
    change, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        model.score_samples(change(TABLE))


ASKED = {
    "half a year": ("condition", {"age": 30.5}, "the density is zero there"),
    "negative income": ("condition", {"income": -3.0}, "the density is zero there"),
    "infinite": ("condition", {"income": np.inf}, "values of a condition must be finite"),
    "all columns": ("condition", dict.fromkeys(NAMES[1:], 3) | {"region": "east"}, "no column is"),
    "column twice": ("marginal", ["age", "age"], "name a column twice"),
}


@pytest.mark.parametrize("case", ASKED)
def test_bad_questions_are_not_answered(case, model):
    method, argument, message = ASKED[case]
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(argument)


@pytest.mark.parametrize("names", [["region"], ["hour", "age"]])
def test_no_numbers_of_what_has_none(names, model):
    marginal = model.marginal(names)
    for ask in (marginal.mean, marginal.covariance):
        with pytest.raises(ValueError, match=r"column 0 is .* has no mean; take the marginal"):
            ask()
    with pytest.raises(ValueError, match=r"no quantiles|quantiles need one column"):
        marginal.ppf(0.5)
