"""A few hundred of the inputs that ``python -m benchmarks.fuzz_readers`` makes by the thousand."""

import os

import pytest

from benchmarks.fuzz_readers import MUTATIONS, is_fine, make_files, mutate, outcome, run

N_INPUTS = int(os.environ.get("QAFFDE_FUZZ_INPUTS", "200"))


def test_mutated_files_give_rows_or_one_line(tmp_path):
    files = make_files(tmp_path)
    assert [outcome(path) for path in files] == ["rows"] * len(files)
    result = run(files, N_INPUTS, seed=2)
    assert sum(result["outcomes"].values()) == N_INPUTS
    assert is_fine(result), result


def test_mutations_differ(tmp_path):
    files = make_files(tmp_path)
    made = [mutate(files, number, 0) for number in range(100)]
    assert {name for name, _, _ in made} == set(MUTATIONS)
    assert len({content for _, _, content in made}) > 90


@pytest.mark.parametrize("said", ["csv, cut: Traceback", "csv, cut: unclear message: 'a'"])
def test_failures_are_seen(said):
    assert not is_fine({"outcomes": {said: 1}, "events": 0})
    assert not is_fine({"outcomes": {"csv, cut: rows": 1}, "events": 1})
