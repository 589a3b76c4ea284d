"""Tables, figures and the page from the rows of experiments, and from nothing else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import figures, outliers, page, real, regression, tables
from experiments.config import DensityConfig, OutliersConfig, RegressionConfig, TablesConfig
from experiments.headline import headline
from experiments.images import figures as image_figures
from experiments.images import page as image_page
from experiments.images import recipes
from experiments.images import tables as image_tables
from experiments.images.config import ImageConfig
from experiments.images.results import ImageResults
from experiments.markup import Section, rows_section
from experiments.pages import fill
from experiments.registry import EXPERIMENTS, find_experiment, find_files
from experiments.results import Results
from experiments.rows import ROOT, Row, read_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS, README = ROOT / "docs", ROOT / "README.md"
PAGE = "results.html"


@dataclass(frozen=True)
class Part:
    """What a report has of one experiment.

    Parameters
    ----------
    tables : str
        Markdown page, ``tables_<experiment>.md``.
    figures : dict of {str: callable}
        What draws each figure, by file name.
    section : Section
        Of the HTML page.
    densities : Results, optional
        Rows of a comparison of densities.
    others : tuple of Row
        Rows of another experiment.
    excerpts : dict of {(str, str): str}
        What stands between the markers of other pages, by path and name of the markers.
    """

    tables: str
    figures: Mapping[str, Callable[[], "Figure"]]
    section: Section
    densities: Results | None = None
    others: tuple[Row, ...] = ()
    excerpts: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def rows(self) -> Sequence[Row]:
        """All rows that are shown."""
        return self.others if self.densities is None else self.densities.current


def report_folder(budget: str) -> Path:
    """Where a report goes: into the docs if it is of the standard budget."""
    return DOCS if budget == "standard" else Path(f"qaffde-report-{budget}")


def report(
    names: Sequence[str] = (),
    budget: str = "standard",
    rows: Path | None = None,
    out: Path | None = None,
) -> list[Path]:
    """Write the report of some experiments, or of all that have rows; return what was written.

    Parameters
    ----------
    names : sequence of str
        Experiments; none is all that have rows.
    budget : {"quick", "standard", "paper"}
    rows : Path, optional
        Folder of the rows.
    out : Path, optional
        Folder for pages and figures.
    """
    parts, folder = read_parts(names, budget, rows), out or report_folder(budget)
    paths = []
    for name, part in parts.items():
        paths.append(_write(folder / f"tables_{name}.md", part.tables))
        for file, draw in part.figures.items():
            paths.append(figures.save_figure(draw(), folder / "figures" / file))
        if folder == DOCS:
            for (place, marker), text in part.excerpts.items():
                fill(ROOT / place, marker, text)
                paths.append(ROOT / place)
    if folder == DOCS and rows is None:
        fill(README, "headline", headline())
        paths.append(README)
    return [*paths, write_page(parts, budget, folder / PAGE)]


def write_page(parts: Mapping[str, Part], budget: str, path: Path) -> Path:
    """Write the HTML page, which needs no other file."""
    densities = [part.densities for part in parts.values() if part.densities is not None]
    others = [row for part in parts.values() for row in part.others]
    sections = [part.section for part in parts.values()]
    text = page.build_page([*sections, rows_section(densities, others)], _origin(parts, budget))
    return _write(path, text)


def read_parts(
    names: Sequence[str] = (), budget: str = "standard", rows: Path | None = None
) -> dict[str, Part]:
    """What a report has of each experiment; nothing is written."""
    chosen = list(names) or [n for n in EXPERIMENTS if find_files(n, budget, rows).rows.exists()]
    if not chosen:
        folder = find_files("planar", budget, rows).folder
        raise ValueError(
            f"{folder} has no rows of the budget {budget!r}; "
            f"run: python -m experiments run planar --budget {budget}"
        )
    for name in chosen:
        find_experiment(name)
    return {name: READERS[name](budget, rows) for name in chosen}


def _planar(budget: str, rows: Path | None) -> Part:
    results, title = _results("planar", budget, rows)
    drawn = {
        "planar_mesh.png": lambda: figures.mesh_figure(results),
        "planar_scatter.png": lambda: figures.scatter_figure(results),
    }
    return Part(
        tables.planar_page(results, title, budget),
        drawn if results.pictures else {},
        page.planar_section(results, title),
        results,
    )


def _dimensions(budget: str, rows: Path | None) -> Part:
    results, title = _results("dimensions", budget, rows)
    return Part(
        tables.dimensions_page(results, title, budget),
        {"dimensions.png": lambda: figures.dimensions_figure(results)},
        page.dimensions_section(results, title),
        results,
    )


def _kernel(budget: str, rows: Path | None) -> Part:
    last = {row["id"]: row for row in _read("kernel", budget, rows)}
    measured, title = list(last.values()), find_experiment("kernel").config().title
    return Part(
        tables.kernel_page(measured, title, budget),
        {"kernel.png": lambda: figures.kernel_figure(measured)},
        page.kernel_section(measured, title),
        others=tuple(measured),
    )


def _images(budget: str, rows: Path | None) -> Part:
    config = find_experiment("images").config()
    assert isinstance(config, ImageConfig)
    pictures = read_rows(find_files("images", budget, rows).pictures)
    results = ImageResults(_read("images", budget, rows), pictures, config.sets)
    return Part(
        image_tables.images_page(results, config.title, budget),
        image_figures.image_figures(results),
        image_page.images_section(results, config.title),
        others=tuple(results.current),
        excerpts={("docs/classification.md", "recipes"): recipes.table(read_rows(recipes.ROWS))},
    )


def _tables(budget: str, rows: Path | None) -> Part:
    config = find_experiment("tables").config()
    assert isinstance(config, TablesConfig)
    measured = tuple({row["id"]: row for row in _read("tables", budget, rows)}.values())
    text = real.tables_page(measured, config, tables.rebuild("tables", budget))
    return Part(text, {}, real.tables_section(measured, config), others=measured)


def _regression(budget: str, rows: Path | None) -> Part:
    config = find_experiment("regression").config()
    assert isinstance(config, RegressionConfig)
    measured = tuple({row["id"]: row for row in _read("regression", budget, rows)}.values())
    text = regression.regression_page(measured, config, tables.rebuild("regression", budget))
    return Part(text, {}, regression.regression_section(measured, config), others=measured)


def _outliers(budget: str, rows: Path | None) -> Part:
    config = find_experiment("outliers").config()
    assert isinstance(config, OutliersConfig)
    measured = tuple({row["id"]: row for row in _read("outliers", budget, rows)}.values())
    drawn = {
        f"outliers_{protocol}.png": partial(
            outliers.ranks_figure, outliers.Comparison(measured, config, protocol)
        )
        for protocol in outliers.PROTOCOLS
    }
    return Part(
        outliers.outliers_page(measured, config, tables.rebuild("outliers", budget)),
        drawn,
        outliers.outliers_section(measured, config),
        others=measured,
        excerpts={("docs/anomaly.md", "outliers"): outliers.summary_table(measured, config)},
    )


READERS: dict[str, Callable[[str, Path | None], Part]] = {
    "planar": _planar,
    "dimensions": _dimensions,
    "kernel": _kernel,
    "images": _images,
    "tables": _tables,
    "regression": _regression,
    "outliers": _outliers,
}


def _results(name: str, budget: str, folder: Path | None) -> tuple[Results, str]:
    config = find_experiment(name).config()
    assert isinstance(config, DensityConfig)
    pictures = read_rows(find_files(name, budget, folder).pictures)
    return Results(_read(name, budget, folder), pictures, config.sets), config.title


def _read(name: str, budget: str, folder: Path | None) -> list[Row]:
    path = find_files(name, budget, folder).rows
    rows = read_rows(path)
    if not rows:
        raise ValueError(
            f"{path} has no rows; run: python -m experiments run {name} --budget {budget}"
        )
    return rows


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _origin(parts: Mapping[str, Part], budget: str) -> str:
    rows = [row for part in parts.values() for row in part.rows]
    revisions = sorted({(row["revision"] or "unknown")[:7] for row in rows})
    days = sorted({row["date"][:10] for row in rows})
    return (
        f"Budget {budget}: {len(rows)} rows, measured {days[0]} to {days[-1]}, "
        f"revisions {', '.join(revisions)}."
    )
