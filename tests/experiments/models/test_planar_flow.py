"""The planar flow against an independent computation."""

import pytest
import torch

from experiments.models.planar import PlanarDensity, solve_increasing

N = torch.distributions.Normal(0.0, 1.0)


@pytest.fixture(params=[1, 2, 5], ids=lambda d: f"{d} columns")
def density(request):
    torch.manual_seed(3)
    density = PlanarDensity(request.param, 7).double()
    with torch.no_grad():
        for parameter in density.parameters():
            parameter.normal_(0, 2)  # far from the start, where w·u is far below -1, too
    return density


@pytest.fixture
def x(density):
    return torch.randn(25, density.n_dims, dtype=torch.float64)


def test_log_density_is_the_change_of_variables(density, x):
    for point in x:
        z = density.to_base(point[None])[0][0]
        jacobian = torch.autograd.functional.jacobian(
            lambda p: density.to_base(p[None])[0][0], point
        )
        expected = N.log_prob(z).sum() + jacobian.det().abs().log()
        assert torch.allclose(density.log_prob(point[None])[0], expected)


def test_inverse_after_forward_is_the_identity(density, x):
    assert torch.allclose(density.to_data(density.to_base(x)[0]), x, atol=1e-8)
    assert torch.allclose(density.to_base(density.to_data(x))[0], x, atol=1e-8)


def test_maps_are_those_of_the_paper_one_after_another(density, x):
    directions, _ = density.directions()
    z = x
    for u, w, b in zip(directions, density.w, density.b, strict=True):
        z = torch.stack([row + u * torch.tanh(w @ row + b) for row in z])
    assert torch.allclose(density.to_base(x)[0], z)


def test_the_direction_is_constrained_so_that_no_map_folds():
    density = PlanarDensity(2, 1).double()
    with torch.no_grad():
        density.w.copy_(torch.tensor([[2.0, 1.0]]))
        density.u.copy_(torch.tensor([[-30.0, 3.0]]))
    (u,), slope = density.directions()
    w = density.w[0]
    assert torch.allclose(w @ u, torch.log1p((w @ density.u[0]).exp()) - 1)
    assert slope > 0
    line = torch.linspace(-2, 2, 999, dtype=torch.float64)[:, None] * w
    image, log_det = density.to_base(line)
    assert ((image @ w).diff() > 0).all()
    assert log_det.isfinite().all()


@pytest.mark.parametrize("m", [-1 + 1e-12, -0.99, -0.5, 0.0, 1.0, 50.0])
def test_the_solver_finds_the_root_everywhere(m):
    alpha = torch.cat([torch.linspace(-60, 60, 1001), torch.tensor([0.0, 1e-3, -1e-3, 1e6])])
    alpha, m = alpha.double(), torch.tensor(m, dtype=torch.float64)
    beta = alpha + m * alpha.tanh()
    found = solve_increasing(beta, m)
    assert torch.allclose(found + m * found.tanh(), beta, atol=1e-12, rtol=1e-12)


def test_gradients(density, x):
    assert torch.autograd.gradcheck(density.log_prob, x[:3].requires_grad_())
