"""What is kept of a density belongs to the density as it is, and goes with it."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
import torch

from qaffde import QAFFDE
from qaffde.nn import (
    BornDensity,
    BoxMeasure,
    DefensiveDensity,
    FourierFeatures,
    GaussianMeasure,
    StandardizedDensity,
    expand,
    find_born,
)
from qaffde.nn.scoring import compiled_score

X = np.random.default_rng(0).normal(size=(300, 2))
EYE = torch.eye(2, dtype=torch.float64)


def density_of(kind="lattice"):
    h = 0.6 * EYE.sum(0)
    generator = torch.Generator().manual_seed(0)
    features = FourierFeatures.draw(kind, 60, h, 12 * h, generator)
    factor = torch.randn(5, features.n_features, generator=generator, dtype=torch.float64)
    box = BoxMeasure(-2 * EYE.sum(0), 3 * EYE.sum(0))
    inner = DefensiveDensity(BornDensity(features, factor, box), 1e-3, EYE[0], 9 * EYE)
    return StandardizedDensity(inner, EYE[1], 2 * EYE.sum(0)).requires_grad_(False)


def answers(density):
    """What every way to use a density says of it."""
    x = torch.linspace(-2, 4, 12, dtype=torch.float64).reshape(6, 2)
    mixture = expand(density)
    return (
        density.log_prob(x),
        compiled_score(density)(x),
        torch.as_tensor(compiled_score(density).of_few(x[:3].numpy())),
        mixture.log_prob(x),
        mixture.mean(),
        find_born(density).log_normalizer(),
        find_born(density).sample((5,), torch.Generator().manual_seed(0)),
    )


def change_factor(density):
    with torch.no_grad():
        find_born(density).factor[0] += 1.0


def replace_factor(density):
    factor = find_born(density).factor.detach().flip(1)
    find_born(density).state.factor = torch.nn.Parameter(factor, requires_grad=False)


def change_data(density):
    find_born(density).factor.data = find_born(density).factor.detach().flip(1)


def replace_measure(density):
    find_born(density).measure = GaussianMeasure(EYE[0, :1], EYE[:1], 2 * EYE[None])


def change_epsilon(density):
    density.density.epsilon = 0.5


def change_frequencies(density):
    find_born(density).features.W.mul_(0.5)


def unwrap(density):
    density.density = find_born(density)


def change_units(density):
    density.scale = 3 * density.scale


CHANGES = (
    change_factor,
    replace_factor,
    change_data,
    replace_measure,
    change_epsilon,
    change_frequencies,
    unwrap,
    change_units,
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_seen_by_every_method(change):
    density = density_of()
    before = answers(density)
    change(density)
    after = answers(density)
    fresh = answers(copy.deepcopy(density))
    for found, expected in zip(after, fresh, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert not torch.allclose(before[0], after[0])
    assert not torch.allclose(before[4], after[4])


def test_values_are_computed_once_while_nothing_changes():
    density = density_of()
    assert expand(density) is expand(density)
    assert compiled_score(density) is compiled_score(density)
    assert find_born(density).series() is find_born(density).series()


def test_a_replaced_module_is_seen_even_if_it_takes_the_place_in_memory():
    density = density_of()
    for shift in range(50):
        box = BoxMeasure(-2 * EYE.sum(0), (3 + shift) * EYE.sum(0))
        find_born(density).measure = box
        expected = copy.deepcopy(density).log_prob(EYE)
        torch.testing.assert_close(compiled_score(density)(EYE), expected, rtol=0, atol=1e-10)


def test_values_have_no_gradients_and_learning_keeps_none():
    born = find_born(density_of()).requires_grad_()
    first = born.log_normalizer()
    assert first.requires_grad
    assert born.log_normalizer() is not first
    assert born.series() is None
    assert not expand(born).log_mass.requires_grad
    with torch.no_grad():
        assert not born.log_normalizer().requires_grad


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
def test_copies_start_empty(clone):
    density = density_of()
    expected = answers(density)
    size = len(pickle.dumps(clone(density_of())))
    copied = clone(density)
    assert all("_derived" not in vars(module) for module in copied.modules())
    assert size == len(pickle.dumps(copied))
    change_factor(density)
    for found, value in zip(answers(copied), expected, strict=True):
        torch.testing.assert_close(found, value, rtol=0, atol=1e-12)


def test_a_density_is_freed_when_it_is_dropped():
    density = density_of()
    answers(density)
    kept = [weakref.ref(density), weakref.ref(expand(density)), weakref.ref(find_born(density))]
    gc.disable()
    try:
        del density
        assert [reference() for reference in kept] == [None] * 3
    finally:
        gc.enable()


def test_marginals_and_conditionals_are_freed_with_their_models():
    model = QAFFDE(n_features=40, bandwidth=0.5, base_measure="gaussian", random_state=0).fit(X)
    derived = [model.marginal([0]), model.condition({0: 0.5}), model.marginal([1, 0])]
    for density in derived:
        density.mean()
        density.sample(3)
        density.score_samples(X[:, : density.n_features_in_])
    references = [weakref.ref(density.density_) for density in derived]
    references.append(weakref.ref(model.density_))
    del derived, density, model
    gc.collect()
    assert [reference() for reference in references] == [None] * 4


@pytest.mark.parametrize("base_measure", ["box", "gaussian"])
def test_estimators_answer_with_the_density_that_they_have(base_measure, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="it is in the extra 'onnx'")
    options = {"n_features": 40, "bandwidth": 0.5, "random_state": 0}
    model = QAFFDE(**options, base_measure=base_measure).fit(X)

    def told(model):
        model.to_onnx(tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        return (
            model.score_samples(X),
            model.score_samples(X[:1]),
            model.mean(),
            model.sample(20, random_state=0),
            model.marginal([1]).mean(),
            model.condition({0: 0.3}).mean(),
            session.run(None, {"X": X})[0],
        )

    before = told(model)
    with torch.no_grad():
        find_born(model.density_).factor[0] *= 4.0
        model.density_.location += 0.25
    after, fresh = told(model), told(pickle.loads(pickle.dumps(model)))
    for old, found, expected in zip(before, after, fresh, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
        assert not np.allclose(old, found)
