"""Outliers of a table with kinds of columns and gaps."""

import numpy as np
import pandas as pd
import pytest

from qaffde import QAFFDE, QAFFDEOutlierDetector, QAFFDETensorTrain, TensorTrainConfig, load

RNG = np.random.default_rng(0)
CITY = RNG.choice(["Bogotá", "Cali"], 300)
TABLE = pd.DataFrame(
    {
        "city": CITY,
        "age": RNG.poisson(np.where(CITY == "Cali", 20, 60)),
        "size": RNG.normal(size=300),
    }
)
TABLE.loc[::20, "size"] = np.nan


@pytest.fixture(scope="module")
def detector():
    return QAFFDEOutlierDetector(QAFFDE(base_measure=2, random_state=0), random_state=0).fit(TABLE)


def test_rows_are_judged_by_all_their_columns(detector, tmp_path):
    rows = pd.DataFrame(
        {
            "city": ["Cali", "Cali", "Bogotá", "Cali"],
            "age": [20, 60, 60, 20],
            "size": [0, 0, 0, 9.0],
        }
    )
    assert detector.predict(rows).tolist()[::2] == [1, 1]
    assert detector.predict(rows[3:]).tolist() == [-1]
    usual, elsewhere = detector.score_samples(rows)[:2]
    assert elsewhere < usual - 4
    detector.save(tmp_path / "detector")
    again = load(tmp_path / "detector")
    np.testing.assert_allclose(again.score_samples(TABLE), detector.score_samples(TABLE))


def test_few_rows_of_the_table_are_outliers(detector):
    assert 0 < (detector.predict(TABLE) == -1).mean() < 0.05


def test_labels_that_were_not_there_are_named(detector):
    with pytest.raises(ValueError, match="column 'city' has no category 'Pasto'"):
        detector.predict(TABLE[:1].assign(city="Pasto"))


def test_trains_are_fitted_again_without_each_fold():
    training = TensorTrainConfig(max_steps=100, bond=8, n_functions=6)
    train = QAFFDETensorTrain(training=training, random_state=0)
    detector = QAFFDEOutlierDetector(train, random_state=0).fit(TABLE)
    rows = pd.DataFrame({"city": ["Cali", "Bogotá"], "age": [20, 60], "size": [0.0, 9.0]})
    assert detector.predict(rows).tolist() == [1, -1]
    assert np.isfinite(detector.out_of_fold_scores_).all()
