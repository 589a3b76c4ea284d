"""The search for a candidate, on judges whose best candidate is known."""

import math
import time
from dataclasses import replace

import pytest
import torch

from qaffde.selection import Moments
from qaffde.selection import search as search_module
from qaffde.selection.base_measure import BaseSpec
from qaffde.selection.likelihood import bare, stiffer
from qaffde.selection.policy import DEFAULT_POLICY
from qaffde.selection.search import Choice, Search, wider
from tests.selection.judges import (
    BEST_RIDGE,
    BOX,
    GAUSSIAN,
    GENERATOR,
    SUMMIT,
    Judge,
    Z,
    run,
    search_with,
)

ROUGH, FINE = DEFAULT_POLICY.rough_rows, DEFAULT_POLICY.fine_rows
STEP, RIDGE_STEP = DEFAULT_POLICY.rough_step, DEFAULT_POLICY.ridge_step


def start_of(search):
    """Where the search for a bandwidth begins."""
    return DEFAULT_POLICY.likelihood_start * search.within


def test_the_summit_is_found_to_a_step():
    found = run(search_with(Judge()), [BOX])
    ratio = (found.bandwidth / SUMMIT).log().abs()
    assert (ratio <= math.log(STEP)).all()
    assert abs(math.log(found.ridge / BEST_RIDGE)) <= math.log(RIDGE_STEP)


@pytest.mark.parametrize("bandwidth", [0.05, 5.0])
def test_steps_lead_up_from_either_side(bandwidth):
    start = Choice(BOX, torch.full((2,), bandwidth, dtype=torch.float64), BEST_RIDGE)
    search = search_with(Judge())
    move = wider(DEFAULT_POLICY.rough_step)
    rows = ROUGH
    found = search.climb(start, [move], rows, DEFAULT_POLICY.rough_gain, max_steps=12)
    for direction in (1, -1):
        assert search.value(move(found, direction), rows) < search.value(found, rows) + 1e-3
    assert search.value(found, rows) > search.value(start, rows)


def test_columns_beyond_three_share_their_stretch():
    rows = torch.randn(200, 4, generator=GENERATOR, dtype=torch.float64)

    def judge(measure, choice, split):
        away = (choice.bandwidth.log().mean() - math.log(0.5)).square()
        return -away.expand(len(split.valid))

    found = run(search_with(judge, rows=rows), [GAUSSIAN], None, 100.0)
    ratio = found.bandwidth / start_of(search_with(judge, rows=rows))
    assert torch.allclose(ratio, ratio[:1].expand(4))
    assert found.bandwidth.log().mean().exp().item() == pytest.approx(0.5, rel=0.25)


def test_a_given_bandwidth_stays():
    h = torch.tensor([2.0, 3.0], dtype=torch.float64)
    found = run(search_with(Judge()), [BOX], h)
    assert torch.equal(found.bandwidth, h)
    assert abs(math.log(found.ridge / BEST_RIDGE)) <= math.log(RIDGE_STEP)


def test_a_given_ridge_stays():
    found = run(search_with(Judge()), [BOX], None, 7.0)
    assert found.ridge == pytest.approx(7.0)
    assert ((found.bandwidth / SUMMIT).log().abs() <= math.log(STEP)).all()


def test_where_all_is_given_nothing_is_judged():
    judge = Judge()
    h = torch.ones(2, dtype=torch.float64)
    found = run(search_with(judge), [BOX], h, 5.0)
    assert (found.base, found.ridge) == (BOX, 5.0)
    assert torch.equal(found.bandwidth, h)
    assert not judge.seen


@pytest.mark.parametrize("better", ["box", "gaussian"])
def test_the_better_measure_is_taken_at_its_own_summit(better):
    found = run(search_with(Judge({better: 0.5})), [BOX, GAUSSIAN])
    assert found.base.name == better


MORE = torch.randn(4000, 2, generator=GENERATOR, dtype=torch.float64)
TWO_LEVELS = replace(DEFAULT_POLICY, rough_rows=1000, fine_rows=4000)
TWO = BaseSpec("mixture", 2)


class TellsFew:
    """A judge to which measures look alike on few rows, and bare ones gain so much."""

    def __init__(self, fine, bare=-1.0):
        self.fine, self.bare, self.bared = fine, bare, []

    def __call__(self, measure, choice, split):
        noise = torch.linspace(-1, 1, len(split.valid), dtype=torch.float64)
        if choice.bare:
            self.bared.append(choice)
            return noise + self.fine.get("mixture", 0.0) + self.bare
        is_fine = len(split.train) + len(split.valid) == TWO_LEVELS.fine_rows
        return noise + (self.fine.get(choice.base.name, 0.0) if is_fine else 0.0)


def run_on_more(judge, specs, *, free=True, deadline=math.inf):
    search = search_with(judge, deadline=deadline, rows=MORE, policy=TWO_LEVELS)
    return run(search, specs, free=free)


@pytest.mark.parametrize("better", ["box", "mixture"])
def test_measures_that_look_alike_are_told_apart_by_more_rows(better):
    found = run_on_more(TellsFew({better: 0.01}), [BOX, TWO])
    assert found.base.name == better


def test_without_time_the_plainer_of_two_alike_is_kept():
    past = time.monotonic() - 1
    found = run_on_more(TellsFew({"mixture": 0.01}), [BOX, TWO], free=False, deadline=past)
    assert found.base.name == "box"


def test_without_time_for_features_the_mixture_is_the_answer():
    judge = TellsFew({})
    found = run_on_more(judge, [BOX, TWO], deadline=time.monotonic() - 1)
    assert (found.bare, found.base) == (True, TWO)
    assert not judge.bared


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def spend(self, seconds):
        self.now += seconds


@pytest.mark.parametrize("deadline", [5.0, 12.0, 23.0, 60.0])
def test_no_candidate_begins_that_would_end_too_late(monkeypatch, deadline):
    """More rows take longer than fewer by the power 1.5, also where none had so many before."""
    clock, seconds = Clock(monkeypatch), []

    def judge(measure, choice, split):
        n = len(split.train) + len(split.valid)
        seconds.append(0.0 if choice.bare else (n / TWO_LEVELS.rough_rows) ** 1.5)
        clock.spend(seconds[-1])
        return TellsFew({"mixture": 0.01})(measure, choice, split)

    run_on_more(judge, [BOX, TWO], deadline=deadline)
    assert clock.now <= deadline
    assert max(seconds) == (8.0 if deadline > 20 else 1.0)


def test_a_search_leaves_time_for_a_fit_to_all_rows(monkeypatch):
    clock = Clock(monkeypatch)

    def judge(measure, choice, split):
        clock.spend(1.0)
        return -choice.bandwidth.log().abs().sum().expand(len(split.valid))

    search = search_with(judge, deadline=70.0, rows=MORE, policy=TWO_LEVELS)
    search.end, search.n_all = 100.0, 95 * TWO_LEVELS.rough_rows
    run(search, [BOX])
    assert clock.now <= 5.0


def test_no_mixture_begins_that_would_end_too_late(monkeypatch):
    """The next size takes twice as long as the last one."""
    clock, start = Clock(monkeypatch), search_module.start_mixture

    def slow(rows, n_components, generator, **options):
        clock.spend(float(n_components))
        return start(rows, n_components, generator, **options)

    monkeypatch.setattr(search_module, "start_mixture", slow)
    clusters = 0.1 * MORE + torch.arange(len(MORE))[:, None] % 8
    search = search_with(Judge(), deadline=12.0, rows=clusters, policy=TWO_LEVELS)
    assert search.mixture.n_components == 4
    assert clock.now == 1 + 2 + 4  # with 8 more it would be 15


@pytest.mark.parametrize(("gain", "bare"), [(0.01, True), (0.0, True), (-0.01, False)])
def test_a_mixture_is_left_bare_unless_the_rule_gains(gain, bare):
    found = run_on_more(TellsFew({"mixture": 0.01}, gain), [BOX, TWO])
    assert (found.base, found.bare) == (TWO, bare)


def test_a_mixture_is_bare_only_where_that_is_allowed():
    judge = TellsFew({"mixture": 0.01}, 1.0)
    assert not run_on_more(judge, [TWO], free=False).bare
    assert not judge.bared


def test_a_bare_box_is_not_thought_of():
    judge = TellsFew({"box": 0.01}, 1.0)
    assert run_on_more(judge, [BOX]).base.name == "box"
    assert not judge.bared


def test_the_last_candidates_have_all_their_features():
    sizes = {}

    def judge(measure, choice, split):
        n_rows = len(split.train) + len(split.valid)
        sizes.setdefault(n_rows, set()).add(choice.n_features)
        return torch.zeros(len(split.valid), dtype=torch.float64)

    run_on_more(judge, [BOX, TWO])
    n_train = 0.7 * TWO_LEVELS.rough_rows
    few = n_train // TWO_LEVELS.rows_per_feature
    assert sizes == {TWO_LEVELS.rough_rows: {few}, TWO_LEVELS.fine_rows: {0, few}}


def test_an_open_size_becomes_that_of_the_chosen_mixture():
    far = torch.where(torch.arange(200)[:, None] < 100, -5.0, 5.0)
    rows = 0.3 * Z + far
    search = search_with(Judge(), rows=rows)
    found = run(search, [BaseSpec("mixture", 0)])
    assert found.base.n_components == search.mixture.n_components == 2
    moments = Moments.of(rows, search.weight)
    assert len(search.measure(found.base, found.bandwidth, moments).weights) == 2


def test_after_the_deadline_no_step_is_taken():
    judge = Judge()
    found = run(search_with(judge, deadline=time.monotonic() - 1), [BOX])
    assert not judge.seen
    assert torch.equal(found.bandwidth, start_of(search_with(Judge())))


def test_the_deadline_cuts_the_way_short(monkeypatch):
    whole, cut = Judge(), Judge()
    run(search_with(whole), [BOX])
    search = search_with(cut, deadline=3)
    assert search.mixture.n_components == 1
    clock = iter(range(1000))
    monkeypatch.setattr(search_module.time, "monotonic", lambda: next(clock))
    run(search, [BOX])
    assert 0 < len(set(cut.seen)) < len(set(whole.seen))
    assert cut.seen == whole.seen[: len(cut.seen)]


def test_a_candidate_that_would_end_too_late_is_not_begun(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(search_module.time, "monotonic", lambda: now[0])
    finished = []

    class SlowJudge(Judge):
        def __call__(self, measure, choice, split):
            now[0] += 10.0
            finished.append(now[0])
            return super().__call__(measure, choice, split)

    run(search_with(SlowJudge(), deadline=215.0), [BOX])
    assert 150.0 <= finished[-1] <= 215.0


@pytest.mark.parametrize("rows", [ROUGH, FINE])
def test_no_fitted_base_has_seen_the_rows_that_judge_it(rows):
    def judge(measure, choice, split):
        assert torch.allclose(measure.means.squeeze(0), split.train.mean(0), atol=1e-4)
        return split.valid[:, 0]

    search_with(judge).scores(Choice(BaseSpec("mixture", 1), torch.ones(2)), rows)


def fits_of(rows, policy, level):
    """State of each base measure on which candidates of a level are judged."""
    found = {}

    def judge(measure, choice, split):
        found[choice.base] = measure.state_dict()
        return torch.zeros(len(split.valid), dtype=torch.float64)

    search = search_with(judge, rows=rows, policy=policy)
    for spec in (BOX, GAUSSIAN, TWO, replace(TWO, n_mixtures=2)):
        search.scores(Choice(spec, torch.ones(rows.shape[1])), level)
    return found, search.splits[level]


ONE_SIZE = {"mixture_sizes": (2,)}


@pytest.mark.parametrize("n", [1500, 4000, 6000])
@pytest.mark.parametrize("level", [TWO_LEVELS.rough_rows, TWO_LEVELS.fine_rows])
@pytest.mark.parametrize("d", [3, 4])
def test_held_out_rows_of_all_levels_change_no_base_measure(n, level, d):
    """Also where the few rows are not all held out by the split of more."""
    policy = replace(TWO_LEVELS, **ONE_SIZE)
    rows = torch.randn(n, d, generator=GENERATOR, dtype=torch.float64)
    plain, (split,) = fits_of(rows, policy, level)
    is_held_out = (rows[:, None, 0] == split.valid[None, :, 0]).any(1)
    assert is_held_out.sum() == len(split.valid) == int(0.3 * min(n, level))
    other = torch.where(is_held_out[:, None], 5 - 2 * rows, rows)
    moved, (other_split,) = fits_of(other, policy, level)
    assert torch.equal(other_split.train, split.train)
    assert not torch.equal(other_split.valid, split.valid)
    assert {BOX, GAUSSIAN, TWO} <= plain.keys() & moved.keys()
    for spec in plain.keys() & moved.keys():
        assert all(torch.equal(value, moved[spec][key]) for key, value in plain[spec].items())


def test_few_rows_are_held_out_by_the_split_of_more():
    search = search_with(Judge(), rows=MORE, policy=TWO_LEVELS)
    (rough,), (fine,) = search.splits[search.rough], search.splits[search.fine]
    assert (len(rough.train), len(rough.valid)) == (700, 300)
    assert (len(fine.train), len(fine.valid)) == (2800, 1200)
    assert torch.equal(torch.cat([rough.valid, rough.train]), fine.valid[:1000])


@pytest.mark.parametrize("n", [600, 2000])
def test_first_looks_at_few_rows_have_base_measures_that_did_not_see_them(n):
    """Fewer rows than those of folds, of more."""
    policy = replace(TWO_LEVELS, rough_rows=300)

    def judge(measure, choice, split):
        held_out = fitted_to[len(measures) % len(fitted_to)].valid
        assert (split.valid[:, None] == held_out[None]).all(2).any(1).all()
        measures.append(measure)
        return split.valid[:, 0]

    measures = []
    search = search_with(judge, rows=MORE[:n], policy=policy)
    fitted_to = search.splits[search.fine]
    search.scores(Choice(BaseSpec("mixture", 1), torch.ones(2)), search.rough)
    for measure, split in zip(measures, fitted_to, strict=False):
        assert torch.allclose(measure.means.squeeze(0), split.train.mean(0), atol=1e-4)


def test_folds_of_few_rows_hold_out_each_row_once():
    search = search_with(Judge())
    for rows in (search.rough, search.fine):
        splits = search.splits[rows]
        assert [len(split.valid) for split in splits] == [50] * 4
        held_out = torch.cat([split.valid for split in splits])
        assert torch.equal(held_out.sort(0)[0], Z.sort(0)[0])
        assert all(len(split.train) == 150 for split in splits)


def test_known_values_are_not_judged_again():
    first, second, reported = Judge(), Judge(), []
    known = {}
    search = search_with(first, known, report=lambda *entry: reported.append(entry))
    found = run(search, [BOX, GAUSSIAN])
    judged = [(name, value) for name, value in reported if " alone " not in name]
    assert [name for name, _ in judged] == list(known)
    for name, value in judged:
        assert value == pytest.approx(known[name].mean().item())
    again = run(search_with(second, dict(known)), [BOX, GAUSSIAN])
    assert not second.seen
    assert str(again) == str(found)


def test_half_of_the_values_known_leads_to_the_same_candidate():
    known = {}
    found = run(search_with(Judge(), known), [BOX, GAUSSIAN])
    half = dict(list(known.items())[: len(known) // 2])
    judge = Judge()
    again = run(search_with(judge, half), [BOX, GAUSSIAN])
    assert judge.seen
    assert str(again) == str(found)
    assert list(half) == list(known)
    assert all(torch.equal(half[name], known[name]) for name in known)


def test_the_final_mixture_is_the_same_whether_values_were_known_or_not():
    spec, h = BaseSpec("mixture", 3), torch.full((2,), 0.5, dtype=torch.float64)
    known, measures = {}, []
    for _ in range(2):
        search = search_with(Judge(), known)
        found = run(search, [spec], h)
        moments = Moments.of(Z, search.weight)
        measures.append(search.measure(found.base, found.bandwidth, moments))
    assert torch.equal(measures[0].means, measures[1].means)


def test_weights_count_in_the_mean():
    weight = torch.arange(200, dtype=torch.float64) + 1

    def judge(measure, choice, split):
        return split.valid[:, 0]

    search = Search(Z, weight, judge, policy=DEFAULT_POLICY, seed=0)
    value = search.value(Choice(BOX, torch.ones(2)), ROUGH)
    assert value == pytest.approx(float(weight @ Z[:, 0] / weight.sum()))


def test_moves_go_back_and_forth():
    start = Choice(BOX, torch.tensor([0.5, 2.0], dtype=torch.float64), 10.0)
    first = torch.tensor([1.0, 0.0])
    moved = wider(2.0, first)(start, 1)
    assert moved.bandwidth.tolist() == [1.0, 2.0]
    assert torch.equal(wider(2.0, first)(moved, -1).bandwidth, start.bandwidth)
    assert stiffer(3.0)(start, 1).ridge == pytest.approx(30.0)
    assert stiffer(3.0)(stiffer(3.0)(start, 1), -1).ridge == pytest.approx(10.0)
    assert bare(start).bare
    assert not start.bare


def test_candidates_are_named_by_all_that_they_are():
    h = torch.tensor([0.5, 2.0])
    average = BaseSpec("mixture", 3, n_mixtures=2)
    names = {
        str(Choice(spec, width, ridge, n_features=size))
        for spec in (BOX, GAUSSIAN, BaseSpec("mixture", 2), BaseSpec("mixture", 3), average)
        for width in (h, 2 * h)
        for ridge in (1.0, 3.0)
        for size in (0, 64, 125)
    }
    assert len(names) == 60
    name = "box, bandwidth 0.5, 2, ridge 3/n, 64 features"
    assert str(Choice(BOX, h, 3.0, n_features=64)) == name
    assert str(bare(Choice(average, h, 3.0))) == "mixture of 2 × 3 alone"


@pytest.mark.parametrize(("shrinkage", "last"), [(0.0, 128), (1.0, 256)])
def test_no_size_follows_a_large_mixture_that_gains_nothing(shrinkage, last):
    """With shrinkage, two worse ones come before the end."""
    noise, tried = torch.linspace(-1, 1, 100), []

    def scores(shape, near):
        k = shape[0]
        if near is not None:  # another shrinkage
            return noise - 10
        tried.append(k)
        return min(k, 64 - 1e-6 * k) + noise * (1 + 1e-3 * k)

    weight, sizes = torch.ones(len(noise)), DEFAULT_POLICY.mixture_sizes
    best = search_module.best_shape(
        sizes, shrinkage, scores, weight, DEFAULT_POLICY, lambda: False
    )
    assert best[0] == 64
    assert tried[-1] == last
