"""Reports come from rows alone, and the page holds together."""

import json
import shutil
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib", reason="reports need the extra 'plot'")

from experiments import registry
from experiments import report as report_module
from experiments.config import KernelBudget, KernelConfig
from experiments.kernel import kernel_cells
from experiments.report import report
from experiments.results import OURS, Results
from experiments.rows import read_rows
from experiments.runner import Files, run_cells
from experiments.tables import (
    dimension_verdict,
    is_best,
    metric_table,
    planar_page,
    seconds_table,
)
from tests.experiments.tiny import tiny_config

KERNEL = KernelBudget((0,), (8, 16), n_epochs=1, n_pairs=500, batch_size=250, learning_rate=0.02)


@pytest.fixture(scope="module")
def folder(measured, tmp_path_factory):
    """Rows of all experiments, the mixtures' copied from the planar ones."""
    folder = tmp_path_factory.mktemp("all")
    for path in (measured.rows, measured.pictures):
        shutil.copy(path, folder)
    rows = [row | {"experiment": "dimensions"} for row in read_rows(measured.rows)]
    mixtures = [row for row in rows if row["set"].startswith("random_gmm")]
    text = "".join(json.dumps(row) + "\n" for row in mixtures)
    (folder / "dimensions-quick.jsonl").write_text(text, encoding="utf-8")
    files = Files(folder, "kernel-quick")
    run_cells(kernel_cells(KernelConfig("Kernel", {"quick": KERNEL}), "quick"), files)
    return folder


@pytest.fixture(scope="module")
def out(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    report((), "quick", folder, out)
    return out


@pytest.fixture
def results(measured):
    return Results(read_rows(measured.rows), read_rows(measured.pictures), tiny_config().sets)


def contents(out):
    return {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_everything_comes_back_byte_for_byte(folder, out, tmp_path):
    first = contents(out)
    assert {str(path) for path in first} == {
        "tables_planar.md",
        "tables_dimensions.md",
        "tables_kernel.md",
        "results.html",
        *(
            f"figures/{name}.png"
            for name in ("planar_mesh", "planar_scatter", "dimensions", "kernel")
        ),
    }
    report((), "quick", folder, tmp_path)
    assert contents(tmp_path) == first


def test_rows_in_another_order_give_the_same_tables(results):
    other = Results(results.rows[::-1], results.pictures, results.sets_in_order)
    assert planar_page(results, "t", "quick") == planar_page(other, "t", "quick")


def test_one_changed_row_changes_its_cell_alone(results):
    before = metric_table(results, "spearman", {}).splitlines()
    changed = json.loads(json.dumps(results.rows))
    [row] = [
        row
        for row in changed
        if (row["set"], row["method"], row["stage"]) == ("arc", "planar", "final")
    ]
    row["metrics"]["spearman"] = 0.12345
    after = metric_table(Results(changed, [], results.sets_in_order), "spearman", {}).splitlines()
    assert "0.1234" in after[2] or "0.1235" in after[2]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, False, True]


def test_a_later_row_takes_the_place_of_an_earlier_one(results):
    last = results.rows[-1] | {
        "id": "new",
        "metrics": results.rows[-1]["metrics"] | {"spearman": 0.5},
    }
    again = Results([*results.rows, last], [], results.sets_in_order)
    figure = again.figure(last["set"], last["method"], "spearman")
    assert (figure.value, len(figure.rows)) == (0.5, 1)


def test_the_last_line_of_seconds_is_what_all_rows_took(results):
    *_, last = seconds_table(results).splitlines()
    cells = [cell.strip() for cell in last.strip("|").split("|")]
    assert cells[0] == "all"
    assert float(cells[-1]) == round(sum(row["seconds"] for row in results.rows))


def final(name, method, seed=0, **metrics):
    return {
        "id": f"{name}{method}{seed}",
        "set": name,
        "method": method,
        "seed": seed,
        "stage": "final",
        "trial": None,
        "status": "complete",
        "metrics": {"spearman": 0.9, "mean_absolute_error": 0.1, "excess_nll": 0.1} | metrics,
    }


def test_a_set_of_many_seeds_counts_once_in_seconds():
    times = {"arc": [1.0] * 9 + [2.0], "binomial": [5.0], "star_eight": [6.0]}
    rows = [
        final(name, "qaffde", k) | {"fit_cpu_seconds": seconds}
        for name, of_seeds in times.items()
        for k, seconds in enumerate(of_seeds)
    ]
    assert Results(rows, [], tuple(times)).seconds("qaffde", "fit_cpu_seconds") == 5.0


@pytest.mark.parametrize(("made", "leads", "ties"), [(0.8, 1, 1), (0.9001, 0, 1), (0.99, 0, 0)])
def test_the_verdict_over_dimensions_tells_leads_from_ties(made, leads, ties):
    name = "random_gmm(1, 1.0)"
    rows = [final(name, "qaffde_sgd", k, spearman=v) for k, v in enumerate((0.88, 0.92))]
    rows += [final(name, "made", spearman=made), final(name, "kde", spearman=0.9999)]
    said = dimension_verdict(Results(rows, [], (name,)))
    assert f"better of ours on {leads} of 1 sets" in said
    assert f"within one standard error of it on {ties}." in said


def test_tables_show_means_spreads_and_the_paper_s():
    rows = [final("arc", "qaffde", k, spearman=value) for k, value in enumerate((0.90, 0.94))]
    rows += [final("arc", "nsf", spearman=0.93)]
    table = metric_table(Results(rows, [], ("arc",)), "spearman", {"nsf": {"arc": 0.965}})
    assert table.splitlines() == [
        "| set | QAFFDE | NSF |",
        "| --- | --- | --- |",
        "| arc | 0.9200 ± 0.0283 | **0.9300** (0.9650) |",
    ]


@pytest.mark.parametrize(("ours", "best"), [(0.010, True), (0.012, True), (0.0131, False)])
def test_best_is_within_one_standard_error(ours, best):
    error = {"excess_nll_standard_error": 0.003}
    rows = [final("arc", "qaffde", excess_nll=ours, **error)]
    rows += [final("arc", "nsf", excess_nll=0.010, **error)]
    rows += [final("arc", "qaffde_sgd", excess_nll=0.5, **error)]
    assert OURS == ("qaffde", "qaffde_sgd")
    assert is_best(Results(rows, [], ("arc",)), "arc", "excess_nll") is best


class Links(HTMLParser):
    """Anchors, links and sources of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.sources, self.tags = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        self.anchors.add(found.get("id"))
        self.links += [found["href"]] if "href" in found else []
        self.sources += [found["src"]] if "src" in found else []


def test_the_page_needs_nothing_else_and_every_link_has_its_row(out):
    page = Links((out / "results.html").read_text(encoding="utf-8"))
    rows = [link[1:] for link in page.links if link.startswith("#row-")]
    assert len(set(rows)) >= 4 + 10
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.anchors
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert page.sources
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert page.tags.count("img") == 2 * (1 + 2) + 2 * 2  # meshes with the truth, and scatters


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(ValueError, match="run: python -m experiments run planar --budget quick"):
        report((), "quick", tmp_path, tmp_path)
    with pytest.raises(ValueError, match=r"kernel-quick\.jsonl has no rows"):
        report(("kernel",), "quick", tmp_path, tmp_path)
    with pytest.raises(ValueError, match="unknown experiment 'audio'; choose one of planar"):
        report(("audio",), "quick", tmp_path, tmp_path)


def test_every_experiment_has_a_reader():
    assert set(report_module.READERS) == set(registry.EXPERIMENTS)
