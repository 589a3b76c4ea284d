"""Conditional Born densities against sums, integrals and differences."""

import io
import math

import numpy as np
import pytest
import torch

from qaffde.kinds import Category, Integer, Periodic, Real
from qaffde.nn.conditional import BornConditional, BornHead, ConditionalBorn, Target

TARGETS = [
    Target(Real(), 0.2, 1.5),
    Target(Real(0), 0.1, 0.7),
    Target(Real(None, 3.0), 0.0, 0.5),
    Target(Real(-1, 2), 0.3, 0.3),
    Target(Periodic(24, -3), -3.0, 24.0),
    Target(Integer(), 4.0, 3.0),
]
CONTINUOUS = [target for target in TARGETS if not isinstance(target.kind, Integer)]


def density(target, n=3, members=2, seed=0):
    head = BornHead(4, 6, 2, target)
    generator = torch.Generator().manual_seed(seed)
    numbers = 0.7 * torch.randn(n, members, head.n_inputs, generator=generator).double()
    return head.average(numbers)


def each(whole):
    """The densities of a batch, one by one."""
    for k in range(whole.batch_shape[0]):
        parts = whole.log_weight, whole.center, whole.deviation, whole.factor
        yield BornConditional(*(part[k] for part in parts), whole.head)


def grid(target):
    """Numbers z and their common weight, over all that has mass."""
    low, high = (0.0, 1.0) if isinstance(target.kind, Periodic) else (-70.0, 70.0)
    edges = torch.linspace(low, high, 100_001, dtype=torch.float64)
    return (edges[1:] + edges[:-1]) / 2, (high - low) / 100_000


def masses(one, target):
    z, width = grid(target)
    y = target.decode(z)
    log_p = one.log_prob(y) - target.encode(y)[1]
    return y, (log_p.exp() * width).nan_to_num(0.0)


@pytest.mark.parametrize("target", CONTINUOUS, ids=str)
def test_mass_is_one(target):
    for one in each(density(target)):
        assert float(masses(one, target)[1].sum()) == pytest.approx(1, abs=1e-6)


def test_masses_of_integers_are_one():
    whole = density(TARGETS[-1])
    values = torch.arange(-2000, 2000).double()[:, None].expand(-1, 3)
    total = whole.log_prob(values).exp().sum(0)
    torch.testing.assert_close(total, torch.ones(3).double(), atol=1e-9, rtol=0)
    assert whole.log_prob(torch.full((3,), 0.5)).eq(-torch.inf).all()


@pytest.mark.parametrize("target", CONTINUOUS, ids=str)
def test_the_distribution_function_is_the_integral(target):
    whole = density(target)
    y = whole.icdf(torch.tensor([0.1, 0.5, 0.97]))
    step = 1e-5 * (1 if isinstance(target.kind, Periodic) else (-target.encode(y)[1]).exp())
    slope = (whole.cdf(y + step) - whole.cdf(y - step)) / (2 * step)
    torch.testing.assert_close(slope, whole.log_prob(y).exp(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("target", CONTINUOUS, ids=str)
def test_quantiles_are_the_inverse(target):
    whole, q = density(target), torch.tensor([1e-4, 0.3, 0.999]).double()
    torch.testing.assert_close(whole.cdf(whole.icdf(q)), q, atol=1e-9, rtol=0)


def test_quantiles_of_integers_are_the_least_that_reach_their_level():
    whole, q = density(TARGETS[-1]), torch.tensor([0.05, 0.5, 0.99]).double()
    y = whole.icdf(q)
    assert (y == y.round()).all()
    assert (whole.cdf(y) >= q).all()
    assert (whole.cdf(y - 1) < q).all()


@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[3]], ids=str)
def test_moments_and_entropy_are_integrals(target):
    whole = density(target)
    assert (whole.quadrature_error < 1e-5).all()
    for k, one in enumerate(each(whole)):
        y, mass = masses(one, target)
        mean = (y * mass).sum()
        torch.testing.assert_close(whole.mean[k], mean, rtol=1e-5, atol=1e-5)
        second = ((y - mean).square() * mass).sum()
        torch.testing.assert_close(whole.variance[k], second, rtol=1e-4, atol=1e-5)
        log_p = one.log_prob(y).clamp(min=-1e3)
        torch.testing.assert_close(whole.entropy()[k], -(log_p * mass).sum(), rtol=1e-4, atol=1e-5)


def test_the_mean_of_integers_is_their_sum():
    whole, values = density(TARGETS[-1]), torch.arange(-500, 500).double()[:, None].expand(-1, 3)
    mean = (values * whole.log_prob(values).exp()).sum(0)
    torch.testing.assert_close(whole.mean, mean, rtol=1e-6, atol=1e-6)


def test_a_mean_direction_turns_with_its_circle():
    target = Target(Periodic(24), 0.0, 24.0)
    head = BornHead(1, 1, 1, target)
    numbers = torch.zeros(2, 1, head.n_inputs).double()
    numbers[:, 0, 1] = torch.tensor([0.45, 0.55])  # beside the start, half a circle
    mean = head.average(numbers).mean
    torch.testing.assert_close(mean, torch.tensor([22.8, 1.2]).double(), atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="no variance"):
        _ = head.average(numbers).variance


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_far_values_are_finite_or_impossible(target):
    whole = density(target)
    far = torch.full((3,), 60.0).double()
    log_p = whole.log_prob(far if isinstance(target.kind, Integer) else target.decode(far / 60))
    assert log_p.isfinite().all()
    if isinstance(target.kind, Real) and target.kind.lower is not None:
        assert whole.log_prob(torch.full((3,), target.kind.lower - 1.0)).eq(-torch.inf).all()


def test_draws_follow_the_distribution_function():
    torch.manual_seed(0)
    whole = density(TARGETS[1])
    level = whole.cdf(whole.sample((1000,))).sort(0)[0]
    even = (torch.arange(1000).double() + 0.5) / 1000
    assert (level - even[:, None]).abs().max() < 1.63 / math.sqrt(1000)  # Kolmogorov, 1 %


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_gradients(target):
    head = BornHead(2, 3, 2, target)
    y = density(target).icdf(torch.tensor([0.2, 0.5, 0.8]))
    numbers = 0.3 * torch.randn(3, 2, head.n_inputs, generator=torch.Generator().manual_seed(1))

    def log_prob(given):
        return head.average(given).log_prob(y)

    assert torch.autograd.gradcheck(log_prob, numbers.double().requires_grad_())


def test_one_wave_is_a_mixture_density_network():
    layer = ConditionalBorn(3, n_components=2, n_functions=1, rank=1).double()
    context = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    found = layer(context)
    parts = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(logits=found.log_weight[:, 0]),
        torch.distributions.Normal(found.center[:, 0], found.deviation[:, 0]),
    )
    y = torch.linspace(-1, 1, 5).double()
    target = layer.head.target
    torch.testing.assert_close(
        found.log_prob(y), parts.log_prob(target.encode(y)[0]) - math.log(target.scale)
    )


def test_single_precision_agrees_with_double():
    layer = ConditionalBorn(3)
    context = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    y = torch.linspace(-3, 3, 50)
    single, double = layer(context).log_prob(y), layer.double()(context.double()).log_prob(y)
    torch.testing.assert_close(single.double(), double.double(), atol=1e-4, rtol=1e-4)


def test_categories_have_probabilities():
    layer = ConditionalBorn(2, target=Category(("a", "b", "c")))
    density = layer(torch.zeros(4, 2))
    assert density.probs.shape == (4, 3)
    torch.testing.assert_close(density.probs.sum(-1), torch.ones(4))


class LogDensity(torch.nn.Module):
    """A network with the layer at its end, as a function of x and y."""

    def __init__(self, target) -> None:
        super().__init__()
        layer = ConditionalBorn(8, target=target)
        self.network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.SiLU(), layer)

    def forward(self, x, y):
        return self.network(x).log_prob(y)


@pytest.mark.parametrize("target", [Real(0, 1), Integer()], ids=str)
def test_the_layer_can_be_compiled(target):
    torch.manual_seed(0)
    module, x, y = LogDensity(target), torch.randn(5, 2), torch.tensor([0.1, 0.5, 0.7, 0.9, 0.3])
    y = y if target != Integer() else (10 * y).round()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, y), module(x, y))


@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize("target", [Real(), Real(lower=0), Periodic(24)], ids=str)
def test_the_layer_can_be_exported(target):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    module, x, y = LogDensity(target), torch.randn(5, 2), torch.rand(5)
    file, names = io.BytesIO(), ["x", "y"]
    axes = {name: {0: "n"} for name in names}
    torch.onnx.export(
        module, (x[:2], y[:2]), file, input_names=names, dynamic_axes=axes, dynamo=False
    )
    session = runtime.InferenceSession(file.getvalue())
    (found,) = session.run(None, {"x": x.numpy(), "y": y.numpy()})
    np.testing.assert_allclose(found, module(x, y).detach(), atol=1e-5)
