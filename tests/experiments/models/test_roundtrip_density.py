"""The density of RoundTrip against quadrature over z, and its loss against two optimisers."""

import itertools
import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from experiments.models.roundtrip import RoundTrip, RoundTripLoss
from experiments.models.roundtrip_density import INTEGRATIONS, MEMORY, NOISES, RoundTripDensity
from experiments.models.roundtrip_networks import Dense


def model(n_dims, n_latent, hidden=(), n_context=0, **options):
    """Untrained density, of linear networks unless there are hidden layers."""
    torch.manual_seed(1)
    sizes = {"n_context": n_context, "hidden": list(hidden)}
    return RoundTripDensity(
        Dense(n_latent, n_out=n_dims, **sizes),
        Dense(n_dims, n_out=n_latent, **sizes),
        Dense(n_dims, n_out=1, **sizes),
        Dense(n_latent, n_out=1, **sizes),
        n_dims=n_dims,
        n_latent=n_latent,
        **options,
    ).double()


def points(n, d):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def by_quadrature(density, x):
    """log ∫ N(x; G(z), σ²I) N(z; 0, I) dz on a grid over two columns of z."""
    axis = torch.linspace(-7, 7, 401, dtype=torch.float64)
    z = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        images = density.mean_generate(z, density.given(z, None))
    log_prior = -0.5 * z.square().sum(1) - math.log(2 * math.pi)
    gap = torch.cdist(x, images) / density.sigma
    constant = x.shape[1] * (density.sigma.log() + 0.5 * math.log(2 * math.pi))
    return (
        torch.logsumexp(log_prior - 0.5 * gap.square() - constant, 1)
        + 2 * (axis[1] - axis[0]).log()
    )


@pytest.mark.parametrize(("n_dims", "n_latent"), [(3, 2), (2, 2), (2, 3), (1, 1), (5, 1)])
def test_the_linearisation_is_exact_for_a_linear_generator(n_dims, n_latent):
    density, x = model(n_dims, n_latent, integration="linear"), points(20, n_dims)
    (line,) = density.generate.layers
    covariance = line.weight @ line.weight.T + density.sigma**2 * torch.eye(n_dims)
    expected = MultivariateNormal(line.bias, covariance).log_prob(x)
    assert torch.allclose(density.log_prob(x), expected)


def test_the_linearisation_is_the_quadrature_for_a_linear_generator():
    density = model(3, 2, integration="linear")
    x = density.sample(10, torch.Generator().manual_seed(0)).detach()
    assert torch.allclose(density.log_prob(x), by_quadrature(density, x), atol=1e-6)


def test_laplace_is_exact_where_a_linear_generator_is_encoded_by_its_posterior_mean():
    density = model(3, 2, integration="laplace")
    x = density.sample(10, torch.Generator().manual_seed(0)).detach()
    mean, _ = density.linearize(x, x[:, :0]).posterior(density.sigma)
    elsewhere = density.log_prob(x)
    density.mean_encode.forward = lambda x, context: mean
    expected = by_quadrature(density, x)
    assert torch.allclose(density.log_prob(x), expected, atol=1e-6)
    assert (elsewhere < expected - 1e-3).all()  # any other point is less likely


def test_steps_lead_from_any_encoder_to_laplace_at_the_mode():
    density = model(3, 2, integration="laplace", mode_steps=20)
    x = density.sample(10, torch.Generator().manual_seed(0)).detach()
    assert torch.allclose(density.log_prob(x), by_quadrature(density, x), atol=1e-6)


def test_steps_lead_down_to_where_the_gradient_is_zero(monkeypatch):
    monkeypatch.setattr("experiments.models.roundtrip_density.MAX_TANGENTS", 12)  # two rows
    density = model(3, 2, [16], integration="laplace")
    x = density.sample(10, torch.Generator().manual_seed(0)).detach()
    given, z = x[:, :0], density.mean_encode(x, x[:, :0]).detach()
    misfits = []
    for density.mode_steps in (0, 1, 3, 10**9):  # the last ends where nothing moves
        ahead = density.climb(x, given, z).detach().requires_grad_()
        misfits.append(density._misfit(x, given, ahead))
    assert all((b <= a).all() for a, b in itertools.pairwise(misfits))
    assert (misfits[-1] < misfits[0]).any()
    misfits[-1].sum().backward()
    is_flat = ahead.grad.abs().amax(1) < 1e-6
    assert is_flat.sum() >= 7  # the others' modes lie on a kink of the generator
    view = density.at_mode(x, given)
    assert torch.allclose(view.gap / density.sigma**2 + view.code, misfits[-1])


def test_the_noise_and_its_modes_are_chosen_in_turn():
    density = model(3, 2, [8], integration="laplace", mode_steps=3)
    x, start = 0.3 * points(50, 3), density.sigma.clone()
    for _ in range(2):
        view = density.at_mode(x, x[:, :0])
        means = torch.stack([view.log_prob(sigma.double()).mean() for sigma in NOISES])
        density.sigma.copy_(NOISES[means.argmax()])
    expected = density.sigma.clone()
    assert expected != start
    density.sigma.copy_(start)
    loss = density.choose_noise(x, torch.ones(50))
    assert (float(loss), density.sigma) == (pytest.approx(-float(means.max())), expected)


def test_importance_sampling_is_the_quadrature_for_a_curved_generator():
    density = model(3, 2, [16], n_draws=20_000)
    density.sigma.fill_(0.2)
    x = density.sample(10, torch.Generator().manual_seed(0)).detach()
    expected = by_quadrature(density, x)
    assert torch.allclose(density.log_prob(x), expected, atol=0.02)
    density.integration = "linear"
    assert (density.log_prob(x) - expected).abs().mean() < 0.5
    assert not torch.allclose(density.log_prob(x), expected, atol=0.02)


def test_importance_sampling_of_a_linear_generator_has_little_noise():
    density = model(3, 2, n_draws=100)
    x = density.sample(10, torch.Generator().manual_seed(0)).detach()
    assert torch.allclose(density.log_prob(x), by_quadrature(density, x), atol=0.2)


def test_the_posterior_is_that_of_the_linear_model():
    density, x = model(3, 2), points(4, 3)
    mean, root = density.linearize(x, x[:, :0]).posterior(density.sigma)
    (line,) = density.generate.layers
    precision = torch.eye(2) + line.weight.T @ line.weight / density.sigma**2
    expected = torch.linalg.solve(precision, line.weight.T @ (x - line.bias).T / density.sigma**2)
    assert torch.allclose(mean, expected.T)
    assert torch.allclose(root @ root.mT, torch.linalg.inv(precision).expand(4, 2, 2))


@pytest.mark.parametrize("architecture", ["dense", "conv"])
def test_jacobians_are_autograd_s(architecture, monkeypatch):
    monkeypatch.setattr("experiments.models.roundtrip_density.MAX_TANGENTS", 36)  # two rows
    estimator = RoundTrip(3, 4, 1, architecture=architecture, image_shape=(2, 3))
    density = estimator._build(6, n_context=2).double()
    z, c = points(5, 3), points(5, 2)
    J = density.jacobian(z, c)
    for row in range(5):
        expected = torch.autograd.functional.jacobian(
            lambda z, row=row: density.generate(z[None], c[row : row + 1])[0], z[row]
        )
        assert torch.allclose(J[row], expected)


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_the_noise_is_the_best_on_the_list(integration):
    density = model(3, 2, [8], integration=integration)
    x, weight = 0.3 * points(50, 3), points(50, 1)[:, 0].exp()
    loss = density.choose_noise(x, weight)
    chosen, losses = density.sigma.clone(), {}
    for sigma in NOISES:
        density.sigma.fill_(sigma)
        losses[float(sigma)] = float(-(weight * density.log_prob(x)).mean().detach())
    assert float(loss) == pytest.approx(min(losses.values()))
    assert float(chosen) == pytest.approx(min(losses, key=losses.get))
    assert NOISES[0] < chosen < NOISES[-1]


def test_one_loss_has_the_gradients_of_two_optimisers():
    density, x = model(3, 2, [8], cycle_weights=(3.0, 5.0)).train(), points(20, 3)
    RoundTripLoss(torch.Generator().manual_seed(4))(density, x, torch.ones(20)).backward()

    z = torch.randn(20, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    G, H, judge_x, judge_z = (
        lambda v, network=network: network(v, v[:, :0])
        for network in (density.generate, density.encode, density.judge_x, density.judge_z)
    )
    cycles = 3 * (x - G(H(x))).square().mean() + 5 * (z - H(G(z))).square().mean()
    deceive = (judge_x(G(z)) - 1).square().mean() + (judge_z(H(x)) - 1).square().mean()
    discern = 0.5 * (
        (judge_x(x) - 1).square().mean()
        + judge_x(G(z)).square().mean()
        + (judge_z(z) - 1).square().mean()
        + judge_z(H(x)).square().mean()
    )
    generators = [*density.generate.parameters(), *density.encode.parameters()]
    judges = [*density.judge_x.parameters(), *density.judge_z.parameters()]
    for loss, parameters in [(cycles + deceive, generators), (discern, judges)]:
        expected = torch.autograd.grad(loss, parameters, retain_graph=True)
        for parameter, gradient in zip(parameters, expected, strict=True):
            assert torch.allclose(parameter.grad, gradient)


def test_the_density_is_that_of_networks_averaged_over_steps():
    density, x = model(3, 2, [8]), points(5, 3)
    start = density.log_prob(x)
    with torch.no_grad():
        for parameter in density.generate.parameters():
            parameter.fill_(0.1)
    assert torch.equal(density.log_prob(x), start)
    weights = [density.mean_generate.layers[0].weight.clone()]
    for _ in range(9_000):
        density.follow()
        weights.append(density.mean_generate.layers[0].weight.clone())
    gaps = [(weight - 0.1).abs().max().item() for weight in weights]
    assert gaps[1] < 0.2 * gaps[0]
    assert gaps[-1] < 1e-3
    late = density.mean_generate.layers[0].weight
    with torch.no_grad():
        density.generate.layers[0].weight.fill_(1.1)
    density.follow()
    assert torch.allclose(late, torch.full_like(late, 0.1 + (1 - MEMORY)), atol=2e-4)
