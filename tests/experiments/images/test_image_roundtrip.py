"""RoundTrip of images: networks that know their class, and units."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from experiments.images.roundtrip import (
    BlindViewer,
    ClassPainter,
    ClassViewer,
    ImageRoundTrip,
    in_units,
    pixel_units,
)
from experiments.models.roundtrip import RoundTrip
from experiments.models.roundtrip_networks import EachClass, Painter, Viewer
from qaffde.training import History

DIGITS, LABELS = load_digits(return_X_y=True)
FEW = LABELS < 3
X, y = (DIGITS / 16)[FEW], LABELS[FEW]
SIZES = {"n_latent": 4, "n_channels": 4, "batch_size": 64}


NETWORKS = {
    "shared": lambda: ClassPainter(4, 3, (2, 7, 5), 3),
    "deep": lambda: ClassPainter(4, 3, (2, 7, 5), 3, [6]),
    "wide": lambda: ClassPainter(4, 3, (2, 7, 5), 6),
    "each": lambda: EachClass(Painter(4, 0, (2, 7, 5), 3, [6]) for _ in range(3)),
    "bounded": lambda: ClassPainter(4, 3, (2, 7, 5), 3, ends=(-0.4, 2.8)),
}


FORMS = {
    "shared": {},
    "deep": {"hidden_size": 16},
    "each": {"hidden_size": 16, "shared": False},
    "blind": {"blind": True, "integration": "laplace"},
    "bounded": {"blind": True, "bounded": True, "integration": "laplace"},
    "pooled": {"pooled": True, "integration": "laplace"},
    "pooled each": {"pooled": True, "shared": False},
    "pooled blind": {"pooled": True, "blind": True, "hidden_size": 16, "integration": "laplace"},
    "at the mode": {"bounded": True, "integration": "laplace", "mode_steps": 2, "max_steps": 90},
    "blind each": {"blind": True, "shared": False},
}


@pytest.mark.parametrize("name", FORMS)
def test_digits_are_told_apart(name):
    """By the last networks: no pass over held-out images after every step."""
    steps = {"max_steps": 60, "learning_rate": 5e-3, "early_stopping": False}
    model = ImageRoundTrip(
        (8, 8), random_state=0, **SIZES | {"n_channels": 8} | steps | FORMS[name]
    )
    assert model.fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.8


@pytest.mark.parametrize("kind", ["painter", "viewer"])
def test_classes_share_all_but_a_layer(kind):
    torch.manual_seed(0)
    if kind == "painter":
        network, rows = ClassPainter(4, 3, (1, 8, 8), 2), torch.randn(6, 4)
        layer = network.layers[0].weight
    else:
        network, rows = ClassViewer((1, 8, 8), 3, 4, 2), torch.randn(6, 64)
        layer = network.viewer.read.weight
    given = torch.eye(3)[[1] * 6]
    network(rows, given).square().sum().backward()
    blocks = layer.grad if kind == "viewer" else layer.grad.T
    used = [bool(block.abs().sum() > 0) for block in blocks[:12].split(4)]
    assert used == [False, True, False]
    shared = [p.grad for name, p in network.named_parameters() if p.ndim == 4]
    assert all(bool(grad.abs().sum() > 0) for grad in shared)


@pytest.mark.parametrize("blind", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_the_encoder_alone_is_pooled(shared, blind):
    model = ImageRoundTrip((9, 7), **SIZES, pooled=True, shared=shared, blind=blind)
    networks = model._networks((1, 9, 7), 3)

    def count(network):
        return sum(isinstance(part, torch.nn.MaxPool2d) for part in network.modules())

    assert count(networks.encode) == count(networks.mean_encode) > 0
    assert count(networks.generate) == count(networks.judge_x) == 0
    assert networks.encode(torch.zeros(5, 63), torch.eye(3)[[0, 1, 2, 0, 1]]).shape == (5, 4)


@pytest.mark.parametrize(("n", "n_held_out"), [(540, 54), (2569, 256), (5400, 256)])
def test_no_more_is_held_out_than_is_looked_at(n, n_held_out, monkeypatch):
    seen = {}

    def train(self, density, loss, rows, judges, generator):
        seen.update(rows=len(rows[0]), judges=len(judges[0]))
        return History()

    monkeypatch.setattr(RoundTrip, "train_module", train)
    ImageRoundTrip((8, 8), **SIZES).fit(np.resize(X, (n, 64)), np.resize(y, n))
    assert seen == {"rows": n - n_held_out, "judges": n_held_out}


@pytest.mark.parametrize("shared", [True, False])
def test_a_blind_encoder_is_not_told_the_class(shared):
    networks = ImageRoundTrip((8, 8), **SIZES, blind=True, shared=shared)._networks((1, 8, 8), 3)
    rows, given = torch.randn(5, 64), torch.eye(3)
    codes = [networks.encode(rows, label.expand(5, 3)) for label in given]
    assert isinstance(networks.encode, BlindViewer)
    assert torch.equal(codes[0], codes[1])
    assert torch.equal(codes[0], codes[2])
    painted = [networks.generate(codes[0], label.expand(5, 3)) for label in given]
    assert not torch.allclose(painted[0], painted[1])


def test_networks_of_each_class_share_nothing():
    network = EachClass(Viewer((1, 8, 8), 0, 4, 2, [5]) for _ in range(3))
    rows, labels = torch.randn(6, 64), [2, 0, 2, 2, 0, 2]  # none of class 1
    seen = network(rows, torch.eye(3)[labels])
    for row, label, found in zip(rows, labels, seen, strict=True):
        torch.testing.assert_close(network.networks[label](row[None], row[None, :0])[0], found)
    seen[[1, 4]].square().sum().backward()
    learns = [
        any(p.grad is not None and p.grad.any() for p in own.parameters())
        for own in network.networks
    ]
    assert learns == [True, False, False]


@pytest.mark.parametrize("name", NETWORKS)
def test_tangents_are_derivatives(name):
    """Of odd images too, whose enlargement is cropped."""
    network = NETWORKS[name]().double()
    z, given = torch.randn(3, 4).double(), torch.eye(3).double()[[2, 0, 2]]
    pushed = network.push(z, given, torch.eye(4).double().expand(3, -1, -1))
    for row in range(3):
        expected = torch.autograd.functional.jacobian(
            lambda z, row=row: network(z[None], given[row : row + 1])[0], z[row]
        )
        torch.testing.assert_close(pushed[row].T, expected)


@pytest.mark.parametrize("shared", [True, False])
def test_bounded_pixels_are_black_or_white_at_most(shared):
    own = {"bounded": True, "shared": shared, "max_steps": 3, "random_state": 0}
    found = ImageRoundTrip((8, 8), **SIZES, **own).fit(X, y).density_
    z, given = 1000 * torch.randn(20, 4), torch.eye(3)[[0, 1] * 10]
    pixels = found.density.mean_generate(z, given) * found.scale + found.location
    assert float(pixels.min()) == pytest.approx(0, abs=1e-5)
    assert float(pixels.max()) == pytest.approx(1, abs=1e-5)
    assert pixels.std() > 0.1


def test_units_are_those_of_all_pixels():
    levels = torch.randint(0, 256, (50, 6), dtype=torch.uint8)
    location, scale = pixel_units(levels)
    pixels = levels.numpy() / 255
    assert (float(location), float(scale)) == pytest.approx((pixels.mean(), pixels.std()), 1e-5)
    np.testing.assert_allclose(
        in_units(levels, location, scale), (pixels - pixels.mean()) / pixels.std(), atol=1e-5
    )


def test_densities_are_those_of_pixels():
    model = ImageRoundTrip((1, 8, 8), max_steps=1, random_state=0, **SIZES).fit(X[:30], y[:30])
    scores = model.log_density(X[:5])
    found, levels = model.density_, torch.tensor(np.rint(X[:5] * 255))
    z = in_units(levels, found.location, found.scale)
    inner = found.density.log_prob(z, torch.eye(3)[[2] * 5])
    np.testing.assert_allclose(scores[:, 2], inner - 64 * found.scale.log(), rtol=1e-5)
    again = ImageRoundTrip((1, 8, 8), max_steps=1, random_state=0, **SIZES).fit(X[:30], y[:30])
    np.testing.assert_array_equal(again.log_density(X[:5]), scores)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"image_shape": (3, 8)}, r"image_shape=\(3, 8\) must be .* with a product of 64"),
        ({"image_shape": (8, 8), "n_latent": 0}, "n_latent=0"),
        ({"image_shape": (8, 8), "hidden_size": 2.5}, "hidden_size=2.5"),
        ({"image_shape": (8, 8), "integration": "importance"}, "one of linear, laplace"),
        ({"image_shape": (8, 8), "mode_steps": -1}, "mode_steps=-1 must be a whole number"),
        ({"image_shape": (8, 8), "cycle_x": -1.0}, "cycle_x=-1.0 must be a number"),
    ],
)
def test_mistakes_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        ImageRoundTrip(**(SIZES | parameters), max_steps=1).fit(X, y)
