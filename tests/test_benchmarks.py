"""The benchmark runs in small and its rows say what they must; no time is judged here."""

import math
from dataclasses import replace

import pytest

overhead = pytest.importorskip(
    "benchmarks.overhead", reason="lives in the repository, not in the package"
)
main = pytest.importorskip("benchmarks.__main__")

TINY = overhead.Sizes(
    n_train=300, n_score=(50, 80), n_features=32, ranks=(4, 1.0), repetitions=2, min_seconds=0
)


@pytest.fixture(scope="module")
def rows():
    return list(overhead.run(TINY))


def test_every_comparison_is_there_once(rows):
    bounded = [row for row in rows if row["bound"] is not None]
    expected = ["fit"] * 2 + ["score"] * 16 + ["call"] * 4 + ["epoch"]
    assert [row["comparison"] for row in bounded] == expected
    keys = ("comparison", "base_measure", "rank", "n", "d")
    assert len({tuple(row.get(key) for key in keys) for row in bounded}) == len(bounded)
    assert {row["d"] for row in rows} == {2, 8}
    assert {row["n_features"] for row in rows} == {31, 32}  # the lattice of two columns is odd


def test_ratios_are_to_the_bare_operations(rows):
    assert all(math.isfinite(row["ratio"]) and row["ratio"] > 0 for row in rows)
    for row in rows:
        if not row["case"].startswith("qaffde"):
            bare = row["seconds"]
            assert row["ratio"] == 1.0
        assert row["ratio"] == pytest.approx(row["seconds"] / bare)


def test_rows_name_their_origin(rows):
    assert all(row["versions"]["torch"] and row["threads"] > 0 for row in rows)
    assert {row["repetitions"] for row in rows} == {2}


@pytest.mark.parametrize(("min_seconds", "rounds"), [(0, 2), (14, 2), (15, 3)])
def test_rounds_are_interleaved_and_the_first_is_left_out(monkeypatch, min_seconds, rounds):
    order, clock = [], [0.0]
    costs = {"a": [100.0, 1.0, 5.0, 2.0], "b": [100.0, 4.0, 4.0, 7.0]}

    def spend(name):
        clock[0] += costs[name][order.count(name)]
        order.append(name)

    monkeypatch.setattr(overhead.time, "perf_counter", lambda: clock[0])
    cases = {name: (lambda name=name: spend(name)) for name in costs}
    times = overhead.interleave(cases, 2, min_seconds)
    assert times == {name: cost[1 : 1 + rounds] for name, cost in costs.items()}
    assert order == ["a", "b"] * (1 + rounds)


def test_bare_product_is_the_density_matrix():
    X, h = overhead._points(100, 2), overhead.torch.ones(2, dtype=overhead.torch.float64)
    features = overhead.FourierFeatures.draw("sobol", 16, h)
    weight = overhead.torch.ones(100, dtype=overhead.torch.float64)
    ours = overhead.density_matrix(features, overhead.row_batches(X, weight)).numpy()
    assert overhead._features_and_product(X, features) == pytest.approx(ours)


def test_bare_epoch_takes_the_steps_of_the_loop(monkeypatch):
    """The gradient by hand, against that of the library: Adam of one rate leads to one place."""
    torch = overhead.torch
    E = torch.rand(200, 6, generator=torch.Generator().manual_seed(1))
    state = overhead.DensityMatrix.draw(6, 2)
    bare = overhead.deepcopy(state)
    overhead._bare_epoch(bare, E)
    adam = torch.optim.Adam(state.parameters())
    for chosen in torch.randperm(200, generator=overhead._generator()).split(1024):
        adam.zero_grad()
        (-state(E[chosen]).mean()).backward()
        adam.step()
    assert torch.allclose(bare.factor, state.factor, atol=1e-6)


def test_command_prints_both_ratios_and_writes_rows(tmp_path, capsys):
    path = tmp_path / "new" / "rows.jsonl"
    sizes = replace(TINY, n_columns=(2,), base_measures=("box",))
    main.main(["--repetitions", "1", "--out", str(path)], sizes)
    printed = capsys.readouterr().out
    assert all(f"{name}: " in printed for name in ("fit", "score", "call", "epoch"))
    assert "threads on" in printed
    assert len(main.read_rows(path)) == 3 + 4 * 2 + 2 + 2


def test_verdict_tells_a_ratio_above_the_bound():
    rows = [
        {"comparison": "fit", "ratio": 2.5, "bound": 2.0},
        {"comparison": "score", "ratio": 1.2, "bound": 1.5},
        {"comparison": "score", "ratio": 1.4, "bound": 1.5},
        {"comparison": "score", "ratio": 9.0, "bound": None},
        {"comparison": "call", "ratio": 9.0, "seconds": 1e-4, "bound": 2e-4, "bounded": "seconds"},
    ]
    bare = "times the bare operations"
    assert main.verdict(rows).splitlines() == [
        f"fit: 2.50 {bare} at most, ABOVE the bound of 2.00 {bare}",
        f"score: 1.40 {bare} at most, within the bound of 1.50 {bare}",
        "call: 100 µs at most, within the bound of 200 µs",
    ]
