"""Files of every format so far stay readable.

The files under ``tests/data`` were written when their format was new, with scores of some rows
beside them. They are never written again: a new format gets files of its own.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import qaffde
from qaffde.files.format import FORMAT

pytest.importorskip("safetensors", reason="model files need the extra 'files'")
pytest.importorskip("zuko", reason="the flows need the extra 'flows'")

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(DATA.glob("v*/*.safetensors"))


def test_every_format_has_files():
    assert {file.parent.name for file in FILES} == {f"v{n}" for n in range(1, FORMAT + 1)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_models_score_as_they_did(file):
    expected = json.loads(file.with_suffix(".json").read_text())
    model = qaffde.load(file)
    assert type(model).__name__ == expected["class"]
    assert list(getattr(model, "feature_names_in_", [])) == expected["names"]
    scores = model.score_samples(np.array(expected["rows"]))
    np.testing.assert_allclose(scores, expected["scores"], rtol=1e-9, atol=1e-9)
