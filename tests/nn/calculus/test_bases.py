"""Many bases at once are what each of them is alone."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from qaffde.nn.calculus.base_laws import NormalLaw, UniformLaw
from qaffde.nn.calculus.bases import Bases
from qaffde.nn.calculus.mixture import constant_form
from qaffde.nn.calculus.slices import cell_edges
from qaffde.nn.calculus.terms import Term

ENDS = ((-3.0, 4.0), (-2.0, 5.0))


def parts(law, n, d, generator):
    """Terms of two families."""
    shape = (lambda A: A.diagonal().diag()) if law.bounded else torch.tril
    for k in range(n):
        offset = torch.randn(d, generator=generator, dtype=torch.float64)
        scale = shape(torch.randn(d, d, generator=generator, dtype=torch.float64))
        scale = scale - scale.diagonal().diag() + (scale.diagonal().abs() + 0.3).diag()
        weight = torch.tensor(-math.log(n), dtype=torch.float64)
        yield k % 2, Term(weight, law, offset, scale, constant_form(d))


@pytest.mark.parametrize("law", [NormalLaw(), UniformLaw()])
def test_values_of_columns_do_to_all_what_they_do_to_each(law):
    pairs = list(parts(law, 5, 3, torch.Generator().manual_seed(0)))
    x = pairs[0][1].offset[:1]
    found = list(Bases.of(pairs).condition(x).each())
    for (k, base), (expected_k, term) in zip(found, pairs, strict=True):
        expected = term.condition(x)
        assert k == expected_k
        for name in ("log_coefficient", "offset", "scale"):
            torch.testing.assert_close(getattr(base, name), getattr(expected, name))


@pytest.mark.parametrize("draft", [False, True])
def test_masses_of_cells_are_integrals_of_densities(draft):
    pairs = list(parts(NormalLaw(), 6, 2, torch.Generator().manual_seed(1)))
    edges = [cell_edges(*ends, 128) for ends in ENDS]
    found = Bases.of(pairs).masses(edges, 2, draft=draft)
    axes = [(edge[1:-2] + edge[2:-1]).numpy() / 2 for edge in edges]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    area = math.prod((high - low) / 128 for low, high in ENDS)
    for k in range(2):
        laws = [multivariate_normal(b.offset, b.scale @ b.scale.T) for j, b in pairs if j == k]
        expected = area / 6 * sum(law.pdf(points) for law in laws)
        inside = found[k, 1:-1, 1:-1].numpy()
        assert abs(inside - expected).sum() < 2e-3 * expected.sum()
    assert found.sum() == pytest.approx(1, abs=2e-4 if draft else 1e-9)


@pytest.mark.parametrize("law", [NormalLaw(), UniformLaw()])
def test_strips_are_the_masses_of_one_column(law):
    pairs = list(parts(law, 4, 2, torch.Generator().manual_seed(2)))
    edges = [cell_edges(*ends, 40) for ends in ENDS]
    first = [(k, base.marginal(1)) for k, base in pairs]
    alone = Bases.of(first).masses(edges[:1], 2)
    torch.testing.assert_close(Bases.of(pairs).masses(edges, 2).sum(2), alone)
    assert alone.sum() == pytest.approx(1)


def test_single_precision_has_digits_far_from_zero():
    base = Term(
        torch.zeros(()).double(),
        NormalLaw(),
        torch.tensor([1e9, 1e9]).double(),
        torch.eye(2).double(),
        constant_form(2),
    )
    edges = [cell_edges(1e9 - 3, 1e9 + 3, 32)] * 2
    exact, draft = (Bases.of([(0, base)]).masses(edges, 1, draft=rough) for rough in (False, True))
    assert (exact - draft).abs().sum() < 1e-3
