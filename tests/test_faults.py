"""A few of the faults that ``make faults`` tries by the thousand, and whether it would tell."""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

faults = pytest.importorskip(
    "benchmarks.faults.__main__", reason="lives in the repository, not in the package"
)

from benchmarks import soak  # noqa: E402
from benchmarks.faults import attempts, tables  # noqa: E402
from benchmarks.faults.attempts import Kind, in_child, tried  # noqa: E402
from experiments.rows import ROOT, read_rows  # noqa: E402

N_INPUTS = int(os.environ.get("QAFFDE_FUZZ_INPUTS", "200"))
KINDS = {kind.name: kind for kind in faults.KINDS}


def lost(row):
    kind = KINDS[row["kind"]]
    return {what: n for what, n in row["outcomes"].items() if what not in kind.fine}


def test_damaged_tables():
    row = tried(KINDS["damaged tables"], N_INPUTS, seed=2)
    assert lost(row) == {}
    assert row["held"] == row["tried"] == N_INPUTS


@pytest.mark.parametrize(
    ("name", "n"), [("bad rows", 8), ("full disk", 3), ("hostile requests", 20)]
)
def test_a_few_of_each(name, n):
    assert lost(tried(KINDS[name], n, seed=1)) == {}


def test_little_memory_reaches_its_limits(tmp_path):
    """In a new process: memory that earlier tests freed would serve without reaching a limit.

    How far limits reach depends on what the process holds in reserve, so one of them is zero.
    """
    code = """
import sys
from pathlib import Path
from benchmarks.faults.limits import memory_attempts
attempt = memory_attempts(Path(sys.argv[1]))
print([attempt("fit", 0), attempt("covariance", 2**30)])
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    said = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout
    assert said.strip() == "['refused', 'answered']"


def test_a_few_attempts_with_little_memory():
    assert lost(tried(KINDS["little memory"], 3, seed=1)) == {}


def test_whole_tables_give_rows(tmp_path):
    files = tables.make_files(tmp_path)
    assert [tables.outcome(path) for path in files] == ["rows"] * len(files)


def test_mutations_differ(tmp_path):
    files = tables.make_files(tmp_path)
    made = {tables.mutate(files, np.random.default_rng(number)) for number in range(100)}
    assert len(made) > 90


def kind(attempt, **options):
    return Kind("any", lambda folder: attempt, frozenset({"fine"}), 1.0, **options)


def work_on(rng):
    while True:
        pass


def hang(rng):
    time.sleep(60)
    return "fine"


def crash(rng):
    faulthandler.disable()  # it would print the stacks of all threads
    os.kill(os.getpid(), signal.SIGSEGV)
    return "fine"


FAILURES = {
    "another answer": (lambda rng: "odd", "odd (attempt 0)"),
    "an error": (lambda rng: str([][1]), "IndexError at test_faults.py"),
    "a crash": (crash, "crashed with exit code -11, attempt 0"),
    "a hang": (hang, "crashed with exit code -14, attempt 0"),
    "endless work": (work_on, "crashed with exit code -27, attempt 0"),
    "unpickling": (lambda rng: (os.system("true") and "") or "fine", "fine, with os.system"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures_are_counted(case, monkeypatch):
    attempt, said = FAILURES[case]
    monkeypatch.setattr(attempts, "PATIENCE", 20 if attempt is work_on else 1)
    row = tried(kind(attempt, watched=True, seconds=1), 2)
    assert (row["tried"], row["held"]) == (2, 0)
    assert next(iter(row["outcomes"])).startswith(said)


def test_what_holds_is_counted_with_it():
    row = tried(kind(lambda rng: "fine" if rng.random() < 2 else "odd"), 3)
    assert (row["tried"], row["held"], row["outcomes"]) == (3, 3, {"fine": 3})


def test_children_answer_or_are_killed():
    assert in_child(lambda: "done") == "done"
    assert in_child(lambda: hang(None), 0.05) == "killed"
    assert in_child(lambda: crash(None)) == "crashed by signal 11"
    assert in_child(lambda: str(1 / 0)) == "ZeroDivisionError: division by zero"


def test_budgets():
    for name in faults.BUDGETS:
        assert all(faults.count(kind, name) > 0 for kind in faults.KINDS)
    assert sum(faults.count(k, "large") for k in faults.KINDS if k.is_kill) == 1000
    assert sum(faults.count(k, "large") for k in faults.KINDS if not k.is_kill) == 50_000


def test_rows_make_the_page_and_failures_the_exit_code(tmp_path, monkeypatch, capsys):
    out, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    page.write_text("<!-- faults:begin -->\n<!-- faults:end -->")
    good = replace(kind(lambda rng: "fine"), name="good", share=0.005)
    bad = replace(kind(lambda rng: "odd"), name="bad", share=0.005)
    monkeypatch.setattr(faults, "KINDS", (good,))
    faults.main(["run", "--out", str(out)])
    monkeypatch.setattr(faults, "KINDS", (good, bad))
    with pytest.raises(SystemExit, match="did not hold"):
        faults.main(["run", "--out", str(out)])
    assert [row["held"] for row in read_rows(out)] == [3, 0]
    assert "1 × odd (attempt 0)" in capsys.readouterr().out
    faults.main(["report", "--results", str(out), "--page", str(page)])
    assert "| all | 6 | 3 |" in page.read_text()


def test_a_run_goes_on_where_it_ended(tmp_path, monkeypatch):
    out, numbers = tmp_path / "rows.jsonl", []
    kinds = (replace(kind(lambda rng: "fine"), name="good", share=0.005),)

    def counting(own, n, seed, begin):
        numbers.extend(range(begin, begin + n))
        return tried(own, n, seed, begin)

    monkeypatch.setattr(faults, "KINDS", kinds)
    monkeypatch.setattr(faults, "tried", counting)
    monkeypatch.setattr(faults, "PART", 2)
    faults.main(["run", "--out", str(out)])
    lines = out.read_text().splitlines(keepends=True)
    for left, again in zip(lines, [[2], [0, 1]], strict=True):
        out.write_text(left)
        numbers.clear()
        faults.main(["run", "--resume", "--out", str(out)])
        assert numbers == again
        assert sorted(row["tried"] for row in read_rows(out)) == [1, 2]


def test_attempts_that_no_row_stands_for():
    rows = [{"begin": 3, "tried": 2}, {"begin": 8, "tried": 1}]
    assert list(faults.missing(12, 2, rows)) == [(0, 2), (2, 1), (5, 2), (7, 1), (9, 2), (11, 1)]
    assert list(faults.missing(3, 5, [])) == [(0, 3)]


def test_the_published_table_is_that_of_the_rows(tmp_path):
    page = faults.PAGE.read_text()
    copy = tmp_path / "page.md"
    copy.write_text(page)
    faults.report(read_rows(faults.ROWS), copy)
    soak.report(read_rows(soak.ROWS), copy)
    assert copy.read_text() == page


def test_the_slope_of_memory():
    seen = [{"minute": k, "mb": 100 + 50 * (k < 1) + 2 * k} for k in range(10)]
    assert soak.slope(seen) == pytest.approx(2)
    assert soak.resident_mb() > 10


@pytest.mark.parametrize("work", soak.KINDS)
def test_soak_works(work):
    with soak.KINDS[work]() as step:
        step(np.random.default_rng(0))
