"""Files of rows: whole lines count, a cut one is passed over and then removed."""

import pytest

from experiments.pages import fill
from experiments.rows import append_row, provenance, read_rows, write_rows

ROWS = [{"set": "arc", "seed": 0}, {"set": "binomial", "seed": 1}]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "new" / "rows.jsonl"
    write_rows(ROWS, path)
    return path


def test_rows_come_back(path):
    assert read_rows(path) == ROWS
    assert read_rows(path.with_name("other")) == []


@pytest.mark.parametrize("kept", [1, 10, -2, -1])
def test_an_unfinished_line_is_passed_over_and_removed(path, kept):
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:kept])
    assert read_rows(path) == ROWS[:1]
    append_row({"set": "star_eight"}, path)
    assert read_rows(path) == [ROWS[0], {"set": "star_eight"}]
    assert path.read_bytes().startswith(first)


def test_a_row_says_what_it_was_made_with():
    origin = provenance()
    assert {"versions", "revision", "threads", "date"} == origin.keys()
    assert {"python", "torch", "qaffde"} <= origin["versions"].keys()


def test_a_part_of_a_page_is_written_between_its_markers(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x:begin -->\nold\n<!-- x:end -->\nafter\n")
    for _ in range(2):
        fill(page, "x", "new")
        assert page.read_text() == "before\n<!-- x:begin -->\nnew\n<!-- x:end -->\nafter\n"
    with pytest.raises(ValueError, match="must have the markers <!-- y:begin -->"):
        fill(page, "y", "new")
