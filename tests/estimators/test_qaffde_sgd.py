"""QAFFDESGD as users meet it: mass one, likelihood, interface, seeds, time."""

import itertools
import pickle
import re

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from torch.distributions import AffineTransform

from qaffde import QAFFDE, QAFFDESGD, Real, SelectionPolicy
from qaffde.nn import BoxMeasure, find_born
from qaffde.training.likelihood import SOLVERS
from tests.sgd_models import FEW, FRAME, WEIGHT, X, fitted

pytestmark = pytest.mark.usefixtures("short_search")

# Mass


@pytest.fixture
def mass(legendre):
    """Integral of a fitted density, panel by panel: it jumps at the edges of its box."""

    def edges_of(model, rows):
        measure = find_born(model.density_).measure
        if not isinstance(measure, BoxMeasure):
            return rows.min(0), rows.max(0)
        location, scale = model.density_.location, model.density_.scale
        return tuple((location + scale * end).numpy() for end in (measure.lower, measure.upper))

    def integrate(model, rows):
        lower, upper = edges_of(model, rows)
        far = 20 * rows.std(0)
        edges = np.stack([lower - far, lower, upper, upper + far])
        total = 0.0
        for panel in itertools.product(range(3), repeat=rows.shape[1]):
            ends = [(edges[i, t], edges[i + 1, t]) for t, i in enumerate(panel)]
            points, volume = legendre(
                *torch.tensor(np.transpose(ends)), 150 if rows.shape[1] == 1 else 64
            )
            total += np.exp(model.score_samples(points.numpy())) @ volume.numpy()
        return total

    return integrate


MASS = {
    **{f"solver {solver}": {"training": {"solver": solver}} for solver in SOLVERS},
    "random start": {"training": {"initialization": "random"}},
    "one iteration": {"training": {"max_iter": 1}},
    "one iteration from a random start": {"training": {"max_iter": 1, "initialization": "random"}},
    "no time": {"time_limit": 1e-9},
    "adaptive features": {"features": "adaptive"},
    "weights": {"sample_weight": WEIGHT},
}


@pytest.mark.filterwarnings("ignore:time_limit has ended the training")
@pytest.mark.parametrize("base_measure", ["box", "gaussian", 2])
@pytest.mark.parametrize("case", MASS)
def test_mass_is_one_after_any_training(case, base_measure, mass):
    rows = X[:, :1]
    model = fitted(rows, base_measure=base_measure, **MASS[case])
    assert mass(model, rows) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("base_measure", ["box", "gaussian", 2])
def test_mass_is_one_in_two_columns(base_measure, mass):
    assert mass(fitted(base_measure=base_measure), X) == pytest.approx(1, abs=1e-6)


def test_mass_is_one_untuned(mass):
    assert mass(QAFFDESGD(random_state=0).fit(FEW), FEW) == pytest.approx(1, abs=1e-6)


def test_mass_is_one_within_bounds(mass):
    rows = np.abs(X[:, :1])
    model = fitted(rows, columns=Real(0, None), base_measure="auto", transformation="normal")
    assert model.probability(-np.inf, 0) == 0
    assert model.probability(0, np.inf) == pytest.approx(1, abs=1e-9)
    model = fitted(rows, columns=Real(0, 100), base_measure="auto")
    assert model.base_measure_ == "box"
    assert mass(model, rows) == pytest.approx(1, abs=1e-6)
    measure = find_born(model.density_).measure
    lower = model.density_.location + model.density_.scale * measure.lower
    assert lower.item() == pytest.approx(0, abs=1e-12)


# Likelihood


@pytest.mark.parametrize(
    "options",
    [
        {"base_measure": "box", "ridge": 1e-4, "bandwidth": 0.3, "n_features": 100},
        {"base_measure": "gaussian"},
        {"base_measure": 2},
        {"transformation": AffineTransform(1.0, 3.0)},
    ],
)
def test_no_fit_beats_the_truth_on_fresh_rows(options):
    rng = np.random.default_rng(1)
    rows, fresh = (
        np.where(rng.random((n, 1)) < 0.5, rng.normal(size=(n, 1)), rng.normal(4, 0.5, (n, 1)))
        for n in (400, 5000)
    )
    normal = np.exp(-(fresh**2) / 2) + np.exp(-2 * (fresh - 4) ** 2) / 0.5
    truth = np.log(0.5 * normal[:, 0] / np.sqrt(2 * np.pi))
    gain = fitted(rows, **options).score_samples(fresh) - truth
    assert gain.mean() < 4 * gain.std() / np.sqrt(len(fresh))
    assert gain.mean() > -0.5  # and it is a fit at all


@pytest.mark.parametrize("solver", SOLVERS)
def test_more_iterations_raise_the_likelihood_of_the_rows(solver):
    options = {"solver": solver, "initialization": "random"}
    few, many = (fitted(ridge=1e-4, training=options | {"max_iter": n}).score(X) for n in (1, 40))
    assert many > few


def test_solvers_and_starts_agree():
    """The problem is convex: all lead to one density."""
    scores = [
        fitted(
            training={"solver": solver, "initialization": start, "max_iter": iterations}
        ).score_samples(X)
        for solver, iterations in {"lbfgs": 60, "adam": 400}.items()
        for start in ("closed_form", "random")
    ]
    for other in scores[1:]:
        assert np.abs(other - scores[0]).mean() < 0.02


def test_weights_are_repeated_rows():
    options = {"policy": SelectionPolicy(background=1e-3), "training": {"max_iter": 60}}
    weighted = fitted(sample_weight=WEIGHT, **options)
    repeated = fitted(np.repeat(X, WEIGHT, axis=0), **options)
    assert np.abs(weighted.score_samples(X) - repeated.score_samples(X)).mean() < 0.02


def test_the_unit_of_weights_does_not_matter():
    one, other = (fitted(sample_weight=c * np.ones(len(X))).score(X) for c in (1.0, 1e-3))
    assert one == pytest.approx(other, abs=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_change_nothing_but_the_jacobian(unit):
    plain, scaled = fitted(), fitted(X * unit, bandwidth=unit)
    expected = plain.score_samples(X) - 2 * np.log(unit)
    np.testing.assert_allclose(scaled.score_samples(X * unit), expected, atol=1e-3)
    np.testing.assert_allclose(scaled.bandwidth_, unit * plain.bandwidth_)


# The interface


@pytest.fixture(scope="module")
def model():
    return fitted(FRAME)


def test_score_is_the_mean_of_the_log_densities(model):
    assert model.score(FRAME) == pytest.approx(model.score_samples(FRAME).mean())


def test_draws_score_like_the_density_expects(model):
    draws = model.sample(500, random_state=0)
    assert draws.shape == (500, 2)
    np.testing.assert_array_equal(draws, model.sample(500, random_state=0))
    center = np.abs(draws.to_numpy().mean(0) - model.mean())
    assert (center < 4 * np.sqrt(np.diag(model.covariance()) / 500)).all()


def test_marginal_times_conditional_is_the_joint(model):
    point = FRAME.iloc[:1]
    marginal = model.marginal(["height"]).score_samples(point[["height"]])
    conditional = model.condition({"height": point["height"].iloc[0]}).score_samples(
        point[["weight"]]
    )
    np.testing.assert_allclose(marginal + conditional, model.score_samples(point))


def test_probability_of_everything_is_one_and_of_halves_adds_up(model):
    inf = np.inf
    assert model.probability(-inf, inf) == pytest.approx(1, abs=1e-9)
    left, right = (model.probability(*ends) for ends in ([-inf, [2, inf]], [[2, -inf], inf]))
    assert left + right == pytest.approx(1, abs=1e-9)
    assert 0.2 < left < 0.8


def test_the_spectrum_is_that_of_a_state(model):
    assert 1 <= model.effective_rank() <= model.rank_
    assert 1 / model.rank_ <= model.purity() <= 1


@pytest.mark.parametrize(("rank", "expected"), [(1, 1), (3, 3), (10_000, None), (1.0, None)])
def test_rank_is_a_number_or_a_share(rank, expected):
    model = fitted(rank=rank)
    full = len(find_born(fitted(rank=1.0).density_).spectrum())
    assert model.rank_ == (full if expected is None else expected)


def test_rank_is_16_by_default():
    assert fitted(n_features=90, ridge=1e-6, base_measure="box", bandwidth=0.5).rank_ == 16


def test_fitted_attributes_are_there(model):
    assert model.base_measure_ == "gaussian"
    assert model.ridge_ == pytest.approx(0.01)
    assert model.n_features_in_ == 2
    assert list(model.feature_names_in_) == ["height", "weight"]
    np.testing.assert_allclose(model.bandwidth_, 1.0)
    assert [history.stopped_by for history in model.history_] == ["max_steps"]
    assert model.plan_.trials == ()


def test_the_search_keeps_what_it_saw():
    trials = fitted(FEW, bandwidth="auto", ridge="auto").plan_.trials
    assert len(trials) > 3
    assert all(np.isfinite(trial.log_likelihood) for trial in trials)
    assert any(trial.chosen for trial in trials)


@pytest.mark.parametrize("method", ["partial_fit", "merge", "forget"])
def test_what_a_likelihood_cannot_do_is_refused_with_its_reason(model, method):
    assert not hasattr(model, method)
    with pytest.raises(AttributeError, match=r"is not a sum over rows.*use QAFFDE"):
        getattr(model, method)


def test_pickles_score_the_same(model):
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.score_samples(FRAME), model.score_samples(FRAME))


def test_clones_have_the_parameters_and_are_not_fitted(model):
    copy = clone(model.set_params(verbose=False))
    assert copy.get_params() == model.get_params()
    with pytest.raises(ValueError, match="not fitted yet"):
        copy.score(FRAME)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"training": {"solver": "adam"}},
        {"rows": X[::5], "transformation": AffineTransform(1.0, 3.0)},
        {"bandwidth": "auto", "ridge": "auto"},
    ],
)
def test_same_seed_same_result_and_nothing_global_is_touched(options):
    before, numpy_before = torch.get_rng_state(), pickle.dumps(np.random.mtrand._rand)
    options = {"rows": FEW} | options
    first, second = (fitted(**options).score_samples(options["rows"]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert pickle.dumps(np.random.mtrand._rand) == numpy_before


def test_another_seed_is_another_result():
    options = {"training": {"initialization": "random"}, "features": "random"}
    first, second = (fitted(random_state=seed, **options).score_samples(X) for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_the_paper_form_divides_by_a_constant():
    model = fitted(base_measure="kernel", bandwidth="auto")
    assert model.base_measure_ == "kernel"
    assert np.isfinite(model.score_samples(X)).all()
    far = model.score_samples(np.array([[1e3, 1e3], [-3e3, 500.0]]))
    assert (far > -30).all()  # cosines do not decay: no density
    with pytest.raises(ValueError, match="infinite: nothing can be integrated"):
        model.sample()


def test_training_on_the_paper_objective_raises_it():
    few, many = (
        fitted(base_measure="kernel", training={"initialization": "random", "max_iter": n}).score(
            X
        )
        for n in (1, 40)
    )
    assert few < many


def test_progress_is_printed_only_if_asked(capsys):
    options = {"rows": X[::5], "bandwidth": "auto"}
    fitted(**options)
    assert capsys.readouterr().out == ""
    fitted(**options, verbose=True)
    out = capsys.readouterr().out
    assert "held-out log-likelihood" in out
    assert "train" in out


@pytest.mark.parametrize("estimator", [QAFFDE, QAFFDESGD])
def test_progress_tells_the_rows_that_there_are(estimator, capsys):
    # it told those that a search of many would take
    estimator(32, base_measure=1, verbose=True, random_state=0).fit(FEW)
    seen = re.findall(r"\((\d+) rows\)", capsys.readouterr().out)
    assert set(seen) == {str(len(FEW))}


# Time


@pytest.mark.filterwarnings("ignore:time_limit has ended the training")
def test_after_the_time_limit_the_search_takes_what_it_has():
    options = {"bandwidth": "auto", "ridge": "auto", "base_measure": "auto"}
    with pytest.warns(ConvergenceWarning, match="time_limit has ended the search after"):
        cut = fitted(FEW, time_limit=1e-6, **options)
    whole = fitted(FEW, time_limit=None, **options)
    assert len(cut.plan_.trials) < len(whole.plan_.trials)
    assert np.isfinite(cut.score(FEW))


@pytest.mark.filterwarnings("ignore:time_limit has ended the")
def test_a_search_without_time_for_features_takes_the_mixture_alone():
    # it judged some, whatever that took
    rows = np.random.default_rng(0).normal(size=(3000, 2))
    plan = QAFFDESGD(time_limit=1e-6, random_state=0).fit(rows).plan_
    assert plan.base == "gaussian alone"
    assert plan.trials == ()


def test_learning_stops_at_the_time_limit():
    with pytest.warns(ConvergenceWarning, match="time_limit has ended the training"):
        model = fitted(time_limit=1e-6, training={"max_iter": 10_000})
    assert model.history_[-1].stopped_by == "time_limit"
    assert len(model.history_[-1].steps) == 1


@pytest.mark.parametrize(("start_rows", "steps"), [(100, [1]), (1000, [1, 2])])
def test_first_rows_have_half_of_the_iterations_where_there_are_more(start_rows, steps):
    model = fitted(training={"max_iter": 10, "start_rows": start_rows})
    assert model.history_[-1].steps == steps
