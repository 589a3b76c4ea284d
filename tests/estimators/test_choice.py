"""qaffde.fit: the choice between the estimators by held-out likelihood."""

import time

import numpy as np
import pandas as pd
import pytest
import torch

import qaffde
from qaffde import QAFFDE, QAFFDESGD, QAFFDETensorTrain, SelectionPolicy, choice
from qaffde.streams import chunks


def entries(*gains: float, spread: float = 1.0) -> list:
    """Models whose scores have means of their own, and paired differences of a known spread."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(len(gains), 400, generator=generator).double()
    noise -= noise.mean(1, keepdim=True)
    models = (QAFFDE(), QAFFDESGD(), QAFFDETensorTrain())
    return [(m, g + spread * z, 1.0) for m, g, z in zip(models, gains, noise, strict=True)]


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [((0.0, 0.0, 0.03), 0), ((0.0, 0.5, 0.52), 1), ((0.0, 0.2, 0.6), 2), ((0.0, -1.0, -1.0), 0)],
)
def test_first_within_one_standard_error_is_chosen(gains, chosen):
    """The error of a difference of 400 rows is √2/20 = .07."""
    found, number = choice._compare(entries(*gains), torch.ones(400).double())
    assert number == chosen
    assert [c.chosen for c in found.candidates].index(True) == chosen
    best = int(np.argmax(gains))
    assert found.candidates[best].loss == 0
    assert found.candidates[best - 1].error == pytest.approx(2**0.5 / 20, rel=0.1)
    assert str(found).count("chosen") == 2


def test_copies_fall_on_the_same_side():
    X = np.repeat(np.random.default_rng(0).normal(size=(40, 2)), 3, axis=0)
    splits = choice._splits(X, np.ones(120), torch.Generator().manual_seed(0))
    assert sorted(np.concatenate([valid for _, valid in splits])) == list(range(120))
    for train, valid in splits:
        assert not set(train // 3) & set(valid // 3)


def test_many_rows_are_split_once():
    weight = np.ones(20_000)
    weight[::2] = 0
    X = np.random.default_rng(0).normal(size=(20_000, 1))
    ((train, valid),) = choice._splits(X, weight, torch.Generator().manual_seed(0))
    assert len(valid) == 1000
    assert len(train) == 9000
    assert (weight[train] > 0).all()


ALONE = {"policy": SelectionPolicy(choice_shares=(0.5,)), "time_limit": None, "random_state": 0}
"""The simplest estimator alone, for speed."""


@pytest.mark.slow
def test_few_rows_are_not_won_by_luck():
    X = np.random.default_rng(0).normal(size=(90, 2))
    model = qaffde.fit(X, random_state=0)
    assert isinstance(model, QAFFDE)
    assert model.choice_.n_rows == 90
    assert [c.name for c in model.choice_.candidates] == [kind.__name__ for kind in choice.KINDS]


def test_data_frames_keep_their_kinds():
    rng = np.random.default_rng(0)
    city = np.array(["a", "b", "rare"])[np.r_[rng.integers(0, 2, 99), 2]]
    table = pd.DataFrame({"city": city, "x": rng.normal(size=100)})
    weight = rng.uniform(0.5, 2, 100)
    model = qaffde.fit(table, weight, **ALONE)
    assert model.schema_.columns[0].kind.values == ("a", "b", "rare")
    assert np.isfinite(model.score_samples(table)).all()


@pytest.mark.parametrize("kind", [iter, list])
def test_chunks(kind):
    X = np.random.default_rng(0).normal(size=(90, 2))
    model = qaffde.fit(chunks(kind(np.array_split(X, 3))), **ALONE)
    assert len(model.choice_.candidates) == 1
    assert model.policy == ALONE["policy"]
    assert model.choice_.n_rows == 90
    assert model.n_features_in_ == 2


def test_too_few_rows_to_compare():
    model = qaffde.fit([[0.0], [1.0], [2.5]], random_state=0)
    assert isinstance(model, QAFFDE)
    assert str(model.choice_) == "too few different rows: not compared"


@pytest.mark.parametrize("n", [60, 12_000])
def test_copies_of_three_rows_are_not_compared(n):
    """A part that is held out would be empty, or all others copies of one row."""
    X = np.tile([[1.0, 2.0], [3.0, 4.0], [3.0, 2.0]], (n // 3, 1))
    model = qaffde.fit(X, random_state=0)
    assert model.choice_.candidates == ()
    assert np.isfinite(model.score([[1.0, 2.0]]))


def test_bad_time_limit():
    with pytest.raises(ValueError, match="time_limit=-1"):
        qaffde.fit([[0.0], [1.0]], time_limit=-1)


@pytest.mark.filterwarnings("ignore:time_limit has ended")
def test_a_short_time_is_not_spent_on_folds_of_all_estimators():
    """Ten fits of forty columns, each of a second at least, took five times a limit."""
    X = np.random.default_rng(0).normal(size=(500, 4))
    model = qaffde.fit(X, time_limit=1e-3, random_state=0)
    assert [one.name for one in model.choice_.candidates] == ["QAFFDE"]
    assert np.isfinite(model.score(X))


def test_folds_that_become_slow_are_left_out(monkeypatch):
    class Slower:
        fits = 0

        def __init__(self, **given):
            pass

        def fit(self, X, sample_weight=None):
            type(self).fits += 1
            time.sleep(0.3 * (self.fits == 2))
            return self

        def score_samples(self, X):
            return np.zeros(len(X))

    monkeypatch.setattr(choice, "KINDS", (Slower,))
    X = np.random.default_rng(0).normal(size=(90, 2))
    assert qaffde.fit(X, time_limit=1.0, random_state=0).choice_.n_rows == 30


def test_progress_is_printed_only_if_asked(capsys):
    X, settings = np.random.default_rng(0).normal(size=(60, 1)), {**ALONE, "time_limit": 60.0}
    qaffde.fit(X, **settings)
    assert capsys.readouterr().out == ""
    qaffde.fit(X, **settings, verbose=True)
    out = capsys.readouterr().out
    assert "of 60 s  QAFFDE: fit 1 of 3 to compare" in out
    assert "gaussian alone (40 rows): held-out log-likelihood" in out
    assert "fit of all rows" in out
