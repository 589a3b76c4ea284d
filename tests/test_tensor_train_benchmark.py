"""The benchmark of tensor trains, on a table of a few rows."""

import numpy as np
import pytest

from benchmarks import tensor_train
from qaffde import QAFFDETensorTrain, TensorTrainConfig


@pytest.fixture
def small(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    (tmp_path / "power").mkdir()
    for name in ("train", "test"):
        np.save(tmp_path / f"power/{name}.npy", rng.normal(size=(300, 3)).astype(np.float32))
    training = TensorTrainConfig(max_steps=5)
    monkeypatch.setattr(tensor_train, "TABLES", tmp_path)
    for name, value in {"COLUMNS": (4, 8), "BOND": 4, "FUNCTIONS": 4}.items():
        monkeypatch.setattr(tensor_train, name, value)
    monkeypatch.setattr(
        tensor_train,
        "QAFFDETensorTrain",
        lambda **k: QAFFDETensorTrain(**k | {"training": training}),
    )
    return tmp_path


def test_rows_are_measured_once_and_reported(small):
    rows, page = small / "rows.jsonl", small / "page.md"
    for _ in range(2):
        tensor_train.main(["run", "--rows", "200", "--out", str(rows)])
    found = tensor_train.read_rows(rows)
    assert [row["task"] for row in found] == ["costs", "costs", "power"]
    assert found[-1]["n_train"] == 200
    tensor_train.main(["report", "--results", str(rows), "--page", str(page)])
    text = page.read_text(encoding="utf-8")
    assert f"| 200 | `QAFFDETensorTrain` | {found[-1]['log_likelihood']:.3f} |" in text
    assert "| 8 |" in text


def test_rivals_have_equal_processor_time(small):
    rows, page = small / "rows.jsonl", small / "page.md"
    names = ["QAFFDETensorTrain", "chain of mixtures", "MAF", "Gaussian mixture"]
    race = ["--estimator", *names, "--time-limit", "0.5"]
    tensor_train.main(["run", "--rows", "200", *race, "--out", str(rows)])
    found = [row for row in tensor_train.read_rows(rows) if row["task"] == "power"]
    assert [row["estimator"] for row in found] == names
    assert all(row["seconds"] < 3 for row in found)
    tensor_train.main(["report", "--results", str(rows), "--page", str(page)])
    text = page.read_text(encoding="utf-8")
    mixture = found[-1]
    assert f"{mixture['log_likelihood']:.3f} ({mixture['n_components']} Gaussians" in text
    with pytest.raises(ValueError, match="NSF needs a --time-limit"):
        tensor_train.main(["run", "--rows", "200", "--estimator", "NSF", "--out", str(rows)])
