"""The experiment of maximum likelihood in small: rows are resumed, pages come from rows."""

import pytest

likelihood = pytest.importorskip(
    "experiments.likelihood", reason="lives in the repository, not in the package"
)
RUN = ["run", "--sets", "binomial", "random_gmm(1, 1.0)", "--seeds", "3", "--n", "200"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("likelihood") / "rows.jsonl"
    likelihood.main([*RUN, "--out", str(path)])
    return path


def test_rows_say_how_they_were_made(path):
    rows = likelihood.read_rows(path)
    assert [row["set"] for row in rows] == ["binomial", "random_gmm(1, 1.0)"]
    for row in rows:
        assert row["train_seed"] != row["test_seed"]
        assert row["parameters"]["random_state"] == row["seed"] == 3
        assert row["metrics"]["excess_nll"] > -0.2
        assert {"revision", "versions", "threads", "fit_seconds"} <= row.keys()


def test_rows_that_are_there_are_not_measured_again(path, monkeypatch, capsys):
    monkeypatch.setattr(likelihood, "measure", lambda *_: pytest.fail("measured again"))
    likelihood.main([*RUN, "--out", str(path)])
    assert capsys.readouterr().out.count("already there") == 2


def test_the_page_comes_from_the_rows_alone(path, tmp_path):
    rows = likelihood.read_rows(path)
    likelihood.report(rows, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    figure = f"{rows[0]['metrics']['spearman']:.4f}"
    assert figure in page
    changed = [rows[0] | {"metrics": rows[0]["metrics"] | {"spearman": 0.1239}}, rows[1]]
    likelihood.report(changed, tmp_path / "page.md")
    assert "0.1239" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_bold_marks_what_reaches_its_target():
    metrics = {"spearman": 0.9991, "mean_absolute_error": 0.0008, "excess_nll": 0.0009}
    row = {"set": "binomial", "metrics": metrics, "fit_seconds": 1.0}
    row |= {"resolved": {"base_measure": "box"}}
    line = likelihood.planar_table([row]).splitlines()[-1]
    assert "**0.9991**" in line
    assert "**0.00080**" not in line
    assert "**0.00090**" in line


@pytest.mark.parametrize("name", ["random_gmm(x, 1)", "nothing"])
def test_a_set_that_is_not_known_is_an_error(name):
    with pytest.raises(ValueError, match="is no planar set"):
        likelihood.find_target(name)
