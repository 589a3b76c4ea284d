"""The comparison of kernel density estimates in small; no time is judged here."""

import json
import math
import signal
from multiprocessing import get_context

import numpy as np
import pytest

kernel_peers = pytest.importorskip(
    "benchmarks.kernel_peers", reason="lives in the repository, not in the package"
)
from benchmarks import peer_data, peer_methods, peer_report, peer_worker  # noqa: E402
from tests.dying import send_and_die  # noqa: E402

BEGIN, END = "<!-- kernel_peers:begin -->", "<!-- kernel_peers:end -->"
H = 0.4
CELL = peer_data.Cell(400, 2, seed=3, n_queries=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    peer_data.prepare(CELL, folder)
    return folder


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 2)), rng.normal(size=(20, 2))


def test_rows_are_white_and_the_exact_answer_is_the_sum_of_kernels(folder):
    X, Q, exact = (CELL.load(folder, what) for what in ("rows", "queries", "exact"))
    assert np.cov(X.T) == pytest.approx(np.eye(2), abs=1e-10)
    h = CELL.bandwidth
    squares = np.square(Q[:, None] - X).sum(-1)
    density = np.exp(-squares / (2 * h**2)).mean(1) / (2 * np.pi * h**2)
    assert np.exp(exact) == pytest.approx(density)


def test_truth_is_that_of_the_whitened_rows(folder):
    X, Q, truth = (CELL.load(folder, what) for what in ("rows", "queries", "truth"))
    other = peer_data.exact_log_density(X, Q, CELL.bandwidth)
    assert truth.mean() == pytest.approx(other.mean(), abs=0.3)


@pytest.mark.parametrize(
    ("n", "answered"), [(10_000, 10_000), (1_000_000, 5000), (10_000_000, 500)]
)
def test_fewer_queries_are_answered_exactly_where_rows_are_many(n, answered):
    assert peer_data.n_exact(peer_data.Cell(n, 2)) == answered


CLOSE = {
    "qaffde-full": 0.05,
    "sklearn-exact": 1e-6,
    "sklearn-1e-2": 0.011,
    "scipy": 1e-6,
    "kdepy-fft": 0.02,
    "kdepy-tree": 0.05,
    "mlpack": 0.011,
    "figtree": 0.011,
}


@pytest.mark.parametrize("name", CLOSE)
@pytest.mark.filterwarnings("ignore")
def test_methods_mean_the_same_kernel(name, points):
    method = peer_methods.METHODS[name]
    for module in method.modules:
        pytest.importorskip(module, exc_type=ImportError)
    X, Q = points
    white = (X - X.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(X.T))).T
    exact = peer_data.exact_log_density(white, Q, H)
    before = white.copy()
    ours = method.fit(white, H).score_samples(Q)
    assert np.array_equal(white, before)
    assert np.median(np.abs(np.expm1(ours - exact))) <= CLOSE[name]


def test_bare_cost_is_the_sum_of_squares(points):
    X, Q = points
    sums = peer_methods.fit_bare(X, H, 7).score_samples(Q)
    generator = peer_methods.torch.Generator().manual_seed(0)
    D = peer_methods.N_FEATURES
    W, L = (peer_methods._normal(shape, generator).numpy() for shape in ((D, 2), (7, D)))
    assert sums == pytest.approx(np.square(np.cos(Q @ W.T) @ L.T).sum(1))


class Slow:
    """Takes a tenth of a second for each query, or for a power of them, by a clock of its own."""

    def __init__(self, monkeypatch, power=1.0):
        self.now, self.power = 0.0, power
        self.sizes = []
        monkeypatch.setattr(peer_worker.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(peer_worker.time, "process_time", lambda: 2 * self.now)

    def score_samples(self, X):
        self.now += 0.1 * len(X) ** self.power
        self.sizes.append(len(X))
        return np.zeros(len(X))


@pytest.mark.parametrize(("limit", "sizes"), [(1000, [10, 100, 1000]), (50, [10, 100])])
def test_slow_methods_score_fewer_queries_and_are_scaled_up(monkeypatch, limit, sizes):
    slow = Slow(monkeypatch)
    scores, row = peer_worker.time_scoring(slow, np.zeros((1000, 2)), limit)
    assert slow.sizes == sizes
    assert len(scores) == row["n_scored"] == sizes[-1]
    assert row["extrapolated"] == (sizes[-1] < 1000)
    assert row["score_seconds"] == pytest.approx(100)
    assert row["score_cpu_seconds"] == pytest.approx(200)


def test_what_grows_by_less_is_scaled_up_by_less(monkeypatch):
    monkeypatch.setattr(peer_worker, "MIN_SECONDS", 0.0)
    slow = Slow(monkeypatch, power=0.5)
    _, row = peer_worker.time_scoring(slow, np.zeros((10_000, 2)), limit=5)
    assert slow.sizes == [10, 100, 1000]
    assert row["score_seconds"] == pytest.approx(0.1 * 100)


def test_quick_methods_are_repeated():
    class Quick:
        def score_samples(self, X):
            return np.zeros(len(X))

    _, row = peer_worker.time_scoring(Quick(), np.zeros((50, 2)), 1)
    assert row["repetitions"] == peer_worker.MAX_REPETITIONS


def test_errors_are_relative_to_the_exact_density():
    exact = np.log([1.0, 2.0, 4.0])
    row = peer_worker.judge(np.log([1.1, 1.0, 4.0, 9.0]), exact, exact)
    assert (row["n_judged"], row["median_error"]) == (3, pytest.approx(0.1))
    nothing = peer_worker.judge(np.array([-np.inf, 0.0]), exact, exact)
    assert nothing["mean_log_density"] is None
    assert json.dumps(nothing)


def test_a_process_that_is_ended_leaves_what_it_had_found():
    found, code = peer_worker.in_fresh_process(send_and_die, 1.0)
    assert (found, code) == ({"fit_seconds": 1.0}, -signal.SIGALRM)


@pytest.mark.parametrize(
    ("number", "fitted", "reason"),
    [
        (signal.SIGALRM, False, "fit took over 300 s"),
        (signal.SIGALRM, True, "scoring a few took over 240 s"),
        (signal.SIGSEGV, True, "process ended by SIGSEGV"),
    ],
)
def test_reason_says_what_took_too_long(number, fitted, reason):
    assert peer_worker._cause(number, peer_worker.Limits(), fitted=fitted) == reason


class Sink(list):
    """A connection that keeps what is sent."""

    send = list.append


def test_a_library_that_is_missing_is_named(monkeypatch, folder):
    missing = peer_methods.Method("missing", peer_methods.fit_scipy, ("not_there",), "not-there")
    monkeypatch.setitem(peer_methods.METHODS, "figtree", missing)
    monkeypatch.setattr(peer_worker.os, "dup2", lambda *_: None)
    peer_worker._work(sink := Sink(), "figtree", CELL, folder, peer_worker.Limits(), None)
    assert sink == [{"reason": "ModuleNotFoundError: No module named 'not_there'"}]
    assert peer_worker._package("not-there") == "not-there, not installed"


def test_a_grid_is_for_two_columns():
    row = peer_worker.measure("kdepy-fft", peer_data.Cell(9, 8), None, peer_worker.Limits(), None)
    assert row["reason"] == "for 2 columns only"


def test_commands_append_rows_once_and_write_the_page(tmp_path, monkeypatch, capsys):
    """In forks of this process, which have torch: fresh ones are tested above."""
    monkeypatch.setattr(kernel_peers, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(peer_worker, "get_context", lambda _: get_context("fork"))
    out, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    sizes = ["--columns", "2", "--queries", "40", "--folder", str(tmp_path), "--out", str(out)]
    arguments = ["run", "--rows", "300", *sizes, "--methods", "qaffde-100", "scipy"]
    kernel_peers.main(arguments)
    kernel_peers.main(arguments)
    ours, scipy = kernel_peers.read_rows(out)
    assert [ours["method"], scipy["method"]] == ["qaffde-100", "scipy"]
    assert scipy["median_error"] < 1e-6
    assert min(ours["peak_mib"], scipy["peak_mib"]) > 0
    assert {row["n_judged"] for row in (ours, scipy)} == {40}

    kernel_peers.main(["constant", "--rows", "400", "300", *sizes, "--methods", "qaffde-100"])
    row = kernel_peers.read_rows(out)[-1]
    assert row["n"] == [300, 400]
    assert row["ratio"] > 0

    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    kernel_peers.main(["report", "--results", str(out), "--page", str(page)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("above")
    assert text.endswith("below\n")
    assert "## 2 columns, 300 rows" in text
    assert "fitted to 400 rows as when to 300" in text
    assert "old" not in text
    assert text.split("begin -->\n")[1].split("\n<!--")[0] in capsys.readouterr().out
    assert (tmp_path / "figures" / "kernel_peers.png").exists()


def test_report_wants_rows(tmp_path):
    with pytest.raises(SystemExit, match="no rows; run"):
        kernel_peers.main(["report", "--results", str(tmp_path / "none.jsonl")])


def peer_row(method, n, d, seconds, **others):
    figures = {"fit_seconds": 1.0, "fit_cpu_seconds": 1.0, "peak_mib": 1.0, "n_scored": 10_000}
    row = {"comparison": "peers", "round": 0, "method": method, "n": n, "d": d}
    return row | figures | {"score_seconds": seconds, "extrapolated": False} | others


def test_targets_are_judged():
    rows = [
        peer_row("qaffde-100", 100_000, 2, 0.1, median_error=0.03),
        peer_row("bare-100", 100_000, 2, 0.05),
        peer_row("sklearn-1e-2", 100_000, 2, 9.0),
        peer_row("mlpack", 100_000, 2, 6.0),
        peer_row("kdepy-fft", 100_000, 2, 0.02),
        peer_row("qaffde-100", 1_000_000, 2, 0.1, median_error=0.01, fit_cpu_seconds=10.0),
        peer_row("mlpack", 1_000_000, 2, 40.0),
        peer_row("qaffde-100", 10_000, 2, 0.1, fit_cpu_seconds=0.1),
    ]
    rows.append({"comparison": "constant", "method": "qaffde-100", "d": 2, "n": [9, 99]})
    rows[-1]["ratio"] = 1.2
    lines = peer_report.verdicts(rows)
    found = [line for line in lines if "target" in line]
    assert ["MISSED" if "MISSED" in line else "reached" for line in found] == [
        *("MISSED", "reached", "MISSED"),  # 90 of 100, 60 of 50, 400 of 500 times
        "MISSED",  # twice the bare cost
        *("MISSED", "reached"),  # 3 % and 1 %
        *("reached", "MISSED"),  # slope 1, and 1.2 times as long
    ]
    assert "grows as N^1.00 from N = 10,000 to 1,000,000" in found[-2]
    assert "N = 100,000, d = 2: the grid scores 5 times as fast as ours" in lines


def test_rounds_are_merged_by_medians_and_failures_passed_over():
    rounds = [peer_row("scipy", 9, 2, seconds) for seconds in (1.0, 5.0, 2.0)]
    failed = {"comparison": "peers", "round": 3, "method": "scipy", "n": 9, "d": 2, "reason": "x"}
    merged = peer_report.gather([*rounds, failed])[2, 9]["scipy"]
    assert merged["score_seconds"] == 2.0
    assert "reason" not in merged
    assert "x |" in peer_report.table(peer_report.gather([failed])[2, 9])


def test_extrapolated_times_are_marked():
    row = peer_row("scipy", 9, 2, 30.0, extrapolated=True, n_scored=100)
    ours = peer_row("qaffde-100", 9, 2, 0.1)
    line = peer_report.table({"qaffde-100": ours, "scipy": row}).splitlines()[-1]
    assert "| ~30 | 300 |" in line
    assert "from 100 queries" in line


def test_slope_is_that_of_the_power():
    assert peer_report.log_slope([1.0, 2.0, 4.0], [3.0, 12.0, 48.0]) == pytest.approx(2)
    assert math.isclose(peer_report.log_slope([1.0, 10.0], [5.0, 5.0]), 0, abs_tol=1e-12)
