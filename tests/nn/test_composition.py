"""Layers among others: compiled, behind a network, on any device, used as a distribution."""

import pytest
import torch
from torch.distributions import AffineTransform

from qaffde import nn

DOUBLE = torch.float64


def features(seed=0):
    h = torch.tensor([0.7, 1.1], dtype=DOUBLE)
    generator = torch.Generator().manual_seed(seed)
    return nn.FourierFeatures.draw("random", 12, h, None, generator, learnable=True)


def state(seed=0):
    return nn.DensityMatrix.draw(12, 3, torch.Generator().manual_seed(seed)).double()


def box():
    return nn.BoxMeasure(*torch.tensor([[-2.0, -3.0], [2.0, 3.0]], dtype=DOUBLE))


def gaussian(size=1):
    weights = torch.full((size,), 1 / size, dtype=DOUBLE)
    means = torch.linspace(-1, 1, 2 * size, dtype=DOUBLE).reshape(size, 2)
    return nn.GaussianMeasure(weights, means, torch.eye(2, dtype=DOUBLE).repeat(size, 1, 1))


def born(measure=None):
    return nn.BornDensity(features(), state().factor.detach(), measure or box())


def transformed():
    spread = torch.eye(2, dtype=DOUBLE)
    defensive = nn.DefensiveDensity(born(gaussian(2)), 0.1, spread[0], spread)
    standardized = nn.StandardizedDensity(defensive, spread[0], 2 + spread[0])
    return nn.TransformedDensity(standardized, AffineTransform(0.0, 2.0))


LAYERS = {
    "features": (features, 2),
    "state": (state, 12),
    "born on a box": (born, 2),
    "all wrappers": (transformed, 2),
}


def points(width=2, n=6):
    return torch.rand(n, width, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)


@pytest.mark.parametrize("name", LAYERS)
def test_compiled_layers_have_the_same_values_and_gradients(name):
    build, width = LAYERS[name]
    layer = build()
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    results = []
    for call in (layer, compiled):
        layer.zero_grad()
        x = points(width).requires_grad_()
        value = call(x)
        value.square().sum().backward()
        results.append([value, x.grad, *(p.grad for p in layer.parameters())])
    for plain, fast in zip(*results, strict=True):
        assert torch.allclose(plain, fast)


def test_a_compiled_density_without_gradients_sees_new_parameters():
    density = born()
    torch._dynamo.reset()
    compiled = torch.compile(density, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        before = compiled(points())
        density.factor[0].mul_(3)
        assert torch.allclose(compiled(points()), density(points()))
        assert not torch.allclose(compiled(points()), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_density_behind_a_network_trains(dtype):
    """The likelihood of codes alone says little, but its gradient must reach the network."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Linear(3, 2)
    model = torch.nn.Sequential(network, born(gaussian(2))).to(dtype)
    x = points(3, 50).to(dtype)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    adam = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        adam.zero_grad()
        loss = -model(x).mean()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    assert loss.dtype == dtype
    assert losses[-1] < losses[0] - 0.1
    assert all(not torch.equal(p, start[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize("name", LAYERS)
def test_layers_make_no_tensor_on_a_device_of_their_own(name):
    """The meta device computes shapes only, and refuses tensors of any other."""
    build, width = LAYERS[name]
    layer = build().to("meta")
    value = layer(points(width).to("meta"))
    assert value.device.type == "meta"
    assert value.shape == LAYERS[name][0]()(points(width)).shape


# As a distribution


@pytest.mark.parametrize("measure", [box(), gaussian(), gaussian(2)], ids=["box", "one", "two"])
def test_shapes_are_those_of_a_distribution(measure):
    density, generator = born(measure), torch.Generator().manual_seed(0)
    assert density.event_shape == torch.Size([2])
    assert density.batch_shape == torch.Size([])
    for shape in [(), (4,), (2, 3), torch.Size([5])]:
        draws = density.sample(shape, generator)
        assert draws.shape == torch.Size(shape) + density.event_shape
        assert not draws.requires_grad
        assert density.log_prob(draws).shape == torch.Size(shape)
    assert density.sample().shape == (2,)


def test_log_prob_of_one_point_is_that_of_the_point_in_a_batch():
    density, x = born(), points()
    assert density.log_prob(x[0]).shape == ()
    assert torch.allclose(density.log_prob(x[0]), density.log_prob(x)[0])


def test_draws_come_from_the_generator_that_is_given():
    density = born()
    first, second = (density.sample((3,), torch.Generator().manual_seed(1)) for _ in range(2))
    before = torch.get_rng_state()
    density.sample((3,), torch.Generator().manual_seed(1))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_without_a_generator_follow_the_global_seed_like_those_of_torch():
    density = born()
    with torch.random.fork_rng():
        draws = []
        for _ in range(2):
            torch.manual_seed(7)
            draws.append(density.sample((3,)))
        assert torch.equal(*draws)
        assert not torch.equal(density.sample((3,)), draws[0])


def test_draws_have_the_mean_and_the_entropy_of_the_density(legendre):
    density = born()
    x, weight = legendre(density.measure.lower, density.measure.upper, 60)
    draws = density.sample((4000,), torch.Generator().manual_seed(0))
    with torch.no_grad():
        p = density.log_prob(x).exp() * weight
        for statistic in (lambda x: x[:, 0], lambda x: x[:, 1], density.log_prob):
            expected, seen = p @ statistic(x), statistic(draws)
            error = seen.std() / len(draws) ** 0.5
            assert abs(seen.mean() - expected) < 4 * error


# The density matrix alone


def test_born_rule_of_a_state():
    phi = points(12)
    rho = state().factor.T @ state().factor
    expected = torch.einsum("ni,ij,nj->n", phi, rho, phi) / rho.trace()
    assert torch.allclose(state()(phi).exp(), expected)


def test_spectrum_of_a_state_falls_and_sums_to_one():
    G = points(12, 12)
    G = G @ G.T
    rho = state().factor.T @ state().factor
    expected = torch.linalg.eigvals(rho @ G).real.sort(descending=True).values[:3]
    lam = state().spectrum(G)
    assert torch.allclose(lam, expected / expected.sum())
    assert (lam.diff() <= 0).all()
    assert torch.allclose(state().spectrum(), state().spectrum(torch.eye(12)))


def test_a_drawn_state_has_trace_one_and_its_seed():
    first, second, other = (nn.DensityMatrix.draw(12, 3, g) for g in (None, None, seeded(1)))
    assert first.log_trace().item() == pytest.approx(0, abs=1e-6)
    assert first.rank == 3
    assert torch.equal(first.factor, second.factor)
    assert not torch.equal(first.factor, other.factor)


def seeded(seed):
    return torch.Generator().manual_seed(seed)
