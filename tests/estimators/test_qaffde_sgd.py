"""QAFFDESGD as users meet it: mass one, seeds, checkpoints, encoders, awkward data."""

import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch.distributions import AffineTransform, ExpTransform, StickBreakingTransform

from qaffde import QAFFDESGD
from qaffde.estimators import likelihood_fit
from qaffde.nn import BoxMeasure, find_born
from qaffde.training import CheckpointError
from qaffde.training.solvers import SOLVERS

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(150, 2)), [4, 3] + 0.7 * RNG.normal(size=(150, 2))])
FRAME = pd.DataFrame(X, columns=["height", "weight"])
FEW = X[::5, :1]
WEIGHT = RNG.integers(0, 4, size=len(X))
FIXED = {
    "n_features": 30,
    "bandwidth": 1.0,
    "base_measure": "gaussian",
    "ridge": 0.01,
    "max_iter": 20,
    "max_steps": 20,
    "random_state": 0,
}


@pytest.fixture(autouse=True)
def short_search(monkeypatch):
    monkeypatch.setattr(likelihood_fit, "SEARCH_ITERATIONS", 10)


def fitted(rows=X, sample_weight=None, **options):
    return QAFFDESGD(**FIXED | options).fit(rows, sample_weight=sample_weight)


class Stretch(torch.nn.Module):
    """Learnable map x ↦ shift + scale · x, as a module that returns a transform."""

    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(2))
        self.scale = torch.nn.Parameter(torch.ones(2))

    def forward(self):
        return AffineTransform(self.shift, self.scale, event_dim=1)


class Logarithm(torch.nn.Module):
    """Nothing to learn; unlike torch's own inverses it can be copied and pickled."""

    def forward(self):
        return ExpTransform().inv


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
    **{f"solver {solver}": {"solver": solver} for solver in SOLVERS},
    "random start": {"initialisation": "random"},
    "one iteration": {"max_iter": 1},
    "one iteration from a random start": {"max_iter": 1, "initialisation": "random"},
    "learned features": {"learn_features": True},
    "one step": {"learn_features": True, "max_steps": 1, "max_iter": 1},
    "no time": {"time_limit": 1e-9, "learn_features": True},
    "adaptive features": {"features": "adaptive"},
    "weights": {"sample_weight": WEIGHT},
}


@pytest.mark.parametrize("base_measure", ["box", "gaussian", "mixture"])
@pytest.mark.parametrize("case", MASS)
def test_mass_is_one_after_any_training(case, base_measure, mass):
    rows = X[:, :1]
    model = fitted(rows, base_measure=base_measure, n_base_components=2, **MASS[case])
    assert mass(model, rows) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("learn_features", [False, True])
@pytest.mark.parametrize("base_measure", ["box", "gaussian", "mixture"])
def test_mass_is_one_in_two_columns(base_measure, learn_features, mass):
    options = {"base_measure": base_measure, "n_base_components": 2}
    model = fitted(learn_features=learn_features, **options)
    assert mass(model, X) == pytest.approx(1, abs=1e-6)


def test_mass_is_one_untuned(mass):
    assert mass(QAFFDESGD(random_state=0).fit(FEW), FEW) == pytest.approx(1, abs=1e-6)


def test_mass_is_one_within_bounds(mass):
    rows = np.abs(X[:, :1])
    model = fitted(rows, bounds=(0, None), base_measure="auto")
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
        {"base_measure": "mixture", "n_base_components": 2},
        {"learn_features": True, "max_steps": 200},
        {"encoder": AffineTransform(1.0, 3.0)},
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
    options = {"solver": solver, "initialisation": "random", "ridge": 1e-4}
    few, many = (fitted(max_iter=n, **options).score(X) for n in (1, 40))
    assert many > few


def test_solvers_and_starts_agree():
    """The problem is convex: all lead to one density."""
    scores = [
        fitted(solver=solver, initialisation=start, max_iter=iterations).score_samples(X)
        for solver, iterations in {"lbfgs": 60, "accelerated_fixed_point": 100}.items()
        for start in ("closed_form", "random")
    ]
    for other in scores[1:]:
        assert np.abs(other - scores[0]).mean() < 0.02


def test_weights_are_repeated_rows():
    options = {"background": 1e-3, "max_iter": 60}
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
    center = np.abs(draws.mean(0) - model.mean())
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
    assert model.search_ == {}
    assert len(fitted(learn_features=True).history_) == 2


def test_the_search_keeps_what_it_saw():
    model = fitted(FEW, bandwidth="auto", ridge="auto")
    assert len(model.search_) > 3
    assert all(np.isfinite(value) for value in model.search_.values())


@pytest.mark.parametrize("method", ["partial_fit", "merge", "forget"])
def test_what_a_likelihood_cannot_do_is_refused_with_its_reason(model, method):
    assert not hasattr(model, method)
    with pytest.raises(AttributeError, match=r"is no sum over rows.*use QAFFDE"):
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
    [{}, {"solver": "adam"}, {"learn_features": True}, {"bandwidth": "auto", "ridge": "auto"}],
)
def test_same_seed_same_result_and_nothing_global_is_touched(options):
    before, numpy_before = torch.get_rng_state(), pickle.dumps(np.random.mtrand._rand)
    first, second = (fitted(FEW, **options).score_samples(FEW) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert pickle.dumps(np.random.mtrand._rand) == numpy_before


def test_another_seed_is_another_result():
    options = {"initialisation": "random", "features": "random"}
    first, second = (fitted(random_state=seed, **options).score_samples(X) for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_the_paper_form_divides_by_a_constant():
    model = fitted(normalisation="kernel", base_measure="auto", bandwidth="auto")
    assert model.base_measure_ == "kernel"
    assert np.isfinite(model.score_samples(X)).all()
    far = model.score_samples(np.array([[1e3, 1e3], [-3e3, 500.0]]))
    assert (far > -30).all()  # cosines do not decay: no density
    with pytest.raises(ValueError, match="infinite: nothing can be integrated"):
        model.sample()


def test_training_on_the_paper_objective_raises_it():
    options = {"normalisation": "kernel", "initialisation": "random", "base_measure": "auto"}
    few, many = (fitted(max_iter=n, **options).score(X) for n in (1, 40))
    learned = fitted(learn_features=True, max_iter=40, max_steps=100, **options).score(X)
    assert few < many < learned


def test_progress_is_printed_only_if_asked(capsys):
    fitted(FEW, bandwidth="auto", learn_features=True)
    assert capsys.readouterr().out == ""
    fitted(FEW, bandwidth="auto", learn_features=True, verbose=True)
    out = capsys.readouterr().out
    assert "held-out log-likelihood" in out
    assert "train" in out


# Time


def test_after_the_time_limit_the_search_takes_what_it_has():
    options = {"bandwidth": "auto", "ridge": "auto", "base_measure": "auto"}
    cut, whole = (fitted(FEW, time_limit=limit, **options) for limit in (1e-6, None))
    assert len(cut.search_) < len(whole.search_)
    assert np.isfinite(cut.score(FEW))


def test_learning_stops_at_the_time_limit():
    model = fitted(time_limit=1e-6, learn_features=True, max_steps=10_000)
    assert model.history_[-1].stopped_by == "time_limit"
    assert len(model.history_[-1].steps) == 1


# Interruptions and checkpoints


class Killed(BaseException):
    """Stands for a process that ends at once."""


STAGES = {"search": {"bandwidth": "auto"}, "convex": {}, "learning": {"learn_features": True}}
PLAN = {"max_iter": 50, "max_steps": 40, "verbose": True}


def reports(monkeypatch, call):
    """Have `call(total, step)` at every evaluation of a training of `total` steps."""
    monkeypatch.setattr(
        likelihood_fit,
        "print_progress",
        lambda total: lambda history: call(total, history.steps[-1]),
    )


def kill_in(stage, monkeypatch, error=KeyboardInterrupt):
    """Raise in the middle of a stage."""
    calls, judge = itertools.count(), likelihood_fit.LikelihoodEstimator._judge

    def fragile(self, *args, **kwargs):
        if next(calls) == 6:
            raise error
        return judge(self, *args, **kwargs)

    def stop(total, step):
        if (total, step) == {"convex": (50, 2), "learning": (40, 4)}[stage]:
            raise error

    if stage == "search":
        monkeypatch.setattr(likelihood_fit.LikelihoodEstimator, "_judge", fragile)
    else:
        reports(monkeypatch, stop)


@pytest.mark.parametrize("base_measure", ["box", "mixture"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_fit_resumes_to_the_same_bits(stage, base_measure, tmp_path, monkeypatch):
    options = PLAN | STAGES[stage] | {"base_measure": base_measure, "n_base_components": 3}
    whole = fitted(FEW, **options)
    options["checkpoint"] = tmp_path / "fit"
    with monkeypatch.context() as patch:
        kill_in(stage, patch)
        with pytest.raises(KeyboardInterrupt):
            fitted(FEW, **options)
    assert list(tmp_path.iterdir())
    steps = []
    reports(monkeypatch, lambda total, step: steps.append((total, step)))
    resumed = fitted(FEW, **options)
    np.testing.assert_array_equal(resumed.score_samples(FEW), whole.score_samples(FEW))
    assert resumed.search_ == whole.search_
    assert [h.train_loss for h in resumed.history_] == [h.train_loss for h in whole.history_]
    assert not list(tmp_path.iterdir())
    if stage == "convex":
        assert min(steps) == (50, 3)
    if stage == "learning":
        assert min(step for total, step in steps if total == 40) == 5


def test_a_resumed_search_judges_only_what_is_left(tmp_path, monkeypatch):
    options = PLAN | {"bandwidth": "auto", "checkpoint": tmp_path / "fit"}
    judge, calls = likelihood_fit.LikelihoodEstimator._judge, []

    def counting(self, *args, **kwargs):
        calls.append(1)
        return judge(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        kill_in("search", patch, Killed)
        with pytest.raises(Killed):
            fitted(FEW, **options)
    monkeypatch.setattr(likelihood_fit.LikelihoodEstimator, "_judge", counting)
    fitted(FEW, **options)
    resumed = len(calls)
    fitted(FEW, **options)
    assert resumed == len(calls) - resumed - 4  # one candidate on four folds was known


def test_a_killed_fit_may_be_left_for_another_one_under_another_name(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        kill_in("convex", patch)
        with pytest.raises(KeyboardInterrupt):
            fitted(checkpoint=tmp_path / "one", **PLAN)
    left = set(tmp_path.iterdir())
    fitted(checkpoint=tmp_path / "two", **PLAN)
    assert set(tmp_path.iterdir()) == left


def test_an_interrupted_fit_leaves_an_earlier_one_as_it_was(monkeypatch):
    model = fitted(**PLAN)
    before = model.score_samples(X)
    kill_in("convex", monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X + 1)
    np.testing.assert_array_equal(model.score_samples(X), before)


@pytest.mark.parametrize("stage", ["search", "convex", "learning"])
def test_a_damaged_checkpoint_is_an_error(stage, tmp_path, monkeypatch):
    options = PLAN | STAGES[stage] | {"checkpoint": tmp_path / "fit"}
    with monkeypatch.context() as patch:
        kill_in(stage, patch)
        with pytest.raises(KeyboardInterrupt):
            fitted(**options)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match="damaged or cut short; remove it"):
        fitted(**options)


@pytest.mark.parametrize("change", [{"ridge": 0.02}, {"random_state": 1}, {"n_features": 20}])
def test_the_checkpoint_of_another_fit_is_refused(change, tmp_path, monkeypatch):
    options = PLAN | {"bandwidth": "auto", "checkpoint": tmp_path / "fit"}
    with monkeypatch.context() as patch:
        kill_in("search", patch)
        with pytest.raises(KeyboardInterrupt):
            fitted(**options)
    with pytest.raises(CheckpointError, match="belongs to another fit"):
        fitted(**options | change)
    with pytest.raises(CheckpointError, match="belongs to another fit: rows differ"):
        fitted(X[1:], **options)


# Encoders


POSITIVE = np.exp(X / 3)


def test_a_transform_in_front_is_a_change_of_variables():
    through = fitted(POSITIVE, encoder=ExpTransform().inv)
    codes = np.log(POSITIVE)
    plain = fitted(codes)
    expected = plain.score_samples(codes) - codes.sum(1)
    np.testing.assert_allclose(through.score_samples(POSITIVE), expected)
    draws = through.sample(20, random_state=0)
    np.testing.assert_allclose(draws, np.exp(plain.sample(20, random_state=0)))


def test_a_module_in_front_learns_and_the_one_given_does_not(legendre):
    given = Stretch()
    model = fitted(encoder=given, max_steps=50, learning_rate=0.05)
    assert torch.equal(given.scale, torch.ones(2))
    assert not torch.allclose(model.density_.encoder.scale, torch.ones(2, dtype=torch.float64))
    points, volume = legendre([-20.0, -20.0], [25.0, 25.0], 200)
    total = np.exp(model.score_samples(points.numpy())) @ volume.numpy()
    assert total == pytest.approx(1, abs=1e-6)
    assert model.sample(7, random_state=0).shape == (7, 2)


def test_a_module_in_front_learns_with_the_features():
    model = fitted(encoder=Stretch(), learn_features=True)
    assert len(model.history_) == 2
    assert np.isfinite(model.score(X))


@pytest.mark.parametrize("encoder", [AffineTransform(1.0, 2.0), Logarithm(), Stretch()])
def test_models_with_an_encoder_can_be_cloned_and_pickled(encoder):
    model = clone(QAFFDESGD(**FIXED | {"encoder": encoder})).fit(POSITIVE)
    twin = pickle.loads(pickle.dumps(model))
    expected = model.score_samples(POSITIVE)
    np.testing.assert_array_equal(twin.score_samples(POSITIVE), expected)


ENCODERS = {
    "must be a torch.distributions.Transform, or a torch module": {"encoder": "log"},
    "gives no finite code, or log-determinant, for .* rows, the first is row 0": {
        "encoder": ExpTransform().inv
    },
    r"turns rows of shape \(300, 2\) into \(300, 3\).*the shape stays": {
        "encoder": StickBreakingTransform()
    },
}


@pytest.mark.parametrize("message", ENCODERS)
def test_encoders_that_cannot_be(message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        fitted(np.vstack([[[-1.0, -1.0]], X[1:]]), **ENCODERS[message])


def test_rows_outside_the_domain_of_the_encoder_are_impossible():
    model = fitted(POSITIVE, encoder=ExpTransform().inv)
    scores = model.score_samples([[-1.0, 1.0], [1.0, 1.0]])
    assert scores[0] == -np.inf
    assert np.isfinite(scores[1])


def test_the_calculus_behind_an_encoder_is_refused():
    model = fitted(encoder=AffineTransform(0.0, 2.0))
    with pytest.raises((TypeError, ValueError), match=r"encoder|TransformedDensity"):
        model.marginal([0])


# Rows


@pytest.mark.parametrize("learn_features", [False, True])
@pytest.mark.parametrize("n", [2, 5, 9, 30])
def test_few_rows_are_enough(n, learn_features):
    ridge = {"ridge": 0.1} if n == 30 else {}
    options = {"learn_features": learn_features, "max_steps": 5, **ridge}
    model = QAFFDESGD(random_state=0, **options).fit(X[:n])
    assert np.isfinite(model.score_samples(X)).all()
    assert model.sample(3, random_state=0).shape == (3, 2)


@pytest.mark.parametrize("d", [1, 3, 8])
def test_any_number_of_columns(d):
    rows = np.random.default_rng(0).normal(size=(60, d))
    model = QAFFDESGD(n_features=20, random_state=0).fit(rows)
    truth = -0.5 * (rows**2).sum(1) - 0.5 * d * np.log(2 * np.pi)
    assert model.score(rows) > truth.mean() - 0.5 * d
    assert model.sample(3, random_state=0).shape == (3, d)


def test_rows_of_which_one_has_nearly_all_the_weight():
    weight = np.r_[1.0, np.full(19, 1e-6)]
    model = QAFFDESGD(n_features=20, random_state=0).fit(X[:20], sample_weight=weight)
    assert np.isfinite(model.score_samples(X)).all()


def test_copies_of_few_rows_are_few_rows():
    model = QAFFDESGD(random_state=0).fit(np.repeat(X[:4], 20, axis=0))
    assert np.isfinite(model.score_samples(X)).all()


def test_far_points_have_finite_scores():
    far = np.array([[1e300, 0.0], [-1e12, 1e12], [1e5, -1e5]])
    assert np.isfinite(fitted().score_samples(far)).all()
    assert np.isfinite(fitted(base_measure="box").score_samples(far)).all()


SHARE = r"must be a number in \(0, 1\)"
WHOLE = "must be a whole number of at least 1"
BAD = {
    "constant column: 1.*drop it": {"rows": np.c_[X[:, 0], np.ones(300)]},
    "columns 0 and 1 are copies of each other": {"rows": X[:, [0, 0]]},
    "variance overflows; divide the columns first": {"rows": 1e200 * X},
    "Input X contains NaN": {"rows": np.where(X > 4, np.nan, X)},
    "minimum of 2": {"rows": X[:1]},
    "Negative values in data passed to `sample_weight`": {"sample_weight": -np.ones(300)},
    "n_features=1 must be a whole number of at least 2": {"n_features": 1},
    "bandwidth='scott' is not known; choose one of auto": {"bandwidth": "scott"},
    "bandwidth=-1 must be one of auto, a positive number": {"bandwidth": -1},
    "rank=0 must be a whole number": {"rank": 0},
    "features='fourier' is not known": {"features": "fourier"},
    "base_measure='kernel' is not known; choose one of auto, box, gaussian, mixture$": {
        "base_measure": "kernel"
    },
    "bounds belong to the box, but base_measure='gaussian'": {"bounds": (-9, 9)},
    f"ridge=0 {SHARE} or": {"ridge": 0},
    f"ridge=1.5 {SHARE}": {"ridge": 1.5},
    "solver='newton' is not known; choose one of lbfgs": {"solver": "newton"},
    "initialisation='zero' is not known; choose one of closed_form, random": {
        "initialisation": "zero"
    },
    "normalisation='none' is not known; choose one of exact, kernel": {"normalisation": "none"},
    f"max_iter=0 {WHOLE}": {"max_iter": 0},
    f"max_steps=2.5 {WHOLE}": {"max_steps": 2.5},
    f"batch_size=None {WHOLE}": {"batch_size": None},
    "learning_rate=-1 must be a positive number": {"learning_rate": -1},
    "clip_norm=0 must be a positive number or None": {"clip_norm": 0},
    f"validation_fraction=1 {SHARE}": {"validation_fraction": 1},
    f"patience=0 {WHOLE} or None": {"patience": 0},
    "time_limit=-1 must be a positive number or None": {"time_limit": -1},
    "time_limit='long' must be a positive number or None": {"time_limit": "long"},
    "n_base_components=0 must be": {"n_base_components": 0},
    "n_base_components=200 is too many for 300 rows": {"n_base_components": 200},
    f"background=0 {SHARE}": {"background": 0},
    f"tolerance=0 {SHARE}": {"tolerance": 0},
    "checkpoint needs a random_state": {"checkpoint": "fit", "random_state": None},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input(message):
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        fitted(**BAD[message])


def test_the_directory_of_a_checkpoint_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        fitted(checkpoint=tmp_path / "nowhere" / "fit")
