"""Tables, figures and the page from the rows of experiments, and from nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from experiments import figures, page, tables
from experiments.config import DensityConfig
from experiments.images import figures as image_figures
from experiments.images import page as image_page
from experiments.images import tables as image_tables
from experiments.images.config import ImageConfig
from experiments.images.results import ImageResults
from experiments.markup import Section, rows_section
from experiments.registry import EXPERIMENTS, find_experiment, find_files
from experiments.results import Results
from experiments.rows import ROOT, Row, read_rows

PAGE = "results.html"


@dataclass
class Parts:
    """What the experiments of a report have written so far."""

    paths: list[Path] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    densities: list[Results] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)


def report_folder(budget: str) -> Path:
    """Where a report goes: into the docs if it is of the standard budget."""
    return ROOT / "docs" if budget == "standard" else Path(f"qaffde-report-{budget}")


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
    _need_matplotlib()
    chosen = list(names) or [n for n in EXPERIMENTS if find_files(n, budget, rows).rows.exists()]
    if not chosen:
        folder = find_files("planar", budget, rows).folder
        raise ValueError(
            f"{folder} has no rows of the budget {budget!r}; "
            f"run: python -m experiments run planar --budget {budget}"
        )
    folder, parts = out or report_folder(budget), Parts()
    for name in chosen:
        find_experiment(name)
        WRITERS[name](name, budget, rows, folder, parts)
    sections = [*parts.sections, rows_section(parts.densities, parts.others)]
    text = page.build_page(sections, _origin(parts, budget))
    parts.paths.append(_write(folder / PAGE, text))
    return parts.paths


def _need_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise ImportError(
            "reports need matplotlib, which is not installed; run: pip install 'qaffde[plot]'"
        )


def _write_planar(name: str, budget: str, rows: Path | None, out: Path, parts: Parts) -> None:
    results, title = _results(name, budget, rows)
    parts.paths.append(
        _write(out / "tables_planar.md", tables.planar_page(results, title, budget))
    )
    if results.pictures:
        stem = out / "figures"
        parts.paths += figures.save_figure(figures.mesh_figure(results), stem / "planar_mesh")
        parts.paths += figures.save_figure(
            figures.scatter_figure(results), stem / "planar_scatter"
        )
    parts.sections.append(page.planar_section(results, title))
    parts.densities.append(results)


def _write_dimensions(name: str, budget: str, rows: Path | None, out: Path, parts: Parts) -> None:
    results, title = _results(name, budget, rows)
    text = tables.dimensions_page(results, title, budget)
    parts.paths.append(_write(out / "tables_dimensions.md", text))
    figure = figures.dimensions_figure(results)
    parts.paths += figures.save_figure(figure, out / "figures" / "dimensions")
    parts.sections.append(page.dimensions_section(results, title))
    parts.densities.append(results)


def _write_kernel(name: str, budget: str, rows: Path | None, out: Path, parts: Parts) -> None:
    last = {row["id"]: row for row in _read(name, budget, rows)}
    measured, title = list(last.values()), find_experiment(name).config().title
    text = tables.kernel_page(measured, title, budget)
    parts.paths.append(_write(out / "tables_kernel.md", text))
    figure = figures.kernel_figure(measured)
    parts.paths += figures.save_figure(figure, out / "figures" / "kernel")
    parts.sections.append(page.kernel_section(measured, title))
    parts.others += measured


def _write_images(name: str, budget: str, rows: Path | None, out: Path, parts: Parts) -> None:
    config = find_experiment(name).config()
    assert isinstance(config, ImageConfig)
    pictures = read_rows(find_files(name, budget, rows).pictures)
    results = ImageResults(_read(name, budget, rows), pictures, config.sets)
    text = image_tables.images_page(results, config.title, budget)
    parts.paths.append(_write(out / "tables_images.md", text))
    for stem, figure in image_figures.image_figures(results).items():
        parts.paths += figures.save_figure(figure, out / "figures" / stem)
    parts.sections.append(image_page.images_section(results, config.title))
    parts.others += results.current


WRITERS: dict[str, Callable[[str, str, Path | None, Path, Parts], None]] = {
    "planar": _write_planar,
    "dimensions": _write_dimensions,
    "kernel": _write_kernel,
    "images": _write_images,
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


def _origin(parts: Parts, budget: str) -> str:
    rows = [row for results in parts.densities for row in results.current] + parts.others
    revisions = sorted({(row["revision"] or "unknown")[:7] for row in rows})
    days = sorted({row["date"][:10] for row in rows})
    return (
        f"Budget {budget}: {len(rows)} rows, measured {days[0]} to {days[-1]}, "
        f"revisions {', '.join(revisions)}."
    )
