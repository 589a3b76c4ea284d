"""Draws against exact distribution functions and moments."""

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from qaffde.nn import BornMixture, expand
from qaffde.nn.calculus import sampling
from qaffde.nn.calculus.sampling import draw_by_rejection, draw_in_plane, draw_in_sequence
from tests.calculus_models import KINDS, random_density
from tests.two_sample import energy_p_value, neighbour_p_value

N = 4000
MIN_P = 1e-3


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def cdf_of(density):
    return lambda x: density.cdf(torch.as_tensor(x)[:, None])[0].numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_every_column_has_its_distribution(kind, d):
    density = expand(random_density(kind, d))
    x = density.sample(N, generator())
    for column in range(d):
        assert kstest(x[:, column], cdf_of(density.marginal([column]))).pvalue > MIN_P


@pytest.mark.parametrize("kind", KINDS)
def test_joint_law_by_rosenblatt(kind):
    """Given x₁, the conditional's cdf of x₂ is uniform, whatever x₁."""
    density = expand(random_density(kind, 2, seed=1))
    x = density.sample(300, generator(1))
    u = [density.condition([0], row[:1]).cdf(row[None, 1:])[0].item() for row in x]
    assert kstest(u, "uniform").pvalue > MIN_P


@pytest.mark.parametrize("kind", KINDS)
def test_given_rows(kind):
    density = expand(random_density(kind, 3, seed=2))
    given = torch.tensor([[0.3, 0.5]], dtype=torch.float64)
    x = density.sample_given(given.expand(N, -1), generator(2))[:, 0]
    assert kstest(x, cdf_of(density.condition([0, 1], given[0]))).pvalue > MIN_P


@pytest.mark.parametrize("kind", ["box", "mixture"])
def test_covariance(kind):
    density = expand(random_density(kind, 3, seed=3, epsilon=1e-3))
    x = density.sample(20_000, generator(3))
    scale = density.covariance().diagonal().sqrt()
    torch.testing.assert_close(
        torch.cov(x.T) / torch.outer(scale, scale),
        density.covariance() / torch.outer(scale, scale),
        rtol=0,
        atol=0.05,
    )


WAYS = {"rejection": draw_by_rejection, "sequence": draw_in_sequence}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_ways_draw_the_same_law(kind, way):
    """Every coordinate of one term, drawn either way, against its exact distribution."""
    term = expand(random_density(kind, 3, seed=5)).terms[0]
    u = WAYS[way](term.form, term.law, torch.empty(2000, 0).double(), generator(6))
    x = term.unwhiten(u[:, :0], u)
    alone = BornMixture([term])
    for column in range(3):
        assert kstest(x[:, column], cdf_of(alone.marginal([column]))).pvalue > MIN_P


@pytest.mark.parametrize("way", WAYS)
def test_both_ways_draw_the_same_law_given_a_column(way):
    term = expand(random_density("gaussian", 3, seed=7)).terms[0]
    given = term.offset[:1] + 0.3
    u = term.whiten(given[None])
    v = WAYS[way](term.form, term.law, u.expand(2000, 1), generator(8))
    x = term.unwhiten(u.expand(2000, 1), v)
    conditional = BornMixture([term]).condition([0], given)
    for column in range(2):
        assert kstest(x[:, column], cdf_of(conditional.marginal([column]))).pvalue > MIN_P


@pytest.mark.parametrize("kind", KINDS)
def test_joint_law_against_importance_resampling(kind):
    """A sampler that knows only the base and the log-density: weigh many, keep some."""
    density = random_density(kind, 5, seed=9, epsilon=1e-6)
    found = expand(density).sample(1500, generator(10)).numpy()
    base = expand(density).terms
    proposals = torch.cat(
        [
            t.unwhiten(torch.empty(60_000, 0).double(), t.law.draw(60_000, 5, generator(k)))
            for k, t in enumerate(base)
        ]
    )
    log_proposal = torch.stack([t.log_prefactor(t.whiten(proposals)) for t in base])
    log_proposal -= torch.stack([t.log_coefficient for t in base])[:, None]
    weight = (density.log_prob(proposals) - log_proposal.logsumexp(0)).softmax(0).numpy()
    assert 1 / np.square(weight).sum() > 10_000  # effective number of proposals
    rng = np.random.default_rng(11)
    other = proposals.numpy()[rng.choice(len(weight), 1500, p=weight, replace=False)]
    assert neighbour_p_value(found, other) > MIN_P
    assert energy_p_value(found, other) > MIN_P


def test_rare_rows_are_drawn_in_sequence(monkeypatch):
    """Where few proposals would pass, rejection is not tried; elsewhere it is."""
    term = expand(random_density("box", 3, seed=1)).terms[0]
    counts = {"draw_by_rejection": 0, "draw_in_sequence": 0}

    def counted(name):
        def draw(form, law, u, generator):
            counts[name] += len(u)
            return torch.zeros(len(u), 2, dtype=torch.float64)

        return draw

    for name in counts:
        monkeypatch.setattr(sampling, name, counted(name))
    x = term.offset[:1].expand(5, 1)
    rare = torch.exp(-torch.tensor([0.0, 0.0, 0.0, 30.0, 30.0]).double())
    sampling.sample_term(term, x, rare, generator())
    assert counts == {"draw_by_rejection": 3, "draw_in_sequence": 2}


def test_table_and_direct_reading_agree():
    term = expand(random_density("mixture", 2, seed=4)).terms[0]
    many = torch.linspace(-1, 1, 500, dtype=torch.float64)[:, None]
    by_table = draw_in_sequence(term.form, term.law, many, generator(5))
    first = draw_in_sequence(term.form, term.law, many[:30], generator(5))
    assert by_table.shape == (500, 1)
    torch.testing.assert_close(by_table[:30], first, rtol=0, atol=1e-8)


@pytest.fixture(params=KINDS)
def on_lattice(request):
    density = random_density(request.param, 2, seed=3, D=60, frequencies="lattice")
    found = expand(density)
    assert all(term.shortcut for term in found.terms[:-1])  # the last is the background
    return found


def test_joint_law_on_a_lattice(on_lattice):
    """Either column, and the second given the first, from the table of a series."""
    x = on_lattice.sample(N, generator(6))
    for column in range(2):
        assert kstest(x[:, column], cdf_of(on_lattice.marginal([column]))).pvalue > MIN_P
    u = [on_lattice.condition([0], row[:1]).cdf(row[None, 1:])[0].item() for row in x[:100]]
    assert kstest(u, "uniform").pvalue > MIN_P


def test_a_lattice_changes_no_draw_but_by_rounding(on_lattice):
    term = on_lattice.terms[0]
    known = draw_in_plane(term.shortcut, term.law, 500, generator(7))
    levels = torch.rand(1000, generator=generator(7), dtype=torch.float64).split(500)
    alone = BornMixture([term])
    x = term.unwhiten(known[:, :0], known)
    torch.testing.assert_close(alone.marginal([0]).cdf(x[:, :1])[0], levels[0], rtol=0, atol=1e-9)
    for row, level in zip(x[:20], levels[1], strict=False):
        given = alone.condition([0], row[:1])
        torch.testing.assert_close(given.cdf(row[None, 1:])[0][0], level, rtol=0, atol=1e-9)


def test_a_shortcut_belongs_to_its_form_alone(on_lattice):
    term = on_lattice.terms[0]
    other = term.reordered([1, 0])
    assert term.affine(torch.ones(2), torch.ones(2)).shortcut is term.shortcut
    assert other.shortcut is term.marginal(1).shortcut is None
    assert term.condition(term.offset[:1]).shortcut is None
    x = BornMixture([other]).sample(N, generator(8))
    for column in range(2):
        cdf = cdf_of(BornMixture([other]).marginal([column]))
        assert kstest(x[:, column], cdf).pvalue > MIN_P


def test_seeds():
    density = expand(random_density("box", 2))
    a, b, c = (density.sample(5, generator(seed)) for seed in (1, 1, 2))
    assert a.equal(b)
    assert not a.equal(c)
