"""Flows that are given a context."""

import pytest
import torch

pytest.importorskip("zuko", reason="flows need the extra 'flows'")

from experiments.models.made import MADE
from experiments.models.planar import Planar
from experiments.models.predecessors import IAF
from qaffde.baselines import MAF, NSF, RealNVP

FLOWS = {flow.__name__: flow(2, 8, 1) for flow in (MADE, MAF, RealNVP, NSF, IAF)}
AXIS = torch.linspace(-12, 12, 201, dtype=torch.float64)


@pytest.fixture(params=FLOWS)
def density(request):
    torch.manual_seed(0)
    return FLOWS[request.param]._build(2, 3).double()


def given(label, n):
    return torch.eye(3, dtype=torch.float64)[label].expand(n, -1)


@torch.no_grad()
def test_the_density_at_each_context_has_mass_one(density):
    grid = torch.cartesian_prod(AXIS, AXIS)
    log_p = [density.log_prob(grid, given(label, len(grid))) for label in range(3)]
    for values in log_p:
        assert float(values.exp().sum() * (AXIS[1] - AXIS[0]) ** 2) == pytest.approx(1, abs=1e-3)
    assert not torch.allclose(log_p[0], log_p[1])


@torch.no_grad()
def test_draws_follow_their_context(density):
    grid = torch.cartesian_prod(AXIS, AXIS)
    for label in range(2):
        p = density.log_prob(grid, given(label, len(grid))).exp()
        mean = (p / p.sum()) @ grid
        drawn = density.sample(4000, torch.Generator().manual_seed(0), given(label, 4000))
        assert torch.allclose(drawn.mean(0), mean, atol=5 * float(drawn.std()) / 4000**0.5)


def test_a_planar_flow_takes_no_context():
    with pytest.raises(ValueError, match="planar flow takes no context; use MADE, MAF, RealNVP"):
        Planar()._build(2, 3)
