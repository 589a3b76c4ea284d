"""Highest-density regions against quadrature and against the Gaussian's own."""

import numpy as np
import pytest
from scipy.stats import chi2

from qaffde import QAFFDE
from qaffde.estimators import DerivedDensity
from qaffde.nn import expand
from tests.calculus_models import KINDS, axis, grid, random_density

RNG = np.random.default_rng(0)
MASSES = np.array([0.1, 0.5, 0.9, 0.99])


def masses_above(density, log_levels, n):
    """Masses of the regions above levels, by brute force."""
    points, weights = grid([axis(density, c, n=n) for c in range(len(density.location))])
    log_p = density.log_prob(points)
    masses = weights * log_p.exp()
    return [float(masses[log_p >= level].sum()) for level in log_levels]


@pytest.mark.parametrize(("d", "n", "tolerance"), [(1, 400, 3e-3), (2, 120, 0.015)])
@pytest.mark.parametrize("kind", KINDS)
def test_regions_hold_their_mass(kind, d, n, tolerance):
    density = random_density(kind, d)
    levels = DerivedDensity(expand(density)).hdr_level(MASSES, random_state=0)
    np.testing.assert_allclose(masses_above(density, levels, n), MASSES, atol=tolerance)


@pytest.mark.parametrize(("d", "tolerance"), [(1, 0.1), (2, 0.1)])
def test_levels_of_a_gaussian(d, tolerance):
    model = QAFFDE(200, 0.2, base_measure="gaussian").fit(RNG.normal(size=(20_000, d)))
    masses = MASSES[1:3]
    expected = -d / 2 * np.log(2 * np.pi) - chi2(d).ppf(masses) / 2
    np.testing.assert_allclose(model.hdr_level(masses, random_state=0), expected, atol=tolerance)


@pytest.fixture(scope="module")
def model():
    return QAFFDE(40, 0.5, base_measure="gaussian", random_state=0).fit(RNG.normal(size=(300, 2)))


def test_levels_have_the_shape_of_the_masses(model):
    assert isinstance(model.hdr_level(0.5, 100), float)
    levels = model.hdr_level([[0.2, 0.5], [0.7, 0.9]], 100, random_state=0)
    assert levels.shape == (2, 2)
    assert (np.diff(levels.ravel()) < 0).all()


def test_draws_follow_the_random_state(model):
    same, again, other = (model.hdr_level(0.5, 100, random_state=seed) for seed in (1, 1, 2))
    assert same == again != other


def test_one_column_needs_no_draws(model):
    first = model.marginal([0])
    assert first.hdr_level(0.5, random_state=0) == first.hdr_level(0.5, random_state=1)


@pytest.mark.parametrize("spike", [0.0, 1e-3, 1e-7])
def test_narrow_spikes_count(spike):
    """A third of the rows at zero, or next to it."""
    rows = np.where(RNG.random(2000) < 0.35, spike * RNG.normal(size=2000), RNG.normal(5, 2, 2000))
    model = QAFFDE(n_features=60, random_state=0).fit(rows[:, None])
    drawn = model.score_samples(model.sample(100_000, random_state=1))
    masses = np.array([0.1, 0.3, 0.5, 0.9])
    found = [(drawn >= level).mean() for level in model.hdr_level(masses)]
    assert (np.abs(drawn - drawn.max()) < 3).mean() > 0.2  # there is a spike
    np.testing.assert_allclose(found, masses, atol=0.01)


def test_fresh_draws_fall_into_the_region(model):
    log_p = model.score_samples(model.sample(4000, random_state=1))
    inside = log_p >= model.hdr_level(0.8, random_state=2)
    assert inside.mean() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("mass", [0, 1, -0.1, [0.5, 2], np.nan, "half", None])
def test_masses_are_checked(model, mass):
    with pytest.raises(ValueError, match=r"mass=.* must be one or several numbers in \(0, 1\)"):
        model.hdr_level(mass)


def test_number_of_draws_is_checked(model):
    with pytest.raises(ValueError, match="n_samples=0 must be a whole number"):
        model.hdr_level(0.5, 0)


def test_no_regions_without_a_density():
    kernel = QAFFDE(20, 0.5, base_measure="kernel").fit(RNG.normal(size=(50, 2)))
    with pytest.raises(ValueError, match="'kernel' base measure is infinite"):
        kernel.hdr_level(0.5)


@pytest.mark.filterwarnings("error")
def test_names_of_columns_cause_no_warning():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["a", "b"])
    model = QAFFDE(bandwidth=0.5, n_features=32, random_state=0).fit(frame)
    assert np.isfinite(model.hdr_level(0.5, 200, random_state=0))
    assert np.isfinite(model.marginal(["b"]).hdr_level(0.5, 200))
