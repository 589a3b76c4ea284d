"""The search for a candidate, on judges whose best candidate is known."""

import math
import time
from dataclasses import replace

import pytest
import torch

from qaffde.estimators import data_measure, likelihood_design
from qaffde.estimators.data_measure import MeasureSpec, average_mixture
from qaffde.estimators.likelihood_design import Candidate, Search, stiffer, wider

GENERATOR = torch.Generator().manual_seed(0)
Z = torch.randn(200, 2, generator=GENERATOR, dtype=torch.float64)
BOX, GAUSSIAN = MeasureSpec("box", roomy=True), MeasureSpec("gaussian")
SUMMIT = torch.tensor([0.3, 0.9], dtype=torch.float64)
BEST_RIDGE = 900.0


def n_held_out(splits):
    return sum(len(split.valid) for split in splits)


class Judge:
    """Concave in the logarithms of bandwidths and ridge; some measures are better than others."""

    def __init__(self, bonus=None):
        self.bonus = {"box": 0.0, "gaussian": 0.0, "mixture": 0.0} | (bonus or {})
        self.seen = []

    def __call__(self, measure, candidate, splits):
        self.seen.append(str(candidate))
        away = (candidate.bandwidth / SUMMIT).log().square().sum()
        away = away + 0.1 * math.log(candidate.ridge / BEST_RIDGE) ** 2
        value = self.bonus[candidate.spec.name] - away
        return value.expand(n_held_out(splits))


def search_with(
    judge,
    known=None,
    deadline=math.inf,
    report=lambda name, value: None,
    rows=Z,
    *,
    free=False,
):
    known = {} if known is None else known
    weight = torch.ones(len(rows), dtype=torch.float64)
    return Search(
        rows, weight, judge, seed=0, deadline=deadline, known=known, report=report, free=free
    )


def test_the_summit_is_found_to_a_step():
    found = search_with(Judge()).run([BOX], None, None)
    ratio = (found.bandwidth / SUMMIT).log().abs()
    assert (ratio <= math.log(likelihood_design.FINE_STEP)).all()
    assert abs(math.log(found.ridge / BEST_RIDGE)) <= math.log(likelihood_design.RIDGE_STEP)


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
    assert abs(math.log(found.ridge / BEST_RIDGE)) <= math.log(likelihood_design.RIDGE_STEP)


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


MANY = torch.randn(2500, 4, generator=GENERATOR, dtype=torch.float64)
OPEN = MeasureSpec("mixture", 0)


@pytest.fixture
def short_chains(monkeypatch):
    monkeypatch.setattr(likelihood_design, "CHOICE_WORK", 200)


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
        work=likelihood_design.CHOICE_WORK,
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
    monkeypatch.setattr("tests.estimators.test_likelihood_design.SUMMIT", SUMMIT[:columns])
    judge = Averages(1.0, {"bare": 1.0})
    search = search_with(
        judge, rows=ROWS[:, :columns], free=free, deadline=time.monotonic() + left
    )
    found = search.run([BOX], None, None)
    assert (found.spec.strength is not None) is is_averaged
    if is_averaged:
        n_parts = likelihood_design.N_DRAWS * likelihood_design.PARTS_A_COLUMN * columns
        assert found.spec.n_components == n_parts
        assert "averaged, bare" in str(found)


@pytest.mark.usefixtures("few_columns")
def test_a_bare_mixture_is_not_averaged():
    judge = Averages(1.0, {"bare": 0.0, "mixture": 0.0})
    found = search_with(judge, rows=ROWS, free=True).run([MeasureSpec("mixture", 2)], None, None)
    assert found.bare
    assert found.spec.strength is None
