"""The growth of cost in small; no time is judged here."""

import pytest

growth = pytest.importorskip(
    "benchmarks.growth", reason="lives in the repository, not in the package"
)
BEGIN, END = "<!-- growth:begin -->", "<!-- growth:end -->"

TINY = growth.Sizes(
    N=(50, 100),
    D=(16, 32),
    d=(3, 5),
    rank=(2, 4),
    fixed=growth.Size(N=60, D=24, d=3, rank=3),
    columns=(2, 3),
    n_queries=20,
)


def test_one_size_grows_at_a_time(tmp_path, capsys):
    path, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    threads = growth.torch.get_num_threads()
    growth.main(["run", "--repetitions", "1", "--out", str(path)], TINY)
    assert growth.torch.get_num_threads() == threads
    rows = growth.read_rows(path)
    assert len(rows) == 2 * (3 * 2 + 1)
    assert {row["threads"] for row in rows} == {1}
    for (axis, columns), of in growth.curves(rows).items():
        fixed = [name for name in ("N", "d", "rank") if name != axis]
        assert len({tuple(row[name] for name in fixed) for row in of}) == 1
        assert of[0][axis] < of[1][axis]
        assert columns in (None, of[0]["d"])
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    growth.main(["report", "--results", str(path), "--page", str(page)])
    assert growth.table(rows) in page.read_text(encoding="utf-8")
    assert growth.table(rows) in capsys.readouterr().out
    assert (tmp_path / "figures" / "growth.png").exists()


def test_slopes_over_the_range_and_at_its_end():
    rows = [{"N": n, "fit_cpu_seconds": 1.0 if n < 100 else n / 100} for n in (1, 10, 100, 1000)]
    over_all, at_the_end = growth.slopes("N", rows, "fit")
    assert at_the_end == pytest.approx(1)
    assert over_all == pytest.approx(0.3)


def test_what_takes_long_is_not_repeated(monkeypatch):
    monkeypatch.setattr(growth, "timed", lambda call: (None, 6.0, 5.0))
    found = growth.repeated(lambda: None, 3)
    assert found == {"seconds": 6.0, "cpu_seconds": 5.0, "repetitions": 1}
