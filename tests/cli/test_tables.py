"""Every format gives the same rows, and what is written can be read again."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from qaffde.cli.sinks import open_sink
from qaffde.files.format import replacing
from qaffde.streams import chunks, delimited
from qaffde.streams.chunked import TableChunks, pick_columns
from qaffde.streams.files import open_table
from qaffde.streams.names import find_columns
from qaffde.streams.table import DataError

SUFFIXES = [".csv", ".tsv", ".csv.gz", ".parquet", ".arrow", ".feather", ".npy", ".npz"]
WRITTEN = [".csv", ".tsv", ".parquet", ".arrow", ".npy", ".npz"]


def rows_in(path, columns=None, header=None):
    table = open_table(path, header=header)
    rows = TableChunks(table, *pick_columns(table, columns))
    return rows.collect()[0], rows.names


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_has_the_same_rows(suffix, frame, write, tmp_path):
    X, names = rows_in(write(frame, tmp_path / f"data{suffix}"))
    np.testing.assert_array_equal(X, frame.to_numpy())
    assert names == (None if suffix == ".npy" else ["x", "y"])


@pytest.mark.parametrize("suffix", WRITTEN)
def test_what_is_written_is_read_again(suffix, tmp_path):
    path = tmp_path / f"out{suffix}"
    values = {"a": [0.1, 1e-300, -3.0], "b, c": [1, 2, 3]}
    with open_sink(str(path)) as write:
        write(pa.RecordBatch.from_pydict(values).slice(0, 0))
        write(pa.RecordBatch.from_pydict(values))
        write(pa.RecordBatch.from_pydict(values))
    X, names = rows_in(path)
    np.testing.assert_array_equal(X, np.tile(np.array(list(values.values())).T, (2, 1)))
    assert names == (None if suffix == ".npy" else list(values))


def test_arrow_streams_are_read(frame, tmp_path):
    batch = pa.RecordBatch.from_pandas(frame)
    with pa.ipc.new_stream(str(tmp_path / "rows"), batch.schema) as writer:
        writer.write_batch(batch)
    np.testing.assert_array_equal(rows_in(tmp_path / "rows")[0], frame.to_numpy())


@pytest.mark.parametrize(
    ("text", "names", "n"),
    [
        ("a,b\n1,2\n3,4\n", ["a", "b"], 2),
        ("1,2\n3,4\n", None, 2),
        ("\n\n a ; b \n1;2\n", ["a", "b"], 1),
        ("a|b\r\n1|2\r\n", ["a", "b"], 1),
        ("\ufeffa,b\n1,2\n", ["a", "b"], 1),
        ('"a","b ""c"""\n1,2\n', ["a", 'b "c"'], 1),
        ("year,2020\n1,2\n", ["year", "2020"], 1),
        ("a,\n1,2\n", ["a", "x1"], 1),
        ("a\tb\n1\t2\n", ["a", "b"], 1),
    ],
)
def test_text_is_understood(text, names, n, tmp_path):
    (tmp_path / "rows").write_bytes(text.encode())
    X, found = rows_in(tmp_path / "rows")
    assert found == names
    assert X.shape == (n, 2)
    assert X[0].tolist() == [1, 2]


def test_the_header_can_be_said(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("1,2\n3,4\n")
    assert rows_in(path, header=True)[1] == ["1", "2"]
    assert rows_in(path, header=False)[0].tolist() == [[1, 2], [3, 4]]


def test_types_that_are_numbers(tmp_path):
    pd.DataFrame({"i": np.array([1, 2], "i2"), "f": np.array([0.5, 1], "f4")}).to_parquet(
        tmp_path / "t.parquet"
    )
    assert rows_in(tmp_path / "t.parquet")[0].tolist() == [[1, 0.5], [2, 1]]
    np.save(tmp_path / "t.npy", np.asfortranarray(np.arange(6, dtype=">i4").reshape(3, 2)))
    assert rows_in(tmp_path / "t.npy")[0].tolist() == [[0, 1], [2, 3], [4, 5]]
    np.save(tmp_path / "r.npy", np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]))
    assert rows_in(tmp_path / "r.npy")[1] == ["a", "b"]
    np.savez(tmp_path / "one.npz", np.eye(2))
    assert rows_in(tmp_path / "one.npz")[0].tolist() == [[1, 0], [0, 1]]


def test_columns_are_picked_by_name_number_and_range():
    names = ["a", "b", "c", "1", "d,e"]
    assert find_columns(["c,a"], names, "data") == [2, 0]
    assert find_columns(["1"], names, "data") == [3]  # a name comes first
    assert find_columns(["0-2"], names, "data") == [0, 1, 2]
    assert find_columns(["d,e", "b"], names, "data") == [4, 1]
    for wrong in (["f"], ["5"], ["0-9"], ["2-1"], [""], ["a,a"], ["a", "0"]):
        with pytest.raises(DataError):
            find_columns(wrong, names, "data")


def test_missing_values(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x,y,w\n1,2,1\n,4,1\n5,NA,1\n7,8,1\n")
    options = {"columns": ["x,y"], "weights": "w"}
    with pytest.raises(DataError, match="column 'x' has no value in row 1; use missing=drop"):
        chunks(path, **options).collect()
    rows = chunks(path, **options, missing="drop")
    X, weight = rows.collect()
    assert (X.tolist(), weight.tolist()) == ([[1, 2], [7, 8]], [1, 1])
    assert (rows.n_read, rows.n_kept, rows.n_missing) == (4, 2, 2)
    X, _ = chunks(path, **options, missing="impute").collect()
    assert X.tolist() == [[1, 2], [13 / 3, 4], [5, 14 / 3], [7, 8]]
    X, _ = chunks(path, **options, missing=lambda rows: np.nan_to_num(rows, nan=-1)).collect()
    assert X.tolist() == [[1, 2], [-1, 4], [5, -1], [7, 8]]
    X, _ = chunks(path, **options, missing="keep").collect()
    np.testing.assert_array_equal(X, [[1, 2], [np.nan, 4], [5, np.nan], [7, 8]])
    with pytest.raises(ValueError, match="missing='fill' is not known"):
        chunks(path, missing="fill")
    with pytest.raises(ValueError, match="missing applies to files"):
        chunks([np.ones((3, 2))], missing="drop")


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def interrupted():
        with replacing(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["out.csv"]


def test_csv_of_pandas_and_ours_agree(frame, tmp_path):
    with open_sink(str(tmp_path / "out.csv")) as write:
        write(pa.RecordBatch.from_pandas(frame))
    text = (tmp_path / "out.csv").read_text()
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(text)), frame)


@pytest.mark.parametrize("n", [15_000, 40_000])
def test_wide_tables_are_looked_at_in_whole_lines(n, tmp_path):
    names = [f"a long name of column {k}" for k in range(n)]
    line = ",".join(f"{k}.25" for k in range(n))
    path = tmp_path / "wide.csv"
    path.write_text("\n".join([",".join(names), line, line, ""]))
    table = open_table(path)
    assert (table.names, table.numeric) == (names, names)
    rows = chunks(path)
    X, _ = rows.collect()
    assert (rows.names, X.shape) == (names, (2, n))
    np.testing.assert_array_equal(X[1], np.arange(n) + 0.25)


def test_lines_longer_than_a_block_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 1000)
    np.savetxt(tmp_path / "wide.csv", np.ones((30, 500)), delimiter=",")
    assert rows_in(tmp_path / "wide.csv")[0].shape == (30, 500)


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "MAX_LOOKED_AT", 1 << 20)
    (tmp_path / "endless.csv").write_bytes(b"1," * (1 << 20))
    with pytest.raises(DataError, match="has no line that ends within"):
        open_table(tmp_path / "endless.csv")


def test_batches_of_wide_tables_are_small(tmp_path):
    np.save(tmp_path / "wide.npy", np.zeros((600, 10_000), dtype=np.float32))
    table = open_table(tmp_path / "wide.npy")
    sizes = [batch.num_rows for batch in table.read(table.names, set())]
    assert sum(sizes) == 600
    assert max(sizes) * 10_000 <= 1 << 22


@pytest.mark.parametrize(
    ("cells", "options", "expected"),
    [
        (["$1,200.50", "-$3", "12"], {}, [1200.5, -3, 12]),
        (["0,5", "-1e-3", "7"], {"decimal": ","}, [0.5, -0.001, 7]),
        (["€ 1.200,50", "2\u00a0500 €", "NA"], {"decimal": ","}, [1200.5, 2500, np.nan]),
        (["12.5 %", "3%", "5."], {}, [12.5, 3, 5]),
        (["1'200.5", "+7", ".5"], {}, [1200.5, 7, 0.5]),
    ],
)
def test_signs_of_money_and_thousands_are_read(cells, options, expected, tmp_path):
    path = tmp_path / "data.csv"
    for encoding in ("utf-8", "cp1252"):
        table = pd.DataFrame({"a": cells, "b": 1})
        table.to_csv(path, index=False, sep=";", encoding=encoding)
        X, _ = chunks(path, missing="keep", encoding=encoding, **options).collect()
        np.testing.assert_array_equal(X[:, 0], expected)


def test_numbers_that_get_their_signs_late(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 1000)
    path, values = tmp_path / "data.csv", np.arange(3000) + 0.25
    pd.DataFrame({"a": [f"{v:,}" for v in values], "b": values}).to_csv(path, index=False)
    rows = chunks(path)
    assert rows.table.signed == {}
    np.testing.assert_array_equal(rows.collect()[0], np.stack([values, values], axis=1))
    assert rows.table.signed == {"a": "1,000.25"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a;b\n1,5;2\n", "if its comma is the decimal sign, say decimal=,"),
        ("a;b\n1,500;2\n", "if its comma is the decimal sign, say decimal=,"),
        ('a,b\n"1,5",2\n', "if its comma is the decimal sign, say decimal=,"),
        ("a;b\n" + "1;2\n" * 300 + "1,5;2\n", "if its comma is the decimal sign, say decimal=,"),
        ("a,b\n$5,2\n" + "1,2\n" * 300 + "many,2\n", "has 'many', which is not a number"),
    ],
)
def test_commas_that_may_be_decimal_are_asked_about(text, message, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        chunks(path).collect()


def test_text_of_numbers_stays_text_where_it_is_said(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('a,b\n"1,5",2\n')
    assert open_table(path, decimal=".").numeric == ["b"]
    assert open_table(path, decimal=",").numeric == ["a", "b"]


@pytest.mark.parametrize("options", [{"encoding": "klingon"}, {"decimal": "x"}])
def test_options_of_text_are_checked(options, tmp_path):
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"is no encoding|decimal sign is"):
        open_table(tmp_path / "data.csv", **options)
    np.save(tmp_path / "data.npy", np.eye(2))
    with pytest.raises(DataError, match=r"is not text, so .* does not apply"):
        open_table(tmp_path / "data.npy", **options)
    with pytest.raises(ValueError, match="apply to files of text"):
        chunks(np.eye(2), **options)
