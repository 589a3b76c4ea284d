"""Waves over the parts of a table: whether they are taken, rows with gaps, files."""

import numpy as np
import pytest
import torch

from qaffde import QAFFDE, QAFFDESGD, Category, Integer, Periodic, Real, SelectionPolicy, load
from qaffde.nn import find_born
from qaffde.selection.table_mixture import TableRows
from qaffde.selection.table_waves import FilledRows, wave_features
from tests.selection.test_table_mixture import draw, truth

KINDS = [Periodic(24), Real(), Integer(), Category([0, 1])]
POLICY = SelectionPolicy(mixture_sizes=(2,), table_iterations=20, few_wave_rows=500)


def curved(n, seed):
    """Hours, a wave over the day, an integer and a category that follow it; 5 % gaps."""
    rng = np.random.default_rng(seed)
    turn, noise = rng.random(n), rng.normal(size=(2, n))
    x = 2 * np.sin(4 * np.pi * turn) + 0.4 * noise[0]
    k = np.round(10 + 6 * np.sin(2 * x) + noise[1])
    c = rng.random(n) < 1 / (1 + np.exp(-3 * np.sin(3 * x)))
    rows = np.stack([24 * turn, x, k, c], 1)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    return rows[~np.isnan(rows).all(1)]


@pytest.fixture(scope="module")
def model():
    return QAFFDESGD(columns=KINDS, policy=POLICY, random_state=0).fit(curved(1500, 0))


def test_waves_are_taken_where_they_pay(model):
    fresh = curved(1000, 1)
    alone = QAFFDE(columns=KINDS, policy=POLICY, random_state=0).fit(curved(1500, 0))
    gain = model.score_samples(fresh) - alone.score_samples(fresh)
    assert model.plan_.has_waves
    assert not alone.plan_.has_waves
    assert gain.mean() > 0.1 + 3 * gain.std() / len(gain) ** 0.5
    chosen = next(trial.name for trial in model.plan_.trials if trial.chosen)
    assert "waves, bandwidth" in chosen
    assert f"rank          {model.plan_.rank}" in str(model.plan_)
    assert model.rank_ > 1


def test_they_are_not_where_the_mixture_is_the_truth():
    rows = draw(truth(), 1500, gaps=0.05).x.numpy()
    columns = [Real(), Category([0, 1, 2]), Real(), Periodic(1)]
    rows = rows[~np.isnan(rows).all(1)]
    model = QAFFDESGD(columns=columns, policy=POLICY, random_state=0).fit(rows)
    assert any("waves" in trial.name for trial in model.plan_.trials)
    assert not model.plan_.has_waves


def test_rows_with_gaps_have_their_marginal_density(model):
    """The sum over what is missing, of the density of whole rows."""
    row = np.array([[7.0, 0.5, np.nan, np.nan]])
    found = next(c for c in model.density_.columns if getattr(c, "size", 0) > 2)
    codes = np.arange(found.first, found.first + found.size)
    whole = np.array([[7.0, 0.5, k, c] for k in codes for c in (0, 1)])
    wanted = np.log(np.exp(model.score_samples(whole)).sum())
    assert model.score_samples(row)[0] == pytest.approx(wanted, abs=1e-8)
    given = model.condition({2: float(codes[5])})
    assert given.probability({2: [0, 1]}) == pytest.approx(1)


def test_files_hold_waves(model, tmp_path):
    rows = curved(20, 2)
    for name, density in {"fit": model, "marginal": model.marginal([0, 2])}.items():
        density.save(tmp_path / name)
        again, own = load(tmp_path / name), rows if name == "fit" else rows[:, [0, 2]]
        np.testing.assert_array_equal(again.score_samples(own), density.score_samples(own))
    again = QAFFDESGD(plan=model.plan_, random_state=0).fit(curved(1500, 0))
    np.testing.assert_allclose(again.score_samples(rows), model.score_samples(rows), atol=1e-3)


def test_no_whole_row_is_impossible(model):
    rows = torch.tensor([[3.0, 1e3, 5.0, 0.0]]).double()
    assert model.density_.log_prob(rows).isfinite().all()
    assert torch.allclose(find_born(model.density_).log_normalizer(), torch.zeros(1).double())


def test_frequencies_are_those_of_the_parts():
    features = wave_features(truth(), 0.3, 200, 0)
    W = features.W
    turns, codes = W[:, 3] / (2 * np.pi), W[:, 1] * 3 / (2 * np.pi)
    torch.testing.assert_close(turns, turns.round())
    assert turns.abs().max() >= 1
    assert {*codes.round(decimals=6).tolist()} == {0, 1, 2}
    assert 0.3 < (codes == 0).double().mean() < 0.7
    assert (W[-1] == 0).all()


def test_draws_for_gaps_follow_the_mixture_and_keep_weights():
    rows = draw(truth(), 400, gaps=0.3)
    rows = TableRows(rows.x, 1 + torch.arange(400).double() % 2, rows.parts)
    generator = torch.Generator().manual_seed(0)
    filled = FilledRows.of(truth().base(), rows.x, rows.weight, POLICY, generator)
    assert not filled.x.isnan().any()
    total = torch.zeros(400).double().index_add(0, filled.number, filled.weight)
    torch.testing.assert_close(total, rows.weight)
    values = torch.rand(len(filled.x), generator=torch.Generator().manual_seed(1)).double().log()
    again = filled.reweighted(values)
    total = torch.zeros(400).double().index_add(0, filled.number, again.weight)
    torch.testing.assert_close(total, rows.weight)
    first = filled.number == filled.number[0]
    assert filled.log_mean(values)[0].exp() == pytest.approx(values[first].exp().mean().item())
