"""Closed forms: a mixture is tried first, then a box, with more features where they may pay."""

import math

import numpy as np
import pytest
import torch

from experiments.targets import random_gmm
from qaffde import QAFFDE, ModelSpec, SelectionPolicy, select, solve, summarize
from qaffde.parameters import DOUBLE
from qaffde.selection.base_measure import BaseSpec
from qaffde.selection.policy import DEFAULT_POLICY
from qaffde.selection.selector import ClosedForm
from tests.selection.judges import GENERATOR, search_with

ROWS = torch.randn(6000, 2, generator=GENERATOR, dtype=torch.float64)
BOX, OPEN = BaseSpec("box"), BaseSpec("mixture", 0)
BEST = 0.3
SQUARE = np.random.default_rng(0).uniform(size=(6000, 2))
FRESH = np.random.default_rng(1).uniform(0.001, 0.999, size=(5000, 2))


class Judge:
    """Concave in the logarithm of the bandwidth; a box gains by each doubling of features."""

    def __init__(self, behind=0.0, doubling=0.0):
        self.behind, self.doubling, self.seen = behind, doubling, []

    def __call__(self, measure, choice, split):
        self.seen.append(choice)
        value = -0.01 * math.log(float(choice.bandwidth.mean()) / BEST) ** 2
        if choice.base.kind == "box":
            value += self.doubling * math.log2(choice.n_features / 500) - self.behind
        return torch.full((len(split.valid),), value, dtype=torch.float64)

    def sizes(self, kind):
        return [choice.n_features for choice in self.seen if choice.base.kind == kind]


def run(judge, bases=(BOX, OPEN), h=None, rows=ROWS, policy=DEFAULT_POLICY):
    search = search_with(judge, rows=rows, policy=policy)
    return ClosedForm(ModelSpec(), policy, DOUBLE, seed=0).choose(search, list(bases), h)


@pytest.mark.parametrize("kind", ["box", "mixture"])
def test_the_best_bandwidth_is_found_to_a_step(kind):
    found = run(Judge(), [BOX if kind == "box" else OPEN])
    assert found.base.kind == kind
    assert abs(math.log(float(found.bandwidth.mean()) / BEST)) <= math.log(2) / 4 + 0.02


@pytest.mark.parametrize(("behind", "kind"), [(-0.01, "box"), (0.01, "mixture")])
def test_the_likelier_base_measure_is_taken(behind, kind):
    assert run(Judge(behind)).base.kind == kind


def test_a_mixture_is_judged_before_a_box():
    judge = Judge()
    run(judge)
    kinds = [choice.base.kind for choice in judge.seen[:-1]]  # the last is the widest Gaussian
    assert kinds == sorted(kinds, reverse=True)
    assert set(kinds) == {"box", "mixture"}


@pytest.mark.parametrize(
    ("behind", "doubling", "is_tried", "kind", "size"),
    [
        (0.01, 0.03, True, "box", 1000),
        (0.01, 0.0, True, "mixture", 500),
        (0.02, 0.03, False, "mixture", 500),
        (-0.01, 0.01, True, "box", 1000),
        (-0.01, -0.03, True, "box", 500),
    ],
)
def test_many_features_are_tried_where_a_box_is_near(behind, doubling, is_tried, kind, size):
    judge = Judge(behind, doubling)
    found = run(judge)
    assert (max(judge.sizes("box")) == DEFAULT_POLICY.many_features) is is_tried
    assert set(judge.sizes("mixture")) == {DEFAULT_POLICY.max_features}
    assert (found.base.kind, found.n_features) == (kind, size)


def test_how_near_a_box_must_be_is_a_matter_of_policy():
    judge = Judge(0.1)
    run(judge, policy=SelectionPolicy(box_reach=0.2))
    assert max(judge.sizes("box")) == DEFAULT_POLICY.many_features


@pytest.mark.parametrize("d", [1, 3])
def test_many_features_are_for_two_columns(d):
    judge = Judge(0.0, 0.01)
    rows = torch.randn(3000, d, generator=GENERATOR, dtype=torch.float64)
    run(judge, rows=rows)
    assert max(judge.sizes("box")) == DEFAULT_POLICY.rough_features


def test_a_given_bandwidth_stays():
    h = torch.tensor([2.0, 3.0], dtype=torch.float64)
    judge = Judge()
    assert torch.equal(run(judge, h=h).bandwidth, h)
    assert {tuple(choice.bandwidth.tolist()) for choice in judge.seen} == {(2.0, 3.0)}


# Real rows


@pytest.fixture(scope="module")
def square():
    return QAFFDE(random_state=0).fit(SQUARE)


def test_a_square_with_sharp_edges_has_a_box_and_is_nearly_exact(square):
    assert square.plan_.base_measure == "box"
    log_p = square.score_samples(FRESH)
    assert abs(log_p.mean()) < 0.01
    assert np.sqrt((log_p**2).mean()) < 0.15
    assert square.probability([-0.1, -0.1], [1.1, 1.1]) == pytest.approx(1.0, abs=1e-3)


def test_edges_cost_a_mixture_likelihood(square):
    mixture = QAFFDE(base_measure="mixture", transformation=None, random_state=0).fit(SQUARE)
    assert mixture.score(FRESH) < square.score(FRESH) - 0.01


def test_a_box_is_not_taken_for_a_mixture_of_gaussians():
    rows = random_gmm(2, 0.2).sample(3000, 1)
    plan = QAFFDE(random_state=0).fit(rows).plan_
    assert plan.base_measure in ("mixture", "gaussian")
    assert sum(trial.name.startswith("box") for trial in plan.trials) >= 1


@pytest.mark.parametrize("n", [200, 800, 6000])
def test_candidates_have_as_many_features_as_their_rows_allow(n):
    """A quarter of the rows that a candidate is fitted to, and no more than 500 on a mixture."""
    spec = ModelSpec(base_measure="mixture", transformation=None)
    plan = select(summarize(SQUARE[:n], random_state=0), spec)
    n_train = 3 * n // 4 if n < DEFAULT_POLICY.fold_rows else 0.7 * n
    expected = min(500, max(64, int(n_train // 4)))
    assert {trial.name.split(", ")[-1] for trial in plan.trials} == {f"{expected} features"}
    with torch.no_grad():
        assert solve(plan, SQUARE[:n]).log_prob(torch.as_tensor(FRESH)).isfinite().all()


@pytest.mark.parametrize(("n", "d"), [(2000, 1), (5000, 2), (3000, 5)])
def test_samples_of_one_gaussian_have_one_bandwidth(n, d):
    # found by climbing alone, they went from .2 to 2.8 deviations
    fits = [
        QAFFDE(random_state=seed).fit(np.random.default_rng(seed).normal(size=(n, d)))
        for seed in range(3)
    ]
    assert {fit.base_measure_ for fit in fits} == {"gaussian"}
    found = np.array([fit.bandwidth_ for fit in fits])
    assert found.max() < 1.1 * found.min()
    rows = np.random.default_rng(9).normal(size=(4000, d))
    truth = -(rows**2).sum(1) / 2 - d / 2 * math.log(2 * math.pi)
    assert max((truth - fit.score_samples(rows)).mean() for fit in fits) < 0.007


def test_a_gaussian_that_does_not_do_has_a_narrower_bandwidth():
    rows = np.random.default_rng(0).uniform(-1, 1, size=(3000, 1))
    fit = QAFFDE(base_measure="gaussian", random_state=0).fit(rows)
    assert fit.bandwidth_ < rows.std()
