"""Every module through shape, gradient, state, representation, dtype and copies."""

import copy
import pickle

import pytest
import torch
from torch.distributions import AffineTransform

from qaffde import nn


def features(dtype, seed=0, learnable=True):
    generator = torch.Generator().manual_seed(seed)
    h = torch.tensor([0.7, 1.1], dtype=dtype)
    return nn.FourierFeatures.draw("random", 12, h, None, generator, learnable=learnable)


def box(dtype, seed=0):
    return nn.BoxMeasure(*torch.tensor([[-2.0, -3.0], [2.0, 3.0 + seed]], dtype=dtype))


def gaussian(dtype, seed=0):
    return mixture(dtype, seed, size=1)


def mixture(dtype, seed=0, size=3):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(size, generator=generator, dtype=dtype)
    means = torch.randn(size, 2, generator=generator, dtype=dtype)
    return nn.GaussianMeasure(
        weights / weights.sum(), means, torch.eye(2, dtype=dtype).repeat(size, 1, 1)
    )


def kernel(dtype, seed=0):
    return nn.KernelMeasure(torch.tensor([0.7, 1.1 + seed], dtype=dtype))


MEASURES = {"box": box, "gaussian": gaussian, "mixture": mixture, "kernel": kernel}


def born(measure):
    def build(dtype, seed=0):
        generator = torch.Generator().manual_seed(seed)
        factor = torch.randn(3, 12, generator=generator, dtype=dtype)
        return nn.BornDensity(features(dtype, seed), factor, measure(dtype, seed))

    return build


def defensive(dtype, seed=0):
    mean, spread = torch.full((2,), float(seed), dtype=dtype), torch.eye(2, dtype=dtype)
    return nn.DefensiveDensity(born(box)(dtype, seed), 0.1, mean, spread)


def standardized(dtype, seed=0):
    location = torch.tensor([0.5, seed], dtype=dtype)
    return nn.StandardizedDensity(defensive(dtype, seed), location, 2 + location)


def behind_a_transform(dtype, seed=0):
    return nn.TransformedDensity(defensive(dtype, seed), AffineTransform(0.1, 2.0))


def state(dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return nn.DensityMatrix(torch.randn(3, 2, generator=generator, dtype=dtype))


DENSITIES = {f"born on {name}": born(measure) for name, measure in MEASURES.items()}
DENSITIES |= {"defensive": defensive, "standardized": standardized}
DENSITIES |= {"behind a transform": behind_a_transform}
LAYERS = {"features": features, "state": state, **DENSITIES}
MODULES = {**MEASURES, **LAYERS}


def points(dtype, *batch):
    return torch.rand(*batch, 2, generator=torch.Generator().manual_seed(1), dtype=dtype)


def output(module, x):
    return module.log_density(x) if isinstance(module, nn.BaseMeasure) else module(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODULES)
def test_shape_and_dtype(name, dtype):
    value = output(MODULES[name](dtype), points(dtype, 5))
    assert value.shape == ((5, 12) if name == "features" else (5,))
    assert value.dtype == dtype
    assert value.isfinite().all()


@pytest.mark.parametrize("name", MODULES)
def test_cast_module_computes_in_its_new_dtype(name):
    module = MODULES[name](torch.float64)
    double = output(module, points(torch.float64, 5))
    single = output(module.float(), points(torch.float64, 5).float())
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), double, atol=1e-4)


@pytest.mark.parametrize("batch", [(1,), (0,), (4, 3), (2, 1, 3)])
@pytest.mark.parametrize("name", LAYERS)
def test_batch_shapes(name, batch):
    module, x = MODULES[name](torch.float64), points(torch.float64, *batch)
    value, flat = module(x), module(x.reshape(-1, 2))
    assert value.shape == (*batch, *flat.shape[1:])
    assert torch.allclose(value.reshape(flat.shape), flat)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_reach_the_points_and_every_parameter(name):
    module = MODULES[name](torch.float64)
    x = points(torch.float64, 5).requires_grad_()
    module(x).sum().backward()
    gradients = [x.grad, *(parameter.grad for parameter in module.parameters())]
    assert len(gradients) > 1
    assert all(g is not None and g.isfinite().all() and g.abs().max() > 0 for g in gradients)


@pytest.mark.parametrize("name", ["box", "gaussian", "mixture"])
def test_gradients_flow_through_the_gram_matrix(name):
    phi = features(torch.float64)
    MEASURES[name](torch.float64).gram(phi).sum().backward()
    assert phi.W.grad.abs().max() > 0
    assert phi.b.grad.abs().max() > 0


@pytest.mark.parametrize("name", MODULES)
def test_state_dict_round_trip(name):
    module, other = (MODULES[name](torch.float64, seed) for seed in (0, 1))
    x = points(torch.float64, 5)
    with torch.no_grad():
        before = output(other, x)
        other.load_state_dict(module.state_dict())
        assert torch.equal(output(other, x), output(module, x))
        assert name == "kernel" or not torch.equal(output(other, x), before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("name", MODULES)
def test_copies_are_equal_and_independent(name, copied):
    module, x = MODULES[name](torch.float64), points(torch.float64, 5)
    with torch.no_grad():
        before = output(module, x)
        twin = copied(module)
        assert torch.equal(output(twin, x), before)
        for tensor in twin.state_dict().values():
            tensor.mul_(1.5)
        assert torch.equal(output(module, x), before)


@pytest.mark.parametrize("name", MODULES)
def test_representation_names_every_part(name):
    module = MODULES[name](torch.float64)
    text = repr(module)
    assert all(type(part).__name__ in text for part in module.modules())
    assert ("rank=3" in text) == ("DensityMatrix" in text)
    assert ("n_dims=2, n_features=12, learnable=True" in text) == ("FourierFeatures" in text)


@pytest.mark.parametrize("learnable", [True, False])
def test_features_learn_only_if_asked(learnable):
    module = features(torch.float64, learnable=learnable)
    assert len(list(module.parameters())) == (2 if learnable else 0)
    assert set(module.state_dict()) == {"W", "b", "a"}


def test_learnable_features_do_not_share_memory_with_what_they_were_given():
    W = torch.ones(3, 2)
    module = nn.FourierFeatures(W, torch.zeros(3), torch.ones(3), learnable=True)
    with torch.no_grad():
        module.W.zero_()
    assert W.sum() == 6


def test_default_draw_is_seeded_and_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    h = torch.ones(2)
    first, second = (nn.FourierFeatures.draw("random", 10, h) for _ in range(2))
    assert torch.equal(first.W, second.W)
    assert torch.equal(torch.get_rng_state(), state)
