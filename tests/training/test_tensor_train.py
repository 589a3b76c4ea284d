"""Training of tensor trains: gaps, order of columns, independent parts, resolution."""

import math

import pytest
import torch
from torch import Tensor

from qaffde.nn.parts import LINE
from qaffde.training.run import Run
from qaffde.training.tensor_train import (
    LearningTrain,
    TensorTrainConfig,
    chain_order,
    fit_train,
    make_bases,
    resolution_knots,
)

CONFIG = TensorTrainConfig(max_steps=300, bond=12, n_functions=10, batch_size=500)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def correlated(n: int, rho: float = 0.8, seed: int = 0) -> Tensor:
    x = torch.randn(n, 2, generator=generator(seed), dtype=torch.float64)
    x[:, 1] = rho * x[:, 0] + math.sqrt(1 - rho**2) * x[:, 1]
    return x


def fit(x: Tensor) -> tuple:
    return fit_train([LINE] * x.shape[1], x, torch.ones(len(x)), CONFIG, generator(), Run())


def test_dependence_is_learned():
    train, history = fit(correlated(3000))
    test = correlated(3000, seed=1)
    gain = train.log_prob(test) - sum(train.marginal([k]).log_prob(test[:, [k]]) for k in (0, 1))
    assert float(gain.mean()) == pytest.approx(0.51, abs=0.06)  # the mutual information
    assert min(history.valid_loss) < -0.4


def test_independent_columns_stay_independent():
    x = torch.randn(400, 3, generator=generator(), dtype=torch.float64)
    train, _ = fit(x)
    test = torch.randn(2000, 3, generator=generator(1), dtype=torch.float64)
    normal = -0.5 * test.square().sum(1) - 1.5 * math.log(2 * math.pi)
    assert float((train.log_prob(test) - normal).mean()) > -0.02


def test_gaps_do_not_hide_dependence():
    x = correlated(3000)
    x[torch.rand(x.shape, generator=generator(5)) < 0.2] = torch.nan
    train, _ = fit(x)
    test = correlated(3000, seed=1)
    gain = train.log_prob(test) - sum(train.marginal([k]).log_prob(test[:, [k]]) for k in (0, 1))
    assert float(gain.mean()) > 0.38


def test_order_puts_neighbors_side_by_side():
    u = torch.rand(5000, 4, generator=generator())
    u[:, 3] = (u[:, 0] + 0.1 * u[:, 3]) / 1.1
    u[:, 1] = (u[:, 3] + 0.2 * u[:, 1]) / 1.2
    order = chain_order(u)
    assert "".join(map(str, order)).strip("2") in ("031", "130")


def test_penalty_is_the_integral_of_squared_derivatives():
    """In one column by quadrature of derivatives, which autograd has."""
    bases = make_bases([LINE], torch.zeros(1, 1), 5, [None])
    learner = LearningTrain(bases, 3, 2, 1.0, generator())
    mixers, loadings, end = [
        p.detach() if torch.is_tensor(p) else [q.detach() for q in p] for p in learner.tensors()
    ]
    log_mass, rough = learner._integrals(mixers, loadings, end)
    mass = log_mass.exp()
    u = ((torch.arange(4000) + 0.5) / 4000).double().requires_grad_()
    e = bases[0].values(torch.special.ndtri(u))
    psi = (e.float() @ loadings[0].T * mixers[0]) @ end
    slopes = [torch.autograd.grad(part.sum(), u, retain_graph=True)[0] for part in psi.T]
    expected = torch.stack(slopes).square().sum(0).mean()
    assert float(mass) == pytest.approx(float(psi.detach().square().sum(1).mean()), rel=1e-4)
    assert float(rough * mass) == pytest.approx(float(expected), rel=1e-3)


def test_rare_values_have_more_resolution_than_mass():
    x = torch.cat([torch.rand(9500, generator=generator()), 5 + torch.rand(500)]).double()
    knots = resolution_knots(x, lambda at: (x <= at[:, None]).double().mean(1), 50)
    assert (knots.diff() > 0).all()
    assert knots[:, 0].tolist() == [0, 0]
    assert knots[:, -1].tolist() == [1, 1]
    at = torch.searchsorted(knots[0], torch.tensor(0.9499, dtype=torch.float64))
    assert 1 - float(knots[1, at]) > 0.1  # 5 % of the mass
