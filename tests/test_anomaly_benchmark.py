"""The comparison of outlier detectors runs in small, and its page is rebuilt from rows."""

import numpy as np
import pytest

anomaly = pytest.importorskip(
    "benchmarks.anomaly", reason="lives in the repository, not in the package"
)
from experiments.rows import write_rows  # noqa: E402

BEGIN, END = "<!-- anomaly:begin -->", "<!-- anomaly:end -->"


@pytest.mark.parametrize("name", anomaly.SETS)
def test_training_rows_hold_a_few_outliers_and_none_of_the_test_rows(name):
    train, test, is_outlier = anomaly.split(name, seed=0)
    inliers, outliers = anomaly.SETS[name](np.random.default_rng(0))
    assert len(train) + len(test) == len(inliers) + len(outliers)
    n_outliers = len(outliers) - is_outlier.sum()
    assert n_outliers / len(train) == pytest.approx(anomaly.CONTAMINATION, abs=0.01)
    assert train.shape[1] == test.shape[1]
    assert (np.ptp(train, axis=0) > 0).all()


def test_constants_and_copies_are_no_columns():
    x = np.arange(5.0)
    columns = np.stack([x, np.ones(5), 3 - 2 * x, x**2], axis=1)
    assert anomaly.informative_columns(columns) == [0, 3]


@pytest.mark.parametrize("method", anomaly.METHODS)
def test_every_method_tells_outliers(method):
    row = anomaly.measure("iris, 0 and 1", 0, method)
    assert 0.7 < row["roc_auc"] < 1
    assert row["n_train"] == 53


def test_what_is_there_is_not_run_again(tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(anomaly, "measure", lambda *key: calls.append(key) or row(*key, 0.5))
    path = str(tmp_path / "rows.jsonl")
    for _ in range(2):
        anomaly.main(["run", "--sets", "moons", "--seeds", "1", "--out", path])
    assert [method for _, _, method in calls] == list(anomaly.METHODS)
    assert "moons, seed 1, LOF: 0.5000" in capsys.readouterr().out


def row(name, seed, method, auc):
    figures = {"roc_auc": auc, "n_train": 9, "columns": 2, "fit_seconds": 1.0}
    return {"set": name, "seed": seed, "method": method, **figures}


def test_the_best_mean_is_bold_and_stands_between_the_markers(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    auc = {"QAFFDE": 0.8, "isolation forest": 0.7, "LOF": 0.9, "KDE": 0.6}
    rows = [row("moons", s, m, a + s / 100) for m, a in auc.items() for s in (0, 2)]
    write_rows(rows, tmp_path / "rows.jsonl")
    anomaly.main(["report", "--results", str(tmp_path / "rows.jsonl"), "--page", str(page)])
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| set | rows")
    assert "| moons | 9 | 2 | 0.810 | 0.710 | **0.910** | 0.610 | 1.0 |" in text
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
