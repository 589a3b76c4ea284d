"""The benchmark runs in small and its rows say what they must; no time is judged here."""

import math

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
    assert [row["comparison"] for row in bounded] == ["fit"] + ["score"] * 8
    settings = {(row.get("base_measure"), row.get("rank"), row["n"]) for row in bounded}
    assert len(settings) == 9
    assert {row["n_features"] for row in rows} == {31, 32}  # the lattice of two columns is odd


def test_ratios_are_to_the_bare_operations(rows):
    assert all(math.isfinite(row["ratio"]) and row["ratio"] > 0 for row in rows)
    for row in rows:
        if row["case"] in ("phi.T @ phi", "x @ W.T, cos, @ L.T, square, sum"):
            bare = row["seconds"]
            assert row["ratio"] == 1.0
        assert row["ratio"] == row["seconds"] / bare


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
    X, h = overhead._points(100), overhead.torch.ones(2, dtype=overhead.torch.float64)
    features = overhead.FourierFeatures.draw("sobol", 16, h)
    weight = overhead.torch.ones(100, dtype=overhead.torch.float64)
    ours = overhead.density_matrix(features, overhead.row_batches(X, weight)).numpy()
    assert overhead._features_and_product(X, features) == pytest.approx(ours)
    assert overhead._product_by_blocks(features(X).numpy()) == pytest.approx(ours)


def test_command_prints_both_ratios_and_writes_rows(tmp_path, capsys):
    path = tmp_path / "new" / "rows.jsonl"
    main.main(["--repetitions", "1", "--out", str(path)], TINY)
    printed = capsys.readouterr().out
    assert "fit: " in printed
    assert "score: " in printed
    assert "threads on" in printed
    assert len(main.read_rows(path)) == 5 + 8 * 2


def test_verdict_tells_a_ratio_above_the_bound():
    rows = [
        {"comparison": "fit", "ratio": 2.5, "bound": 2.0},
        {"comparison": "score", "ratio": 1.2, "bound": 1.5},
        {"comparison": "score", "ratio": 1.4, "bound": 1.5},
        {"comparison": "score", "ratio": 9.0, "bound": None},
    ]
    fit, score = main.verdict(rows).splitlines()
    assert fit == "fit: 2.50 times the bare operations at most, ABOVE the bound of 2"
    assert score == "score: 1.40 times the bare operations at most, within the bound of 1.5"
