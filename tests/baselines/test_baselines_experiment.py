"""The baselines' experiment in small: rows are resumed, tables come from rows."""

import json

import pytest

experiment = pytest.importorskip(
    "experiments.baselines", reason="lives in the repository, not in the package"
)
BEGIN, END = "<!-- baselines:begin -->", "<!-- baselines:end -->"
METHODS, SETS = ["gmm", "made"], ["arc", "star_eight"]
RUN = ["run", "--methods", *METHODS, "--sets", *SETS, "--n-train", "300", "--n-test", "100"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        cheap = {"made": {"max_steps": 3, "hidden_size": 4}, "gmm": {"n_components": 2}}
        get = experiment.get_baseline
        patch.setattr(
            experiment, "get_baseline", lambda name, **options: get(name, **cheap[name], **options)
        )
        experiment.main([*RUN, "--out", str(path)])
    return path


@pytest.fixture
def rows(path):
    return experiment.read_rows(path)


def test_rows_say_how_they_were_made(rows):
    assert [(row["method"], row["set"]) for row in rows] == [
        (method, name) for method in METHODS for name in SETS
    ]
    for row in rows:
        assert {"revision", "date", "threads", "versions"} <= row.keys()
        assert "zuko" in row["versions"]
        assert row["parameters"]["random_state"] == row["seed"] == 0
        assert row["train_seed"] != row["test_seed"]
    assert rows[0]["training"] is None
    assert rows[2]["training"]["stopped_by"] == "max_steps"


def test_run_skips_what_is_there(path, capsys):
    before = path.read_bytes()
    experiment.main([*RUN, "--out", str(path)])
    assert path.read_bytes() == before
    assert "made on arc, seed 0: already there" in capsys.readouterr().out


def test_the_page_is_rebuilt_from_the_rows_in_any_order(rows, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Head\n\n{BEGIN}\nstale\n{END}\n\nTail\n")
    experiment.report(rows, page)
    first = page.read_text()
    experiment.report(rows[::-1], page)
    assert page.read_text() == first
    assert first.startswith(f"# Head\n\n{BEGIN}\nSpearman")
    assert first.endswith(f"{END}\n\nTail\n")
    assert "stale" not in first


def test_figures_stand_beside_the_paper_s_and_are_marked_where_they_reach_them(rows):
    changed = json.loads(json.dumps(rows))
    changed[2]["metrics"]["spearman"] = 0.9993  # made on arc, the paper's own figure
    changed[3]["metrics"]["spearman"] = 0.7709  # made on star_eight, a little below
    table = experiment.tables(changed)
    assert "**0.9993** (0.9993) |" in table
    assert "| 0.7709 (0.771) |" in table
    changed[2]["method"] = "maf"
    changed[2]["metrics"]["excess_nll"] = 0.002
    assert "**0.0020** (0.002) |" in experiment.tables(changed)


def test_rows_of_different_sizes_share_no_table(rows):
    with pytest.raises(ValueError, match="rows of one size"):
        experiment.tables([rows[0], rows[1] | {"n_train": 1}])
