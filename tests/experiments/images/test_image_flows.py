"""Flows of images: noise, logits, Jacobians, and Bayes' rule."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import one_hot

pytest.importorskip("zuko", reason="flows need the extra 'flows'")

from experiments.images.flows import ImageFlowClassifier
from experiments.images.pixels import LEVELS, PixelDensity, logits, pixel_scales
from experiments.models.class_flows import class_flow
from experiments.models.made import MADE
from qaffde.baselines import MAF, RealNVP
from qaffde.training import TrainingConfig

RNG = np.random.default_rng(0)
DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS / 16
FEW = LABELS < 3
X, y = DIGITS[FEW], np.array(["zero", "one", "two"])[LABELS[FEW]]
SHORT = {"training": TrainingConfig(max_steps=20, batch_size=64, learning_rate=5e-3)}
FLOWS = {
    "MADE": MADE(1, 16, 1, **SHORT),
    "MAF": MAF(2, 16, 1, **SHORT),
    "RealNVP": RealNVP(2, 16, 1, **SHORT),
}


@pytest.mark.parametrize("name", FLOWS)
def test_digits_are_told_apart(name):
    model = ImageFlowClassifier(FLOWS[name], alpha=0.01, random_state=0).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.9
    assert "density_" not in vars(FLOWS[name])


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_for_each_class_tells_digits_apart_too(name):
    model = ImageFlowClassifier(FLOWS[name], alpha=0.01, shared=False, random_state=0)
    assert model.fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.9


def test_a_flow_for_each_class_learns_from_its_own_rows_alone():
    density = class_flow(MAF(1, 8, 1), 3, 4, shared=False)
    labels = torch.tensor([2, 0, 2, 1, 2])  # none of the last class
    rows, context = torch.randn(5, 3), one_hot(labels, 4).float()
    scores = density.log_prob(rows, context)
    for row, label, score in zip(rows, labels, scores, strict=True):
        torch.testing.assert_close(density.flows[label].log_prob(row[None])[0], score)
    scores[labels == 2].sum().backward()
    learns = [
        any(p.grad is not None and p.grad.any() for p in flow.parameters())
        for flow in density.flows
    ]
    assert learns == [False, False, True, False]
    drawn = density.sample(5, torch.Generator().manual_seed(0), context)
    one = density.flows[0].sample(1, torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn[1:2], one)  # the first class is drawn first
    with pytest.raises(ValueError, match="needs the classes"):
        density.log_prob(rows)


def test_densities_of_all_noisy_bytes_are_a_mass_and_scores_bound_it():
    """One pixel has 256 images; over the noise, their densities integrate to one."""
    bytes_ = RNG.binomial(255, np.repeat([0.1, 0.6], 200))[:, None]
    flow = MADE(2, 8, 1, training=TrainingConfig(max_steps=10, batch_size=64))
    model = ImageFlowClassifier(flow, alpha=0.02, random_state=0)
    model.fit(bytes_ / 255, np.repeat([0, 1], 200))
    every = np.arange(LEVELS)[:, None] / 255
    scores = []
    for noise in torch.linspace(0.05, 0.95, 10):
        model.density_.noise = noise.reshape(1, 1)
        scores.append(model.log_density(every))
    assert np.exp(scores).mean((0, 1)) == pytest.approx(np.ones(2), abs=5e-3)
    model.density_.noise = torch.linspace(0.05, 0.95, 10)[:, None]
    bound = model.log_density(every)
    np.testing.assert_allclose(bound, np.mean(scores, 0), rtol=1e-5, atol=1e-5)
    assert (bound <= np.log(np.exp(scores).mean(0)) + 1e-6).all()


def test_slopes_are_derivatives():
    levels = torch.arange(LEVELS, dtype=torch.float64)[:, None]
    noise = torch.full_like(levels, 0.3, requires_grad=True)
    s, log_slope = logits(levels, noise, 0.05)
    [slope] = torch.autograd.grad(s.sum(), noise)
    torch.testing.assert_close(log_slope.exp(), slope * LEVELS)


def test_scales_are_those_of_each_class():
    levels = torch.tensor(RNG.integers(0, 256, (300, 4)), dtype=torch.uint8)
    levels[100:] //= 4
    classes = torch.tensor([0] * 100 + [1] * 200)
    mean, spread = pixel_scales(levels, classes, 2, 0.05, torch.Generator().manual_seed(0))
    s, _ = logits(levels, torch.rand(300, 4, generator=torch.Generator().manual_seed(0)), 0.05)
    torch.testing.assert_close(mean[1], s[100:].mean(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(spread[0], s[:100].std(0, correction=0), rtol=1e-4, atol=1e-4)


def test_noise_is_new_in_every_step_and_the_same_in_every_score():
    class Sum(torch.nn.Module):
        def log_prob(self, z, context):
            return z.sum(1)

    generator = torch.Generator().manual_seed(0)
    units = torch.zeros(2, 3), torch.ones(2, 3)
    density = PixelDensity(Sum(), *units, 0.05, 2, generator)
    levels, classes = torch.full((2, 3), 7, dtype=torch.uint8), torch.tensor([0, 0])
    assert density(levels, classes)[0] != density(levels, classes)[0]
    density.eval()
    first, second = density(levels, classes)
    assert first == second == density(levels[:1], classes[:1])[0]


def test_the_same_seed_gives_the_same_scores_and_a_row_its_own():
    flow = MAF(1, 8, 1, training=TrainingConfig(max_steps=3, batch_size=32))
    model, again = (ImageFlowClassifier(flow, random_state=1).fit(X, y) for _ in range(2))
    scores = model.log_density(X[:9])
    np.testing.assert_array_equal(scores, again.log_density(X[:9]))
    np.testing.assert_allclose(model.log_density(X[4:5]), scores[4:5], rtol=1e-5)
    joint = np.exp(scores - scores.max(1, keepdims=True)) * model.class_prior_
    np.testing.assert_allclose(model.predict_proba(X[:9]), joint / joint.sum(1, keepdims=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": X * 16}, r"X lies between 0 and 16; pixels must be in \[0, 1\]: divide bytes"),
        ({"y": np.zeros(len(X))}, r"y holds only the class \[0.0\]; at least two are needed"),
        ({"alpha": 2.0}, "alpha=2.0"),
        ({"n_draws": 0}, "n_draws=0"),
    ],
)
def test_mistakes_are_named(change, message):
    rows, labels = change.pop("X", X), change.pop("y", y)
    model = ImageFlowClassifier(MADE(1, 4, 1, training=TrainingConfig(max_steps=1)), **change)
    with pytest.raises(ValueError, match=message):
        model.fit(rows, labels)
