"""Tensor trains against quadrature, sums over codes and identities."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.tensor_train import random_train
from qaffde.nn import CircleBasis, CodeBasis, TensorTrain, WaveBasis, tensor_train
from qaffde.nn.column_basis import multiple_cosines
from qaffde.nn.parts import gap_patterns
from tests.two_sample import energy_p_value

MASSES = torch.tensor([0.5, 0.2, 0.3]).double()
NAN = torch.nan
KNOTS = torch.tensor([[0.0, 0.7, 0.9, 1.0], [0.0, 0.4, 0.7, 1.0]], dtype=torch.float64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def panels(edges: list[float], n: int = 30) -> tuple[Tensor, Tensor]:
    """Gauss–Legendre nodes and weights between edges."""
    nodes, weights = (torch.tensor(part) for part in np.polynomial.legendre.leggauss(n))
    ends = torch.tensor(edges, dtype=torch.float64)
    half = ends.diff()[:, None] / 2
    return (ends[:-1, None] + half * (nodes + 1)).flatten(), (half * weights).flatten()


def line_rule() -> tuple[Tensor, Tensor]:
    """Nodes z and weights of integrals dz, smooth in u = Φ(z) between the knots."""
    u, weights = panels(KNOTS[0].tolist())
    z = torch.special.ndtri(u)
    return z, weights * math.sqrt(2 * math.pi) * (z.square() / 2).exp()


def circle_rule(n: int = 40) -> tuple[Tensor, Tensor]:
    u = (torch.arange(n).double() + 0.5) / n
    return u, torch.full_like(u, 1 / n)


def code_rule() -> tuple[Tensor, Tensor]:
    return torch.arange(3).double(), torch.ones(3).double()


RULES = [line_rule(), circle_rule(), code_rule()]


@pytest.fixture(scope="module")
def mixed() -> TensorTrain:
    """A line, a circle and codes, the cores in another order than the parts."""
    bases = [CodeBasis(MASSES), WaveBasis(6, KNOTS), CircleBasis(5)]
    return random_train(bases, bond=4, rank=2, noise=1.0, places=[2, 0, 1], generator=generator())


def grid(*rules: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    x = torch.cartesian_prod(*(nodes for nodes, _ in rules)).reshape(-1, len(rules))
    weight = torch.cartesian_prod(*(w for _, w in rules)).reshape(-1, len(rules)).prod(1)
    return x, weight


def test_mass_is_one(mixed: TensorTrain) -> None:
    x, weight = grid(*RULES)
    assert [part.kind for part in mixed.parts] == ["line", "circle", "codes"]
    assert float(mixed.log_prob(x).exp() @ weight) == pytest.approx(1, abs=1e-9)
    assert float(mixed.log_mass()) == pytest.approx(0, abs=1e-12)


def test_no_rows_have_no_densities(mixed: TensorTrain) -> None:
    """A table asks for those of the rows that are possible, of which there may be none."""
    assert mixed.log_prob(torch.empty(0, mixed.n_dims)).shape == (0,)
    assert gap_patterns(torch.empty(0, 0)) == []


@pytest.mark.parametrize("keep", [[0], [1], [2], [0, 2], [2, 1], [1, 0]])
def test_marginals_are_integrals(mixed: TensorTrain, keep: list[int]) -> None:
    rest = [k for k in range(3) if k not in keep]
    rows = mixed.sample(4, generator())
    x, weight = grid(*(RULES[k] for k in rest))
    whole = torch.empty(4, len(x), 3).double()
    whole[:, :, keep], whole[:, :, rest] = rows[:, None, keep], x
    expected = mixed.log_prob(whole.reshape(-1, 3)).exp().reshape(4, -1) @ weight
    torch.testing.assert_close(mixed.marginal(keep).log_prob(rows[:, keep]).exp(), expected)
    gaps = rows.clone()
    gaps[:, rest] = NAN
    torch.testing.assert_close(mixed.log_prob(gaps).exp(), expected)


@pytest.mark.parametrize("given", [[0], [1], [2], [0, 2], [2, 1]])
def test_conditionals_are_ratios(mixed: TensorTrain, given: list[int]) -> None:
    rest = [k for k in range(3) if k not in given]
    for row in mixed.sample(3, generator(1)):
        conditional = mixed.condition(given, row[given])
        expected = mixed.log_prob(row[None]) - mixed.marginal(given).log_prob(row[None, given])
        torch.testing.assert_close(conditional.log_prob(row[None, rest]), expected)
        assert [part.kind for part in conditional.parts] == [mixed.parts[k].kind for k in rest]


def test_boxes_are_integrals(mixed: TensorTrain) -> None:
    ends, arc = (torch.tensor([e], dtype=torch.float64) for e in ((-0.4, 1.1), (0.7, 1.2)))
    codes = torch.tensor([[True, False, True]])
    value, error = mixed.probability([ends, arc, codes])
    jump = float(torch.special.ndtri(KNOTS[0, 1]))
    line, (u, arcs) = panels([-0.4, jump, 1.1]), panels([0.7, 1.2])
    chosen = torch.tensor([0.0, 2.0]).double(), torch.ones(2).double()
    x, weight = grid(line, (u % 1, arcs), chosen)
    assert float(value) == pytest.approx(float(mixed.log_prob(x).exp() @ weight), abs=1e-9)
    assert float(error) == 0
    half, _ = mixed.probability([ends, None, None])
    x, weight = grid(line)
    expected = mixed.marginal([0]).log_prob(x).exp() @ weight
    assert float(half) == pytest.approx(float(expected), abs=1e-9)


def test_quadrature_integrates(mixed: TensorTrain) -> None:
    for part in range(3):
        nodes, weights = mixed.quadrature(part, torch.tensor([0.3]))
        mass = mixed.marginal([part]).log_prob(nodes[:, None]).exp() @ weights
        assert float(mass) == pytest.approx(1, abs=1e-10)


def test_quantiles_invert_the_distribution(mixed: TensorTrain) -> None:
    q = torch.linspace(0.001, 0.999, 50).double()
    line = mixed.marginal([0])
    V = line.loadings[0]
    x = line.bases[0].quantiles((V.T @ V)[None], q)
    low = torch.full_like(x, -torch.inf)
    assert torch.allclose(line.probability([torch.stack([low, x], 1)])[0], q, atol=1e-12)


def test_draws_follow_the_density(mixed: TensorTrain) -> None:
    """Two samples: one core by core, the other by rejection from the laws of the parts."""
    drawn = mixed.sample(600, generator(2))
    n = 60_000
    proposed = torch.stack(
        [
            torch.randn(n, generator=generator(3), dtype=torch.float64),
            torch.rand(n, generator=generator(4), dtype=torch.float64),
            torch.multinomial(MASSES, n, replacement=True, generator=generator(5)).double(),
        ],
        1,
    )
    law = -0.5 * proposed[:, 0].square() - 0.5 * math.log(2 * math.pi)
    ratio = (mixed.log_prob(proposed) - law - MASSES.log()[proposed[:, 2].long()]).exp()
    keep = torch.rand(n, generator=generator(6)).double() * ratio.max() < ratio
    accepted = proposed[keep][:600]
    assert len(accepted) == 600
    assert energy_p_value(drawn.numpy(), accepted.numpy(), seed=0) > 0.01


def test_filled_rows_follow_the_conditional(mixed: TensorTrain) -> None:
    row = torch.tensor([[NAN, 0.3, NAN]], dtype=torch.float64).expand(600, -1)
    filled = mixed.fill(row, generator(7))
    assert (filled[:, 1] == 0.3).all()
    other = mixed.condition([1], torch.tensor([0.3], dtype=torch.float64)).sample(
        600, generator(8)
    )
    assert energy_p_value(filled[:, [0, 2]].numpy(), other.numpy(), seed=0) > 0.01


def test_many_parts() -> None:
    """Chain rule, commuting marginals and the mass, in 20 parts."""
    train = random_train([WaveBasis(8)] * 20, bond=6, rank=3, noise=0.8, generator=generator())
    x = train.sample(5, generator(1))
    assert float(train.log_mass()) == pytest.approx(0, abs=1e-10)
    odd, even = list(range(1, 20, 2)), list(range(0, 20, 2))
    joint = train.log_prob(x)
    for k in range(5):
        parts = train.condition(odd, x[k, odd]).log_prob(x[k : k + 1, even])
        total = parts + train.marginal(odd).log_prob(x[k : k + 1, odd])
        torch.testing.assert_close(total, joint[k : k + 1])
    twice = train.marginal([3, 18, 7, 11]).marginal([2, 1])
    torch.testing.assert_close(
        twice.log_prob(x[:, :2]), train.marginal([7, 18]).log_prob(x[:, :2])
    )
    halves = torch.tensor([[-torch.inf, 0.2], [0.2, torch.inf]]).double()
    boxes = torch.cartesian_prod(*[torch.arange(2)] * 4)
    regions = [halves[boxes[:, k]] if k < 4 else None for k in range(20)]
    assert float(train.probability(regions)[0].sum()) == pytest.approx(1, abs=1e-10)


def test_contractions_stay_finite_in_single_precision() -> None:
    train = random_train([WaveBasis(12)] * 60, bond=8, noise=2.0, generator=generator())
    x = train.sample(20, generator(1))
    single = random_train([WaveBasis(12)] * 60, bond=8, noise=2.0, generator=generator()).float()
    log_p, expected = single.log_prob(x.float()), train.log_prob(x)
    assert log_p.dtype == torch.float32
    torch.testing.assert_close(log_p.double(), expected, atol=0.02, rtol=1e-3)


@pytest.mark.parametrize("K", [0, 1, 3, 4, 9, 48])
def test_cosines_by_recurrence(K: int) -> None:
    angle = math.pi * torch.linspace(0, 1, 1001).double()
    angle.requires_grad_()
    size, k = 1 + angle.detach(), torch.arange(1, K + 1)[:, None]
    found, expected = multiple_cosines(angle, size, K), size * (k * angle).cos()
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    slopes = [torch.autograd.grad(each.sum(), angle)[0] for each in (found, expected)]
    torch.testing.assert_close(*slopes, atol=1e-9, rtol=0)


def test_blocks_of_rows_do_not_change_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    train = random_train([WaveBasis(5)] * 3, bond=4, rank=2, generator=generator())
    x = train.sample(50, generator(1))
    expected = train.log_prob(x)
    monkeypatch.setattr(tensor_train, "CACHED_NUMBERS", 4 * 7)
    torch.testing.assert_close(train.log_prob(x), expected)


def test_gradients() -> None:
    bases = [WaveBasis(3), CircleBasis(3), CodeBasis(MASSES)]
    train = random_train(bases, bond=2, rank=2, noise=1.0, generator=generator())
    x = train.sample(2, generator(1))
    names, values = zip(*train.named_parameters(), strict=True)
    values = tuple(value.detach().clone().requires_grad_() for value in values)

    def joint(real: Tensor, *values: Tensor) -> Tensor:
        rows = torch.cat([real, x[:, 2:]], 1)
        return torch.func.functional_call(train, dict(zip(names, values, strict=True)), (rows,))

    assert torch.autograd.gradcheck(joint, (x[:, :2].clone().requires_grad_(), *values))
