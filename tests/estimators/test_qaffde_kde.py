"""QAFFDE against what it stands for: the exact KDE, the full density matrix, one big product."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import KernelDensity

from qaffde import QAFFDE, ComputeConfig, Real, SelectionPolicy

RNG = np.random.default_rng(0)
X = {d: RNG.normal(size=(300, d)) + 3 * RNG.integers(0, 2, size=(300, 1)) for d in (1, 2)}
H = 0.5
WEIGHT = RNG.integers(1, 5, size=300)


def kde_error(d, n_features, weight=None, seeds=4, **options):
    """Root mean square error of the density at the rows, in units of its mean."""
    kde = KernelDensity(bandwidth=H).fit(X[d], sample_weight=weight)
    exact = np.exp(kde.score_samples(X[d]))

    policy = SelectionPolicy(background=1e-9)

    def error(seed):
        model = QAFFDE(n_features, H, 1.0, policy=policy, random_state=seed, **options)
        estimate = np.exp(model.fit(X[d], sample_weight=weight).score_samples(X[d]))
        return np.sqrt(np.mean((estimate - exact) ** 2)) / exact.mean()

    return np.mean([error(seed) for seed in range(seeds)])


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("features", ["random", "sobol"])
def test_kernel_form_converges_to_the_exact_kde(features, d):
    coarse, middle, fine = (
        kde_error(d, n, features=features, base_measure="kernel") for n in (32, 128, 512)
    )
    assert middle < coarse / 4**0.3
    assert fine < coarse / 16**0.4  # D^−1/2, or better
    assert fine < (0.2 if features == "random" else 0.02)


@pytest.mark.parametrize("features", ["paired", "orthogonal", "lattice"])
def test_kernel_form_of_other_features_is_near_the_exact_kde(features):
    assert kde_error(2, 512, features=features, base_measure="kernel") < 0.15


def test_kernel_form_converges_to_the_weighted_kde():
    options = {"features": "sobol", "base_measure": "kernel"}
    assert kde_error(2, 512, WEIGHT, **options) < 0.02


@pytest.mark.parametrize("measurement", ["direct", "square_root"])
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("features", ["random", "sobol"])
def test_box_form_converges_to_the_exact_kde_in_the_interior(features, d, measurement):
    options = {"features": features, "columns": Real(-7, 10), "measurement": measurement}
    coarse, middle, fine = (kde_error(d, n, **options) for n in (32, 128, 512))
    assert middle < coarse / 4**0.25
    assert fine < coarse / 16**0.4
    assert fine < {"random": (0.1, 0.4), "sobol": (0.01, 0.2)}[features][d - 1]


@pytest.mark.parametrize("d", [1, 2])
def test_lattice_in_a_box_is_the_exact_kde_in_the_interior(d):
    assert kde_error(d, 999, features="lattice", columns=Real(-7, 10), seeds=1) < 0.003


def test_bounds_far_from_the_data_show_no_images_of_them():
    model = QAFFDE(bandwidth=H, columns=Real(-20, 20), random_state=0).fit(X[1])
    empty = np.concatenate([np.linspace(-19.9, -8, 50), np.linspace(11, 19.9, 50)])
    assert np.exp(model.score_samples(empty[:, None])).max() < 1e-3


def parts(model):
    """Standardised rows' features, Gram matrix and base density of a fitted model."""
    outer = model.density_
    defended = outer.density
    born = getattr(defended, "density", defended)

    def evaluate(rows):
        Z = (torch.tensor(rows) - outer.location) / outer.scale
        log_base = born.measure.log_density(Z) - outer.scale.log().sum()
        return born.features(Z).numpy(), log_base.exp().numpy()

    return born, evaluate


def inverse_root(G, tolerance):
    lam, U = np.linalg.eigh(G)
    keep = lam > tolerance * lam[-1]
    return U[:, keep] / np.sqrt(lam[keep]) @ U[:, keep].T


@pytest.mark.parametrize("measurement", ["direct", "square_root"])
@pytest.mark.parametrize("base_measure", ["box", "gaussian", 2])
def test_factors_of_full_rank_are_the_full_density_matrix(base_measure, measurement):
    model = QAFFDE(
        50,
        H,
        1.0,
        base_measure=base_measure,
        measurement=measurement,
        policy=SelectionPolicy(background=1e-12),
        random_state=0,
    ).fit(X[2])
    born, evaluate = parts(model)
    phi, base = evaluate(X[2])
    rho, G = model.sums_.rho.numpy(), born.measure.gram(born.features).numpy()
    if measurement == "square_root":
        root = inverse_root(G, model.plan_.tolerance)
        rho = root @ rho @ root
    expected = base * np.einsum("ni,ij,nj->n", phi, rho, phi) / np.trace(rho @ G)
    np.testing.assert_allclose(np.exp(model.score_samples(X[2])), expected, rtol=1e-7)


def test_factors_of_the_kernel_form_are_the_full_density_matrix():
    model = QAFFDE(50, H, 1.0, base_measure="kernel", random_state=0).fit(X[2])
    phi, _ = parts(model)[1](X[2])
    rho = model.sums_.rho.numpy() / model.sums_.weight
    expected = np.einsum("ni,ij,nj->n", phi, rho, phi) / (2 * np.pi * H**2)
    np.testing.assert_allclose(np.exp(model.score_samples(X[2])), expected)


@pytest.mark.parametrize("base_measure", ["box", "kernel"])
def test_density_matrix_is_one_big_product(base_measure):
    options = {"n_features": 30, "bandwidth": H, "random_state": 0}
    model = QAFFDE(base_measure=base_measure, **options).fit(X[2], sample_weight=WEIGHT)
    phi, _ = parts(model)[1](X[2])
    np.testing.assert_allclose(model.sums_.rho, phi.T @ (phi * WEIGHT[:, None]), atol=1e-10)
    assert torch.equal(model.sums_.rho, model.sums_.rho.T)


@pytest.mark.parametrize("base_measure", ["box", "kernel"])
def test_batches_change_nothing(base_measure):
    def fit(batch_size):
        compute = ComputeConfig(batch_size=batch_size)
        options = {"n_features": 30, "bandwidth": H, "random_state": 0, "compute": compute}
        return QAFFDE(base_measure=base_measure, **options).fit(X[2])

    usual, small = fit("auto"), fit(7)
    np.testing.assert_allclose(small.sums_.rho, usual.sums_.rho, rtol=0, atol=1e-11)
    expected = usual.score_samples(X[2])
    np.testing.assert_allclose(small.score_samples(X[2]), expected, rtol=1e-8)
    np.testing.assert_allclose(
        usual.set_params(compute=ComputeConfig(batch_size=7)).score_samples(X[2]),
        expected,
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    ("base_measure", "atol"),
    [("box", 1e-10), ("kernel", 1e-10), ("gaussian", 0.05)],  # which shrinks its covariance by n
)
@pytest.mark.parametrize("measurement", ["direct", "square_root"])
def test_weights_are_repetitions(base_measure, atol, measurement):
    model = QAFFDE(
        60,
        H,
        base_measure=base_measure,
        measurement=measurement,
        policy=SelectionPolicy(background=0.01),
        random_state=0,
    )
    weighted = model.fit(X[2], sample_weight=WEIGHT).score_samples(X[2])
    repeated = model.fit(np.repeat(X[2], WEIGHT, axis=0)).score_samples(X[2])
    unweighted = model.fit(X[2]).score_samples(X[2])
    np.testing.assert_allclose(weighted, repeated, rtol=0, atol=atol)
    assert np.abs(weighted - unweighted).max() > 0.1


@pytest.mark.parametrize("base_measure", ["box", "gaussian", 2, "kernel"])
def test_only_ratios_of_weights_matter(base_measure):
    model = QAFFDE(60, H, base_measure=base_measure, random_state=0)
    first = model.fit(X[2], sample_weight=WEIGHT).score_samples(X[2])
    second = model.fit(X[2], sample_weight=1e-3 * WEIGHT).score_samples(X[2])
    np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_weights_of_any_size(scale):
    model = QAFFDE(60, H, base_measure="box", random_state=0)
    usual = model.fit(X[2], sample_weight=WEIGHT).score_samples(X[2])
    scaled = model.fit(X[2], sample_weight=scale * WEIGHT).score_samples(X[2])
    np.testing.assert_allclose(scaled, usual)


@pytest.mark.parametrize("base_measure", ["box", "kernel"])
def test_rows_without_weight_do_not_count(base_measure):
    model = QAFFDE(60, H, base_measure=base_measure, random_state=0)
    weight = np.arange(300) % 2
    with_zeros = model.fit(X[2], sample_weight=weight).score_samples(X[2])
    np.testing.assert_array_equal(model.fit(X[2][1::2]).score_samples(X[2]), with_zeros)
