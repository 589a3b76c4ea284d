"""Maximum likelihood: whitened coordinates, the ridge's identity, and what convexity promises."""

import pytest
import torch

from qaffde.nn import (
    BoxMeasure,
    DensityMatrix,
    FourierFeatures,
    GaussianMeasure,
    KernelMeasure,
)
from qaffde.training import TrainingConfig, likelihood, negative_log_likelihood
from qaffde.training.likelihood import (
    SOLVERS,
    approximate_state,
    expectation,
    maximize_likelihood,
    state_likelihood,
    whiten,
)
from qaffde.training.run import Run

DOUBLE = torch.float64


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(n=400, seed=0):
    """Two bumps between −2 and 2, in random order."""
    noise = 0.25 * torch.randn(n, 1, generator=seeded(seed), dtype=DOUBLE)
    side = torch.where(torch.rand(n, 1, generator=seeded(seed + 1)) < 0.4, -0.8, 0.9)
    return (noise + side).clamp(-2, 2)


def mixture(size):
    weights = torch.full((size,), 1 / size, dtype=DOUBLE)
    means = torch.linspace(-0.8, 0.8, size, dtype=DOUBLE)[:, None]
    return GaussianMeasure(weights, means, torch.full((size, 1, 1), 0.7, dtype=DOUBLE))


MEASURES = {
    "box": BoxMeasure(*torch.tensor([[-2.0], [2.0]], dtype=DOUBLE)),
    "gaussian": mixture(1),
    "mixture": mixture(2),
}
Z = rows()
ONES = torch.ones(len(Z), dtype=DOUBLE)


def space_on(measure="box", ridge=0.01, kind="lattice", n_features=15, tolerance=1e-10):
    h, period = torch.tensor([[0.5], [6.0]], dtype=DOUBLE)
    features = FourierFeatures.draw(kind, n_features, h, period, seeded())
    return whiten(features, MEASURES[measure], ridge, tolerance)


def state_of(space, rank=4, seed=3):
    return DensityMatrix.draw(len(space.level), rank, seeded(seed))


def solve(space, state, solver="lbfgs", max_iter=100, Z=Z, weight=ONES, run=None, **options):
    config = TrainingConfig(solver=solver, max_iter=max_iter, **options)
    return maximize_likelihood(space, state, Z, weight, config, seeded(), run or Run())


def loss(space, state, Z=Z, weight=ONES):
    with torch.no_grad():
        return float(negative_log_likelihood(state, space.coordinates(Z), weight.float()))


def coordinates_by_quadrature(space, legendre):
    """Coordinates at nodes, and the measure's mass of each."""
    x, volume = legendre(*torch.tensor([[-2.0], [2.0]], dtype=DOUBLE), 100)
    if not isinstance(space.measure, BoxMeasure):
        x, volume = legendre(*torch.tensor([[-9.0], [9.0]], dtype=DOUBLE), 300)
    return space.features(x) @ space.transform, space.measure.log_density(x).exp() * volume


# Whitening


@pytest.mark.parametrize("measure", MEASURES)
def test_coordinates_are_orthonormal_without_a_ridge(measure, legendre):
    E, mass = coordinates_by_quadrature(space_on(measure, ridge=0.0), legendre)
    assert E.shape[1] > 5
    assert torch.allclose(E.T @ (E * mass[:, None]), torch.eye(E.shape[1], dtype=DOUBLE))


@pytest.mark.parametrize("measure", MEASURES)
def test_a_ridge_shrinks_coordinates_by_its_share_of_their_level(measure, legendre):
    space = space_on(measure, ridge=0.05)
    E, mass = coordinates_by_quadrature(space, legendre)
    expected = (1 - space.ridge / space.level).diag()
    assert torch.allclose(E.T @ (E * mass[:, None]), expected, atol=1e-10)
    G = space.measure.gram(space.features)
    assert space.ridge == pytest.approx(0.05 * torch.linalg.eigvalsh(G)[-1].item())
    T, ridged = space.transform, G + space.ridge * torch.eye(len(G), dtype=DOUBLE)
    assert torch.allclose(T.T @ ridged @ T, torch.eye(T.shape[1], dtype=DOUBLE), atol=1e-10)


def test_features_that_the_ridge_outweighs_are_dropped():
    stiff, soft = space_on(ridge=0.5, n_features=41), space_on(ridge=1e-6, n_features=41)
    assert stiff.features.n_features < soft.features.n_features
    assert len(stiff.level) < len(soft.level)


def test_directions_below_the_tolerance_are_dropped():
    fine, rough = (space_on(ridge=0.0, n_features=31, tolerance=t) for t in (1e-10, 1e-2))
    assert len(rough.level) < len(fine.level)
    assert rough.level.min() >= 1e-2 * rough.level.max()


def test_coordinates_are_computed_block_by_block_in_single_precision():
    space, many = space_on(), rows(5000)
    E = space.coordinates(many)
    assert E.dtype == torch.float32
    assert torch.allclose(E.double(), space.features(many) @ space.transform, atol=1e-4)
    assert space.features.W.dtype == DOUBLE


@pytest.mark.parametrize("ridge", [0.0, 0.05])
@pytest.mark.parametrize("measure", MEASURES)
def test_the_quick_density_is_the_exact_one_to_single_precision(measure, ridge):
    space = space_on(measure, ridge, tolerance=1e-4)
    state = state_of(space)
    exact = space.density(state)
    with torch.no_grad():
        quick = space.log_square(state, space.values(Z)) + space.measure.log_density(Z)
        assert torch.allclose(quick, exact(Z), atol=2e-3)
    assert exact.log_normalizer().item() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_what_is_maximised_is_the_likelihood_less_the_penalty(measure):
    space = space_on(measure, ridge=0.05)
    state = state_of(space).double()
    density = space.density(state)
    with torch.no_grad():
        L, G = density.factor, space.measure.gram(space.features)
        penalty = torch.log1p(space.ridge * L.square().sum() / (L @ G @ L.T).trace())
        born = state(space.features(Z) @ space.transform)
        expected = density(Z) - space.measure.log_density(Z) - penalty
        assert penalty > 0.01
        assert torch.allclose(born, expected)


def test_the_start_is_the_closed_form():
    """Algorithm 2: ρ of the data, read in the coordinates of G^{−1/2}."""
    space = space_on(ridge=0.0, tolerance=1e-3)
    state = space.start(Z, ONES, rank=len(space.level))
    lam, U = torch.linalg.eigh(space.measure.gram(space.features))
    keep = lam > 1e-3 * lam.max()
    root = U[:, keep] * lam[keep].rsqrt() @ U[:, keep].T
    phi = space.features(Z) @ root
    rho = space.features(Z).T @ space.features(Z)
    P = U[:, keep] @ U[:, keep].T
    expected = torch.einsum("ni,ij,nj->n", phi, P @ rho @ P, phi) / (P @ rho).trace()
    with torch.no_grad():
        log_p = space.density(state)(Z) - space.measure.log_density(Z)
    assert torch.allclose(log_p.exp(), expected, rtol=1e-3)


def test_a_start_of_low_rank_keeps_the_leading_states():
    space = space_on()
    full, low = (space.start(Z, ONES, rank).spectrum() for rank in (len(space.level), 3))
    assert torch.allclose(low, full[:3] / full[:3].sum(), atol=1e-5)


def test_the_paper_form_is_not_whitened():
    h = torch.tensor([0.5], dtype=DOUBLE)
    features = FourierFeatures.draw("random", 20, h, None, seeded())
    space = whiten(features, KernelMeasure(h), 0.3, 1e-7)
    state = state_of(space)
    density = space.density(state)
    with torch.no_grad():
        assert torch.allclose(space.coordinates(Z), features(Z).float(), atol=1e-6)
        assert torch.linalg.norm(density.factor).item() == pytest.approx(1)
        log_mass = 0.5 * torch.log(2 * torch.pi * h.square()).sum()
        assert torch.allclose(density(Z), state.double()(features(Z)) - log_mass)


# Convexity


def gap(space, state):
    """Upper bound λ_max(R) − 1 of what the best state can gain, R = mean of eeᵀ / eᵀσe."""
    with torch.no_grad():
        E = space.coordinates(Z).double()
        A = state.factor.double() / torch.linalg.norm(state.factor.double())
        R = E.T @ (E / (E @ A.T).square().sum(1, keepdim=True)) / len(E)
    return torch.linalg.eigvalsh(R)[-1].item() - 1


ITERATIONS = {"lbfgs": 60, "adam": 300}


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_reaches_the_optimum_from_a_random_start(solver):
    space = space_on()
    state = state_of(space, rank=8)
    before = gap(space, state)
    solve(space, state, solver, ITERATIONS[solver])
    assert gap(space, state) < 0.005 < before


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_reaches_the_same_likelihood(solver):
    space = space_on()
    state, best = space.start(Z, ONES, 8), space.start(Z, ONES, 8)
    solve(space, best)
    solve(space, state, solver, ITERATIONS[solver])
    assert loss(space, state) == pytest.approx(loss(space, best), abs=5e-4)


def test_the_maximum_beats_the_closed_form_on_its_rows():
    space = space_on(ridge=1e-6)
    state = space.start(Z, ONES, 8)
    with torch.no_grad():
        before = space.density(state)(Z).mean()
        history = solve(space, state)
        after = space.density(state)(Z).mean()
    assert after > before + 0.02
    assert history.stopped_by == "max_steps"


@pytest.mark.parametrize("solver", SOLVERS)
def test_weights_are_repeated_rows(solver):
    space = space_on()
    weight = torch.arange(len(Z), dtype=DOUBLE) % 3 + 1
    repeated = Z.repeat_interleave(weight.long(), dim=0)
    starts = [space.start(Z, weight / weight.mean(), 6)]
    starts += [space.start(repeated, torch.ones(len(repeated)), 6)]
    assert torch.allclose(starts[0].spectrum(), starts[1].spectrum(), atol=1e-5)
    solve(space, starts[0], solver, ITERATIONS[solver], weight=weight / weight.mean())
    solve(space, starts[1], solver, ITERATIONS[solver], repeated, torch.ones(len(repeated)))
    with torch.no_grad():
        weighted, plain = (space.density(state)(Z) for state in starts)
    assert weight @ (weighted - plain) / weight.sum() == pytest.approx(0, abs=2e-3)
    assert (weighted - plain).abs().mean() < 0.03


def test_same_seed_same_state():
    space = space_on()
    states = [state_of(space) for _ in range(2)]
    for state in states:
        solve(space, state, "adam", 20)
    assert torch.equal(*(state.factor for state in states))


def test_rows_beyond_memory_are_taken_in_parts(monkeypatch):
    space = space_on()
    monkeypatch.setattr(likelihood, "MAX_COORDINATES", 100 * space.features.n_features)
    losses = {}
    for epochs in (1, 100):
        state = space.start(Z, ONES, 6)
        solve(space, state, polish_epochs=epochs)
        losses[epochs] = loss(space, state)
    monkeypatch.undo()
    whole = space.start(Z, ONES, 6)
    solve(space, whole)
    assert losses[100] == pytest.approx(loss(space, whole), abs=5e-3)
    assert losses[1] > losses[100] + 5e-3  # what a hundred rows alone lead to


class Stopped(Run):
    """Run that is interrupted after two evaluations."""

    def loop_arguments(self, stage, max_steps):
        return super().loop_arguments(stage, max_steps) | {"report": self.count}

    def count(self, history):
        if len(history.steps) == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_interrupted_state_is_a_density(solver, legendre):
    space = space_on(ridge=0.02)
    state = state_of(space)
    with pytest.raises(KeyboardInterrupt):
        solve(space, state, solver, 400, run=Stopped())
    x, volume = legendre(*torch.tensor([[-2.0], [2.0]], dtype=DOUBLE), 100)
    with torch.no_grad():
        assert (space.density(state)(x).exp() @ volume).item() == pytest.approx(1, abs=1e-9)


# A few iterations, to judge a candidate


@pytest.mark.parametrize("weight", [ONES, torch.linspace(0.1, 1.9, len(Z), dtype=DOUBLE)])
def test_the_expectation_has_its_gradient(weight):
    E = torch.randn(50, 6, generator=seeded(), dtype=DOUBLE)
    A = torch.randn(3, 6, generator=seeded(1), dtype=DOUBLE, requires_grad=True)
    expected = (weight[:50] @ (E @ A.T).square().sum(1).log()) / 50
    value, gradient = expectation(A.detach(), E, weight[:50])
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, A)[0])


@pytest.mark.parametrize("measure", MEASURES)
def test_a_few_iterations_come_near_the_solution_and_change_no_start(measure):
    space = space_on(measure)
    start, phi, E = state_of(space), space.values(Z), space.coordinates(Z)
    weight = torch.linspace(0.1, 1.9, len(Z), dtype=DOUBLE)
    before = start.factor.detach().clone()
    losses = [
        state_likelihood(approximate_state(space, start, phi, weight, n), E, weight.to(E)).item()
        for n in (1, 5, 20, 200)
    ]
    assert torch.equal(start.factor, before)
    assert losses == sorted(losses, reverse=True)
    state = state_of(space)
    solve(space, state, max_iter=200, weight=weight)
    best = state_likelihood(state.to(E.dtype), E, weight.to(E)).item()
    assert losses[-1] == pytest.approx(best, abs=1e-3)
    assert losses[2] < best + 0.05
