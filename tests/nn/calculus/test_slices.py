"""Grids of many points are evaluated part by part."""

import torch

from qaffde import QAFFDE
from qaffde.nn.calculus import families
from qaffde.nn.calculus.polynomial import SquaredCoefficients
from qaffde.nn.calculus.slices import Slices


def test_many_points_take_no_more_memory_than_a_few(monkeypatch):
    rows = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).double().numpy()
    model = QAFFDE(n_features=20, bandwidth=0.7, base_measure="gaussian", random_state=0).fit(rows)
    slices = Slices(model.marginal([0, 1, 2]).density)
    family = next(f for f in slices.families if isinstance(f.exact, SquaredCoefficients))
    given, axes = torch.tensor([0.3]).double(), [torch.linspace(-2, 2, 20).double()] * 2
    whole = family.on_grid(given, axes)
    sizes, of_waves = [], SquaredCoefficients.of_waves

    def seen(self, c, s):
        sizes.append(len(c))
        return of_waves(self, c, s)

    monkeypatch.setattr(families, "MAX_POINTS", 64)
    monkeypatch.setattr(SquaredCoefficients, "of_waves", seen)
    torch.testing.assert_close(family.on_grid(given, axes), whole)
    assert sizes == [64] * 6 + [16]
