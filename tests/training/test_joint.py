"""A state that learns together with what is around it: one density, with and without the ridge."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.distributions import AffineTransform
from torch.func import functional_call

from qaffde.nn import (
    BoxMeasure,
    DensityMatrix,
    FourierFeatures,
    GaussianMeasure,
    KernelMeasure,
    TransformedDensity,
)
from qaffde.training import LoopConfig
from qaffde.training.joint import LearnedBorn, train_jointly
from qaffde.training.likelihood import whiten
from qaffde.training.run import Run

DOUBLE = torch.float64
ENDS = torch.tensor([[-4.0], [4.0]], dtype=DOUBLE)
H = torch.tensor([1.5], dtype=DOUBLE)
ONE = torch.ones(1, dtype=DOUBLE)
MEASURES = {
    "box": BoxMeasure(*ENDS),
    "gaussian": GaussianMeasure(ONE, 0 * ONE[None], 2 * ONE[None, None]),
    "kernel": KernelMeasure(H),
}
EXACT = ["box", "gaussian"]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(n, seed=0):
    """Three narrow bumps, finer than the features of the start."""
    centres = torch.tensor([-1.5, 0.0, 1.5], dtype=DOUBLE)
    chosen = torch.randint(3, (n,), generator=seeded(seed))
    noise = 0.15 * torch.randn(n, generator=seeded(seed + 1), dtype=DOUBLE)
    return (centres[chosen] + noise)[:, None]


def space_on(measure, ridge=0.02, n_features=16):
    features = FourierFeatures.draw("paired", n_features, H, None, seeded())
    return whiten(features, MEASURES[measure], ridge, 1e-5)


def learned(measure="box", ridge=0.02):
    space = space_on(measure, ridge)
    state = DensityMatrix.draw(len(space.level), 3, seeded(2)).double()
    return space, state, LearnedBorn(space, state)


def fit(space, state, max_steps=300, around=lambda born: born):
    ones = torch.ones(500, dtype=DOUBLE)
    config = LoopConfig(
        max_steps=max_steps, batch_size=250, learning_rate=0.02, eval_every=25, clip_norm=10.0
    )
    data, valid = (rows(500), ones), (rows(500, seed=10), ones)
    return train_jointly(space, state, around, data, valid, config, seeded(), Run())[0]


@pytest.mark.parametrize("measure", MEASURES)
def test_it_starts_as_the_density_of_its_state(measure):
    space, state, born = learned(measure)
    x = rows(20)
    with torch.no_grad():
        assert torch.allclose(born.eval()(x), space.density(state)(x))


@pytest.mark.parametrize("measure", EXACT)
def test_while_training_it_is_less_the_penalty_of_the_ridge(measure):
    space, _, born = learned(measure)
    x, L = rows(20), born.state.factor @ space.transform.T
    G = space.measure.gram(space.features)
    penalty = torch.log1p(space.ridge * L.square().sum() / (L @ G @ L.T).trace())
    assert penalty > 1e-3
    assert torch.allclose(born.train()(x), born.eval()(x) - penalty)


def test_while_training_it_is_the_objective_of_the_convex_problem():
    space, state, born = learned()
    x = rows(20)
    convex = state(space.features(x) @ space.transform) + space.measure.log_density(x)
    assert torch.allclose(born.train()(x), convex)


def test_the_paper_form_has_no_ridge():
    _, _, born = learned("kernel")
    x = rows(20)
    assert torch.equal(born.train()(x), born.eval()(x))


def test_the_paper_form_does_not_grow_with_its_factor():
    _, _, born = learned("kernel")
    x = rows(20)
    before = born(x)
    with torch.no_grad():
        born.state.factor.mul_(7)
    assert torch.allclose(born(x), before)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("measure", MEASURES)
def test_gradients_are_those_of_finite_differences(measure, mode):
    _, _, born = learned(measure)
    getattr(born, mode)()
    parameters = {name: p for name, p in born.named_parameters() if p.requires_grad}
    assert list(parameters) == ["state.factor"]

    def call(x, *values):
        return functional_call(born, dict(zip(parameters, values, strict=True)), (x,))

    assert gradcheck(call, (rows(2).requires_grad_(), *parameters.values()))


@pytest.mark.parametrize("max_steps", [1, 100])
@pytest.mark.parametrize("measure", EXACT)
def test_what_was_learned_has_mass_one(measure, max_steps, legendre):
    space, state, _ = learned(measure)
    seen = []
    density = fit(space, state, max_steps, lambda born: seen.append(born) or born)
    x, volume = legendre(*(ENDS if measure == "box" else 4 * ENDS), 400)
    with torch.no_grad():
        exact = density(x).exp() @ volume
        quick = seen[0].float().eval()(x.float()).exp().double() @ volume
    assert exact.item() == pytest.approx(1, abs=1e-9)
    assert quick.item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_density_is_that_of_eval_mode_in_full_precision(measure):
    space, state, _ = learned(measure)
    seen = []
    density = fit(space, state, 50, lambda born: seen.append(born) or born)
    x = rows(200)
    with torch.no_grad():
        assert torch.allclose(density(x), seen[0].double().eval()(x), atol=1e-4)
    assert {p.dtype for p in density.state_dict().values()} == {DOUBLE}


@pytest.mark.parametrize("measure", MEASURES)
def test_training_raises_the_likelihood_of_fresh_rows(measure):
    space, state, _ = learned(measure)
    fresh = rows(2000, seed=20)
    with torch.no_grad():
        before = space.density(state)(fresh).mean()
        after = fit(space, state)(fresh).mean()
    assert after > before + 0.1


class Shift(torch.nn.Module):
    """Learnable map x ↦ x + shift."""

    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.full((1,), 0.7, dtype=DOUBLE))

    def forward(self):
        return AffineTransform(self.shift, 1.0, event_dim=1)


def test_an_encoder_around_the_density_learns_with_it():
    space, state, _ = learned()
    encoder = Shift()
    fit(space, state, 50, lambda born: TransformedDensity(born, encoder))
    assert encoder.shift.item() != pytest.approx(0.7, abs=1e-3)
    assert encoder.shift.dtype == DOUBLE


def test_the_start_is_left_as_it_was():
    space, state, _ = learned()
    factor, lower = state.factor.clone(), space.measure.lower
    fit(space, state, 5)
    assert torch.equal(state.factor, factor)
    assert space.measure.lower is lower
    assert space.measure.lower.dtype == DOUBLE
    assert space.features.W.dtype == DOUBLE
