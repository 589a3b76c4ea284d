"""Features learned together with the state: one density, with and without the ridge."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import functional_call

from qaffde.nn import BoxMeasure, DensityMatrix, FourierFeatures, GaussianMeasure, KernelMeasure
from qaffde.training import LoopConfig, negative_log_likelihood, train
from qaffde.training.joint import LearnedBorn
from qaffde.training.likelihood import maximise_likelihood, whiten

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


def fit(born, max_steps=300, **options):
    X, valid = rows(500).float(), rows(500, seed=10).float()
    ones = torch.ones(500)
    settings = {"max_steps": max_steps, "batch_size": 250, "learning_rate": 0.02}
    settings |= {"eval_every": 25, "clip_norm": 10.0} | options
    config = LoopConfig(**settings)
    born.float()
    return train(born, negative_log_likelihood, (X, ones), (valid, ones), config, seeded())


@pytest.mark.parametrize("measure", MEASURES)
def test_it_starts_as_the_density_of_its_state(measure):
    space, state, born = learned(measure)
    x = rows(20)
    with torch.no_grad():
        assert torch.allclose(born.eval()(x), space.density(state)(x))


@pytest.mark.parametrize("measure", EXACT)
def test_while_training_it_is_less_the_penalty_of_the_ridge(measure):
    space, _, born = learned(measure)
    x, L = rows(20), born.factor
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
    parameters = dict(born.named_parameters())
    assert len(parameters) == 3

    def call(x, *values):
        return functional_call(born, dict(zip(parameters, values, strict=True)), (x,))

    assert gradcheck(call, (rows(2).requires_grad_(), *parameters.values()))


@pytest.mark.parametrize("max_steps", [1, 100])
@pytest.mark.parametrize("measure", EXACT)
def test_what_was_learned_has_mass_one(measure, max_steps, legendre):
    space, _, born = learned(measure)
    fit(born, max_steps)
    x, volume = legendre(*(ENDS if measure == "box" else 4 * ENDS), 400)
    with torch.no_grad():
        exact = born.density(space)(x).exp() @ volume
        quick = born.eval()(x.float()).exp().double() @ volume
    assert exact.item() == pytest.approx(1, abs=1e-9)
    assert quick.item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_density_is_that_of_eval_mode_in_full_precision(measure):
    space, _, born = learned(measure)
    fit(born, 50)
    density = born.density(space)
    x = rows(200)
    with torch.no_grad():
        assert torch.allclose(density(x), born.eval()(x.float()).double(), atol=1e-2)
        assert torch.allclose(density(x), born.double().eval()(x), atol=1e-4)
    assert {p.dtype for p in density.state_dict().values()} == {DOUBLE}
    assert not density.features.W.requires_grad


def test_the_start_is_left_as_it_was():
    space, state, born = learned()
    factor, lower = state.factor.clone(), space.measure.lower
    fit(born, 5)
    assert torch.equal(state.factor, factor)
    assert space.measure.lower is lower
    assert space.measure.lower.dtype == DOUBLE
