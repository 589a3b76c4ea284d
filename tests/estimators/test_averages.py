"""When a mixture is averaged over its posterior, on judges whose best candidate is known."""

import math
import time
from dataclasses import replace

import pytest
import torch

from qaffde.estimators import averages, data_measure, likelihood_design
from qaffde.selection.base_measure import MeasureSpec, average_mixture
from qaffde.training.posterior import N_DRAWS
from tests.search_judges import BOX, GENERATOR, SUMMIT, Judge, n_held_out, search_with

MANY = torch.randn(2500, 4, generator=GENERATOR, dtype=torch.float64)
OPEN = MeasureSpec("mixture", 0)


@pytest.fixture
def short_chains(monkeypatch):
    monkeypatch.setattr(averages, "CHOICE_WORK", 200)


def average_search(bare_bonus, *, free=True):
    """A judge of four columns that likes a base measure left as it is by so much more."""

    def judge(measure, candidate, splits):
        value = torch.tensor(bare_bonus if candidate.bare else 0.0, dtype=torch.float64)
        return (value - candidate.ridge / 1e6).expand(n_held_out(splits))

    return search_with(judge, rows=MANY, free=free)


@pytest.mark.parametrize(("bonus", "bare"), [(1.0, True), (0.0, True), (-1.0, False)])
def test_an_averaged_base_is_bare_unless_the_rule_gains(short_chains, bonus, bare):
    found = average_search(bonus).run([OPEN], None, None)
    assert found.spec.strength is not None
    assert found.bare == bare


class LikesOne:
    """A judge that likes the candidates of one base measure better."""

    def __init__(self, name):
        self.name = name

    def __call__(self, measure, candidate, splits):
        value = 0.5 * (candidate.spec.name == self.name) - candidate.ridge / 1e6
        return torch.tensor(value, dtype=torch.float64).expand(n_held_out(splits))


@pytest.mark.parametrize("name", ["mixture", "box"])
def test_of_three_columns_an_average_is_taken_where_it_leads(short_chains, name):
    search = search_with(LikesOne(name), rows=MANY[:, :3], free=True)
    found = search.run([BOX, OPEN], None, None)
    assert found.spec.name == name
    assert (found.spec.strength is None) == (name == "box")
    assert found.bare == (name == "mixture")


def test_two_columns_keep_the_most_likely_mixture():
    search = search_with(Judge(), rows=MANY[:, :2], free=True)
    assert search.chosen[0].strength is None


def test_a_base_is_averaged_only_where_that_is_allowed():
    found = average_search(1.0, free=False).run([OPEN], None, None)
    assert found.spec.strength is None
    assert not found.bare


def test_an_average_is_judged_on_rows_that_it_did_not_see(short_chains):
    search = average_search(0.0)
    split = search.splits[likelihood_design.ROUGH_ROWS][0]
    spec, mixture = search.chosen
    alone = average_mixture(
        spec,
        split.train,
        split.train_weight,
        search.generator(),
        work=averages.CHOICE_WORK,
    )
    assert torch.equal(mixture.means, alone.means)


def test_few_rows_of_many_columns_keep_the_most_likely_mixture():
    search = search_with(Judge(), rows=MANY[:200])
    assert search.chosen[0].strength is None


class Averages(Judge):
    """A judge that knows by how much an average is better than all else, row by row."""

    def __init__(self, lead, bonus):
        super().__init__(bonus)
        self.lead = lead

    def __call__(self, measure, candidate, splits):
        scores = super().__call__(measure, candidate, splits)
        if candidate.bare and candidate.spec.strength is None:
            return scores - self.bonus["bare"]
        if candidate.spec.strength is None:
            return scores
        noise = torch.linspace(-1, 1, len(scores), dtype=scores.dtype)
        return super().__call__(measure, replace(candidate, spec=BOX), splits) + self.lead + noise


@pytest.fixture
def few_columns(short_chains, monkeypatch):
    monkeypatch.setattr(data_measure, "AVERAGE_WORK", 200)
    monkeypatch.setattr(likelihood_design, "AVERAGE_REACH", math.inf)


ROWS = torch.randn(3000, 2, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize(
    ("lead", "is_averaged"),
    [(0.1, True), (0.0, False), (0.005, False), (-0.1, False)],
)
@pytest.mark.usefixtures("few_columns")
def test_an_average_replaces_features_where_rows_see_that_it_is_better(lead, is_averaged):
    """Its noise is a standard error of about .01."""
    judge = Averages(lead, {"bare": 1.0})
    found = search_with(judge, rows=ROWS, free=True).run([BOX], None, None)
    assert (found.spec.strength is not None) is is_averaged
    assert found.bare is is_averaged


@pytest.mark.usefixtures("few_columns")
@pytest.mark.parametrize(
    ("columns", "free", "left", "reach", "is_averaged"),
    [
        (2, True, math.inf, math.inf, True),
        (2, False, math.inf, math.inf, False),
        (2, True, 10.0, math.inf, False),
        (2, True, math.inf, -math.inf, False),
        (1, True, math.inf, math.inf, True),
    ],
)
def test_when_an_average_is_tried(columns, free, left, reach, is_averaged, monkeypatch):
    monkeypatch.setattr(likelihood_design, "AVERAGE_REACH", reach)
    monkeypatch.setattr("tests.search_judges.SUMMIT", SUMMIT[:columns])
    judge = Averages(1.0, {"bare": 1.0})
    search = search_with(
        judge, rows=ROWS[:, :columns], free=free, deadline=time.monotonic() + left
    )
    found = search.run([BOX], None, None)
    assert (found.spec.strength is not None) is is_averaged
    if is_averaged:
        n_parts = N_DRAWS * averages.PARTS_A_COLUMN * columns
        assert found.spec.n_components == n_parts
        assert "averaged, bare" in str(found)


@pytest.mark.usefixtures("few_columns")
def test_a_bare_mixture_is_not_averaged():
    judge = Averages(1.0, {"bare": 0.0, "mixture": 0.0})
    found = search_with(judge, rows=ROWS, free=True).run([MeasureSpec("mixture", 2)], None, None)
    assert found.bare
    assert found.spec.strength is None
