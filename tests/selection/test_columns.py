"""Maps learned from samples: their nearness to the truth, their ends, and their choice."""

import numpy as np
import pytest
import torch
from scipy import stats

from qaffde import QAFFDE, QAFFDESGD
from qaffde.nn.maps import MapTable
from qaffde.selection import ModelSpec, SelectionPolicy, select, selector, summarize
from qaffde.selection.columns import (
    bounded_maps,
    knot_slopes,
    learned_maps,
    mapped_summary,
    maps_of_ends,
    n_quantiles,
    shows_zero,
)
from qaffde.selection.policy import DEFAULT_POLICY

N = 20_000
LAWS = {
    "normal": stats.norm(3, 2),
    "uniform": stats.uniform(-1, 2),
    "exponential": stats.expon(),
    "log-normal": stats.lognorm(0.8, scale=3e4),
    "t": stats.t(3),
    "Cauchy": stats.cauchy(),
    "gamma": stats.gamma(0.5),
}


def learned(x, ends=None, *, show_zero=True, weight=None):
    summary = summarize(np.reshape(x, (len(x), -1)), weight, random_state=0)
    return learned_maps(summary, ends, DEFAULT_POLICY, show_zero=show_zero)


def mapped(maps):
    return [k for k, column in enumerate(maps) if not column.is_identity]


def log_density(maps, x):
    z, log_slope = MapTable.of(maps)(torch.tensor(x)[:, None])
    return stats.norm.logpdf(z[:, 0].numpy()) + log_slope.numpy()


@pytest.mark.parametrize("name", LAWS)
def test_a_learned_map_is_near_the_density_of_its_column(name):
    law = LAWS[name]
    maps = learned(law.rvs(N, random_state=0))
    fresh = law.rvs(N, random_state=1)
    excess = law.logpdf(fresh) - log_density(maps, fresh)
    assert 0 <= excess.mean() + 3 * excess.std() / N**0.5
    assert excess.mean() < 0.006


@pytest.mark.parametrize("n", [100, 1000])
def test_maps_of_few_rows_hold_all_rows_to_come(n):
    for law in LAWS.values():
        maps = learned(law.rvs(n, random_state=0), show_zero=False)
        excess = law.logpdf(fresh := law.rvs(N, random_state=1)) - log_density(maps, fresh)
        assert excess.mean() < 0.5


def test_zero_is_an_end_where_rows_show_it():
    rng = np.random.default_rng(0)
    for name in ("exponential", "gamma", "log-normal"):
        assert learned(LAWS[name].rvs(N, random_state=0))[0].ends[0] == 0
        unshown = learned(LAWS[name].rvs(N, random_state=0), show_zero=False)
        assert unshown[0].ends[0] == -torch.inf
    for law in ("normal", "uniform", "t"):
        assert learned(LAWS[law].rvs(N, random_state=0))[0].ends.isinf().all()
    far = rng.normal(100, 5, N)  # all positive, but nowhere near zero
    assert learned(far)[0].ends.isinf().all()
    common = np.where(rng.random(N) < 0.3, 0.0, rng.gamma(5, size=N))
    assert learned(common)[0].ends[0] == 0
    assert not shows_zero(np.linspace(-0.1, 1, 500), np.full(500, 1 / 500))


def test_known_ends_are_kept_and_rows_on_them_have_a_density():
    x = np.concatenate([np.random.default_rng(0).beta(0.5, 0.5, 2000), np.zeros(50), np.ones(50)])
    ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    for maps in (learned(x, ends), bounded_maps(summarize(x[:, None], random_state=0), ends)):
        assert torch.equal(maps[0].ends, ends[:, 0])
        log_slope = MapTable.of(maps)(
            torch.tensor([[0.0], [1.0], [0.5], [-1e-9], [1.1]]).double()
        )[1]
        assert log_slope.isfinite().tolist() == [True, True, True, False, False]


def test_bounded_maps_leave_all_but_the_ends_as_it_is():
    X = np.random.default_rng(0).gamma(4, size=(2000, 2))
    ends = torch.tensor([[0.0, torch.nan], [torch.nan, torch.nan]], dtype=torch.float64)
    maps = bounded_maps(summarize(X, random_state=0), ends)
    assert mapped(maps) == [0]
    inside = torch.tensor(X[X[:, 0] > np.quantile(X[:, 0], 0.1)])
    z, log_slope = MapTable.of(maps)(inside)
    torch.testing.assert_close(z, inside)
    torch.testing.assert_close(log_slope, torch.zeros(len(z)).double(), rtol=0, atol=1e-9)


def test_weights_are_copies():
    x = np.random.default_rng(0).normal(size=300)
    copies = np.random.default_rng(1).integers(1, 4, 300)
    one, many = learned(x, weight=copies.astype(float)), learned(np.repeat(x, copies))
    z = torch.linspace(-1, 1, 9).double()[:, None]
    torch.testing.assert_close(one[0].decode(z), many[0].decode(z), rtol=0, atol=0.2)


def test_constant_and_two_valued_columns_stay_as_they_are():
    maps = learned(np.column_stack([np.ones(300), np.arange(300) % 2]))
    assert mapped(maps) == []


def test_in_a_search_normal_columns_and_those_with_atoms_stay_as_they_are():
    rng = np.random.default_rng(0)
    atom = np.where(rng.random(3000) < 0.3, 1.0, rng.standard_t(3, 3000))
    X = np.column_stack([rng.normal(size=3000), atom, rng.standard_t(3, 3000)])
    summary = summarize(X, random_state=0)
    maps = learned_maps(summary, None, DEFAULT_POLICY, show_zero=True, skip_normal=True)
    assert mapped(maps) == [2]
    ends = torch.tensor([[-100.0] * 3, [100.0] * 3]).double()
    maps = learned_maps(summary, ends, DEFAULT_POLICY, show_zero=True, skip_normal=True)
    assert mapped(maps) == [0, 1, 2]


def test_integers_have_maps_that_rise():
    maps = learned(np.random.default_rng(0).poisson(3, 5000).astype(float))
    z = MapTable.of(maps)(torch.arange(0.0, 12).double()[:, None])[0]
    assert (z.diff(dim=0) > 0).all()


def test_knots_grow_with_the_rows():
    sizes = [n_quantiles(n, DEFAULT_POLICY) for n in (10, 1000, 10_000, 100_000, 10**7)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 4
    assert sizes[-1] == 128


def test_slopes_are_positive():
    rng = np.random.default_rng(0)
    x, z = np.cumsum(rng.exponential(size=(2, 40)), axis=1)
    assert (knot_slopes(x, z) > 0).all()


def test_a_mapped_summary_has_the_moments_of_mapped_rows():
    X = np.random.default_rng(0).lognormal(size=(3000, 2))
    summary = summarize(X, random_state=0)
    maps = learned_maps(summary, None, DEFAULT_POLICY, show_zero=True)
    found, Z = mapped_summary(summary, maps), MapTable.of(maps)(torch.tensor(X))[0]
    torch.testing.assert_close(found.moments.mean, Z.mean(0))
    torch.testing.assert_close(found.moments.ends, torch.stack([Z.amin(0), Z.amax(0)]))
    assert found.moments.n == 3000


def skewed(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    first = rng.normal(size=n)
    return np.exp(np.column_stack([first, 0.8 * first + 0.6 * rng.normal(size=n)]))


@pytest.mark.parametrize("method", ["closed_form", "likelihood"])
def test_maps_are_chosen_for_skewed_columns_and_not_for_gaussian_ones(method):
    policy = SelectionPolicy(max_box_columns=1)
    spec = ModelSpec(method=method, n_features=64)
    X = skewed()
    plan = select(summarize(X, random_state=0), spec, policy=policy)
    assert plan.columns is not None
    tried = [trial.name.partition(":")[0] for trial in plan.trials[:2]]
    assert tried == ["columns as they are", "columns mapped"]
    assert select(summarize(X, random_state=0), spec).columns is None  # a box is offered
    assert select(summarize(np.log(X), random_state=0), spec, policy=policy).columns is None


def test_held_out_likelihoods_are_in_the_units_of_the_data():
    X = skewed()
    plan = select(summarize(X, random_state=0), ModelSpec(n_features=64, transformation="normal"))
    chosen = next(trial for trial in plan.trials if trial.chosen)
    truth = stats.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]])
    expected = (truth.logpdf(np.log(X)) - np.log(X).sum(1)).mean()
    assert chosen.log_likelihood == pytest.approx(expected, abs=0.15)


def test_given_bandwidths_leave_columns_as_they_are():
    summary = summarize(skewed(), random_state=0)
    assert select(summary, ModelSpec(bandwidth=0.3, n_features=40)).columns is None
    assert select(summary, ModelSpec(bandwidth=0.3, transformation="normal")).columns is not None


# Ends that few columns show

ENDED = {
    "exponential": lambda rng, n: rng.exponential(size=(n, 1)),
    "log-normal": lambda rng, n: rng.lognormal(size=(n, 1)),
    "gamma": lambda rng, n: rng.gamma(0.7, size=(n, 1)),
    "beside another": lambda rng, n: np.column_stack(
        [e := rng.exponential(size=n), 0.5 * e + rng.normal(size=n)]
    ),
}


@pytest.mark.parametrize("law", ENDED)
@pytest.mark.parametrize("kind", [QAFFDE, QAFFDESGD])
def test_an_end_that_few_columns_show_leaks_nothing(law, kind, monkeypatch):
    """And held-out likelihood is no worse than without the maps."""
    rng = np.random.default_rng(1)
    X, fresh = ENDED[law](rng, 2000), ENDED[law](rng, 10_000)
    model, d = kind(random_state=0).fit(X), X.shape[1]
    upper = np.full(d, np.inf)
    upper[0] = 0
    assert model.probability([-np.inf] * d, upper) == 0
    assert model.probability([-np.inf] * d, [np.inf] * d) == pytest.approx(1)
    assert "columns as they are: box" in str(model.plan_)
    monkeypatch.setattr(selector, "maps_of_ends", lambda *_: None)
    before = kind(random_state=0).fit(X)
    assert before.probability([-np.inf] * d, upper) > 0
    assert model.score(fresh) > before.score(fresh) - 0.001


@pytest.mark.parametrize("kind", [QAFFDE, QAFFDESGD])
def test_a_uniform_square_keeps_its_box(kind):
    for seed in range(2):
        model = kind(random_state=seed).fit(np.random.default_rng(seed).random((2000, 2)))
        assert model.base_measure_ == "box"
        assert model.plan_.columns is None


def test_maps_are_offered_to_untuned_fits_with_an_end_only():
    rows = np.random.default_rng(0).exponential(size=(600, 1))
    summary = summarize(rows, random_state=0)
    assert maps_of_ends(summary, ModelSpec(), SelectionPolicy())[0].ends[0] == 0
    others = [{"bandwidth": 0.3}, {"base_measure": "box"}, {"transformation": None}, {"rank": 3}]
    others += [{"bounds": (0, None)}, {"open_ended": True}, {"n_features": 32}]
    for given in others:
        assert maps_of_ends(summary, ModelSpec(**given), SelectionPolicy()) is None
    for plain in (
        rows - 0.5,
        rows + 9,
        np.random.default_rng(0).normal(size=(600, 1)),
        rows[:150],
    ):
        plain = summarize(plain, random_state=0)
        assert maps_of_ends(plain, ModelSpec(), SelectionPolicy()) is None
