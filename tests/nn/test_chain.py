"""Chains of conditional densities: order, mass, marginals, conditionals, probabilities, draws."""

import math

import pytest
import torch
from torch import Generator, Tensor

from qaffde.nn import Chain
from qaffde.nn.parts import CIRCLE, LINE, Part

CODES = Part("codes", 3)
ATOM = [Part("codes", 2), LINE]


def chain(links: list[Part], seed: int = 0, **parameters) -> Chain:
    """A chain with weights large enough that all parts depend on each other."""
    torch.manual_seed(seed)
    made = Chain.of(links, (3, 5, 2), width=16, n_blocks=1, **parameters)
    with torch.no_grad():
        for layer in made.network.layers:
            layer.weight *= 2
    return made.requires_grad_(False).eval()


def grid(part: Part) -> tuple[Tensor, Tensor]:
    """Points and weights of a sum or integral over one part."""
    if part.kind == "codes":
        return torch.arange(part.size).double(), torch.ones(part.size).double()
    low, high, n = (-9.0, 9.0, 1201) if part.is_line else (0.0, 1.0, 401)
    points = torch.linspace(low, high, n).double()
    weight = torch.full_like(points, (high - low) / (n - 1))
    weight[[0, -1]] /= 2
    return points, weight


def test_numbers_of_a_part_depend_on_the_parts_before_it_only():
    links = [LINE, CIRCLE, CODES, LINE]
    network = chain(links).network
    e = torch.randn(1, sum(network.n_inputs), requires_grad=True, dtype=torch.float64)
    numbers = network(e).split(network.n_outputs, 1)
    for t, own in enumerate(numbers):
        (slope,) = torch.autograd.grad(own.square().sum(), e, retain_graph=True)
        for s, part in enumerate(slope.split(network.n_inputs, 1)):
            assert bool(part.any()) == (s < t)


@pytest.mark.parametrize("links", [[LINE, CODES], [CIRCLE, LINE], [CODES, CIRCLE], [CODES, LINE]])
def test_mass_is_one(links):
    density = chain(links)
    (x, v), (y, w) = map(grid, links)
    log_p = density.log_prob(torch.cartesian_prod(x, y)).reshape(len(x), len(y))
    assert float(v @ log_p.exp() @ w) == pytest.approx(1, abs=1e-5)
    first = density.marginal([0]).log_prob(x[:, None]).exp()
    torch.testing.assert_close(log_p.exp() @ w, first, atol=1e-5, rtol=1e-5)


def test_mass_is_one_with_an_atom():
    density = chain([*ATOM, CODES], optional=[1])
    line, weight = grid(LINE)
    codes = torch.arange(3.0).double()
    at = torch.cartesian_prod(torch.ones(1).double(), torch.tensor([math.nan]).double(), codes)
    beside = torch.cartesian_prod(torch.zeros(1).double(), line, codes)
    mass = density.log_prob(at).exp().sum()
    mass += weight @ density.log_prob(beside).exp().reshape(-1, 3).sum(1)
    assert float(mass) == pytest.approx(1, abs=1e-6)


def test_conditionals_and_marginals_of_the_first_parts():
    density = chain([LINE, CODES, LINE], places=[2, 0, 1])
    x = torch.tensor([[1.0, 0.3, -0.5]]).double()  # codes, last line, first line
    given = density.condition([2, 0], x[0, [2, 0]])
    both = density.marginal([0, 2]).log_prob(x[:, [0, 2]])
    torch.testing.assert_close(given.log_prob(x[:, [1]]) + both, density.log_prob(x))
    step = density.condition([2], x[0, [2]]).condition([0], x[0, [0]])
    torch.testing.assert_close(step.log_prob(x[:, [1]]), given.log_prob(x[:, [1]]))
    gap = torch.tensor([[1.0, math.nan, -0.5]]).double()
    torch.testing.assert_close(density.log_prob(gap), both)


@pytest.mark.parametrize(
    "ask",
    [
        lambda d: d.marginal([1]),
        lambda d: d.condition([2], torch.zeros(1).double()),
        lambda d: d.log_prob(torch.tensor([[math.nan, 0.0, 0.0]]).double()),
        lambda d: d.fill(torch.tensor([[0.0, math.nan, 0.0]]).double(), Generator()),
        lambda d: d.probability([torch.zeros(1, 2).double(), torch.zeros(1, 2).double(), None]),
    ],
)
def test_what_needs_integrals_over_a_network_is_refused(ask):
    with pytest.raises(ValueError, match=r"first columns only.*QAFFDETensorTrain"):
        ask(chain([LINE, LINE, LINE]))


def test_probabilities_are_sums_and_integrals():
    density = chain([CODES, LINE])
    mask = torch.tensor([[True, False, True]])
    ends = torch.tensor([[-0.5, 0.7]]).double()
    line = torch.linspace(-0.5, 0.7, 2001).double()
    points = torch.cartesian_prod(torch.tensor([0.0, 2.0]).double(), line)
    p = density.log_prob(points).exp().reshape(2, -1).sum(0)
    expected = float(torch.trapezoid(p, line))
    assert float(density.probability([mask, ends])[0]) == pytest.approx(expected, abs=1e-6)
    assert float(density.probability([None, ends])[0]) > expected
    share = density.log_prob(torch.tensor([[0.0, math.nan], [2.0, math.nan]]).double()).exp().sum()
    assert float(density.probability([mask, None])[0]) == pytest.approx(float(share), abs=1e-12)


def test_probability_of_an_arc_over_the_cut():
    density = chain([CIRCLE])
    over = torch.tensor([[0.9, 1.2]], dtype=torch.float64)
    parts = torch.stack([over.clamp(max=1), (over - 1).clamp(min=0)], 1)[0]
    sum_of_parts = float(density.probability([parts])[0].sum())
    assert float(density.probability([over])[0]) == pytest.approx(sum_of_parts, abs=1e-12)


def test_draws_have_the_probabilities():
    density = chain([*ATOM, CIRCLE, LINE], optional=[1])
    drawn = density.sample(20_000, Generator().manual_seed(0))
    assert (drawn[:, 1].isnan() == (drawn[:, 0] == 1)).all()
    share = density.probability([torch.tensor([[False, True]]), None, None, None])[0]
    assert float((drawn[:, 0] == 1).double().mean()) == pytest.approx(float(share), abs=0.015)
    known = torch.tensor([[0.0, 0.4, math.nan, math.nan]]).double().expand(20_000, -1)
    filled = density.fill(known, Generator().manual_seed(1))
    arc = density.condition([0, 1], known[0, :2]).marginal([0])
    p = arc.probability([torch.tensor([[0.1, 0.4]]).double()])[0]
    inside = (filled[:, 2] > 0.1) & (filled[:, 2] < 0.4)
    assert float(inside.double().mean()) == pytest.approx(float(p), abs=0.015)


class Terms(torch.nn.Module):
    """Log-density of a chain as the output of a module."""

    def __init__(self, chain: Chain) -> None:
        super().__init__()
        self.chain = chain

    def forward(self, z: Tensor) -> Tensor:
        """Log-densities of all parts."""
        return self.chain.log_terms(z)


def test_gradients():
    terms = Terms(chain([LINE, CODES, CIRCLE, LINE]))
    z = torch.tensor([[0.3, 2.0, 0.2, -1.0], [0.1, 0.0, 0.9, 0.4]]).double()

    def loss(weight: Tensor, bias: Tensor) -> Tensor:
        named = {"chain.network.first.weight": weight, "chain.network.last.bias": bias}
        return torch.func.functional_call(terms, named, (z,))

    network = terms.chain.network
    given = [network.first.weight, network.last.bias]
    assert torch.autograd.gradcheck(loss, [w.detach().requires_grad_() for w in given])
