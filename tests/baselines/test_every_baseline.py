"""What holds for every baseline: mass one, draws of the density, units, weights, pickles."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import cumulative_trapezoid, trapezoid
from scipy.stats import kstest
from sklearn.base import clone

from qaffde.training import CheckpointError

from .conftest import ADAM, SETTINGS, TRAINED, make

TINY = replace(ADAM, max_steps=2)
every = pytest.mark.parametrize("name", SETTINGS)
every_trained = pytest.mark.parametrize("name", TRAINED)


@every
def test_the_density_integrates_to_one(name, on_grid, axes):
    mass = trapezoid(trapezoid(on_grid[name], axes[1], axis=1), axes[0])
    assert mass == pytest.approx(1, abs=1e-3)


@every
@pytest.mark.parametrize("column", [0, 1])
def test_draws_follow_the_density(name, fitted, on_grid, axes, column):
    marginal = trapezoid(on_grid[name], axes[1 - column], axis=1 - column)
    cdf = cumulative_trapezoid(marginal, axes[column], initial=0)
    draws = fitted[name].sample(3000, random_state=1)
    assert draws.shape == (3000, 2)
    assert draws.dtype == np.float64
    assert kstest(draws[:, column], lambda x: np.interp(x, axes[column], cdf)).pvalue > 1e-3


@every
def test_draws_have_the_correlation_of_the_density(name, fitted, on_grid, axes):
    draws = fitted[name].sample(3000, random_state=1)
    first, second = np.meshgrid(*axes, indexing="ij")

    def mean(values):
        return trapezoid(trapezoid(values * on_grid[name], axes[1], axis=1), axes[0])

    expected = mean(first * second) - mean(first) * mean(second)
    products = (draws[:, 0] - draws[:, 0].mean()) * (draws[:, 1] - draws[:, 1].mean())
    error = products.std() / np.sqrt(len(draws))
    assert products.mean() == pytest.approx(expected, abs=4 * error)


@every
def test_draws_are_those_of_their_seed(name, fitted):
    model = fitted[name]
    assert np.array_equal(model.sample(5, random_state=0), model.sample(5, random_state=0))
    assert not np.array_equal(model.sample(5, random_state=0), model.sample(5, random_state=1))


@every
def test_better_than_the_best_gaussian(name, fitted, X):
    gaussian = make("gmm", n_components=1).fit(X)
    assert fitted[name].score(X) > gaussian.score(X) + 0.02


@every
def test_same_seed_same_fit_and_nothing_global_is_touched(name, X, settings, fitted):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    again = make(name, **settings[name]).fit(X)
    assert np.array_equal(again.score_samples(X), fitted[name].score_samples(X))
    again.sample(3)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


@every_trained
def test_fits_in_threads_are_those_of_their_seed(name, X, settings):
    options = settings[name] | {"training": TINY}
    alone = make(name, **options).fit(X).score_samples(X)
    state = torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        fits = list(pool.map(lambda _: make(name, **options).fit(X), range(8)))
    assert all(np.array_equal(fit.score_samples(X), alone) for fit in fits)
    assert torch.equal(torch.get_rng_state(), state)


@every
@pytest.mark.parametrize("wrong", [np.ones((20, 3)), np.full((20, 3), 1e200)])
def test_a_failed_refit_changes_nothing(name, X, fitted, wrong):
    model = pickle.loads(pickle.dumps(fitted[name]))
    with pytest.raises(ValueError, match=r"constant column|overflows|bandwidth"):
        model.fit(wrong)
    assert model.n_features_in_ == 2
    assert np.array_equal(model.score_samples(X), fitted[name].score_samples(X))


@every
def test_units_change_the_jacobian_alone(name, X, settings, fitted):
    units = np.array([1024.0, 2.0**-10])
    options = dict(settings[name])
    if name == "kde":
        options["bandwidth"] = options["bandwidth"] * units
    moved = make(name, **options).fit(X * units)
    expected = fitted[name].score_samples(X) - np.log(units).sum()
    assert np.allclose(moved.score_samples(X * units), expected, atol=1e-6)


@every
def test_a_pickle_scores_and_draws_alike(name, fitted, X):
    copy = pickle.loads(pickle.dumps(fitted[name]))
    assert np.array_equal(copy.score_samples(X), fitted[name].score_samples(X))
    assert np.array_equal(copy.sample(5, 0), fitted[name].sample(5, 0))


@every_trained
def test_parameters_and_state_rebuild_a_density(name, fitted, X):
    model = fitted[name]
    empty = clone(model)._build(2).double()
    empty.load_state_dict(model.density_.density.state_dict())
    z = torch.randn(50, 2, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(empty.log_prob(z), model.density_.density.log_prob(z))


@every
def test_heavy_rows_draw_the_density_to_them(name, X, settings, fitted):
    left = X[:, 0] < X[:, 0].mean()
    heavy = make(name, **settings[name])
    heavy.fit(X, sample_weight=np.where(left, 5.0, 1.0))
    assert heavy.score(X[left]) > fitted[name].score(X[left]) + 0.05


@every
def test_rows_without_weight_are_as_absent(name, X, settings):
    left = X[:, 0] < X[:, 0].mean()
    options = settings[name] | ({"training": TINY} if name in TRAINED else {})
    alone = make(name, **options).fit(X[left])
    zeros = make(name, **options).fit(X, sample_weight=left.astype(float))
    assert np.allclose(alone.score_samples(X), zeros.score_samples(X))


@every
def test_far_points_are_improbable_not_errors(name, fitted):
    far = fitted[name].score_samples([[1e6, -1e6], [1e60, 1e60], [0.0, 0.0]])
    assert not np.isnan(far).any()
    assert (far[:2] < -50).all()
    assert far[2] > -10


@every
def test_two_rows_and_one_column_are_enough(name, settings):
    options = dict(settings[name]) | ({"bandwidth": 1.0} if name == "kde" else {})
    if name == "gmm":
        options["n_components"] = 1
    model = make(name, **options).fit([[0.0], [1.0]])
    assert np.isfinite(model.score_samples([[0.5]])).all()
    assert model.sample(3).shape == (3, 1)


@pytest.fixture
def interrupt(monkeypatch):
    """Let progress reports raise from a step on, until the returned function is called."""

    def from_step(step):
        def report(history):
            if history.steps[-1] >= step:
                raise KeyboardInterrupt

        monkeypatch.setattr("qaffde.training.run.print_progress", lambda max_steps, limit: report)
        return monkeypatch.undo

    return from_step


def saved(options, path):
    return options | {"training": replace(options["training"], checkpoint=path)}


@every_trained
def test_a_killed_fit_resumes_to_the_same_bits(
    name, X, settings, fitted, tmp_path, interrupt, capsys
):
    model = make(name, **saved(settings[name], tmp_path / "fit"), verbose=True)
    path = tmp_path / "fit.learning"
    proceed = interrupt(30)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert path.exists()
    proceed()
    resumed = model.fit(X)
    assert np.array_equal(resumed.score_samples(X), fitted[name].score_samples(X))
    assert not path.exists()
    assert capsys.readouterr().out.startswith("step 31/60")


def test_a_checkpoint_of_other_data_is_refused(X, settings, tmp_path, interrupt):
    model = make("maf", **saved(settings["maf"], tmp_path / "fit"), verbose=True)
    interrupt(1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    with pytest.raises(CheckpointError, match="training_data, validation_data differ"):
        model.fit(X + X**2)


def test_dmkde_is_the_paper_s_predecessor(X):
    model = make("dmkde", n_features=50, bandwidth=0.5, random_state=0).fit(X)
    assert (model.base_measure_, model.measurement) == ("kernel", "direct")
    assert np.isfinite(model.score_samples(X)).all()
