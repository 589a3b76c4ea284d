"""RoundTrip trained: mass, draws, images, classes, checkpoints, mistakes."""

import pickle

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.distributions import MultivariateNormal

from experiments.models.flat import from_flat
from experiments.models.roundtrip import RoundTrip
from experiments.models.roundtrip_density import INTEGRATIONS
from experiments.targets import get_target
from qaffde.training import CheckpointError

SHORT = {"hidden_size": 32, "n_hidden": 2, "batch_size": 128, "n_draws": 5, "random_state": 0}
TINY = {"hidden_size": 4, "n_hidden": 1, "max_steps": 2, "batch_size": 32, "n_draws": 4}


@pytest.fixture(scope="module")
def X():  # noqa: N802
    return get_target("bimodal_l").sample(2000, random_state=0)


def redrawn(model, n_draws, random_state):
    """The same networks with other points of importance sampling."""
    copy = pickle.loads(pickle.dumps(model))
    with torch.random.fork_rng():
        torch.manual_seed(random_state)
        density = clone(model).set_params(n_draws=n_draws)._build(2).double()
    few, many = model.density_.density.state_dict(), density.state_dict()
    density.load_state_dict(few | {name: many[name] for name in ("normals", "radii")})
    copy.density_.density = density
    return copy


@pytest.fixture(scope="module")
def fitted(X):
    """Trained with few draws, and then given many."""
    model = from_flat(RoundTrip, max_steps=300, learning_rate=2e-3, **SHORT).fit(X)
    return redrawn(model, 300, random_state=0)


@pytest.fixture(scope="module")
def linear(fitted):
    """The same networks, linearised."""
    copy = pickle.loads(pickle.dumps(fitted))
    copy.density_.density.integration = "linear"
    return copy


@pytest.fixture(scope="module")
def axes(X):
    centre, reach = X.mean(0), 5 * X.std(0)
    return np.linspace(centre - reach, centre + reach, 41).T


def on_grid(estimator, axes):
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    return np.exp(estimator.score_samples(grid)).reshape(len(axes[0]), -1)


def mass(values, axes):
    return trapezoid(trapezoid(values, axes[1], axis=1), axes[0])


@pytest.fixture(scope="module")
def values(fitted, axes):
    return on_grid(fitted, axes)


def test_mass_is_one_by_importance_sampling_and_nearly_so_linearised(fitted, linear, axes):
    """Importance sampling is unbiased: over independent draws the mass is one in the mean.

    The draws are shared by all points of the grid, so that one set of them errs by some percent.
    """
    masses = [mass(on_grid(redrawn(fitted, 100, seed), axes), axes) for seed in range(16)]
    error = np.std(masses, ddof=1) / 4
    assert error < 0.02
    assert np.mean(masses) == pytest.approx(1, abs=4 * error + 0.005)
    assert mass(on_grid(linear, axes), axes) == pytest.approx(1, abs=0.05)


def test_training_learns_the_density(fitted, linear, X):
    target = get_target("bimodal_l")
    fresh = target.sample(1000, random_state=1)
    truth = target.log_prob(fresh)
    gaussian = MultivariateNormal(torch.tensor(X.mean(0)), torch.tensor(np.cov(X.T)))
    for estimator in (fitted, linear):
        assert np.corrcoef(truth, estimator.score_samples(fresh))[0, 1] > 0.9
        assert estimator.score(fresh) > gaussian.log_prob(torch.tensor(fresh)).mean()


def test_draws_follow_the_density(fitted, values, axes):
    draws = fitted.sample(5000, random_state=0)
    assert draws.shape == (5000, 2)
    first, second = np.meshgrid(*axes, indexing="ij")
    statistics = [(first, draws[:, 0]), (second, draws[:, 1]), (first * second, draws.prod(1))]
    for of_grid, of_draws in statistics:
        expected = mass(of_grid * values, axes) / mass(values, axes)
        error = of_draws.std() / np.sqrt(len(draws))
        assert of_draws.mean() == pytest.approx(expected, abs=5 * error)


def test_scores_and_draws_are_the_same_again(fitted, X):
    copy = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(copy.score_samples(X), fitted.score_samples(X))
    assert np.array_equal(copy.sample(5, 0), fitted.sample(5, 0))
    assert not np.array_equal(copy.sample(5, 1), fitted.sample(5, 0))


def test_units_change_the_jacobian_alone(X):
    units = np.array([1024.0, 2.0**-10])
    options = {"max_steps": 10, **SHORT}
    there = from_flat(RoundTrip, **options).fit(X * units).score_samples(X * units)
    here = from_flat(RoundTrip, **options).fit(X).score_samples(X)
    assert np.allclose(there, here - np.log(units).sum(), atol=1e-6)


def test_far_points_are_improbable_not_errors(fitted, linear):
    for estimator in (fitted, linear):
        far = estimator.score_samples([[1e6, -1e6], [1e60, 1e60]])
        assert not np.isnan(far).any()
        assert (far < -50).all()


def test_heavy_rows_draw_the_density_to_them(X, fitted):
    left = X[:, 0] < X[:, 0].mean()
    heavy = from_flat(RoundTrip, max_steps=150, learning_rate=2e-3, **SHORT)
    heavy.fit(X, sample_weight=np.where(left, 9.0, 1.0))
    share = (heavy.sample(1000, 0)[:, 0] < X[:, 0].mean()).mean()
    assert share > (fitted.sample(1000, 0)[:, 0] < X[:, 0].mean()).mean() + 0.15


@pytest.fixture
def killed(X, tmp_path, monkeypatch):
    """Settings of a fit that was killed halfway, with its checkpoint."""
    settings = {**SHORT, "max_steps": 60, "checkpoint": tmp_path / "fit", "verbose": True}

    def report(history):
        if history.steps[-1] >= 30:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("qaffde.training.run.print_progress", lambda max_steps, limit: report)
        with pytest.raises(KeyboardInterrupt):
            from_flat(RoundTrip, **settings).fit(X)
    return settings


def test_a_killed_fit_resumes_to_the_same_bits(X, killed, capsys):
    resumed = from_flat(RoundTrip, **killed).fit(X)
    assert capsys.readouterr().out.startswith("step 31/60")
    undisturbed = from_flat(RoundTrip, max_steps=60, **SHORT).fit(X)
    assert np.array_equal(resumed.score_samples(X), undisturbed.score_samples(X))
    assert not killed["checkpoint"].with_suffix(".learning").exists()


def test_a_checkpoint_of_another_loss_is_refused(X, killed):
    with pytest.raises(CheckpointError, match="initial_parameters differ"):
        from_flat(RoundTrip, **killed, cycle_x=2.0).fit(X)


def test_a_time_limit_ends_training(X):
    model = from_flat(RoundTrip, max_steps=100_000, time_limit=0.05, **SHORT).fit(X)
    assert model.history_.stopped_by == "time_limit"
    assert np.isfinite(model.score(X))


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_images_by_convolutions(integration):
    digits = load_digits().data[:200] + np.random.default_rng(0).random((200, 64))
    kind = {"architecture": "conv", "image_shape": (8, 8), "integration": integration}
    model = from_flat(RoundTrip, n_latent=5, **kind, **TINY, random_state=0).fit(digits)
    z, given = (torch.zeros(3, k, dtype=torch.float64) for k in (5, 0))
    assert model.density_.density.jacobian(z, given).shape == (3, 64, 5)
    assert np.isfinite(model.score_samples(digits)).all()
    assert model.sample(3, random_state=0).shape == (3, 64)


@parametrize_with_checks(
    [from_flat(RoundTrip, **TINY), from_flat(RoundTrip, **TINY, integration="linear")]
)
def test_scikit_learn(estimator, check):
    check(estimator)


IMAGE = 'must be .H, W. or .C, H, W. with a product of 2, .* or take architecture="dense"'
BAD = {
    "n_latent=0 must be a whole number of at least 1": {"n_latent": 0},
    "hidden_size=1.5 must be a whole number": {"hidden_size": 1.5},
    "n_draws=0 must be a whole number": {"n_draws": 0},
    "architecture='deep' is not known; choose one of dense, conv": {"architecture": "deep"},
    "integration='exact' is not known; choose one of linear, laplace, importance": {
        "integration": "exact"
    },
    "cycle_x=-1 must be a number of at least 0": {"cycle_x": -1},
    "cycle_z='ten' must be a number of at least 0": {"cycle_z": "ten"},
    f"image_shape=None {IMAGE}": {"architecture": "conv"},
    f"image_shape=.8, 8. {IMAGE}": {"architecture": "conv", "image_shape": (8, 8)},
    "checkpoint needs a random_state": {"checkpoint": "fit.ckpt"},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_parameters(message, X):
    with pytest.raises(ValueError, match=message):
        from_flat(RoundTrip, **BAD[message]).fit(X)
