"""When a mixture is averaged over its posterior, on judges whose best candidate is known."""

import math
import time

import pytest
import torch

from qaffde import SelectionPolicy
from qaffde.selection import Moments
from qaffde.selection.base_measure import N_DRAWS, BaseSpec
from tests.selection.judges import BOX, GENERATOR, run, search_with

MANY = torch.randn(2500, 4, generator=GENERATOR, dtype=torch.float64)
OPEN = BaseSpec("mixture", 0)
SHORT = SelectionPolicy(averaged_work=40)


class Likes:
    """A judge that adds up what it likes about a candidate, with a noise of the size one."""

    def __init__(self, *, bare=0.0, averaged=0.0, name=""):
        self.bare, self.averaged, self.name, self.seen = bare, averaged, name, []

    def __call__(self, measure, choice, split):
        self.seen.append(choice)
        noise = torch.linspace(-1, 1, len(split.valid), dtype=torch.float64)
        value = self.bare * choice.bare + 0.5 * (choice.base.name == self.name)
        if choice.base.strength is None:
            return torch.full_like(noise, value - choice.ridge / 1e6)
        return value + self.averaged + noise

    @property
    def averages(self):
        return [choice for choice in self.seen if choice.base.strength is not None]


def run_on(judge, rows=MANY, bases=(OPEN,), *, free=True, deadline=math.inf):
    search = search_with(judge, rows=rows, policy=SHORT, deadline=deadline)
    return run(search, list(bases), free=free)


@pytest.mark.parametrize(
    ("lead", "is_averaged"), [(0.2, True), (0.0, True), (-0.01, True), (-0.2, False)]
)
def test_an_average_is_taken_unless_held_out_rows_see_that_it_is_worse(lead, is_averaged):
    """Its noise is a standard error of about .02."""
    found = run_on(Likes(bare=1.0, averaged=lead))
    assert (found.base.strength is not None) is is_averaged
    assert found.bare


def test_features_are_taken_where_they_gain():
    found = run_on(Likes(bare=-1.0))
    assert found.base.strength is None
    assert not found.bare


def test_an_average_is_only_ever_judged_bare_and_on_many_rows():
    judge = Likes()
    run_on(judge)
    assert len({str(choice) for choice in judge.averages}) == 1
    assert all(choice.bare for choice in judge.averages)


@pytest.mark.parametrize("name", ["mixture", "box"])
def test_of_three_columns_an_average_is_taken_where_it_leads(name):
    found = run_on(Likes(name=name), MANY[:, :3], (BOX, OPEN))
    assert found.base.name == name
    assert (found.base.strength is None) == (name == "box")
    assert found.bare == (name == "mixture")


@pytest.mark.parametrize(
    ("rows", "free", "left"),
    [
        (MANY[:, :2], True, math.inf),
        (MANY[:, :1], True, math.inf),
        (MANY[:200], True, math.inf),
        (MANY, False, math.inf),
        (MANY, True, -1.0),
    ],
    ids=["two columns", "one column", "few rows", "given features", "no time"],
)
def test_where_no_average_is_tried(rows, free, left):
    judge = Likes(averaged=5.0)
    found = run_on(judge, rows, free=free, deadline=time.monotonic() + left)
    assert found.base.strength is None
    assert not judge.averages


def test_the_final_average_has_so_many_draws_of_one_size():
    search = search_with(Likes(averaged=1.0), rows=MANY, policy=SHORT)
    found = run(search, [OPEN], free=True)
    judged, size = search.fits[found.base, 0], found.base.n_components
    final = search.measure(found.base, found.bandwidth, Moments.of(MANY, search.weight))
    assert len(judged.weights) == len(final.weights) == N_DRAWS * size
    assert final.weights.sum().item() == pytest.approx(1.0)
    assert not torch.equal(final.means, judged.means)


def test_an_average_is_the_likeliest_of_those_that_are_tried():
    search = search_with(Likes(), rows=MANY, policy=SHORT)
    spec, average = search.averaged
    (split,) = search.splits[search.fine]
    scores = {
        other: float(measure.log_density(split.valid).mean())
        for (other, _), measure in search.fits.items()
        if other.strength is not None
    }
    assert {other.strength for other in scores} == {0.0, SHORT.averaged_strength}
    assert scores[spec] == max(scores.values())
    assert torch.equal(average.means, search.fits[spec, 0].means)
