"""The fitted density has mass one, by quadrature over the box and over all around it."""

import itertools

import numpy as np
import pytest
import torch

from qaffde import QAFFDE, Real, SelectionPolicy
from qaffde.functional import FREQUENCIES

RNG = np.random.default_rng(0)
X = {
    d: np.concatenate([RNG.normal(size=(150, d)), 2 + RNG.gamma(2, size=(150, d))]) for d in (1, 2)
}
WEIGHT = RNG.integers(0, 4, size=300)
OPTIONS = {
    "n_features": 41,
    "bandwidth": 0.8,
    "policy": SelectionPolicy(background=0.01),
    "random_state": 0,
}


@pytest.fixture
def mass(legendre):
    """Integral of a fitted density, panel by panel: it jumps at the edges of its box."""

    def integrate(model, rows, bounds=None):
        lower, upper = (rows.min(0), rows.max(0)) if bounds is None else bounds
        centre, far = rows.mean(0), 20 * rows.std(0)
        edges = np.stack([centre - far, lower, upper, centre + far])
        total = 0.0
        for panel in itertools.product(range(3), repeat=rows.shape[1]):
            ends = [(edges[i, t], edges[i + 1, t]) for t, i in enumerate(panel)]
            points, weights = legendre(
                *torch.tensor(np.transpose(ends)), 150 if rows.shape[1] == 1 else 64
            )
            total += np.exp(model.score_samples(points.numpy())) @ weights.numpy()
        return total

    return integrate


@pytest.mark.parametrize("measurement", ["direct", "square_root"])
@pytest.mark.parametrize("base_measure", ["box", "gaussian", 2])
@pytest.mark.parametrize("features", FREQUENCIES)
@pytest.mark.parametrize("d", [1, 2])
def test_mass_is_one(d, features, base_measure, measurement, mass):
    model = QAFFDE(
        features=features, base_measure=base_measure, measurement=measurement, **OPTIONS
    ).fit(X[d])
    assert mass(model, X[d]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("d", "base_measure", "measurement"),
    [(1, "box", "square_root"), (1, "gaussian", "direct"), (2, "box", "direct")],
)
def test_mass_is_one_with_adaptive_features(d, base_measure, measurement, mass):
    options = {"features": "adaptive", "base_measure": base_measure, "measurement": measurement}
    model = QAFFDE(**options, **OPTIONS | {"n_features": 20}).fit(X[d])
    assert mass(model, X[d]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("rank", [1, 4, 0.3, 1.0, "auto"])
@pytest.mark.parametrize("base_measure", ["box", "gaussian", 2])
@pytest.mark.parametrize("d", [1, 2])
def test_mass_is_one_with_weights_at_any_rank(d, base_measure, rank, mass):
    model = QAFFDE(base_measure=base_measure, rank=rank, **OPTIONS).fit(X[d], sample_weight=WEIGHT)
    assert mass(model, X[d][WEIGHT > 0]) == pytest.approx(1, abs=1e-6)
    if isinstance(rank, int):
        assert model.rank_ == rank


@pytest.mark.parametrize("measurement", ["direct", "square_root"])
def test_mass_is_one_within_bounds(measurement, mass):
    rows, bounds = X[1] - X[1].min(), np.array([[0.0], [15.0]])
    model = QAFFDE(columns=Real(*bounds[:, 0].tolist()), measurement=measurement, **OPTIONS).fit(
        rows
    )
    assert mass(model, rows, bounds) == pytest.approx(1, abs=1e-6)


def test_mass_is_one_untuned(mass):
    model = QAFFDE(random_state=0).fit(X[1])
    assert mass(model, X[1]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("background", [1e-6, 0.2])
def test_background_has_its_share_outside_the_box(background, mass):
    options = OPTIONS | {"policy": SelectionPolicy(background=background)}
    model = QAFFDE(base_measure="box", **options).fit(X[1])
    assert mass(model, X[1]) == pytest.approx(1, abs=1e-6)
    location, scale = X[1].mean(), X[1].std()
    outside = X[1].max() + np.array([[1e-6], [5.0]])
    z = (outside[:, 0] - location) / (2 * scale)
    expected = np.log(background) - z**2 / 2 - np.log(2 * scale * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(model.score_samples(outside), expected)
