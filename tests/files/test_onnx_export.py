"""ONNX models score as ours do, to 1e-9 in log-density and for any number of rows."""

import sys

import numpy as np
import pytest

from qaffde import QAFFDE, FileError, FourierFeatures
from tests.file_models import CLOSED, MODELS, X, fitted

WRITTEN = [
    "QAFFDE box",
    "QAFFDE gaussian",
    "QAFFDE mixture",
    "QAFFDE stream",
    "trials",
    "QAFFDESGD box",
    "QAFFDESGD mixture",
    "QAFFDESGD gaussian",
    "QAFFDESGD kernel",
    "outliers",
    "marginal",
    "marginal of box",
    "conditional",
    "QAFFDE kernel",
    "tensor train",
    "marginal of train",
    "waves of a table",
]
WITHOUT = MODELS.keys() - {*WRITTEN, "configs", "table"}
"""The configurations score in single precision; of tables there is ``test_onnx_tables.py``."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


def scores(path, rows):
    onnxruntime = pytest.importorskip("onnxruntime", reason="it is in the extra 'onnx'")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["log_density"], {"X": rows})[0]


def rows_near_and_far(d):
    far = np.array([[0.0], [8.99], [20.0], [-300.0]])
    return np.concatenate([X[:, :d], np.broadcast_to(far, (4, d))])


def assert_agrees(model, path):
    rows = rows_near_and_far(model.n_features_in_)
    ours = model.score_samples(rows)
    for n in (len(rows), 1):
        theirs = scores(path, rows[:n])
        assert theirs.dtype == np.float64
        np.testing.assert_allclose(theirs, ours[:n], rtol=1e-12, atol=1e-9)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("name", WRITTEN)
def test_scores_agree(name, path):
    pytest.importorskip("onnx", reason="it is in the extra 'onnx'")
    fitted(name).to_onnx(path)
    assert_agrees(fitted(name), path)


@pytest.mark.parametrize("features", ["random", "lattice", "sobol"])
@pytest.mark.parametrize("measurement", ["direct", "square_root"])
def test_scores_agree_however_features_are_drawn_and_read(features, measurement, path):
    pytest.importorskip("onnx", reason="it is in the extra 'onnx'")
    model = QAFFDE(**CLOSED, features=features, measurement=measurement, base_measure="box").fit(X)
    model.to_onnx(path)
    assert_agrees(model, path)


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_what_has_no_onnx_form_says_so(name, path):
    with pytest.raises(FileError, match=r"(has|have) no (ONNX form|log-density)"):
        fitted(name).to_onnx(path)
    assert not path.exists()


def test_onnx_may_be_missing(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"run: pip install 'qaffde\[onnx\]'"):
        fitted("QAFFDE box").to_onnx(path)


def test_an_unfitted_model_is_refused(path):
    with pytest.raises(ValueError, match="is not fitted yet"):
        QAFFDE().to_onnx(path)
    with pytest.raises(ValueError, match="is not fitted yet"):
        FourierFeatures().to_onnx(path)
