"""The comparisons of speed in small; no time is judged here."""

import io
import json
from contextlib import redirect_stdout
from functools import partial

import numpy as np
import pytest
from sklearn.neighbors import KernelDensity

import qaffde
from qaffde import QAFFDE, QAFFDESGD, TrainingConfig

speed = pytest.importorskip(
    "benchmarks.speed", reason="lives in the repository, not in the package"
)
BEGIN, END = "<!-- speed:begin -->", "<!-- speed:end -->"
TINY = speed.Sizes(
    n_kde=200,
    n_planar=200,
    n_gmm=500,
    n_power=300,
    n_five=300,
    n_planes=300,
    n_demo=200,
    n_score=100,
    flow_steps=2,
    repetitions=1,
    time_limit=5,
)


@pytest.fixture
def cheap(monkeypatch):
    """Estimators that search nothing."""
    given = {"n_features": 20, "bandwidth": 1.0, "base_measure": 2}
    found = {
        "QAFFDE": partial(QAFFDE, **given),
        "QAFFDESGD": partial(QAFFDESGD, **given, ridge=0.1, training=TrainingConfig(max_iter=5)),
    }
    assert list(found) == list(speed.OURS)
    monkeypatch.setattr(speed, "OURS", found)
    for name, estimator in found.items():
        monkeypatch.setattr(qaffde, name, estimator)


@pytest.fixture
def no_processes(monkeypatch):
    """Children that answer at once; returns the commands that were asked for."""
    asked = []

    def answer(*arguments, threads=1):
        asked.append((arguments, threads))
        if arguments[1] == speed.FIT_IN_CHILD:
            times = {"seconds": 2.0 if threads else 3.0, "cpu_seconds": 1.0}
            return json.dumps(dict.fromkeys(speed.OURS, times))
        return "sys pandas torch"

    monkeypatch.setattr(speed, "_python", answer)
    monkeypatch.setattr(speed, "_children", lambda: float(len(asked)))
    return asked


@pytest.fixture
def power_data(tmp_path, monkeypatch):
    monkeypatch.setenv("QAFFDE_DATA", str(tmp_path))
    (tmp_path / "power").mkdir()
    for seed, part in enumerate(("train", "test")):
        rows = np.random.default_rng(seed).normal(size=(400, 6)).astype(np.float32)
        np.save(tmp_path / "power" / f"{part}.npy", rows)


@pytest.mark.usefixtures("cheap", "no_processes", "power_data")
def test_every_line_has_a_row_and_is_not_measured_again(tmp_path, capsys, monkeypatch):
    path, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    monkeypatch.setitem(
        speed.LINES, "fit_planar", speed.LINES["fit_planar"]._replace(sets=("arc", "binomial"))
    )
    before = speed.torch.get_num_threads()
    speed.main(["run", "--flow-sets", "arc", "--out", str(path)], TINY)
    assert speed.torch.get_num_threads() == before
    rows = speed.read_rows(path)
    assert [row["line"] for row in rows] == sorted(
        [*speed.LINES, "fit_planar", "planes"], key=list(speed.LINES).index
    )
    assert all(row["threads"] == 1 and row["sizes"]["n_kde"] == 200 for row in rows)
    for row in rows:
        for case, of in row["cases"].items():
            known = row["line"].startswith("fit_")
            assert ("excess_nll" in of) == known, case
    planar = {row["set"]: row["cases"] for row in rows if row["line"] == "fit_planar"}
    assert "NSF" in planar["arc"]
    assert "NSF" not in planar["binomial"]
    power = next(row["cases"] for row in rows if row["line"] == "power")
    assert all(np.isfinite(power[case]["log_likelihood"]) for case in speed.OURS)
    assert all(of["score_cpu_seconds"] > 0 for of in power.values())

    speed.main(["run", "--flow-sets", "arc", "--out", str(path)], TINY)
    assert speed.read_rows(path) == rows
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    capsys.readouterr()
    speed.main(["report", "--results", str(path), "--page", str(page)])
    table = speed.table(rows)
    assert capsys.readouterr().out.strip() == table
    assert page.read_text(encoding="utf-8") == f"above\n{BEGIN}\n{table}\n{END}\nbelow\n"


def test_a_row_without_the_flow_is_measured_again_when_the_flow_is_wanted(tmp_path, monkeypatch):
    path, asked = tmp_path / "rows.jsonl", []

    def measure(name, sizes):
        asked.append((name, name in sizes.flow_sets))
        return {"NSF": {}} if name in sizes.flow_sets else {}

    line = speed.Line("", ("arc",), measure)
    monkeypatch.setitem(speed.LINES, "fit_planar", line)
    for flow_sets in ((), (), ("arc",), ("arc",), ()):
        speed.run(["fit_planar"], speed.replace(TINY, flow_sets=flow_sets), path)
    assert asked == [("arc", False), ("arc", True)]


def test_power_is_skipped_with_a_message_where_its_rows_are_not(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("QAFFDE_DATA", str(tmp_path))
    speed.run(["power"], TINY, tmp_path / "rows.jsonl")
    assert "power: skipped, power/train.npy is not in the folder" in capsys.readouterr().out
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize("dtype", [speed.torch.float64, speed.torch.float32])
def test_bandwidth_is_that_of_scikit_learns_estimate_on_the_same_folds(dtype):
    X = speed.get_target("swiss_roll").sample(150, random_state=0)
    n, d = X.shape
    rows = X[np.random.default_rng(0).permutation(n)]
    largest = X.std(axis=0).mean() * n ** (-1 / (d + 4))
    bandwidths = np.geomspace(largest / 30, largest, 20)
    fold = np.arange(n) % 5
    likelihoods = [
        sum(
            KernelDensity(bandwidth=h, rtol=0).fit(rows[fold != k]).score(rows[fold == k])
            for k in range(5)
        )
        for h in bandwidths
    ]
    chosen = speed.cross_validated_bandwidth(X, dtype)
    assert chosen == pytest.approx(bandwidths[np.argmax(likelihoods)])


@pytest.mark.usefixtures("cheap")
def test_child_fits_every_estimator(monkeypatch):
    monkeypatch.setattr("sys.argv", ["-c", "arc", "200", *speed.OURS])
    with redirect_stdout(io.StringIO()) as printed:
        exec(speed.FIT_IN_CHILD, {})
    found = json.loads(printed.getvalue())
    assert list(found) == list(speed.OURS)
    assert all(times["seconds"] > 0 and times["cpu_seconds"] > 0 for times in found.values())


def test_threads_are_left_alone_where_the_line_is_about_them(no_processes):
    cases = speed.threads("arc", TINY)
    assert [threads for _, threads in no_processes] == [None, 1]
    assert cases["QAFFDE, default threads"]["seconds"] == 3.0
    assert cases["QAFFDE, one thread"]["seconds"] == 2.0
    speed.demo("arc", TINY)
    assert no_processes[-1][1] is None


def test_processes_have_the_threads_that_they_are_given(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    show = "import os; print(os.environ.get('OMP_NUM_THREADS'))"
    assert speed._python("-c", show).strip() == "1"
    assert speed._python("-c", show, threads=None).strip() == "None"
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        speed._python("-c", "1 / 0")


def test_imports_name_what_they_load(no_processes):
    cases = speed.imports("", TINY)
    assert {tuple(of["loads"]) for of in cases.values()} == {("pandas",)}
