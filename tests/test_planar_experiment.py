"""The planar experiment in small: rows are resumed, tables come from rows, nothing peeks."""

import json

import numpy as np
import pytest

from experiments.results import paper_figures
from experiments.rows import write_rows
from qaffde.targets import get_target

planar = pytest.importorskip(
    "experiments.planar", reason="lives in the repository, not in the package"
)


SETS, N_TRAIN, N_TEST = ["arc", "binomial"], 500, 200
RUN = ["run", "--sets", *SETS, "--seeds", "0", "--n-train", str(N_TRAIN), "--n-test", str(N_TEST)]


@pytest.fixture(scope="module", autouse=True)
def small_features():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planar, "N_FEATURES", 64)
        yield


@pytest.fixture(scope="module")
def rows(tmp_path_factory, small_features):
    path = tmp_path_factory.mktemp("planar") / "new" / "rows.jsonl"
    planar.main([*RUN, "--out", str(path)])
    return planar.read_rows(path)


@pytest.fixture
def path(rows, tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows(rows, path)
    return path


@pytest.fixture
def files(tmp_path):
    """README with markers, and the page beside it."""
    readme = tmp_path / "README.md"
    readme.write_text(f"# Title\n\n{planar.BEGIN}\nstale\n{planar.END}\n\nEnd\n", encoding="utf-8")
    return readme, tmp_path / "docs" / "planar.md"


@pytest.fixture
def measured(monkeypatch):
    """Names and seeds that are measured anew, by a stand-in that only remembers."""
    calls = []

    def measure(name, seed, n_train, n_test):
        calls.append((name, seed))
        resolved = {"base_measure": "box", "rank": 1}
        metrics = {"spearman": 1.0, "mean_absolute_error": 0.0, "excess_nll": 0.0}
        sizes = {"n_train": n_train, "n_test": n_test, "fit_seconds": 0.0}
        return {"set": name, "seed": seed, **sizes, "resolved": resolved, "metrics": metrics}

    monkeypatch.setattr(planar, "measure", measure)
    return calls


def test_rows_say_how_they_were_made(rows):
    assert [(row["set"], row["seed"], row["method"]) for row in rows] == [
        ("arc", 0, "QAFFDE"),
        ("binomial", 0, "QAFFDE"),
    ]
    for row in rows:
        known = {"python", "torch", "numpy", "scipy", "scikit-learn", "qaffde"}
        assert known <= row["versions"].keys()
        assert (row["n_train"], row["n_test"]) == (N_TRAIN, N_TEST)
        assert row["parameters"]["bandwidth"] == "auto"
        assert row["resolved"]["base_measure"] in ("box", "gaussian", "mixture")
        assert len(row["resolved"]["bandwidth"]) == 2
        assert row["resolved"]["n_fourier_features"] <= row["parameters"]["n_features"] == 64
        assert row["metrics"]["spearman"] > 0.8
        assert min(row["fit_seconds"], row["score_seconds"], row["threads"]) > 0
        assert {"revision", "date"} <= row.keys()


def test_a_row_is_measured_again_alike(rows):
    again = planar.measure("binomial", 0, N_TRAIN, N_TEST)
    assert again["metrics"] == pytest.approx(rows[1]["metrics"], rel=1e-6)
    assert again["resolved"]["bandwidth"] == pytest.approx(rows[1]["resolved"]["bandwidth"])


def test_run_skips_what_is_there(path, measured, capsys):
    before = path.read_bytes()
    planar.main([*RUN, "--out", str(path)])
    assert measured == []
    assert path.read_bytes() == before
    assert "arc, seed 0: already there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (["--seeds", "0", "1"], [("arc", 1), ("binomial", 1)]),
        (["--n-test", "100"], [("arc", 0), ("binomial", 0)]),
        (["--sets", "arc", "potential_1"], [("potential_1", 0)]),
    ],
)
def test_run_adds_what_is_not(path, measured, change, expected):
    before = path.read_bytes()
    planar.main([*RUN, "--out", str(path), *change])
    assert measured == expected
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("kept", [1, 40, -2, -1])
def test_an_unfinished_line_is_redone(path, rows, measured, kept):
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:kept])
    assert planar.read_rows(path) == rows[:1]
    planar.main([*RUN, "--out", str(path)])
    assert measured == [("binomial", 0)]
    lines = path.read_bytes().splitlines(keepends=True)
    assert lines[0] == first
    assert json.loads(lines[1])["set"] == "binomial"
    assert len(lines) == 2


def test_a_broken_line_inside_the_file_is_an_error(path):
    path.write_bytes(b'{"set": "ar\n' + path.read_bytes())
    with pytest.raises(ValueError, match=r"line 1 of .* is no row"):
        planar.read_rows(path)


def test_report_is_rebuilt_byte_for_byte_in_any_order(rows, files):
    planar.report(rows, *files)
    first = [file.read_bytes() for file in files]
    planar.report(rows[::-1], *files)
    assert [file.read_bytes() for file in files] == first
    readme = first[0].decode()
    assert readme.startswith(f"# Title\n\n{planar.BEGIN}\n| set | Spearman |")
    assert readme.endswith(f"{planar.END}\n\nEnd\n")
    assert "stale" not in readme
    assert planar.summary_table(rows) in first[1].decode()


def test_a_changed_row_changes_the_tables(rows, files):
    planar.report(rows, *files)
    before = [file.read_text(encoding="utf-8") for file in files]
    changed = json.loads(json.dumps(rows))
    changed[0]["metrics"]["spearman"] = 0.1234
    planar.report(changed, *files)
    for file, text in zip(files, before, strict=True):
        assert file.read_text(encoding="utf-8") != text
        assert "| arc | 0.1234 | 0.9985 | 0.9943 |" in file.read_text(encoding="utf-8")


def test_table_shows_means_over_seeds_and_marks_what_is_reached(rows):
    seeds = []
    for seed, (rho, error) in enumerate([(0.9990, 0.001), (0.9996, 0.003)]):
        row = json.loads(json.dumps(rows[0]))
        row["metrics"] |= {"spearman": rho, "mean_absolute_error": error, "excess_nll": 0.01}
        row["resolved"]["base_measure"] = ("mixture", "box")[seed]
        seeds.append(row | {"seed": seed, "fit_seconds": 10.0 + 2 * seed})
    line = planar.summary_table(seeds).splitlines()[2]
    expected = "| arc | **0.9993** | 0.9985 | 0.9943 | **0.00200** | 0.0052 | 0.0100 |"
    assert line == f"{expected} box, mixture | 11 |"
    seeds[0]["metrics"] |= {"spearman": 0.99, "mean_absolute_error": 0.1}
    assert "**" not in planar.summary_table(seeds)


def test_target_below_the_paper_is_not_enough(rows):
    row = json.loads(json.dumps(rows[1]))
    row["metrics"]["spearman"] = 0.9985  # the target is .998, the paper's figure .9991
    assert "| binomial | 0.9985 | 0.9980 | 0.9991 |" in planar.summary_table([row])


def test_rows_of_different_sizes_share_no_table(rows):
    with pytest.raises(ValueError, match="rows of one size"):
        planar.summary_table([rows[0], rows[1] | {"n_train": 1}])
    with pytest.raises(ValueError, match="no rows"):
        planar.summary_table([])


def test_readme_without_markers_is_left_alone(rows, files, capsys):
    readme, page = files
    readme.write_text("# Title\n", encoding="utf-8")
    planar.report(rows, readme, page)
    assert readme.read_text(encoding="utf-8") == "# Title\n"
    assert page.exists()
    assert f"has no {planar.BEGIN}" in capsys.readouterr().out


def test_report_command_reads_the_rows(path, files, monkeypatch, capsys, rows):
    monkeypatch.setattr(planar.report, "__defaults__", files)
    planar.main(["report", "--rows", str(path)])
    assert planar.summary_table(rows) in capsys.readouterr().out
    assert files[1].exists()


def test_every_set_has_its_figures():
    figures = paper_figures()
    paper, target = figures["planar"], figures["target"]["planar"]["spearman"]
    for metric in ("spearman", "mean_absolute_error"):
        assert paper[metric]["qaffde"].keys() == set(planar.PLANAR)
    assert target.keys() == {"source", *planar.PLANAR}


class SpyTarget:
    """Target that notes what is asked of it, in order."""

    def __init__(self, events):
        self.target, self.events = get_target("arc"), events

    def sample(self, n_samples, random_state):
        self.events.append(("sample", n_samples, random_state))
        return self.target.sample(n_samples, random_state)

    def log_prob(self, X):
        self.events.append(("log_prob", len(X)))
        return self.target.log_prob(X)


def test_selection_sees_neither_test_points_nor_truth(monkeypatch):
    events = []

    class SpyModel(planar.QAFFDE):
        def fit(self, X, y=None, sample_weight=None):
            events.append(("fit", X))
            return super().fit(X, y, sample_weight)

    monkeypatch.setattr(planar, "get_target", lambda name: SpyTarget(events))
    monkeypatch.setattr(planar, "QAFFDE", SpyModel)
    row = planar.measure("arc", 3, N_TRAIN, N_TEST)
    (_, train), events[1] = events[1], ("fit",)
    assert events == [
        ("sample", N_TRAIN, row["train_seed"]),
        ("fit",),
        ("sample", N_TEST, row["test_seed"]),
        ("log_prob", N_TEST),
    ]
    assert np.array_equal(train, get_target("arc").sample(N_TRAIN, row["train_seed"]))
    assert row["parameters"]["random_state"] == 3


def test_no_two_draws_share_a_seed(monkeypatch):
    draws = []
    monkeypatch.setattr(planar, "get_target", lambda name: SpyTarget(draws))
    for seed in range(3):
        planar.measure("arc", seed, 50, 50)
    seeds = [event[2] for event in draws if event[0] == "sample"]
    assert len(seeds) == len(set(seeds)) == 6
