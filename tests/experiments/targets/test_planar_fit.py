"""Mass, goodness of fit and Rosenblatt transforms of the planar targets, and of wrong ones."""

from functools import cache

import numpy as np
import pytest
from scipy.special import expit, ndtr
from scipy.stats import binomtest, chisquare, kstest

from experiments.targets import PLANAR, TARGETS, EqualGaussians, RidgePotential
from experiments.targets.curved import Ridge

N_SAMPLES = 50_000
N_CELLS, N_NODES = 40, 10  # cells a column, Gauss-Legendre nodes a cell
REJECTED = 1e-9


def composite_rule(lower, upper):
    """Nodes and weights, (cells, nodes) both."""
    nodes, weights = np.polynomial.legendre.leggauss(N_NODES)
    width = (upper - lower) / N_CELLS
    starts = lower + width * np.arange(N_CELLS)
    return starts[:, None] + width * (nodes + 1) / 2, np.tile(weights * width / 2, (N_CELLS, 1))


def cell_probabilities(target):
    """Probability of each cell of a grid over the support, by integrating the density."""
    (x, w_x), (y, w_y) = (composite_rule(*ends) for ends in target.support)
    grid = np.stack(np.meshgrid(x.ravel(), y.ravel(), indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(target.log_prob(grid)).reshape(N_CELLS, N_NODES, N_CELLS, N_NODES)
    return np.einsum("anbm,an,bm->ab", density, w_x, w_y)


@cache
def cached_cell_probabilities(name):
    return cell_probabilities(TARGETS[name])


def goodness_of_fit(X, support, probabilities):
    """p-value of the chi-square test; rare cells and the outside are one cell."""
    edges = [np.linspace(*ends, N_CELLS + 1) for ends in support]
    observed = np.histogram2d(*X.T, bins=edges)[0]
    expected = len(X) * probabilities / probabilities.sum()
    common = expected >= 10
    return chisquare(with_rest(observed[common], len(X)), with_rest(expected[common], len(X)))[1]


def with_rest(counts, total):
    return np.append(counts, total - counts.sum())


@pytest.mark.parametrize("name", PLANAR)
def test_mass_is_one_inside_the_support(name):
    assert cached_cell_probabilities(name).sum() == pytest.approx(1, abs=2e-9)


@pytest.mark.parametrize("name", PLANAR)
def test_samples_fit_the_density(name):
    X = TARGETS[name].sample(N_SAMPLES, random_state=1)
    assert goodness_of_fit(X, TARGETS[name].support, cached_cell_probabilities(name)) > 1e-3


@pytest.mark.parametrize("name", PLANAR)
def test_fit_rejects_samples_stretched_by_four_percent(name):
    X = TARGETS[name].sample(N_SAMPLES, random_state=1)
    X = X.mean(axis=0) + 1.04 * (X - X.mean(axis=0))
    assert goodness_of_fit(X, TARGETS[name].support, cached_cell_probabilities(name)) < REJECTED


def variances_taken_for_stds(name):
    target = TARGETS[name]
    return EqualGaussians(name, target.means, target.covariances**2).sample(N_SAMPLES, 1)


def arc_of_variance_two(rng):
    x_2 = rng.normal(0, np.sqrt(2), N_SAMPLES)
    return np.stack([rng.normal(x_2**2 / 4, 1), x_2], axis=1)


def ring_without_jacobian(rng):
    """Density e^{-U} in (r, θ) instead of (x₁, x₂): the factor r is forgotten."""
    radius, angle = rng.normal(2, 0.4, 4 * N_SAMPLES), rng.uniform(0, 2 * np.pi, 4 * N_SAMPLES)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    bumps = sum(np.exp(-(((X[:, 0] - centre) / 0.6) ** 2) / 2) for centre in (2, -2))
    return X[rng.uniform(size=len(X)) * 1.01 < bumps][:N_SAMPLES]


def ridges_a_tenth_wider(name):
    wide = tuple(Ridge(w, 1.1 * std, centre) for w, std, centre in TARGETS[name].ridges)
    return RidgePotential(name, wide).sample(N_SAMPLES, 1)


def roll_with_noise_of_variance_two_tenths(rng):
    t = rng.uniform(0, 2 * np.pi, N_SAMPLES)
    return rng.normal(np.stack([t * np.sin(2 * t), t * np.cos(2 * t)], axis=1), np.sqrt(0.2))


MUTANTS = {
    "arc": arc_of_variance_two,
    "bimodal_l": lambda _: variances_taken_for_stds("bimodal_l"),
    "binomial": lambda _: variances_taken_for_stds("binomial"),
    "potential_1": ring_without_jacobian,
    "potential_2": lambda _: ridges_a_tenth_wider("potential_2"),
    "potential_3": lambda _: ridges_a_tenth_wider("potential_3"),
    "potential_4": lambda _: ridges_a_tenth_wider("potential_4"),
    "star_eight": lambda _: variances_taken_for_stds("star_eight"),
    "swiss_roll": roll_with_noise_of_variance_two_tenths,
}


@pytest.mark.parametrize("name", PLANAR)
def test_fit_rejects_the_samples_of_a_wrong_target(name):
    X = MUTANTS[name](np.random.default_rng(1))
    assert len(X) == N_SAMPLES
    assert goodness_of_fit(X, TARGETS[name].support, cached_cell_probabilities(name)) < REJECTED


def test_fit_rejects_a_wrong_density():
    star = TARGETS["star_eight"]
    wrong = EqualGaussians("wrong", star.means, 1.1 * star.covariances)
    X = star.sample(N_SAMPLES, random_state=1)
    assert goodness_of_fit(X, wrong.support, cell_probabilities(wrong)) < REJECTED


def upper_ridge_pvalue(target, weight):
    """Binomial test of the weight of the upper ridge, where the two are three apart."""
    x_1, x_2 = target.sample(N_SAMPLES, random_state=1).T
    above = (x_2 > np.sin(2 * np.pi * x_1 / 4) - 1.5)[x_1 > 3]
    return binomtest(int(above.sum()), len(above), weight).pvalue


def test_weights_of_the_ridges():
    target = TARGETS["potential_4"]
    equal = tuple(Ridge(0.5, std, centre) for _, std, centre in target.ridges)
    assert upper_ridge_pvalue(target, 0.4 / 0.75) > 1e-3
    assert upper_ridge_pvalue(RidgePotential("equal", equal), 0.4 / 0.75) < 1e-4


def normal_mixture_cdf(x, centres, stds):
    return ndtr((x[:, None] - centres) / stds).mean(axis=1)


def conditional_cdf(name, X):
    """Rosenblatt's second coordinate for potentials 2 to 4, written out from the paper."""
    x_1, x_2 = X.T
    w_1 = np.sin(2 * np.pi * x_1 / 4)
    w_2 = 3 * np.exp(-0.5 * ((x_1 - 1) / 0.6) ** 2)
    w_3 = 3 * expit((x_1 - 1) / 0.3)
    return {
        "potential_2": ndtr((x_2 - w_1) / 0.4),
        "potential_3": (ndtr((x_2 - w_1) / 0.35) + ndtr((x_2 - w_1 + w_2) / 0.35)) / 2,
        "potential_4": (0.4 * ndtr((x_2 - w_1) / 0.4) + 0.35 * ndtr((x_2 - w_1 + w_3) / 0.35))
        / 0.75,
    }[name]


def ring_cdfs(X):
    """Distribution functions of the radius and the angle, by naive sums over a polar grid."""
    r, theta = np.linspace(0, 5, 1001), np.linspace(-np.pi, np.pi, 1001)
    x_1 = np.outer(r, np.cos(theta))
    density = (r * np.exp(-0.5 * ((r - 2) / 0.4) ** 2))[:, None] * (
        np.exp(-0.5 * ((x_1 - 2) / 0.6) ** 2) + np.exp(-0.5 * ((x_1 + 2) / 0.6) ** 2)
    )
    cdf_r, cdf_theta = np.cumsum(density.sum(axis=1)), np.cumsum(density.sum(axis=0))
    yield np.interp(np.hypot(*X.T), r, cdf_r / cdf_r[-1])
    yield np.interp(np.arctan2(X[:, 1], X[:, 0]), theta, cdf_theta / cdf_theta[-1])


def uniforms(name, X):
    """Coordinates that are uniform on [0, 1] if and only if the marginal they test is right."""
    if name == "arc":
        return ndtr(X[:, 0] - X[:, 1] ** 2 / 4), ndtr(X[:, 1] / 2)
    if name == "binomial":
        return ndtr(X[:, 0] - 1), ndtr((X[:, 1] + 1) / 2)
    if name == "bimodal_l":
        x_1, x_2 = X.T
        return normal_mixture_cdf(x_1, [1, -2], [1, 2]), normal_mixture_cdf(x_2, [-1, 2], [2, 1])
    if name == "star_eight":
        t = np.pi * np.arange(8) / 4
        stds = np.hypot(np.cos(t), 0.16 * np.sin(t)), np.hypot(np.sin(t), 0.16 * np.cos(t))
        centres = 3 * np.cos(t), 3 * np.sin(t)
        return [normal_mixture_cdf(*args) for args in zip(X.T, centres, stds, strict=True)]
    if name == "swiss_roll":
        t = 2 * np.pi * (np.arange(1000) + 0.5) / 1000
        centres = t * np.sin(2 * t), t * np.cos(2 * t)
        return [normal_mixture_cdf(x, c, 0.4) for x, c in zip(X.T, centres, strict=True)]
    if name == "potential_1":
        return ring_cdfs(X)
    return (X[:, 0] + 4) / 8, conditional_cdf(name, X)


@pytest.mark.parametrize("name", PLANAR)
def test_closed_form_distribution_functions(name):
    X = TARGETS[name].sample(5000, random_state=2)
    assert min(kstest(u, "uniform").pvalue for u in uniforms(name, X)) > 1e-3
