"""ONNX models of tables score as ours do: kinds of columns, atoms, gaps, waves."""

import numpy as np
import pytest

from qaffde import (
    QAFFDE,
    QAFFDESGD,
    Atom,
    Category,
    FileError,
    Integer,
    Periodic,
    QAFFDETensorTrain,
    Real,
    SelectionPolicy,
    TensorTrainConfig,
)
from tests.estimators.test_tables import KINDS, NAMES, QUICK, TABLE, draw, framed
from tests.files.test_onnx_export import scores
from tests.selection.test_table_waves import KINDS as CURVED
from tests.selection.test_table_waves import POLICY, curved

pytest.importorskip("onnx", reason="it is in the extra 'onnx'")
TEST, WAVY = draw(200, 7), curved(200, 7)
SHORT = TensorTrainConfig(max_steps=5, bond=4, n_functions=5)


@pytest.fixture(scope="module")
def mixture():
    return QAFFDE(columns=KINDS, policy=QUICK, random_state=0).fit(TABLE)


@pytest.fixture(scope="module")
def waves():
    model = QAFFDESGD(columns=CURVED, policy=POLICY, random_state=0).fit(curved(1500, 0))
    assert model.plan_.has_waves
    return model


def assert_agrees(model, rows, path, encoded=None):
    model.to_onnx(path)
    theirs = scores(path, rows if encoded is None else encoded)
    np.testing.assert_allclose(theirs, model.score_samples(rows), rtol=1e-12, atol=1e-9)


def test_a_mixture_of_all_kinds_with_gaps(mixture, tmp_path):
    rows = framed(TEST)
    assert_agrees(mixture, rows, tmp_path / "model", mixture.schema_.encode(rows))
    nothing = scores(tmp_path / "model", np.full((2, 5), np.nan))
    np.testing.assert_allclose(nothing, 0, atol=1e-12)


@pytest.mark.parametrize(
    ("column", "value"), [(0, 5), (1, -3), (1, 30.5), (2, -1), (3, 29.0), (4, -1), (4, 0)]
)
def test_values_that_cannot_be_and_those_beyond_a_period(mixture, tmp_path, column, value):
    row = np.array([[0, 30, 1e4, 5.0, 20.0]])
    mixture.to_onnx(tmp_path / "model")
    row[:, column] = value
    theirs, usual = scores(tmp_path / "model", row), column == 3 or value == 0
    assert np.isfinite(theirs).all() == usual
    if column == 3:
        row[:, 3] -= 24
        np.testing.assert_allclose(scores(tmp_path / "model", row), theirs, atol=1e-9)


@pytest.mark.parametrize("names", [["region", "income", "hour"], ["region"], ["amount", "age"]])
def test_marginals_and_conditionals_of_a_mixture(mixture, tmp_path, names):
    rows, places = framed(TEST)[names], [NAMES.index(name) for name in names]
    encoded = mixture.schema_.encode(framed(TEST))
    assert_agrees(mixture.marginal(names), rows, tmp_path / "model", encoded[:, places])
    given = mixture.condition({"hour": 4.0, "region": "west"})
    rest = [1, 2, 4]
    rows = framed(TEST)[[NAMES[k] for k in rest]]
    assert_agrees(given, rows, tmp_path / "given", encoded[:, rest])


@pytest.mark.parametrize("kept", [[0, 1, 2, 3], [0, 2], [2, 3], [1]])
def test_waves_score_whole_rows_and_gaps_are_not_a_number(waves, tmp_path, kept):
    model = waves if len(kept) == 4 else waves.marginal(kept)
    rows = WAVY[:, kept]
    has_gaps = np.isnan(rows).any(1)
    assert has_gaps.any()
    assert_agrees(model, rows[~has_gaps], tmp_path / "model")
    assert np.isnan(scores(tmp_path / "model", rows[has_gaps])).all()


def test_conditionals_of_waves(waves, tmp_path):
    rows = WAVY[~np.isnan(WAVY).any(1)]
    assert_agrees(waves.condition({0: 5.0}), rows[:, 1:], tmp_path / "model")
    assert_agrees(waves.condition({1: 0.5, 2: 12}), rows[:, [0, 3]], tmp_path / "model")


def test_real_columns_with_gaps(tmp_path):
    X = np.exp(np.random.default_rng(0).normal(size=(300, 3)))
    X[::5, 1] = np.nan
    model = QAFFDE(transformation="normal", random_state=0).fit(X)
    assert_agrees(model, X, tmp_path / "model")


def test_a_train_of_kinds_without_atoms(tmp_path):
    rows = TEST[~np.isnan(TEST).any(1)][:, :4]
    columns = [Category(range(5)), Integer(), Real(lower=0), Periodic(24)]
    model = QAFFDETensorTrain(columns=columns, training=SHORT, random_state=0).fit(rows)
    assert_agrees(model, rows, tmp_path / "model")
    with pytest.raises(FileError, match="columns are integrated out has no ONNX form"):
        model.marginal([0, 2]).to_onnx(tmp_path / "other")


def test_waves_beside_an_atom_are_refused(tmp_path):
    rows = curved(1500, 0)
    rows[::3, 1] = 0
    model = QAFFDESGD(
        columns=[Periodic(24), Atom(0), *CURVED[2:]], policy=POLICY, random_state=0
    ).fit(rows)
    assert model.plan_.has_waves
    with pytest.raises(FileError, match="waves over a column with an atom have no ONNX form"):
        model.to_onnx(tmp_path / "model")
    alone = SelectionPolicy(mixture_sizes=(2,), table_iterations=20, few_wave_rows=10_000)
    model = QAFFDESGD(columns={1: Atom(0), 3: "category"}, policy=alone, random_state=0).fit(rows)
    assert_agrees(model, rows[:50], tmp_path / "model")
