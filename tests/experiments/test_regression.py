"""The comparison of regressions in small, on a set that the test makes."""

import numpy as np
import pytest

from experiments import regression
from experiments.config import RegressionBudget, RegressionConfig, load_config
from experiments.regression import (
    Classes,
    Comparison,
    quantile_scores,
    regression_cells,
    regression_page,
)
from experiments.rows import read_rows
from experiments.runner import Files, run_cells

CONFIG = RegressionConfig(
    "Regression",
    ("line",),
    ("qaffde", "quantile_boosting"),
    ("steps",),
    ("boosting_classes",),
    {"others": [9.0], "more": [8.0]},
    {"quick": RegressionBudget(n_splits=1)},
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("regression")
    (folder / "uci_regression").mkdir()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=300)
    test = np.arange(300)[None] % 5 == 0
    np.savez(folder / "uci_regression/line.npz", X=X, y=y, test=test)
    np.savez(folder / "uci_regression/steps.npz", X=X, y=y.round(), test=test)
    files = Files(folder, "regression-quick")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regression, "TABLES", folder)
        run_cells(regression_cells(CONFIG, "quick"), files)
    return read_rows(files.rows)


def test_each_method_has_a_row_with_its_figures(rows):
    assert [(row["set"], row["method"]) for row in rows] == [
        ("line", "qaffde"),
        ("line", "quantile_boosting"),
        ("steps", "boosting_classes"),
    ]
    ours, quantiles, classes = (row["metrics"] for row in rows)
    truth = 0.5 * np.log(2 * np.pi * np.e * 0.01)
    assert truth - 0.3 < ours["nll"] < truth + 0.5
    assert quantiles["nll"] is None
    assert ours["crps"] < quantiles["crps"]
    assert 0 < classes["nll"] < np.log(7)


def test_page_compares_with_the_lowest_published_figure(rows):
    page = regression_page(rows, CONFIG, "Rebuild.")
    ours = Comparison(rows, CONFIG).cell("line", "qaffde", "nll")
    assert f"| line | 1 | {ours} | – | 8.00 more |" in page


def test_scores_of_quantiles_are_those_of_a_known_distribution():
    class Uniform:
        def predict_quantile(self, X, q):
            return np.tile(q, (len(X), 1))

    y = (np.arange(1000) + 0.5) / 1000
    found = quantile_scores(Uniform(), y[:, None], y)
    assert found["crps"] == pytest.approx(1 / 6, abs=1e-3)  # ∫∫ (1{y ≤ t} − t)² dt dy
    assert found["coverage"] == pytest.approx(0.9, abs=2e-3)
    assert found["absolute_error"] == pytest.approx(0.25, abs=1e-3)


def test_classes_have_mass_one_and_quantiles_among_them():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 1)), rng.integers(3, 6, 60).astype(float)
    model = Classes(regression.HistGradientBoostingClassifier, random_state=0)
    model.fit(X, y)
    masses = model.masses(X)
    assert np.allclose(masses.sum(1), 1)
    assert (masses > 0).all()
    assert set(np.unique(model.predict_quantile(X, [0.1, 0.5, 0.9]))) <= {3.0, 4.0, 5.0}


def test_unknown_names_are_told():
    with pytest.raises(ValueError, match="regression has no set 'arc'; it has line, steps"):
        regression_cells(CONFIG, "quick", sets=("arc",))


def test_published_figures_are_of_all_sets():
    config = load_config("regression", RegressionConfig)
    assert {len(figures) for figures in config.published.values()} == {len(config.sets)}
