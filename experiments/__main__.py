"""``python -m experiments``: a demo, the paper's experiments, and reports from their rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.demo import demo
from experiments.images import recipes
from experiments.registry import EXPERIMENTS, Selection, plan, run
from experiments.report import report
from experiments.rows import Row
from experiments.runner import Listener
from qaffde.cli.output import reporting

app = typer.Typer(
    name="experiments",
    help="Run the paper's experiments, and report from their rows.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("demo")(reporting()(demo))


class Budget(StrEnum):
    """How much a run may cost."""

    quick = "quick"
    standard = "standard"
    paper = "paper"


class Variant(StrEnum):
    """How parameters of a comparison of densities are chosen."""

    tuned = "tuned"
    untuned = "untuned"


Names = Annotated[list[str] | None, typer.Argument(help="Experiments; none is all with rows.")]
Several = Annotated[list[str] | None, typer.Option(help="Names, by commas or repeated.")]
Numbers = Annotated[list[str] | None, typer.Option(help="Numbers, by commas or repeated.")]
Folder = Annotated[Path | None, typer.Option(help="Folder of the rows.")]


@app.command("run")
def run_command(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(EXPERIMENTS)}.")],
    sets: Several = None,
    methods: Several = None,
    budget: Budget = Budget.quick,
    variant: Annotated[Variant, typer.Option(help="Tuned by trials, or the defaults.")] = (
        Variant.tuned
    ),
    seeds: Numbers = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes, each of one thread.")] = 1,
    out: Folder = None,
    storage: Annotated[str | None, typer.Option(help="URL of Optuna's storage.")] = None,
    retry_failed: Annotated[bool, typer.Option(help="Measure failures again.")] = False,  # noqa: FBT002
) -> None:
    """Run an experiment; rows that are there already are not measured again."""
    with _clear_errors():
        selection = Selection(_names(sets), _names(methods), _seeds(seeds), variant.value, storage)
        budget_name = budget.value
        planned = plan(name, budget_name, selection, out, retry_failed=retry_failed)
        total, there = len(planned.tasks), planned.n_done
        typer.echo(f"{name}, budget {budget_name}: {total} rows, {there} there already")
        typer.echo(f"rows: {planned.files.rows}")
        failures = 0
        with _progress(total, there) as tick:

            def on_row(row: Row) -> None:
                nonlocal failures
                failures += row["status"] == "failed"
                tick(row)

            try:
                run(
                    name,
                    budget_name,
                    selection,
                    out,
                    jobs=jobs,
                    retry_failed=retry_failed,
                    on_row=on_row,
                )
            except KeyboardInterrupt:
                typer.echo("interrupted; the same command goes on from here", err=True)
                raise typer.Exit(130) from None
        if failures:
            typer.echo(f"{failures} failures: their rows say why; --retry-failed tries again")


@app.command("report")
def report_command(
    names: Names = None,
    budget: Budget = Budget.standard,
    rows: Folder = None,
    out: Annotated[Path | None, typer.Option(help="Folder for pages and figures.")] = None,
) -> None:
    """Build tables, figures and the page from rows alone."""
    with _clear_errors():
        for path in report(names or (), budget.value, rows, out):
            typer.echo(path)


@app.command("recipe")
def recipe_command(
    set_name: Annotated[str, typer.Argument(metavar="SET", help="Data set of images.")],
    method: Annotated[str, typer.Argument(help="A method of the experiment on images.")],
    given: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...")] = None,
    seed: int = 0,
    rows: Annotated[Path, typer.Option(help="File of the rows.")] = recipes.ROWS,
) -> None:
    """Try a recipe of the experiment on images, judged by training images alone."""
    with _clear_errors():
        values = dict(map(recipes.parse_value, given or ()))
        row = recipes.run(set_name, method, values, seed, rows)
    typer.echo("already there" if row is None else (row["error"] or row["metrics"]))


@app.command("list")
def list_command() -> None:
    """List experiments, their budgets, and how many rows are there."""
    for name, experiment in EXPERIMENTS.items():
        typer.echo(f"{name:<11} {experiment.summary}")
        for budget in experiment.config().budgets:
            for variant in experiment.variants:
                planned = plan(name, budget, Selection(variant=variant))
                counts = f"{planned.n_done} of {len(planned.tasks)} rows"
                typer.echo(f"{'':<11} {budget:<9} {variant:<8} {counts}")


@contextmanager
def _clear_errors() -> Iterator[None]:
    """One line instead of a traceback for what the user can mend."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


def _names(given: list[str] | None) -> tuple[str, ...] | None:
    """Names of an option; commas within brackets belong to a name."""
    if not given:
        return None
    marked = [
        "".join("\0" if c == "," and not _inside(text, i) else c for i, c in enumerate(text))
        for text in given
    ]
    return tuple(part.strip() for text in marked for part in text.split("\0") if part.strip())


def _inside(text: str, position: int) -> bool:
    return text.count("(", 0, position) > text.count(")", 0, position)


def _seeds(given: list[str] | None) -> tuple[int, ...] | None:
    parts = _names(given)
    if parts is None:
        return None
    for part in parts:
        if not part.isdigit():
            raise ValueError(f"--seeds takes whole numbers such as 100,101, got {part!r}")
    return tuple(map(int, parts))


@contextmanager
def _progress(total: int, there: int) -> Iterator[Listener]:
    """A bar on a terminal, else a line for each row."""
    console = Console(stderr=True)
    if not console.is_terminal:
        done = there

        def line(row: Row) -> None:
            nonlocal done
            done += 1
            typer.echo(f"[{done}/{total}] {_summary(row)}")

        yield line
        return
    columns: list[Any] = [
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    ]
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total, completed=there)
        yield lambda row: progress.update(task, advance=1, description=_summary(row))


def _summary(row: Row) -> str:
    if "kind" in row:
        return f"{row['kind']}, D = {row['n_features']}, seed {row['seed']}: {row['mse']:.1e}"
    stage = row["stage"] if row["trial"] is None else f"trial {row['trial']}"
    head = f"{row['method']} on {row['set']}, seed {row['seed']}, {stage}"
    if row["status"] == "failed":
        return f"{head}: failed, {row['error']['type']}: {row['error']['message']}"
    if row["status"] == "pruned":
        return f"{head}: pruned"
    if row["stage"] == "trial":
        return f"{head}: log-likelihood {row['validation']:.4f}"
    metrics = row["metrics"]
    if row["experiment"] == "images":
        return (
            f"{head}: accuracy {metrics['accuracy']:.4f}, NLL {metrics['nll']:.4f}, "
            f"fit {row['fit_seconds']:.1f} s"
        )
    if row["experiment"] == "tables":
        likelihood = f"log-likelihood {metrics['log_likelihood']:.4f}"
        return f"{head}: {likelihood}, fit {row['fit_cpu_seconds']:.1f} s"
    if row["experiment"] == "outliers":
        seconds = f"fit {row['fit_cpu_seconds']:.1f} s"
        return f"{head}, {row['protocol']}: ROC AUC {metrics['roc_auc']:.4f}, {seconds}"
    if row["experiment"] == "regression":
        found = [f"{key} {value:.4g}" for key, value in metrics.items() if value is not None]
        return f"{head}: {', '.join(found)}, fit {row['fit_cpu_seconds']:.1f} s"
    return (
        f"{head}: Spearman {metrics['spearman']:.4f}, MAE {metrics['mean_absolute_error']:.5f}, "
        f"fit {row['fit_seconds']:.1f} s"
    )


if __name__ == "__main__":
    app()
