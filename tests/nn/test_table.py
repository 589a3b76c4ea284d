"""Tables of mixed columns: every operation against sums and quadratures, within 1e-6."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, kstest

from tests.calculus_models import grid, integral
from tests.table_models import ATOM, KINDS, axis, random_table

PAIRS = list(combinations(KINDS, 2))
TRIPLES = [("atom", "circle", "category"), ("integer", "bounded", "category")]
FOUR = ("integer", "circle", "category", "atom")
TABLES = [*((kind,) for kind in KINDS), *PAIRS, *TRIPLES, FOUR]
BOX = {"real": (-0.5, 1.3), "bounded": (0.4, 3.0), "circle": (3.0, 11.5), "integer": (-1, 2)}
BOX |= {"category": (-float("inf"), float("inf")), "atom": (0.7, 2.5)}
AT = {"real": 0.4, "bounded": 1.7, "circle": 5.0, "integer": 1.0, "category": 2.0, "atom": ATOM}
NUMBERS = [kind for kind in KINDS if kind != "category"]
quick = settings(max_examples=15, deadline=None)
tables = st.lists(st.sampled_from(KINDS), min_size=2, max_size=3)
seeds, waves = st.integers(0, 10_000), st.booleans()


@pytest.fixture(params=[False, True], ids=["lines", "waves"])
def table(request):
    """Makes random densities, whose Fourier features are of lines or of all parts."""
    return lambda kinds, seed=0: random_table(kinds, seed, waves=request.param)


def axes_of(density, columns=None, n=None):
    columns = range(density.n_dims) if columns is None else columns
    n = {1: 48, 2: 24}.get(len(columns), 12) if n is None else n
    return [axis(density.column(k), n=n) for k in columns]


def close(found, wanted, atol=1e-6):
    wanted = torch.as_tensor(wanted, dtype=torch.float64)
    torch.testing.assert_close(torch.as_tensor(found).double(), wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("kinds", TABLES, ids="-".join)
def test_mass_is_one(table, kinds):
    density = table(kinds)
    close(integral(density, axes_of(density)), 1.0)


@pytest.mark.parametrize("kinds", [*PAIRS, *TRIPLES, FOUR], ids="-".join)
def test_gaps_and_marginals_are_integrals(table, kinds):
    density, row = table(kinds, 1), torch.tensor([[AT[kind] for kind in kinds]]).double()
    points, weights = grid(axes_of(density, range(1, len(kinds))))
    full = torch.cat([row[:, :1].expand(len(points), 1), points], 1)
    wanted = (weights @ density.log_prob(full).exp()).log()
    gaps = row.clone()
    gaps[:, 1:] = torch.nan
    close(density.log_prob(gaps)[0], wanted)
    close(density.marginal([0]).log_prob(row[:, :1])[0], wanted)


@pytest.mark.parametrize("kinds", [*PAIRS, *TRIPLES, FOUR], ids="-".join)
def test_conditionals_are_ratios(table, kinds):
    density = table(kinds, 2)
    row = torch.tensor([[AT[kind] for kind in kinds]]).double()
    conditional = density.condition([0], row[0, :1])
    joint = density.log_prob(row) - density.marginal([0]).log_prob(row[:, :1])
    close(conditional.log_prob(row[:, 1:]), joint)
    close(density.log_prob_given(row, 1), joint)
    close(integral(conditional, axes_of(conditional)), 1.0)


@pytest.mark.parametrize("kinds", TABLES, ids="-".join)
def test_boxes_are_integrals(table, kinds):
    density = table(kinds, 3)
    ends = [BOX[kind] for kind in kinds]
    lower, upper = torch.tensor(ends, dtype=torch.float64).T[:, None]
    n = 48 if len(kinds) == 1 else 24 if len(kinds) == 2 else 12
    axes = [axis(density.column(k), *end, n=n) for k, end in enumerate(ends)]
    value, error = density.probability(lower, upper)
    close(value[0], integral(density, axes))
    assert error.item() == 0


@pytest.mark.parametrize("kinds", [("category", kind) for kind in KINDS], ids="-".join)
def test_sets_of_categories_within_a_box_are_sums(table, kinds):
    density, mask = table(kinds, 4), torch.tensor([True, False, True, False])
    lower, upper = torch.tensor([BOX[kind] for kind in kinds], dtype=torch.float64).T[:, None]
    (codes, ones), rest = (axis(density.column(k), *BOX[kinds[k]], n=24) for k in range(2))
    wanted = integral(density, [(codes[mask], ones[mask]), rest])
    close(density.probability(lower, upper, {0: mask})[0][0], wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_invert_the_distribution(table, kind):
    density = table((kind,), 5)
    q = torch.tensor([0.03, 0.3, 0.62, 0.97], dtype=torch.float64)
    if kind == "category":
        with pytest.raises(ValueError, match="categories have no order"):
            density.ppf(q)
        return
    x = density.ppf(q)
    at, before = density.cdf(x[:, None])[0], density.cdf(x[:, None] - 1e-9)[0]
    assert (at >= q - 1e-9).all()
    assert (before <= q + 1e-9).all()


def test_moments_are_sums_and_integrals(table):
    density = table(("atom", "integer", "bounded"), 6)
    mean, covariance = density.mean(), density.covariance()
    for pair in ([0, 1], [0, 2], [1, 2]):
        joint = density.marginal(pair)
        axes = axes_of(joint, n=48)
        close(integral(joint, axes, lambda x: x), mean[pair])
        second = integral(joint, axes, lambda x, m=mean[pair]: (x - m).prod(1))
        close(second, covariance[pair[0], pair[1]])
    spread = integral(density.marginal([0]), axes_of(density, [0], 48), lambda x: x[:, 0].square())
    close(spread - mean[0] ** 2, covariance[0, 0])


@pytest.mark.parametrize("kinds", [("category", "real"), ("circle", "integer")], ids="-".join)
def test_no_mean_without_numbers(table, kinds):
    with pytest.raises(ValueError, match=r"column 0 is .* no mean"):
        table(kinds).mean()


def test_draws_follow_the_density(table):
    density = table(FOUR, 7)
    draws = density.sample(20_000, torch.Generator().manual_seed(0))
    for code in range(4):
        share = (draws[:, 2] == code).double().mean()
        p = density.marginal([2]).log_prob(torch.tensor([[code]]).double()).exp().item()
        assert abs(share - p) < 5 * (p / 20_000) ** 0.5
    for k in (1, 3):  # in turns, and beside the atom
        some = draws[draws[:, k] != ATOM, k][:2000, None]
        level = density.marginal([k]).cdf(some)[0]
        ends = torch.tensor([[ATOM - 1e-9], [ATOM]], dtype=torch.float64)
        own = density.marginal([k]).cdf(ends)[0]
        level = torch.where(some[:, 0] > ATOM, level - own.diff(), level) / (1 - own.diff())
        assert kstest(level.numpy(), "uniform").pvalue > 1e-3
    at = (draws[:, 3] == ATOM).double().mean().item()
    p = density.marginal([3]).log_prob(torch.tensor([[ATOM]]).double()).exp().item()
    assert abs(at - p) < 5 * (p / 20_000) ** 0.5
    assert torch.isfinite(density.log_prob(draws)).all()


def test_filled_values_follow_the_conditional(table):
    density = table(("category", "real", "circle"), 8)
    rows = torch.tensor([[1.0, torch.nan, torch.nan]]).double().expand(4000, 3)
    filled = density.fill(rows, torch.Generator().manual_seed(1))
    given = density.condition([0], torch.ones(1).double())
    drawn = given.sample(4000, torch.Generator().manual_seed(2))
    assert (filled[:, 0] == 1).all()
    for k in range(2):
        assert ks_2samp(filled[:, 1 + k].numpy(), drawn[:, k].numpy()).pvalue > 1e-3


def test_expected_values_are_conditional_means(table):
    density = table(("real", "atom", "category", "circle"), 9)
    row = torch.tensor([[0.3, torch.nan, torch.nan, 4.0]]).double()
    filled = density.fill(row)[0]
    conditional = density.condition([0, 3], row[0, [0, 3]])
    close(filled[1], conditional.marginal([0]).mean()[0])
    masses = conditional.marginal([1]).log_prob(torch.arange(4).double()[:, None])
    assert filled[2] == masses.argmax()


@pytest.mark.parametrize(
    ("kind", "values"),
    {"integer": [0.5, -3, 4], "category": [-1, 4], "bounded": [-1.1, 9.5], "atom": [-1.1]}.items(),
)
def test_impossible_values_have_no_mass(table, kind, values):
    density = table((kind, "real"))
    rows = torch.tensor([[value, 0.0] for value in values]).double()
    assert (density.log_prob(rows) == -torch.inf).all()
    with pytest.raises(ValueError, match="the density is zero there"):
        density.condition([0], rows[0, :1])


def test_a_period_closes(table):
    density = table(("circle",))
    x = torch.tensor([[1.0], [25.0], [-23.0]]).double()
    close(density.log_prob(x), density.log_prob(x)[0].expand(3))


@quick
@given(tables, seeds, waves)
def test_marginals_commute(kinds, seed, waves):
    density, row = (
        random_table(kinds, seed, waves=waves),
        torch.tensor([[AT[k] for k in kinds]]).double(),
    )
    last = len(kinds) - 1
    one = density.marginal([last, 0]).marginal([1])
    close(one.log_prob(row[:, :1]), density.marginal([0]).log_prob(row[:, :1]), 1e-7)
    order = list(reversed(range(len(kinds))))
    close(density.reordered(order).log_prob(row[:, order]), density.log_prob(row), 1e-7)


@quick
@given(tables, seeds, waves, st.integers(1, 6))
def test_gaps_are_integrated_out(kinds, seed, waves, pattern):
    density = random_table(kinds, seed, waves=waves)
    known = [k for k in range(len(kinds)) if pattern >> k & 1]
    row = torch.tensor([[AT[kind] for kind in kinds]]).double()
    gaps = torch.full_like(row, torch.nan)
    gaps[:, known] = row[:, known]
    wanted = density.marginal(known).log_prob(row[:, known]) if known else torch.zeros(1)
    close(density.log_prob(gaps), wanted, 1e-7)
    filled = density.fill(gaps.expand(20, -1), torch.Generator().manual_seed(seed))
    assert (filled[:, known] == row[:, known]).all()
    assert torch.isfinite(density.log_prob(filled)).all()


@quick
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2), seeds, waves)
def test_mass_of_random_kinds_is_one(kinds, seed, waves):
    density = random_table(kinds, seed, waves=waves)
    close(integral(density, axes_of(density)), 1.0)
    free = torch.full((1, len(kinds)), torch.inf).double()
    close(density.probability(-free, free)[0], torch.ones(1), 1e-9)


@quick
@given(tables, seeds, waves)
def test_chain_rule(kinds, seed, waves):
    density, row = (
        random_table(kinds, seed, waves=waves),
        torch.tensor([[AT[k] for k in kinds]]).double(),
    )
    rest = list(range(1, len(kinds)))
    product = density.condition(rest, row[0, rest]).log_prob(row[:, :1])
    product = product + density.marginal(rest).log_prob(row[:, rest])
    close(product, density.log_prob(row), 1e-7)


@quick
@given(st.lists(st.sampled_from(NUMBERS), min_size=2, max_size=3), seeds, waves)
def test_parts_of_a_box_add_up(kinds, seed, waves):
    density = random_table(kinds, seed, waves=waves)
    lower, upper = torch.tensor([BOX[kind] for kind in kinds], dtype=torch.float64).T[:, None]
    free = torch.full_like(lower, torch.inf)
    whole, below, above = -free, free.clone(), -free
    below[0, 0], above[0, 0] = AT[kinds[0]], AT[kinds[0]] + 1e-12
    close(density.probability(whole, free)[0], torch.ones(1), 1e-9)
    lower[0, 0], upper[0, 0] = -torch.inf, torch.inf
    parts = lower.maximum(above), upper.minimum(below)
    halves = density.probability(lower, parts[1])[0] + density.probability(parts[0], upper)[0]
    close(halves, density.probability(lower, upper)[0])  # quadratures: three columns that depend


@quick
@given(st.sampled_from(NUMBERS), seeds, waves)
def test_distribution_functions_differ_by_boxes(kind, seed, waves):
    density = random_table((kind, "category", "atom"), seed, waves=waves).marginal([0])
    low, high = BOX[kind]
    ends = torch.tensor([[low - 1e-9], [high]], dtype=torch.float64)
    below, above = density.cdf(ends)[0]
    between = density.probability(ends[:1] + 1e-9, ends[1:])[0][0]
    close(above - below, between, 1e-7)
    close(density.cdf(torch.tensor([[torch.inf]]).double())[0], torch.ones(1), 1e-9)
