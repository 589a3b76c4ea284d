"""The calculus of fitted densities, learned features beside random ones, against quadrature."""

import numpy as np
import pytest

from qaffde import QAFFDE

TOLERANCE = {"box": 1e-6, "gaussian": 1e-5}
RNG = np.random.default_rng(0)
X = {
    d: np.concatenate([RNG.normal(size=(200, d)), 1.5 + RNG.gamma(2, size=(200, d))])
    for d in (1, 2, 3)
}


MODELS = [
    (features, base_measure, d)
    for features in ("random", "adaptive")
    for base_measure in TOLERANCE
    for d in X
]
everywhere = pytest.mark.parametrize("fitted", MODELS, indirect=True)
beyond_one = pytest.mark.parametrize("fitted", [m for m in MODELS if m[2] > 1], indirect=True)


@pytest.fixture(scope="module")
def fitted(request):
    features, base_measure, d = request.param
    model = QAFFDE(
        24, bandwidth=1.0, features=features, base_measure=base_measure, random_state=0
    ).fit(X[d])
    return model, X[d], TOLERANCE[base_measure]


def axis(rows, column, n=40):
    """Nodes and weights along a column, in panels: the density jumps at the edges of its box."""
    x = rows[:, column]
    edges = np.array([x.mean() - 30 * x.std(), x.min(), x.max(), x.mean() + 30 * x.std()])
    nodes, weights = np.polynomial.legendre.leggauss(n)
    centre, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    return (centre[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()


def integral(model, axes):
    """Integral of the density over a product of axes; one point is an axis too."""
    points = np.stack(np.meshgrid(*[a[0] for a in axes], indexing="ij"), -1)
    weights = np.array(1.0)
    for _, weight in axes:
        weights = np.multiply.outer(weights, weight)
    density = np.exp(model.score_samples(points.reshape(-1, len(axes))))
    return density @ weights.ravel()


def slice_at(rows, x):
    """Axes of an integral where column 0 is x and the others are free."""
    free = [axis(rows, c) for c in range(1, rows.shape[1])]
    return [(np.array([x]), np.ones(1)), *free]


@everywhere
def test_mass(fitted):
    model, rows, tolerance = fitted
    d = rows.shape[1]
    whole = [axis(rows, c, n=40 if d < 3 else 24) for c in range(d)]
    assert integral(model, whole) == pytest.approx(1, abs=tolerance)


@everywhere
def test_marginal(fitted):
    model, rows, tolerance = fitted
    x = np.quantile(rows[:, 0], [0.1, 0.5, 0.9])
    expected = [integral(model, slice_at(rows, value)) for value in x]
    found = np.exp(model.marginal([0]).score_samples(x[:, None]))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@beyond_one
def test_conditional(fitted):
    model, rows, tolerance = fitted
    for row in rows[[0, 250]]:
        below = integral(model, slice_at(rows, row[0]))
        expected = np.exp(model.score_samples(row[None])[0]) / below
        found = np.exp(model.condition({0: row[0]}).score_samples(row[None, 1:])[0])
        assert found == pytest.approx(expected, abs=tolerance)


@everywhere
def test_probability(fitted):
    model, rows, tolerance = fitted
    lower, upper = np.quantile(rows, [0.2, 0.7], axis=0)
    nodes, weights = np.polynomial.legendre.leggauss(32)
    half, centre = (upper - lower) / 2, (upper + lower) / 2
    axes = [(c + h * nodes, h * weights) for c, h in zip(centre, half, strict=True)]
    expected = integral(model, axes)
    assert model.probability(lower, upper) == pytest.approx(expected, abs=tolerance)
    assert 0.01 < expected < 0.9
