"""When a mixture is averaged over its posterior, on judges whose best candidate is known."""

import math
import time
from dataclasses import replace

import pytest
import torch

from qaffde import SelectionPolicy
from qaffde.selection.base_measure import BaseSpec, average_mixture
from qaffde.training.posterior import N_DRAWS
from tests.selection.judges import BOX, GENERATOR, SUMMIT, Judge, n_held_out, run, search_with

MANY = torch.randn(2500, 4, generator=GENERATOR, dtype=torch.float64)
OPEN = BaseSpec("mixture", 0)
SHORT = SelectionPolicy(averaged_choice_work=200)


def average_search(bare_bonus):
    """A judge of four columns that likes a base measure left as it is by so much more."""

    def judge(measure, choice, splits):
        value = torch.tensor(bare_bonus if choice.bare else 0.0, dtype=torch.float64)
        return (value - choice.ridge / 1e6).expand(n_held_out(splits))

    return search_with(judge, rows=MANY, policy=SHORT)


@pytest.mark.parametrize(("bonus", "bare"), [(1.0, True), (0.0, True), (-1.0, False)])
def test_an_averaged_base_is_bare_unless_the_rule_gains(bonus, bare):
    found = run(average_search(bonus), [OPEN], free=True)
    assert found.base.strength is not None
    assert found.bare == bare


class LikesOne:
    """A judge that likes the candidates of one base measure better."""

    def __init__(self, name):
        self.name = name

    def __call__(self, measure, choice, splits):
        value = 0.5 * (choice.base.name == self.name) - choice.ridge / 1e6
        return torch.tensor(value, dtype=torch.float64).expand(n_held_out(splits))


@pytest.mark.parametrize("name", ["mixture", "box"])
def test_of_three_columns_an_average_is_taken_where_it_leads(name):
    search = search_with(LikesOne(name), rows=MANY[:, :3], policy=SHORT)
    found = run(search, [BOX, OPEN], free=True)
    assert found.base.name == name
    assert (found.base.strength is None) == (name == "box")
    assert found.bare == (name == "mixture")


def test_two_columns_keep_the_most_likely_mixture():
    search = search_with(Judge(), rows=MANY[:, :2], policy=SHORT)
    assert search.can_average()
    assert run(search, [OPEN], free=True).base.strength is None


def test_a_base_is_averaged_only_where_that_is_allowed():
    found = run(average_search(1.0), [OPEN], free=False)
    assert found.base.strength is None
    assert not found.bare


def test_an_average_is_judged_on_rows_that_it_did_not_see():
    search = average_search(0.0)
    split = search.splits[search.rough][0]
    spec, mixture = search.averaged
    alone = average_mixture(
        spec,
        split.train,
        split.train_weight,
        search.generator(),
        work=SHORT.averaged_choice_work,
    )
    assert torch.equal(mixture.means, alone.means)


def test_few_rows_of_many_columns_keep_the_most_likely_mixture():
    search = search_with(LikesOne("mixture"), rows=MANY[:200], policy=SHORT)
    assert not search.can_average()
    assert run(search, [OPEN], free=True).base.strength is None


class Averages(Judge):
    """A judge that knows by how much an average is better than all else, row by row."""

    def __init__(self, lead, bonus):
        super().__init__(bonus)
        self.lead = lead

    def __call__(self, measure, choice, splits):
        scores = super().__call__(measure, choice, splits)
        if choice.bare and choice.base.strength is None:
            return scores - self.bonus["bare"]
        if choice.base.strength is None:
            return scores
        noise = torch.linspace(-1, 1, len(scores), dtype=scores.dtype)
        return super().__call__(measure, replace(choice, base=BOX), splits) + self.lead + noise


FEW_COLUMNS = SelectionPolicy(averaged_choice_work=200, averaged_work=200, averaged_reach=math.inf)
ROWS = torch.randn(3000, 2, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize(
    ("lead", "is_averaged"),
    [(0.1, True), (0.0, False), (0.005, False), (-0.1, False)],
)
def test_an_average_replaces_features_where_rows_see_that_it_is_better(lead, is_averaged):
    """Its noise is a standard error of about .01."""
    judge = Averages(lead, {"bare": 1.0})
    found = run(search_with(judge, rows=ROWS, policy=FEW_COLUMNS), [BOX], free=True)
    assert (found.base.strength is not None) is is_averaged
    assert found.bare is is_averaged


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
    policy = replace(FEW_COLUMNS, averaged_reach=reach)
    monkeypatch.setattr("tests.selection.judges.SUMMIT", SUMMIT[:columns])
    judge = Averages(1.0, {"bare": 1.0})
    deadline = time.monotonic() + left
    search = search_with(judge, rows=ROWS[:, :columns], deadline=deadline, policy=policy)
    found = run(search, [BOX], free=free)
    assert (found.base.strength is not None) is is_averaged
    if is_averaged:
        n_parts = N_DRAWS * policy.averaged_parts * columns
        assert found.base.n_components == n_parts
        assert "averaged alone" in str(found)


def test_a_bare_mixture_is_not_averaged():
    judge = Averages(1.0, {"bare": 0.0, "mixture": 0.0})
    search = search_with(judge, rows=ROWS, policy=FEW_COLUMNS)
    found = run(search, [BaseSpec("mixture", 2)], free=True)
    assert found.bare
    assert found.base.strength is None
