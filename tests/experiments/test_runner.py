"""Runs: rows say everything, survive kills, and do not depend on the number of processes."""

import json
import threading
from contextlib import suppress
from multiprocessing import Pipe, get_context

import pytest

from experiments import methods as method_registry
from experiments import runner, search
from experiments.cells import Ledger
from experiments.methods import Method
from experiments.pictures import MESH_SIDE, N_PAIRS, TRUTH, unpack, unpack_mesh
from experiments.rows import append_row, read_rows
from experiments.runner import run_cells
from experiments.sets import Draws, find_target
from experiments.targets import Target
from experiments.trials import _best, chosen
from tests.experiments.tiny import tiny_cells, tiny_config, without_timings


def test_rows_say_how_they_were_made(measured):
    rows = read_rows(measured.rows)
    assert len(rows) == len({row["id"] for row in rows}) == 2 * (2 + 2) + 2 * (2 + 1)
    for row in rows:
        assert {"revision", "date", "threads", "versions", "warnings", "seconds"} <= row.keys()
        assert row["threads"] == 1
        assert row["config"]["n_search"] == 150
        assert row["status"] == "complete"
        assert row["parameters"]["random_state"] == row["seed"]
        assert row["fit_cpu_seconds"] >= 0
    finals = [row for row in rows if row["stage"] == "final"]
    assert all(set(row["metrics"]) > {"spearman", "excess_nll_standard_error"} for row in finals)
    assert {row["seed"] for row in finals if row["method"] == "gmm"} == {3, 4}


def test_the_first_trial_has_the_defaults_and_the_best_is_trained(measured):
    rows = read_rows(measured.rows)
    for final in (row for row in rows if row["stage"] == "final"):
        own = [row for row in rows if row["stage"] == "trial"]
        own = [
            row for row in own if (row["set"], row["method"]) == (final["set"], final["method"])
        ]
        assert own[0]["sampled"] == {}
        assert own[1]["sampled"]
        assert final["validation"] == max(row["validation"] for row in own)
        for name, value in final["sampled"].items():
            assert final["parameters"][name] == value


def test_pictures_are_of_the_first_seed_and_the_truth_is_kept_once(measured):
    pictures = read_rows(measured.pictures)
    finals = {row["id"]: row for row in read_rows(measured.rows) if row["stage"] == "final"}
    truths = [picture for picture in pictures if picture["method"] == TRUTH]
    assert len(truths) == 2
    assert len(pictures) == 2 + 4
    for picture in pictures:
        assert unpack_mesh(picture).shape == (MESH_SIDE, MESH_SIDE)
        assert len(unpack(picture["pairs"])) == min(90, N_PAIRS)
        assert picture["method"] == TRUTH or finals[picture["id"]]["seed"] == 3


def test_what_is_there_is_not_run_again(measured):
    before, seen = measured.rows.read_bytes(), []
    run_cells(tiny_cells(measured), measured, on_row=seen.append)
    assert seen == []
    assert measured.rows.read_bytes() == before


def started(files):
    """Another process that runs the cells, and the end of a pipe that says what it measured."""
    ours, its = Pipe(duplex=False)

    def work():
        run_cells(tiny_cells(files), files, on_row=lambda row: its.send(row["id"]))

    process = get_context("fork").Process(target=work)
    process.start()
    its.close()
    return process, ours


def everything(pipe):
    """What another process says until it ends."""
    with suppress(EOFError):
        while True:
            yield pipe.recv()


def test_a_killed_run_goes_on_to_the_rows_of_an_undisturbed_one(files, measured):
    run, pipe = started(files)
    first = [pipe.recv() for _ in range(2)]
    run.kill()
    run.join()
    there = [row["id"] for row in read_rows(files.rows)]
    assert there[:2] == first
    assert len(there) < 14
    with files.rows.open("ab") as file:
        file.write(b'{"id": "torn')
    run_cells(tiny_cells(files), files)
    rows = read_rows(files.rows)
    assert [row["id"] for row in rows[: len(there)]] == there
    assert without_timings(rows) == without_timings(read_rows(measured.rows))


def test_two_runs_at_once_measure_each_row_once(files, measured):
    runs, pipes = zip(*(started(files) for _ in range(2)), strict=True)
    said = [task for pipe in pipes for task in everything(pipe)]
    for run in runs:
        run.join()
    assert [run.exitcode for run in runs] == [0, 0]
    rows = read_rows(files.rows)
    assert sorted(said) == sorted(row["id"] for row in rows)
    assert without_timings(rows) == without_timings(read_rows(measured.rows))


def test_a_claimed_row_is_waited_for(tmp_path):
    path = tmp_path / "rows.jsonl"
    ledger, found = Ledger({"old": {"id": "old"}}, path, 0, tmp_path / "locks"), []

    def other_run():
        with ledger.claim("new") as known:
            found.append(known)

    with ledger.claim("new") as known:
        assert known is None
        waiting = threading.Thread(target=other_run)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        append_row({"id": "new"}, path)
    waiting.join(10)
    assert found == [{"id": "new"}]
    with ledger.claim("old") as known:
        assert known == {"id": "old"}


def test_two_processes_give_the_rows_of_one(files, measured, monkeypatch):
    """Forked here: what is sent to them is pickled all the same, and nothing is imported again."""
    monkeypatch.setattr(runner.multiprocessing, "get_context", lambda _: get_context("fork"))
    seen = []
    run_cells(tiny_cells(files), files, jobs=2, on_row=lambda row: seen.append(row["id"]))
    rows = read_rows(files.rows)
    assert without_timings(rows) == without_timings(read_rows(measured.rows))
    assert sorted(seen) == sorted(row["id"] for row in rows)


class Broken:
    """Estimator that cannot be fitted."""

    def __init__(self, **parameters):
        self.parameters = parameters

    def fit(self, X):
        raise ArithmeticError("no such density")


@pytest.fixture
def broken(monkeypatch):
    method = Method("Broken", "classical", Broken, {}, "#000000")
    monkeypatch.setitem(method_registry.METHODS, "broken", method)


@pytest.mark.usefixtures("broken")
def test_failures_are_rows_and_the_others_go_on(files):
    config = tiny_config()
    object.__setattr__(config, "methods", ("broken", "gmm"))
    cells = tiny_cells(files, config=config, sets=("arc",))
    run_cells(cells, files)
    rows = read_rows(files.rows)
    failed = [row for row in rows if row["method"] == "broken"]
    assert [row["status"] for row in failed] == ["failed"] * 3
    assert failed[0]["error"] == {"type": "ArithmeticError", "message": "no such density"}
    assert "no trial succeeded (ArithmeticError)" in failed[2]["error"]["message"]
    assert all(row["status"] == "complete" for row in rows if row["method"] == "gmm")

    run_cells(cells, files)
    assert len(read_rows(files.rows)) == len(rows)
    run_cells(cells, files, retry_failed=True)
    assert len(read_rows(files.rows)) == len(rows) + 3


def test_a_wrong_truth_changes_the_figures_and_not_the_choice(files, measured, monkeypatch):
    monkeypatch.setattr(Target, "log_prob", lambda self, X: X[:, 0] - X[:, 1])
    run_cells(tiny_cells(files, sets=("arc",)), files)
    told = {row["id"]: row for row in read_rows(files.rows)}
    rows = [row for row in read_rows(measured.rows) if row["set"] == "arc"]
    assert len(rows) == len(told)
    for row in rows:
        other = told[row["id"]]
        chosen = ("sampled", "validation", "parameters", "resolved")
        assert all(row[key] == other[key] for key in chosen)
        if row["stage"] == "final":
            assert row["chosen_trial"] == other["chosen_trial"]
            assert row["metrics"] != other["metrics"]


def test_trials_do_not_see_test_rows(files, monkeypatch):
    def refuse(self):
        raise AssertionError("test rows were asked for")

    monkeypatch.setattr(Draws, "test", property(refuse))
    run_cells(tiny_cells(files, sets=("arc",), methods=("gmm",)), files)
    rows = read_rows(files.rows)
    assert [row["status"] for row in rows] == ["complete", "complete", "failed", "failed"]
    assert rows[-1]["error"]["message"] == "test rows were asked for"


def test_a_pruned_trial_is_a_row_and_is_not_chosen(files, monkeypatch):
    optuna = search.import_optuna()

    def listener(self, trial, reported):
        def prune(history):
            reported.append(-history.valid_loss[-1])
            if trial.params:
                raise optuna.TrialPruned

        return prune

    monkeypatch.setattr(search.Search, "listener", listener)
    run_cells(tiny_cells(files, sets=("arc",), methods=("planar",)), files)
    first, second, final = read_rows(files.rows)
    assert (first["status"], second["status"]) == ("complete", "pruned")
    assert len(second["held_out"]) == 1
    assert second["validation"] is None
    assert final["chosen_trial"] == 0


def test_sets_draw_independent_rows():
    draws = Draws(find_target("arc"), 5, 10, 10, 10)
    assert (draws.train != draws.valid).all()
    assert (draws.valid != draws.test).all()
    assert (draws.test != Draws(find_target("arc"), 6, 10, 10, 10).train).all()


def test_the_best_is_the_likeliest_and_of_two_the_earlier():
    def trial(k, value, status="complete"):
        sampled = {"rate": k} if k else {}
        row = {"trial": k, "validation": value, "status": status, "error": None}
        return row | {"sampled": sampled}

    rows = [trial(0, -2.0), trial(1, -1.0), trial(2, -1.0), trial(3, None, "pruned")]
    assert _best(rows)["trial"] == 1
    assert _best(rows, 0.9)["trial"] == 1
    assert _best(rows, 1.1)["trial"] == 0  # ahead of the defaults, but not by enough
    assert _best(rows[1:], 1.1)["trial"] == 1  # the defaults failed
    assert chosen(rows, 1.1) == (0, {})
    assert chosen(rows, 0.9) == (1, {"rate": 1})
    assert chosen(rows[3:], 0.0) is None


def test_what_is_no_longer_chosen_is_trained_again_and_nothing_else(files):
    def run(least_lead):
        seen = []
        config = tiny_config(trials=4, least_lead=least_lead)
        cells = tiny_cells(files, config=config, sets=("arc",))
        run_cells(cells, files, on_row=seen.append)
        return seen

    first = run(0.0)
    finals = [row for row in first if row["stage"] == "final"]
    moved = {row["id"] for row in finals if row["chosen_trial"] != 0}
    assert 0 < len(moved) < len(finals)
    again = run(1e6)  # nothing beats the defaults by so much
    assert {row["id"] for row in again} == moved
    assert {row["chosen_trial"] for row in again} == {0}
    assert run(1e6) == []


def test_another_setting_is_another_row(files):
    def names(**changes):
        cells = tiny_cells(files, config=tiny_config(**changes), sets=("arc",), methods=("gmm",))
        return set(cells[0].tasks())

    assert not names() & names(n_valid=81)
    for changes in ({"trials": 3}, {"final_steps": 13}, {"n_test": 91}):
        assert len(names() & names(**changes)) == 2  # trials are kept, what follows them is not
    assert names() == names(seeds=(9,))  # the method has seeds of its own


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_row({"id": 1}, path)
    path.write_bytes(path.read_bytes() + b"{broken\n")
    with pytest.raises(ValueError, match=r"line 2 of .*rows\.jsonl is not a row"):
        read_rows(path)


def test_rows_are_json(measured):
    for line in measured.rows.read_text(encoding="utf-8").splitlines():
        json.loads(line, parse_constant=pytest.fail)
