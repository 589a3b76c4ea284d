"""The commands: their arguments, help and examples. What each does is in the module it names.

A command's module is imported when its arguments are known to be right, so that help and
mistakes need no torch.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from qaffde import __version__
from qaffde.cli.errors import reporting

app = typer.Typer(
    name="qaffde",
    help="Density estimation with quantum adaptive Fourier features.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, Option("--version", help="Print the version.")] = False,  # noqa: FBT002
) -> None:
    """Density estimation with quantum adaptive Fourier features."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


MODULES: dict[str, str] = {}
"""Commands, and the modules of `qaffde.cli` that do their work."""


def command(module: str, *examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator for the signature of a command that the function of its name in a module does."""

    def register(declared: Callable[..., None]) -> Callable[..., None]:
        name = declared.__name__
        MODULES[name] = module

        @wraps(declared)
        def run(**arguments: Any) -> None:
            with reporting():
                getattr(import_module(f"qaffde.cli.{module}"), name)(**arguments)

        epilog = "\n\n".join(["Examples:", *(f"  {line}" for line in examples)])
        return app.command(name, epilog=epilog)(run)

    return register


class Missing(StrEnum):
    """Treatment of rows with missing values."""

    error = "error"
    drop = "drop"
    impute = "impute"


Model = Annotated[Path, Argument(metavar="MODEL", help="File that `qaffde fit` wrote.")]
Data = Annotated[
    str,
    Argument(
        metavar="DATA", help="CSV, TSV, Parquet, Arrow, Feather, NPY or NPZ; - is standard input."
    ),
]
ModelOut = Annotated[Path, Option("--output", "-o", help="Model file to write.")]
TableOut = Annotated[
    str | None,
    Option("--output", "-o", help="File to write, format by suffix; - is standard output."),
]
Columns = Annotated[
    list[str] | None,
    Option("--columns", "-c", help="Names, numbers from 0 or ranges such as 0-3, by commas."),
]
Header = Annotated[
    bool | None, Option("--header/--no-header", help="Whether text has names in its first line.")
]
MissingFit = Annotated[
    Missing, Option(help="Rows with gaps: stop, drop them, or fill column means.")
]
MissingScore = Annotated[
    Missing, Option(help="Rows with gaps: stop, drop them, or fill the model's conditional mean.")
]
Json = Annotated[bool, Option("--json", help="Print one JSON object for programs.")]
Seed = Annotated[int, Option(min=0, help="Of all that is random.")]


@command(
    "fit",
    "qaffde fit rows.csv -o model.qaffde",
    "qaffde fit rows.parquet -c height,weight --missing drop -o model.qaffde",
    "qaffde fit shares.csv --bounds 0:1 --method qaffde-sgd --time-limit 20 -o model.qaffde",
    "cat rows.csv | qaffde fit - -o model.qaffde",
)
def fit(
    data: Data,
    output: ModelOut,
    *,
    columns: Columns = None,
    weights: Annotated[str | None, Option(help="Column of weights.")] = None,
    method: Annotated[str, Option(help="qaffde or qaffde-sgd.")] = "qaffde",
    features: Annotated[int | None, Option(min=2, help="Number of Fourier features.")] = None,
    bandwidth: Annotated[
        str | None, Option(help="A number, one for each column by commas, scott, silverman.")
    ] = None,
    rank: Annotated[
        str | None, Option(help="Eigenpairs to keep: a number, or a share below 1.")
    ] = None,
    base_measure: Annotated[
        str | None, Option(help="box, gaussian, mixture; chosen where not given.")
    ] = None,
    bounds: Annotated[
        list[str] | None,
        Option(help="Known ends: LOW:HIGH for all columns, or COLUMN=LOW:HIGH, repeated."),
    ] = None,
    time_limit: Annotated[
        float | None, Option(min=0, help="Seconds, for methods that train.")
    ] = None,
    seed: Seed = 0,
    missing: MissingFit = Missing.error,
    header: Header = None,
    stream: Annotated[
        bool | None, Option(help="Read in batches, twice; so by default where data are large.")
    ] = None,
    json: Json = False,
) -> None:
    """Fit a density to the columns of DATA, and write it to a model file."""


@command(
    "score",
    "qaffde score model.qaffde new.csv -o scored.csv",
    "qaffde score model.qaffde new.parquet --missing impute -o scored.parquet",
    "qaffde score model.qaffde new.csv --json",
)
def score(
    model: Model,
    data: Data,
    *,
    output: TableOut = None,
    columns: Columns = None,
    missing: MissingScore = Missing.error,
    header: Header = None,
    json: Json = False,
) -> None:
    """Write the rows of DATA with a column log_density.

    With --json and no -o, only a summary is printed.
    """


@command(
    "derive",
    "qaffde sample model.qaffde -n 1000 -o drawn.csv",
    "qaffde sample model.qaffde -n 5",
)
def sample(
    model: Model,
    *,
    n: Annotated[int, Option("-n", "--rows", min=1, help="How many rows.")] = 1000,
    output: TableOut = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw independent rows from a density."""


@command("derive", "qaffde marginal model.qaffde height weight -o pair.qaffde")
def marginal(
    model: Model,
    columns: Annotated[list[str], Argument(help="Columns to keep: names or numbers.")],
    output: ModelOut,
    *,
    json: Json = False,
) -> None:
    """Write the exact density of some columns, the others integrated out."""


@command("derive", "qaffde condition model.qaffde height=1.8 -o tall.qaffde")
def condition(
    model: Model,
    values: Annotated[list[str], Argument(metavar="COLUMN=VALUE...", help="What is known.")],
    output: ModelOut,
    *,
    json: Json = False,
) -> None:
    """Write the exact density of the other columns, where some have given values."""


@command(
    "plot",
    "qaffde plot model.qaffde -o density.png",
    "qaffde plot model.qaffde --kind pairs --data rows.csv -o pairs.png",
    "qaffde plot model.qaffde --kind slices -c weight --given height=1.6,1.8 -o slices.svg",
)
def plot(
    model: Model,
    *,
    output: Annotated[Path, Option("--output", "-o", help="PNG, SVG or PDF to write.")],
    kind: Annotated[
        str,
        Option(
            help="auto, curve, contours, surface, pairs, slices, truth, training, spectrum, "
            "frequencies."
        ),
    ] = "auto",
    data: Annotated[
        str | None, Option(help="Data to show beside the density; - is standard input.")
    ] = None,
    columns: Columns = None,
    given: Annotated[
        list[str] | None,
        Option(help="For slices: COLUMN=VALUE,VALUE,...; repeated for several columns."),
    ] = None,
    target: Annotated[
        str | None, Option(help="For truth: the benchmark density that is known.")
    ] = None,
    dpi: Annotated[int, Option(min=10, max=1200, help="Dots in an inch.")] = 150,
    header: Header = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw a density: curve, contours, surface, all pairs, slices, or how it was fitted."""


@command(
    "explore",
    "qaffde explore model.qaffde",
    "qaffde explore model.qaffde --port 8000 --no-browser",
)
def explore(
    model: Model,
    *,
    host: Annotated[
        str, Option(help="Address to listen at; others than loopback can be reached by all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, Option(min=0, max=65535, help="Port to listen at; 0 is any that is free.")
    ] = 0,
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Whether to open the page.")
    ] = True,
    json: Json = False,
) -> None:
    """Open a page to move through a density: pick columns, drag values, select a box."""


@command(
    "score",
    "qaffde anomalies model.qaffde new.csv --fraction 0.01 -o odd.csv",
    "qaffde anomalies model.qaffde new.csv --all -o judged.parquet",
)
def anomalies(
    model: Model,
    data: Data,
    *,
    fraction: Annotated[
        float | None, Option(help="Call this share of DATA anomalies: the least likely rows.")
    ] = None,
    false_alarms: Annotated[
        float | None,
        Option(help="Share of the model's own mass that is called so; 0.01 by default."),
    ] = None,
    threshold: Annotated[
        float | None, Option(help="Log-density below which a row is an anomaly.")
    ] = None,
    all_rows: Annotated[
        bool, Option("--all", help="Write all rows, with a column anomaly of 0 and 1.")
    ] = False,
    output: TableOut = None,
    columns: Columns = None,
    missing: MissingScore = Missing.error,
    header: Header = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Write the rows of DATA where the density is low, with their number and log_density."""


@command("info", "qaffde info model.qaffde", "qaffde info model.qaffde --json")
def info(model: Model, *, json: Json = False) -> None:
    """Show what a model file holds: class, columns, base measure, rank, entropy, size."""


@command(
    "compare",
    "qaffde compare rows.csv",
    "qaffde compare rows.csv --methods qaffde,kde,gmm --time-limit 20 --json",
)
def compare(
    data: Data,
    *,
    columns: Columns = None,
    methods: Annotated[str, Option(help="Methods, by commas.")] = "qaffde,qaffde-sgd,kde,gmm,nsf",
    held_out: Annotated[float, Option(help="Share of rows that judge.")] = 0.2,
    max_rows: Annotated[int, Option(min=10, help="Of more rows, as many are drawn.")] = 20_000,
    time_limit: Annotated[
        float, Option(min=0, help="Seconds for each method that trains.")
    ] = 30.0,
    seed: Seed = 0,
    missing: MissingFit = Missing.error,
    header: Header = None,
    json: Json = False,
) -> None:
    """Fit several methods, untuned, and compare their log-likelihood on held-out rows."""


@command("demo", "qaffde demo", "qaffde demo --target arc --rows 5000 -o arc.png")
def demo(
    *,
    target: Annotated[
        str,
        Option(
            help="One of arc, bimodal_l, binomial, potential_1, potential_2, potential_3, "
            "potential_4, star_eight, swiss_roll."
        ),
    ] = "swiss_roll",
    rows: Annotated[int, Option(min=100, help="Training rows.")] = 20_000,
    methods: Annotated[
        str | None, Option(help="Some of QAFFDE, QAFFDE-SGD, exact KDE, NSF, by commas.")
    ] = None,
    output: Annotated[Path, Option("--output", "-o", help="Picture to write.")] = Path("demo.png"),
    json: Json = False,
) -> None:
    """Fit QAFFDE to a benchmark density beside other methods, and draw them."""
