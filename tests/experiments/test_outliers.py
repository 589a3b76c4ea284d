"""The comparison of outlier detectors in small, on sets that the test makes."""

import numpy as np
import pytest

from experiments import outliers
from experiments.config import OutliersBudget, OutliersConfig, load_config
from experiments.outliers import Comparison, outlier_cells, outliers_page, split
from experiments.rows import read_rows
from experiments.runner import Files, run_cells

pytest.importorskip("pyod.models.base", reason="PyOD is not installed")

CONFIG = OutliersConfig(
    "Outliers",
    ("near", "far"),
    ("qaffde", "kde", "iforest"),
    "far",
    ("kde",),
    "What was seen.",
    {
        "one-class": {"A": [50.0, 99.9], "B": [40.0, 30.0]},
        "contaminated": {"A": [50.0, 60.0], "B": [99.0, 99.0]},
    },
    {"quick": OutliersBudget(seeds=(0,), max_rows=300, growth=(50,))},
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outliers")
    (folder / "adbench").mkdir()
    rng = np.random.default_rng(0)
    y = np.arange(400) % 10 == 0
    for number, (name, away) in enumerate({"Near": 2.0, "Far": 4.0}.items()):
        X = rng.normal(size=(400, 3)) + away * y[:, None]
        np.savez(folder / f"adbench/{number}_{name}.npz", X=X, y=y.astype(int))
    files = Files(folder, "outliers-quick")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outliers, "TABLES", folder)
        run_cells(outlier_cells(CONFIG, "quick"), files)
    return read_rows(files.rows)


def test_each_method_has_rows_of_both_protocols(rows):
    assert {row["status"] for row in rows} == {"complete"}
    assert len(rows) == 3 * 2 * 2 + 1
    assert all(row["metrics"]["roc_auc"] > 0.85 for row in rows if row["set"] == "near")
    assert all(row["metrics"]["roc_auc"] > 0.95 for row in rows if row["set"] == "far")


def test_inliers_alone_are_trained_on():
    X = np.arange(100.0)[:, None]
    y = X[:, 0] % 10 == 0
    train, test, is_outlier = split(X, y, "one-class", 1000, 0)
    assert len(train) == 45
    assert not y[train[:, 0].astype(int)].any()
    assert sorted(np.concatenate([train, test])[:, 0]) == X[:, 0].tolist()
    assert (y[test[:, 0].astype(int)] == is_outlier).all()
    train, test, is_outlier = split(X, y, "contaminated", 60, 0)
    assert len(train) == 60
    assert (train == test).all()


def test_means_and_ranks_are_those_of_the_figures(rows):
    results = Comparison(rows, CONFIG, "one-class")
    assert results.best_published == "A"
    assert results.mean("A") == pytest.approx(74.95)
    assert sum(results.ranks.values()) == pytest.approx(5 * 6 / 2)
    assert results.ranks["B"] == 5
    assert results.critical_difference == pytest.approx(4.31, abs=0.01)  # q = 2.728 of 5 methods


def test_a_method_without_all_sets_is_left_out(rows):
    some = [row for row in rows if (row["method"], row["set"]) != ("kde", "near")]
    names = Comparison(some, CONFIG, "one-class").all
    assert "KDE, Scott (here)" not in names
    assert "IForest (here)" in names


def test_seeds_that_ours_lacks_do_not_count(rows):
    more = [dict(row, seed=1, metrics={"roc_auc": 0.0}) for row in rows if row["method"] == "kde"]
    before, after = (Comparison(part, CONFIG, "one-class") for part in (rows, [*rows, *more]))
    assert after.seeds == [0]
    assert after.all == before.all


def test_page_follows_its_rows(rows):
    page = outliers_page(rows, CONFIG, "Rebuild.")
    ours = Comparison(rows, CONFIG, "one-class")
    mean = f"| QAFFDEOutlierDetector | {ours.mean('QAFFDEOutlierDetector'):.1f} |"
    assert mean in page
    assert "What was seen." in page
    worse = [dict(row, metrics={**row["metrics"], "roc_auc": 0.1}) for row in rows]
    assert mean not in outliers_page(worse, CONFIG, "Rebuild.")


def test_unknown_names_are_told():
    with pytest.raises(ValueError, match="outliers has no set 'arc'; it has near, far"):
        outlier_cells(CONFIG, "quick", sets=("arc",))


def test_published_figures_are_of_all_sets():
    config = load_config("outliers", OutliersConfig)
    for table in config.published.values():
        assert {len(figures) for figures in table.values()} == {len(config.sets)}
        assert len(table) == 26


def test_best_published_means_are_those_of_the_paper():
    config = load_config("outliers", OutliersConfig)
    best = {p: Comparison([], config, p) for p in outliers.PROTOCOLS}
    assert best["one-class"].best_published == "DTE-NP"
    assert best["contaminated"].best_published == "HBOS"
