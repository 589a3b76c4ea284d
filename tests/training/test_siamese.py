"""The siamese networks: same inner products as the map they start from, and back again."""

import pytest
import torch

from qaffde.nn import FourierFeatures
from qaffde.training.siamese import FreeSiamese, PairedSiamese, is_paired, siamese

H = torch.tensor([0.5, 2.0], dtype=torch.float64)
LOCATION = torch.tensor([3.0, -1.0], dtype=torch.float64)
GENERATOR = torch.Generator().manual_seed(0)
PAIRS = LOCATION + torch.randn(30, 2, 2, generator=GENERATOR, dtype=torch.float64)
NETWORKS = {
    "random": FreeSiamese,
    "paired": PairedSiamese,
    "orthogonal": PairedSiamese,
    "sobol": PairedSiamese,
    "lattice": PairedSiamese,
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_inner_products_of_the_start(kind):
    start = FourierFeatures.draw(kind, 21, H)
    network = siamese(start, LOCATION, H)
    phi = start(PAIRS)
    assert type(network) is NETWORKS[kind]
    assert torch.allclose(network((PAIRS - LOCATION) / H), (phi[:, 0] * phi[:, 1]).sum(1))


@pytest.mark.parametrize("kind", NETWORKS)
def test_untrained_features_are_those_of_the_start(kind):
    start = FourierFeatures.draw(kind, 21, H)
    back = siamese(start, LOCATION, H).features()
    assert torch.allclose(back(PAIRS), start(PAIRS))
    assert not list(back.parameters())


@pytest.mark.parametrize("name", ["W", "b", "a"])
@pytest.mark.parametrize("kind", ["sobol", "lattice"])
def test_a_broken_pair_is_noticed(kind, name):
    features = FourierFeatures.draw(kind, 20, H)
    assert is_paired(features)
    getattr(features, name)[-1] += 0.1
    assert not is_paired(features)


@pytest.mark.parametrize("name", ["W", "b"])
def test_an_odd_feature_that_is_not_constant_is_noticed(name):
    features = FourierFeatures.draw("lattice", 20, H)
    getattr(features, name)[0] += 0.1
    assert not is_paired(features)
