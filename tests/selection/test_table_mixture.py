"""Mixtures of parts: gaps against brute force, known mixtures found again, weights as copies."""

from functools import partial

import numpy as np
import pytest
import torch

import qaffde.nn.recipes  # noqa: F401 (registers recipes)
from qaffde import FileError
from qaffde.files.fields import Fields
from qaffde.files.values import RECIPES
from qaffde.nn import CircleFactor, CodeFactor
from qaffde.nn.parts import CIRCLE, LINE, Part
from qaffde.selection.base_measure import Prior
from qaffde.selection.table_mixture import CodeLaw, TableMixture, TableRows, fit_table_mixture

PARTS = (LINE, Part("codes", 3), LINE, CIRCLE)
LAWS = (CodeLaw(has_order=False),)
real = partial(torch.tensor, dtype=torch.float64)


def truth():
    return TableMixture(
        PARTS,
        real([0.3, 0.7]),
        real([[-2.0, 0.0], [1.5, 1.0]]),
        real([[[1.0, 0.6], [0.6, 0.8]], [[0.5, -0.2], [-0.2, 0.4]]]),
        (
            CodeFactor(real([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]).log()),
            CircleFactor(real([0.1, 0.6]), real([0.1, 0.05])),
        ),
        LAWS,
    )


def draw(mixture, n, seed=0, gaps=0.0):
    g = torch.Generator().manual_seed(seed)
    k = torch.multinomial(mixture.weights, n, replacement=True, generator=g)
    C = torch.linalg.cholesky(mixture.covariances)[k]
    noise = torch.randn(n, 2, generator=g, dtype=torch.float64)
    z = mixture.means[k] + torch.einsum("nij,nj->ni", C, noise)
    code, turn = (factor.draw(k, g) for factor in mixture.factors)
    x = torch.stack([z[:, 0], code, z[:, 1], turn], 1)
    x[torch.rand(x.shape, generator=g) < gaps] = torch.nan
    return TableRows(x, torch.ones(n).double(), PARTS)


def test_rows_with_gaps_have_their_marginal_density():
    mixture, nodes = truth(), torch.linspace(-12, 12, 4001, dtype=torch.float64)
    row = torch.tensor([[0.3, 1.0, torch.nan, 0.55]], dtype=torch.float64)
    full = row.repeat(len(nodes), 1)
    full[:, 2] = nodes
    ones = torch.ones(len(nodes)).double()
    wanted = torch.trapezoid(mixture.log_density(TableRows(full, ones, PARTS)).exp(), nodes).log()
    found = mixture.log_density(TableRows(row, ones[:1], PARTS))[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)
    full[:, 2], full = 0.4, full[:3]
    full[:, 1] = torch.arange(3)
    row = torch.tensor([[0.3, torch.nan, 0.4, 0.55]], dtype=torch.float64)
    wanted = mixture.log_density(TableRows(full, ones[:3], PARTS)).logsumexp(0)
    found = mixture.log_density(TableRows(row, ones[:1], PARTS))[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


def test_moments_of_gaps_are_conditional_ones():
    mixture = truth()
    rows = TableRows(torch.tensor([[0.5, 1, torch.nan, 0.2]]).double(), torch.ones(1), PARTS)
    share = torch.tensor([[0.4, 0.6]]).double()
    count, first, second = mixture.moments(rows, share)
    for k in range(2):
        (m0, m1), S = mixture.means[k], mixture.covariances[k]
        mean = m1 + S[1, 0] / S[0, 0] * (0.5 - m0)
        variance = S[1, 1] - S[1, 0] ** 2 / S[0, 0]
        wanted = torch.stack([torch.tensor(0.5).double(), mean])
        torch.testing.assert_close(first[k], share[0, k] * wanted)
        torch.testing.assert_close(second[k, 1, 1], share[0, k] * (variance + mean**2))
        torch.testing.assert_close(second[k, 0, 1], share[0, k] * 0.5 * mean)
    torch.testing.assert_close(count, share[0])


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_a_known_mixture_is_found_again(gaps):
    rows, fresh = draw(truth(), 4000, gaps=gaps), draw(truth(), 4000, seed=1, gaps=gaps)
    generator = torch.Generator().manual_seed(0)
    found = fit_table_mixture(rows, 2, LAWS, generator, prior=Prior(1e-7), max_iter=60)
    excess = truth().log_density(fresh).mean() - found.log_density(fresh).mean()
    assert 0 < excess < 0.006  # 19 numbers cost 19/(2·4000) = .0024 nats without gaps
    order = found.weights.argsort()
    torch.testing.assert_close(found.means[order], truth().means, rtol=0, atol=0.15)


def test_weights_are_copies():
    rows = draw(truth(), 300, gaps=0.1)
    weight = 1.0 + (torch.arange(300) % 3 == 0).double()
    copies = TableRows(rows.x.repeat_interleave(weight.long(), 0), torch.ones(400).double(), PARTS)
    start = truth()
    heavy = start.improved(TableRows(rows.x, weight, PARTS))
    many = start.improved(copies)
    assert heavy[0] == pytest.approx(many[0], abs=1e-12)
    torch.testing.assert_close(heavy[1].means, many[1].means)
    torch.testing.assert_close(heavy[1].factors[1].deviation, many[1].factors[1].deviation)


def test_masses_of_codes_sum_to_one_and_none_is_zero():
    counts = torch.tensor([[5.0, 0, 0, 3], [0, 0, 0, 1]]).double()
    for law in (CodeLaw(has_order=False), CodeLaw(has_order=True, strength=10.0, width=0.5)):
        masses = law.masses(counts)
        np.testing.assert_allclose(masses.sum(1), 1, atol=1e-12)
        assert (masses > 0).all()


def test_integers_are_smoothed_over_neighbors():
    rng = np.random.default_rng(0)
    truth = np.exp(-0.5 * ((np.arange(60) - 30) / 8) ** 2)
    truth = torch.tensor(truth / truth.sum())
    counts = torch.tensor(rng.multinomial(300, truth.numpy()))[None].double()
    rough, smooth = (CodeLaw(True, 1.0, width).masses(counts)[0] for width in (0.01, 1.0))
    assert (truth * (truth / smooth).log()).sum() < 0.5 * (truth * (truth / rough).log()).sum()


def test_files_refuse_masses_and_parts_that_do_not_fit():
    masses = torch.zeros(1, 2).double()
    coin = CodeFactor(masses - np.log(2))
    mixture = {"parts": (LINE,), "log_weights": real([0.0]), "lines": None, "waves": []}
    mixture["factors"] = [coin]
    for name, fields, message in (
        ("CodeFactor", {"log_mass": masses}, "does not sum to one"),
        ("FactoredMixture", mixture, "factors are not those of the parts"),
        ("Part", {"kind": "square", "size": 0}, "square"),
    ):
        with pytest.raises((FileError, ValueError), match=message):
            RECIPES[name].read(Fields(name, fields))
