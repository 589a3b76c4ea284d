"""How well QAFFDE does on the benchmark densities, and that it cheats on none of them."""

import numpy as np
import pytest

from experiments.metrics import excess_nll, excess_nll_standard_error, spearman
from experiments.targets import PLANAR, get_target, random_gmm
from qaffde import QAFFDE, QAFFDESGD, SelectionPolicy


def compare(target, model, n_samples):
    """Log-densities of the truth and of the model on fresh points."""
    target = get_target(target) if isinstance(target, str) else target
    fresh = target.sample(5000, random_state=1)
    model.fit(target.sample(n_samples, random_state=0))
    return target.log_prob(fresh), model.score_samples(fresh)


def assert_oracle_wins(truth, estimate):
    assert excess_nll(truth, estimate) > -4 * excess_nll_standard_error(truth, estimate)


@pytest.mark.parametrize(
    ("base_measure", "measurement", "features"),
    [
        ("box", "square_root", "lattice"),
        ("box", "direct", "random"),
        ("gaussian", "square_root", "sobol"),
        ("gaussian", "direct", "lattice"),
        (4, "square_root", "orthogonal"),
    ],
)
@pytest.mark.parametrize("name", PLANAR)
def test_no_model_beats_the_oracle(name, base_measure, measurement, features):
    model = QAFFDE(
        64,
        "scott",
        features=features,
        base_measure=base_measure,
        measurement=measurement,
        random_state=0,
    )
    assert_oracle_wins(*compare(name, model, 5000))


def test_the_kernel_form_is_no_density_and_the_oracle_shows_it():
    model = QAFFDE(64, 0.1, base_measure="kernel", random_state=0)
    assert excess_nll(*compare("star_eight", model, 5000)) < -1


@pytest.mark.parametrize("d", [1, 4, 8])
def test_no_untuned_model_beats_the_oracle_in_other_dimensions(d):
    model = QAFFDE(100, random_state=0)
    truth, estimate = compare(random_gmm(d, scale=0.2, random_state=0), model, 3000)
    assert_oracle_wins(truth, estimate)
    assert excess_nll(truth, estimate) < 0.25 * d


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("arc", 0.975, 0.03), ("star_eight", 0.975, 0.03), ("potential_3", 0.88, 0.08)],
)
def test_untuned_quality_on_planar_sets(name, least, most):
    truth, estimate = compare(name, QAFFDE(200, random_state=0), 4000)
    assert spearman(truth, estimate) > least
    assert excess_nll(truth, estimate) < most
    assert_oracle_wins(truth, estimate)


def test_more_rows_are_better():
    few, many = (
        excess_nll(*compare("swiss_roll", QAFFDE(200, random_state=0), n)) for n in (300, 5000)
    )
    assert many < 0.5 * few


@pytest.mark.parametrize("reach", [3.5, 1e-9])
def test_one_gaussian_under_separate_parts_shows_no_images_of_them(reach):
    """A lattice repeats itself; within the reach of its base that would be humps without rows."""
    policy = SelectionPolicy(gaussian_reach=reach)
    rng = np.random.default_rng(0)
    X = (rng.choice([-3.0, 3.0], 2000) + 0.5 * rng.standard_normal(2000))[:, None]
    options = {"base_measure": "gaussian", "features": "lattice", "random_state": 0}
    model = QAFFDE(**options, policy=policy).fit(X)
    outside = 1 - model.probability([-5.5], [5.5])
    assert (outside < 0.005) == (reach > 1)


@pytest.mark.parametrize(
    "model",
    [
        QAFFDE(200, 0.5, base_measure="mixture", random_state=3),
        QAFFDESGD(200, 1.0, base_measure="mixture", ridge=1e-3, random_state=3),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_mixture_of_chosen_size_begins_where_it_was_chosen(model):
    """Its own guess at the start, with all else given, ends without some rays of the star."""
    target = get_target("star_eight")
    model.fit(target.sample(6000, random_state=9))
    fresh = target.sample(5000, random_state=1)
    assert excess_nll(target.log_prob(fresh), model.score_samples(fresh)) < 0.02
