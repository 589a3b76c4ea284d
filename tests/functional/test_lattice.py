"""Shortcuts on a lattice of frequencies against the long way round."""

import pytest
import torch

from qaffde import functional as QF
from qaffde.nn import BornDensity, BoxMeasure, FourierFeatures, GaussianMeasure
from qaffde.training.closed_form import density_matrix, row_batches

SIZES = [(1, 64), (2, 60), (2, 301)]


def features_of(n_dims, n_features, kind="lattice"):
    h = torch.linspace(0.3, 0.5, n_dims, dtype=torch.float64)
    return FourierFeatures.draw(kind, n_features, h, 9 * torch.ones_like(h))


def rows_of(n, n_dims, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, n_dims, generator=generator, dtype=torch.float64)


@pytest.fixture(params=SIZES, ids=str)
def features(request):
    return features_of(*request.param)


@pytest.fixture
def lattice(features):
    return QF.Lattice.of(features.W)


def test_frequencies_are_found_again(features, lattice):
    d = features.n_dims
    assert torch.allclose(lattice.index[:, :d] * lattice.step, features.W, rtol=1e-14)


@pytest.mark.parametrize("kind", ["sobol", "random", "orthogonal"])
def test_other_frequencies_are_no_lattice(kind):
    assert QF.Lattice.of(features_of(2, 60, kind).W) is None


def test_a_slightly_moved_frequency_is_off_the_lattice(features):
    W = features.W.clone()
    W[-1, 0] *= 1 + 1e-9
    assert QF.Lattice.of(W) is None


def test_three_columns_and_single_precision_have_no_shortcut(features):
    assert QF.Lattice.of(features_of(3, 60).W) is None
    assert QF.Lattice.of(features.W.float()) is None


@pytest.mark.parametrize("far", [1e4, 1e30, 1e300])
def test_few_frequencies_far_apart_have_no_shortcut(far):
    W = torch.arange(100, dtype=torch.float64)[:, None].repeat(1, 2)
    W[-1] = far
    assert QF.Lattice.of(W) is None


def test_few_features_are_quicker_without(features):
    assert QF.Lattice.of(features_of(2, 7).W) is None


def test_moments_give_the_density_matrix(features, lattice):
    X = rows_of(500, features.n_dims)
    weight = torch.rand(500, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    moments = lattice.add_moments(None, X[:200], weight[:200])
    moments = lattice.add_moments(moments, X[200:], weight[200:])
    rho = lattice.gram(lattice.characteristic(moments), features.b, features.a)
    phi = features(X)
    expected = (weight[:, None] * phi).T @ phi
    assert torch.allclose(rho, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


def test_density_matrix_takes_the_shortcut_after_its_first_batch(features, monkeypatch):
    X, weight = rows_of(700, features.n_dims), torch.ones(700, dtype=torch.float64)
    rows = []
    plain = QF.Lattice.add_moments

    def counted(self, moments, x, weight):
        rows.append(len(x))
        return plain(self, moments, x, weight)

    monkeypatch.setattr(QF.Lattice, "add_moments", counted)
    rho = density_matrix(features, row_batches(X, weight, 300))
    phi = features(X)
    assert rows == [300, 100]
    assert torch.allclose(rho, phi.T @ phi, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_parts", [0, 1, 3])
def test_gram_matrices_are_those_of_the_long_way(features, n_parts):
    d = features.n_dims
    if n_parts:
        scale = torch.arange(1, n_parts + 1, dtype=torch.float64) / n_parts
        means = rows_of(n_parts, d)
        covariances = scale[:, None, None] * torch.eye(d, dtype=torch.float64)
        measure = GaussianMeasure(scale / scale.sum(), means, covariances)
    else:
        measure = BoxMeasure(-2 * torch.ones(d).double(), 3 * torch.ones(d).double())
    pairs = measure._pairs(features.W, features.b)
    G, expected = measure.gram(features), 0.5 * torch.outer(features.a, features.a) * pairs
    assert torch.allclose(G, expected, rtol=0, atol=1e-13)


def born_of(features, rank=5):
    d = features.n_dims
    factor = rows_of(rank, features.n_features, seed=3)
    box = BoxMeasure(-4 * torch.ones(d).double(), 4 * torch.ones(d).double())
    return BornDensity(features, factor, box)


def test_a_frozen_density_is_read_from_its_series(features):
    born, X = born_of(features), rows_of(400, features.n_dims)
    slow = born.log_prob(X).detach()  # its factor would learn: no series
    assert born.series() is None
    with torch.no_grad():
        quick = born.log_prob(X)
        assert born.series() is not None
    assert torch.allclose(quick, slow, rtol=0, atol=1e-9)


def test_faint_values_are_computed_as_squares(features):
    """Close to a zero of the only wave the series has no digits left; the square has all."""
    born = born_of(features, rank=1)
    with torch.no_grad():
        born.factor.zero_()
        born.factor[0, -1] = 1.0
    w, b = features.W[-1], features.b[-1]
    zero = (torch.pi / 2 - b) * w / w.square().sum()  # where cos(w·x + b) = 0
    offsets = torch.logspace(-9, -1, 9, dtype=torch.float64)
    X = zero + offsets[:, None] * w / w.norm()
    expected = 2 * (w.norm() * offsets).sin().log() + features.a[-1].square().log()
    with torch.no_grad():
        log_mass = born.log_normalizer() - born.measure.log_density(X)
        log_square = born.log_prob(X) + log_mass
    assert torch.allclose(log_square, expected, rtol=0, atol=1e-6)


def test_a_series_is_made_anew_when_the_factor_changes(features):
    born, X = born_of(features), rows_of(10, features.n_dims)
    with torch.no_grad():
        before = born.log_prob(X)
        born.factor[0] = 0
        after = born.log_prob(X)
    assert torch.allclose(after, born.log_prob(X).detach(), rtol=0, atol=1e-9)
    assert not torch.allclose(before, after, rtol=0, atol=1e-3)


def test_gradients_at_the_points_take_the_long_way(features):
    born, X = born_of(features), rows_of(10, features.n_dims).requires_grad_()
    born.requires_grad_(False)
    (gradient,) = torch.autograd.grad(born.log_prob(X).sum(), X)
    step = 1e-6 * torch.eye(features.n_dims).double()[0]
    with torch.no_grad():
        difference = (born.log_prob(X + step) - born.log_prob(X - step)) / 2e-6
    assert torch.allclose(gradient[:, 0], difference, rtol=1e-4, atol=1e-5)


def test_a_sheared_grid_has_the_values_of_its_points():
    features = features_of(2, 301)
    factor = torch.randn(4, 301, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ends = torch.full((2,), 4.0, dtype=torch.float64)
    born = BornDensity(features, factor, BoxMeasure(-ends, ends)).requires_grad_(False)
    first, shift, second = rows_of(30, 3).T
    points = torch.stack([first[:, None].expand(-1, 30), shift[:, None] + second], -1)
    expected = QF.born_rule(features(points.reshape(-1, 2)), born.factor).reshape(30, 30)
    found = born.series().on_sheared_grid(first, shift, second)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * float(expected.max()))
