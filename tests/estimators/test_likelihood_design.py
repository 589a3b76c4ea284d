"""The search for a candidate, on judges whose best candidate is known."""

import math
import time
from dataclasses import replace

import pytest
import torch
from qaffde.estimators.candidates import Candidate, plainer, stiffer, wider
from qaffde.estimators.likelihood_design import Search

from qaffde.estimators import candidates, likelihood_design
from qaffde.selection.base_measure import MeasureSpec
from tests.search_judges import (
    BEST_RIDGE,
    BOX,
    GAUSSIAN,
    GENERATOR,
    SUMMIT,
    Judge,
    Z,
    n_held_out,
    search_with,
)


def test_the_summit_is_found_to_a_step():
    found = search_with(Judge()).run([BOX], None, None)
    ratio = (found.bandwidth / SUMMIT).log().abs()
    assert (ratio <= math.log(likelihood_design.FINE_STEP)).all()
    assert abs(math.log(found.ridge / BEST_RIDGE)) <= math.log(candidates.RIDGE_STEP)


@pytest.mark.parametrize("bandwidth", [0.05, 5.0])
def test_steps_lead_up_from_either_side(bandwidth):
    start = Candidate(BOX, torch.full((2,), bandwidth, dtype=torch.float64), BEST_RIDGE)
    search = search_with(Judge())
    move = wider(likelihood_design.ROUGH_STEP)
    found = search._climb(start, [move], likelihood_design.ROUGH_ROWS)
    rows = likelihood_design.ROUGH_ROWS
    for direction in (1, -1):
        assert search.value(move(found, direction), rows) < search.value(found, rows) + 1e-3
    assert search.value(found, rows) > search.value(start, rows)


def test_columns_beyond_three_share_their_stretch():
    rows = torch.randn(200, 4, generator=GENERATOR, dtype=torch.float64)

    def judge(measure, candidate, splits):
        away = (candidate.bandwidth.log().mean() - math.log(0.5)).square()
        return -away.expand(n_held_out(splits))

    found = search_with(judge, rows=rows).run([GAUSSIAN], None, 100.0)
    start = search_with(judge, rows=rows)._start()
    ratio = found.bandwidth / start
    assert torch.allclose(ratio, ratio[:1].expand(4))
    assert found.bandwidth.log().mean().exp().item() == pytest.approx(0.5, rel=0.25)


def test_a_given_bandwidth_stays():
    h = torch.tensor([2.0, 3.0], dtype=torch.float64)
    found = search_with(Judge()).run([BOX], h, None)
    assert torch.equal(found.bandwidth, h)
    assert abs(math.log(found.ridge / BEST_RIDGE)) <= math.log(candidates.RIDGE_STEP)


def test_a_given_ridge_stays():
    found = search_with(Judge()).run([BOX], None, 7.0)
    assert found.ridge == 7.0
    assert ((found.bandwidth / SUMMIT).log().abs() <= math.log(likelihood_design.FINE_STEP)).all()


def test_where_all_is_given_nothing_is_judged():
    judge = Judge()
    h = torch.ones(2, dtype=torch.float64)
    found = search_with(judge).run([BOX], h, 5.0)
    assert (found.spec, found.ridge) == (BOX, 5.0)
    assert torch.equal(found.bandwidth, h)
    assert not judge.seen


@pytest.mark.parametrize("better", ["box", "gaussian"])
def test_the_better_measure_is_taken_at_its_own_summit(better):
    found = search_with(Judge({better: 0.5})).run([BOX, GAUSSIAN], None, None)
    assert found.spec.name == better


class TellsFew:
    """A judge to which measures look alike unless there are folds, and bare ones gain so much."""

    def __init__(self, fine, bare=-1.0):
        self.fine, self.bare, self.bared = fine, bare, []

    def __call__(self, measure, candidate, splits):
        noise = torch.linspace(-1, 1, n_held_out(splits), dtype=torch.float64)
        if candidate.bare:
            self.bared.append(candidate)
            return noise + self.fine.get("mixture", 0.0) + self.bare
        folds = len(splits[0].train) != N_ROUGH
        return noise + (self.fine.get(candidate.spec.name, 0.0) if folds else 0.0)


MORE = torch.randn(1200, 2, generator=GENERATOR, dtype=torch.float64)
N_ROUGH = 960
TWO = MeasureSpec("mixture", 2)


def run_on_more(judge, specs, *, free=True, deadline=math.inf):
    search = search_with(judge, deadline=deadline, rows=MORE, free=free)
    assert len(search.splits[likelihood_design.ROUGH_ROWS][0].train) == N_ROUGH
    return search.run(specs, None, None)


@pytest.mark.parametrize("better", ["box", "mixture"])
def test_measures_that_look_alike_are_told_apart_by_more_rows(better):
    found = run_on_more(TellsFew({better: 0.01}), [BOX, TWO])
    assert found.spec.name == better


def test_without_time_the_plainer_of_two_alike_is_kept():
    past = time.monotonic() - 1
    found = run_on_more(TellsFew({"mixture": 0.01}), [BOX, TWO], deadline=past)
    assert found.spec.name == "box"


@pytest.mark.parametrize(("gain", "bare"), [(0.01, True), (0.0, True), (-0.01, False)])
def test_a_mixture_is_left_bare_unless_the_rule_gains(gain, bare):
    found = run_on_more(TellsFew({"mixture": 0.01}, gain), [BOX, TWO])
    assert (found.spec, found.bare) == (TWO, bare)


def test_a_mixture_is_bare_only_where_that_is_allowed():
    judge = TellsFew({"mixture": 0.01}, 1.0)
    assert not run_on_more(judge, [TWO], free=False).bare
    assert not judge.bared


def test_a_bare_box_is_not_thought_of():
    judge = TellsFew({"box": 0.01}, 1.0)
    assert run_on_more(judge, [BOX, TWO]).spec.name == "box"
    assert not judge.bared


def test_an_open_size_becomes_that_of_the_chosen_mixture():
    far = torch.where(torch.arange(200)[:, None] < 100, -5.0, 5.0)
    rows = 0.3 * Z + far
    search = search_with(Judge(), rows=rows)
    found = search.run([MeasureSpec("mixture", 0)], None, None)
    assert found.spec.n_components == len(search.mixture.weights) == 2
    assert len(search.measure(found.spec, found.bandwidth).weights) == 2


def test_after_the_deadline_no_step_is_taken():
    judge = Judge()
    found = search_with(judge, deadline=time.monotonic() - 1).run([BOX], None, None)
    assert not judge.seen
    assert torch.equal(found.bandwidth, search_with(Judge())._start())


def test_the_deadline_cuts_the_way_short(monkeypatch):
    whole, cut = Judge(), Judge()
    search_with(whole).run([BOX], None, None)
    clock = iter(range(1000))
    monkeypatch.setattr(likelihood_design.time, "monotonic", lambda: next(clock))
    search_with(cut, deadline=3).run([BOX], None, None)
    assert 0 < len(set(cut.seen)) < len(set(whole.seen))
    assert cut.seen == whole.seen[: len(cut.seen)]


def test_a_candidate_that_would_end_too_late_is_not_begun(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(likelihood_design.time, "monotonic", lambda: now[0])
    finished = []

    class SlowJudge(Judge):
        def __call__(self, measure, candidate, splits):
            now[0] += 10.0
            finished.append(now[0])
            return super().__call__(measure, candidate, splits)

    search_with(SlowJudge(), deadline=215.0).run([BOX], None, None)
    assert 150.0 <= finished[-1] <= 215.0


@pytest.mark.parametrize("rows", [likelihood_design.ROUGH_ROWS, likelihood_design.FINE_ROWS])
def test_no_fitted_base_has_seen_the_rows_that_judge_it(rows):
    def judge(measure, candidate, splits):
        (split,) = splits
        assert torch.allclose(measure.means.squeeze(0), split.train.mean(0), atol=1e-4)
        return split.valid[:, 0]

    search_with(judge).scores(Candidate(MeasureSpec("mixture", 1), torch.ones(2)), rows)


def test_known_values_are_not_judged_again():
    first, second, reported = Judge(), Judge(), []
    known = {}
    search = search_with(first, known, report=lambda *entry: reported.append(entry))
    found = search.run([BOX, GAUSSIAN], None, None)
    assert [name for name, _ in reported] == list(known)
    for name, value in reported:
        assert value == pytest.approx(known[name].mean().item())
    again = search_with(second, dict(known)).run([BOX, GAUSSIAN], None, None)
    assert not second.seen
    assert str(again) == str(found)


def test_half_of_the_values_known_leads_to_the_same_candidate():
    known = {}
    found = search_with(Judge(), known).run([BOX, GAUSSIAN], None, None)
    half = dict(list(known.items())[: len(known) // 2])
    judge = Judge()
    again = search_with(judge, half).run([BOX, GAUSSIAN], None, None)
    assert judge.seen
    assert str(again) == str(found)
    assert list(half) == list(known)
    assert all(torch.equal(half[name], known[name]) for name in known)


def test_the_final_mixture_is_the_same_whether_values_were_known_or_not():
    spec, h = MeasureSpec("mixture", 3), torch.full((2,), 0.5, dtype=torch.float64)
    known, measures = {}, []
    for _ in range(2):
        search = search_with(Judge(), known)
        found = search.run([spec], h, None)
        measures.append(search.measure(found.spec, found.bandwidth))
    assert torch.equal(measures[0].means, measures[1].means)


def test_weights_count_in_the_mean():
    weight = torch.arange(200, dtype=torch.float64) + 1

    def judge(measure, candidate, splits):
        return torch.cat([split.valid[:, 0] for split in splits])

    search = Search(
        Z, weight, judge, seed=0, deadline=math.inf, known={}, report=lambda name, value: None
    )
    value = search.value(Candidate(BOX, torch.ones(2)), likelihood_design.ROUGH_ROWS)
    assert value == pytest.approx(float(weight @ Z[:, 0] / weight.sum()))


def test_moves_go_back_and_forth():
    start = Candidate(BOX, torch.tensor([0.5, 2.0], dtype=torch.float64), 10.0)
    first = torch.tensor([1.0, 0.0])
    moved = wider(2.0, first)(start, 1)
    assert moved.bandwidth.tolist() == [1.0, 2.0]
    assert torch.equal(wider(2.0, first)(moved, -1).bandwidth, start.bandwidth)
    assert stiffer(stiffer(start, 1), -1).ridge == pytest.approx(10.0)


def test_candidates_are_named_by_all_that_they_are():
    h = torch.tensor([0.5, 2.0])
    names = {
        str(Candidate(spec, width, ridge))
        for spec in (BOX, GAUSSIAN, MeasureSpec("mixture", 2), MeasureSpec("mixture", 3))
        for width in (h, 2 * h)
        for ridge in (1.0, 3.0)
    }
    assert len(names) == 16


ONE = MeasureSpec("mixture", 1)


@pytest.mark.parametrize(("given", "ridge"), [(None, candidates.BENT_RIDGE), (9.0, 9.0)])
def test_one_gaussian_of_one_column_is_bent_before_it_is_bare(given, ridge):
    narrow = Candidate(replace(ONE, blur=0.4), torch.tensor([0.5], dtype=torch.float64), 9.0)
    bent, bare = plainer(narrow, given)
    assert (bent.spec, bent.ridge, bent.bare) == (ONE, ridge, False)
    assert bent.bandwidth.tolist() == [candidates.BENT_BANDWIDTH]
    assert (bare.spec, bare.bare) == (ONE, True)


@pytest.mark.parametrize(("spec", "columns"), [(ONE, 2), (TWO, 1), (TWO, 2)])
def test_other_mixtures_are_not_bent(spec, columns):
    (bare,) = plainer(Candidate(spec, torch.ones(columns)))
    assert bare.bare


class LikesForms:
    """A judge of one column that likes some forms of candidates by so much, with noise."""

    def __init__(self, **gain):
        self.gain = gain

    def __call__(self, measure, candidate, splits):
        noise = torch.linspace(-1, 1, n_held_out(splits), dtype=torch.float64)
        wide = float(candidate.bandwidth) == candidates.BENT_BANDWIDTH
        form = "bare" if candidate.bare else "bent" if wide else candidate.spec.name
        return noise * {"box": 1, "gaussian": -1}.get(form, 0) + self.gain.get(form, 0.0)


@pytest.mark.parametrize(
    ("gain", "found"),
    [
        ({}, "bent"),
        ({"bent": -0.5}, "bare"),
        ({"bare": -0.5}, "bent"),
        ({"bare": 0.5}, "bare"),
        ({"gaussian": 0.2}, "gaussian"),
        ({"box": 0.01}, "bent"),
        ({"box": 0.01, "bent": -0.5}, "bare"),
        ({"box": 0.01, "bent": -0.5, "bare": -0.5}, "box"),
    ],
)
def test_a_gaussian_is_bent_where_rows_cannot_tell(gain, found):
    """The noise of box and features is a standard error of about .017."""
    search = search_with(LikesForms(**gain), rows=MORE[:, :1], free=True)
    best = search.run([BOX, ONE], None, None)
    wide = best.bandwidth.tolist() == [candidates.BENT_BANDWIDTH]
    assert ("bare" if best.bare else "bent" if wide else best.spec.name) == found


def test_a_box_that_was_asked_for_is_not_bent():
    best = search_with(LikesForms(), rows=MORE[:, :1], free=True).run([BOX], None, None)
    assert best.spec.name == "box"
