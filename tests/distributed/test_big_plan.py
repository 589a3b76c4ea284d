"""The plan for 10¹¹ rows is arithmetic on measured rows, and its tables land in the page."""

import math

import pytest

big_plan = pytest.importorskip(
    "benchmarks.big_plan", reason="lives in the repository, not in the package"
)
big_costs = pytest.importorskip("benchmarks.big_costs")
big_model = pytest.importorskip("benchmarks.big_model")
big_tables = pytest.importorskip("benchmarks.big_tables")
pages = pytest.importorskip("experiments.pages")

MARKERS = ("plan", "assumptions", "costs", "limits")


def costs(d, n_features):
    of = {"d": d, "n_features": n_features, "frequencies": "sobol"}
    return [
        {"what": "pass", **of, "lengths": [1, 2], "slope": 3.6e-6, "flops": 1e6, "cosines": 1e3},
        {"what": "add", **of, "seconds": 0.0, "bytes": 8e6},
        {"what": "read", **of, "seconds": 3600.0},
        {"what": "parquet", "d": d, "slope": 0.0, "bytes": 16.0},
        {"what": "look", "d": d, "slope": 0.0},
    ]


FIXED = [{"what": "interpreter", "mib": 100.0}, {"what": "task", "lengths": [1, 2], "slope": 0.0}]


def all_costs():
    pairs = [(d, D) for d in big_costs.LENGTHS for D in big_costs.FEATURES]
    return [*FIXED, *(row for pair in pairs for row in costs(*pair))]


def test_the_plan_multiplies_slopes():
    plan = big_model.Plan(
        rows=1e9, passes=1, nodes=2, cores=5, price=3.0, efficiency=0.5, partition=1e6
    )
    found = big_model.planned(plan, big_model.Costs([*FIXED, *costs(2, 7)]), 2, 7)
    waiting = 16e9 / 2e9 + 1000 * 8e6 / 2e9
    assert found["stored"] == 16e9
    assert found["moved"] == 1000 * 8e6
    assert found["adding"] == pytest.approx(1.0)
    assert found["hours"] == pytest.approx(1 / (10 * 0.5) + waiting / 3600 + 1)
    assert found["money"] == pytest.approx(found["hours"] * 10 * 3)
    assert found["memory"] == pytest.approx(100 * 2**20 + 4 * 8 * 2 * 1e6 + 9 * 8e6)


def test_small_partitions_wait_for_the_scheduler():
    rows = [{"what": "interpreter", "mib": 0.0}, {"what": "task", "slope": 36.0}, *costs(2, 7)]
    plan = big_model.Plan(rows=1e9, passes=2, partition=1e7)
    found = big_model.planned(plan, big_model.Costs(rows), 2, 7)
    assert found["hours"] == pytest.approx(2 * 100 * 36 / 3600 + 1)


def test_a_lattice_of_the_needed_size_resolves_the_bandwidth():
    plan = big_model.Plan()
    D = big_model.needed(plan, 2)
    assert big_model.resolved(plan, 2, D) == pytest.approx(plan.rows ** (-1 / 6), rel=1e-3)
    h = big_model.resolved(plan, 2, 1000)
    points = math.pi * (plan.spectrum / (2 * h) * plan.period / (2 * math.pi)) ** 2
    assert points == pytest.approx(1000)


def test_the_page_is_filled_and_what_is_missing_is_told(tmp_path, capsys):
    page, rows = tmp_path / "page.md", tmp_path / "rows.jsonl"
    page.write_text("".join(f"<!-- {m}:begin -->\nold\n<!-- {m}:end -->\n" for m in MARKERS))
    options = ["--results", str(rows), "--page", str(page)]
    with pytest.raises(ValueError, match="big_plan run measures it"):
        big_plan.main(["report", *options])
    big_plan.write_rows(all_costs(), rows)
    big_plan.main(["report", *options, "--price", "7"])
    text = page.read_text()
    assert "old" not in text
    assert "| price of a core for an hour, in dollars: an assumption, not a quote | 7 |" in text
    assert "10¹¹ rows of 8 columns at D = 1000 on 256 cores" in text
    assert "10¹¹ rows of 8 columns" in capsys.readouterr().out


def test_markers_must_be_there_once(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- a:begin --><!-- a:end --><!-- a:end -->")
    with pytest.raises(ValueError, match="markers <!-- a:begin --> and <!-- a:end --> once"):
        pages.fill(page, "a", "text")


def test_costs_are_those_of_the_tasks(monkeypatch):
    monkeypatch.setattr(big_costs, "LENGTHS", {2: (1500, 3000)})
    monkeypatch.setattr(big_costs, "FEATURES", (32,))
    monkeypatch.setattr(big_costs, "PARQUET_ROWS", (500, 1000))
    monkeypatch.setattr(big_costs, "PARTITIONS", (3, 9))
    monkeypatch.setattr(big_costs, "REPETITIONS", 1)
    threads = big_costs.torch.get_num_threads()
    found = {row["what"]: row for row in big_costs.run()}
    assert big_costs.torch.get_num_threads() == threads
    assert set(found) == {"interpreter", "task", "parquet", "look", "pass", "add", "read"}
    assert found["pass"]["frequencies"] == "lattice"
    assert found["pass"]["flops"] < 32**2 * 5
    assert found["add"]["bytes"] > 8 * 31**2
    assert found["parquet"]["bytes"] >= 16
    table = big_tables.slope_table(big_model.Costs(list(found.values())))
    assert "| ρ, ends, moments | 2 | 32 | 1,500 and 3,000 |" in table


def test_work_of_other_frequencies_is_the_symmetric_product():
    W = big_costs.torch.randn(10, 8, dtype=big_costs.torch.float64)
    assert big_costs.work(W, 8) == {"flops": 10 * 11 + 2 * 8 * 10, "cosines": 10}
