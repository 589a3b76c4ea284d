"""Outliers of a table with kinds of columns and gaps."""

import numpy as np
import pandas as pd
import pytest

from qaffde import QAFFDE, QAFFDEOutlierDetector, load

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


def test_a_usual_age_of_another_city_is_an_outlier(detector, tmp_path):
    rows = pd.DataFrame({"city": ["Cali", "Cali"], "age": [20, 75], "size": [0.0, 1.0]})
    assert detector.predict(rows).tolist() == [1, -1]
    detector.save(tmp_path / "detector")
    again = load(tmp_path / "detector")
    np.testing.assert_allclose(again.score_samples(TABLE), detector.score_samples(TABLE))


def test_few_rows_of_the_table_are_outliers(detector):
    assert 0 < (detector.predict(TABLE) == -1).mean() < 0.05


def test_labels_that_were_not_there_are_named(detector):
    with pytest.raises(ValueError, match="column 'city' has no category 'Pasto'"):
        detector.predict(TABLE[:1].assign(city="Pasto"))
