"""The benchmark of the explorer runs in small; no time is judged here."""

import pytest

explorer = pytest.importorskip(
    "benchmarks.explorer", reason="lives in the repository, not in the package"
)


def test_every_kind_of_picture_is_measured(named_model, tmp_path, capsys):
    pytest.importorskip("safetensors", reason="model files need the extra 'files'")
    path = tmp_path / "model.qaffde"
    named_model.save(path)
    rows = explorer.main(["--models", str(path), "--updates", "3"])
    assert [row["state"] for row in rows] == [
        "curve, all others given",
        "plane, one given, others any",
        "plane, all others given",
    ]
    for row in rows:
        assert (row["columns"], row["D"], row["base"]) == (4, 40, "gaussian")
        assert row["updates_per_second"] > 0
        assert row["cpu_ms"] > 0
    assert "of 3 kinds of picture at 30 a second or more" in capsys.readouterr().out
