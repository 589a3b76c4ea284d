"""Recipes of images in small: judged by training images, resumed, shown from rows."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.images import recipes

RUN = ["recipe", "digits", "qaffde", "n_features=60", "bandwidth=2.0", "ridge=1e-4"]


def command(arguments):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "rows.jsonl"
    command([*RUN, "--rows", str(path)])
    return path


def test_a_row_says_what_was_tried_and_what_came_of_it(path):
    [row] = recipes.read_rows(path)
    assert row["recipe"] == {"n_features": 60, "bandwidth": 2.0, "ridge": 1e-4}
    assert (row["status"], row["n_train"], row["n_judges"]) == ("complete", 959, 239)
    assert 0.5 < row["metrics"]["accuracy"] <= 1
    assert {"revision", "versions", "fit_cpu_seconds"} <= row.keys()


def test_what_is_there_is_not_tried_again(path, monkeypatch):
    monkeypatch.setattr(recipes, "measure", lambda *_: pytest.fail("tried again"))
    assert command([*RUN, "--rows", str(path)]) == "already there\n"


def test_test_images_take_no_part(path, tmp_path, monkeypatch):
    data = recipes.load_images("digits")
    without = replace(data, X_test=np.full_like(data.X_test, np.nan), y_test=data.y_test * 0)
    monkeypatch.setattr(recipes, "load_images", lambda name: without)
    command([*RUN, "--rows", str(tmp_path / "rows.jsonl")])
    [row], [other] = recipes.read_rows(path), recipes.read_rows(tmp_path / "rows.jsonl")
    assert row["metrics"] == other["metrics"]


def test_nothing_judges_that_was_trained_on():
    parts = recipes.judged_parts("digits")
    data = recipes.load_images("digits")
    np.testing.assert_array_equal(data.X_train[parts.places], parts.X_test)
    assert len(parts.y) + len(np.unique(parts.places)) == len(data.y_train)


def test_a_failure_is_a_row_and_may_be_tried_again(tmp_path):
    path = tmp_path / "rows.jsonl"
    for _ in range(2):
        command(["recipe", "digits", "qaffde", "bandwidth=-1.0", "--rows", str(path)])
    assert [row["status"] for row in recipes.read_rows(path)] == ["failed", "failed"]


def test_training_leaves_no_checkpoint_behind(tmp_path):
    row = recipes.run(
        "digits", "qaffde_sgd", {"n_features": 40, "max_steps": 20}, 0, tmp_path / "r"
    )
    assert row["training"][0]["steps"] == 20
    assert not list((tmp_path / "r.unfinished").iterdir())


def test_the_table_comes_from_the_rows_alone(path):
    [row] = recipes.read_rows(path)
    assert f"| {row['metrics']['accuracy']:.4f} |" in recipes.table([row])


def test_without_rows_the_page_says_so():
    assert recipes.table([]) == "Nothing has been tried with this command yet."


def test_an_unknown_parameter_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no parameter 'colour'"):
        recipes.run("digits", "qaffde", {"colour": 1}, path=tmp_path / "rows.jsonl")


@pytest.mark.parametrize("text", ["rank", "rank=", "rank=ten"])
def test_what_is_no_value_is_refused(text):
    with pytest.raises(ValueError, match="is not name=value"):
        recipes.parse_value(text)
