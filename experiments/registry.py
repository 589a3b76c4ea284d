"""Experiments by name. A new one is a module that makes cells and sections, and a TOML file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from experiments.cells import Cell
from experiments.config import (
    BUDGETS,
    DensityConfig,
    KernelConfig,
    OutliersConfig,
    RegressionConfig,
    TablesConfig,
    load_config,
)
from experiments.density import VARIANTS, density_cells
from experiments.images.cells import image_cells
from experiments.images.config import ImageConfig
from experiments.kernel import kernel_cells
from experiments.outliers import outlier_cells
from experiments.real import table_cells
from experiments.regression import regression_cells
from experiments.rows import RESULTS
from experiments.runner import Files, Listener, finished, run_cells
from experiments.search import open_storage


@dataclass(frozen=True)
class Selection:
    """Part of an experiment; what is None is all that the configuration has.

    Parameters
    ----------
    sets, methods : tuple of str, optional
    seeds : tuple of int, optional
    variant : {"tuned", "untuned"}
        Of comparisons of densities: parameters by trials, or the defaults.
    storage : str, optional
        URL of Optuna's storage; None is a SQLite file beside the rows.
    scratch : Path, optional
        Folder of checkpoints; None is one beside the rows.
    """

    sets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None
    variant: str = "tuned"
    storage: str | None = None
    scratch: Path | None = None


Config = (
    DensityConfig | KernelConfig | ImageConfig | TablesConfig | RegressionConfig | OutliersConfig
)


@dataclass(frozen=True)
class Experiment:
    """What one name stands for.

    Parameters
    ----------
    summary : str
        A line for people.
    config : callable
        Its configuration, with ``title`` and ``budgets``.
    cells : callable
        Cells of a budget and a selection.
    """

    summary: str
    config: Callable[[], Config]
    cells: Callable[[str, Selection], Sequence[Cell]] = field(repr=False)

    @property
    def variants(self) -> tuple[str, ...]:
        """Those that it may be run in."""
        return VARIANTS if isinstance(self.config(), DensityConfig) else VARIANTS[:1]


def _densities(name: str) -> Callable[[str, Selection], Sequence[Cell]]:
    def cells(budget: str, selection: Selection) -> Sequence[Cell]:
        return density_cells(
            name,
            load_config(name, DensityConfig),
            budget,
            sets=selection.sets,
            methods=selection.methods,
            seeds=selection.seeds,
            storage=selection.storage or "",
            variant=selection.variant,
        )

    return cells


def _kernel(budget: str, selection: Selection) -> Sequence[Cell]:
    if selection.sets is not None:
        raise ValueError("kernel has one data set: leave the option sets out")
    config = load_config("kernel", KernelConfig)
    return kernel_cells(config, budget, kinds=selection.methods, seeds=selection.seeds)


def _images(budget: str, selection: Selection) -> Sequence[Cell]:
    config = load_config("images", ImageConfig)
    return image_cells(
        config,
        budget,
        sets=selection.sets,
        methods=selection.methods,
        seeds=selection.seeds,
        scratch=selection.scratch,
    )


def _tables(budget: str, selection: Selection) -> Sequence[Cell]:
    config = load_config("tables", TablesConfig)
    return table_cells(
        config,
        budget,
        selection.scratch or find_files("tables", budget).scratch,
        sets=selection.sets,
        methods=selection.methods,
        seeds=selection.seeds,
    )


def _regression(budget: str, selection: Selection) -> Sequence[Cell]:
    return regression_cells(
        load_config("regression", RegressionConfig),
        budget,
        sets=selection.sets,
        methods=selection.methods,
        seeds=selection.seeds,
    )


def _outliers(budget: str, selection: Selection) -> Sequence[Cell]:
    return outlier_cells(
        load_config("outliers", OutliersConfig),
        budget,
        sets=selection.sets,
        methods=selection.methods,
        seeds=selection.seeds,
    )


EXPERIMENTS: dict[str, Experiment] = {
    "planar": Experiment(
        "nine planar densities, Tables 1 and 2, the mesh and the scatter figure",
        lambda: load_config("planar", DensityConfig),
        _densities("planar"),
    ),
    "dimensions": Experiment(
        "random mixtures of one to ten columns, the figure over dimensions",
        lambda: load_config("dimensions", DensityConfig),
        _densities("dimensions"),
    ),
    "kernel": Experiment(
        "the Gaussian kernel by few Fourier features, Figure 2",
        lambda: load_config("kernel", KernelConfig),
        _kernel,
    ),
    "images": Experiment(
        "MNIST and CIFAR-10 by one density per class, the table of accuracies",
        lambda: load_config("images", ImageConfig),
        _images,
    ),
    "tables": Experiment(
        "ten real tables by the likelihood of test rows",
        lambda: load_config("tables", TablesConfig),
        _tables,
    ),
    "regression": Experiment(
        "nine UCI regression sets by the likelihood of test rows",
        lambda: load_config("regression", RegressionConfig),
        _regression,
    ),
    "outliers": Experiment(
        "ADBench's sets by the ROC AUC of outlier detectors",
        lambda: load_config("outliers", OutliersConfig),
        _outliers,
    ),
}


def find_experiment(name: str) -> Experiment:
    """Experiment by its name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def find_files(name: str, budget: str, folder: Path | None = None) -> Files:
    """Where an experiment of a budget keeps its rows."""
    if budget not in BUDGETS:
        raise ValueError(f"unknown budget {budget!r}; choose one of {', '.join(BUDGETS)}")
    return Files(folder or RESULTS, f"{name}-{budget}")


@dataclass(frozen=True)
class Plan:
    """What a run has before it, and what is there already."""

    cells: Sequence[Cell]
    files: Files
    tasks: Mapping[str, str]
    n_done: int


def plan(
    name: str,
    budget: str = "quick",
    selection: Selection | None = None,
    folder: Path | None = None,
    *,
    retry_failed: bool = False,
) -> Plan:
    """Cells of an experiment and where their rows go; nothing runs yet."""
    experiment, files = find_experiment(name), find_files(name, budget, folder)
    chosen = selection or Selection()
    if chosen.variant not in experiment.variants:
        known = ", ".join(experiment.variants)
        raise ValueError(f"{name} has no variant {chosen.variant!r}; it has {known}")
    chosen = replace(
        chosen,
        storage=chosen.storage or files.storage,
        scratch=chosen.scratch or files.scratch,
    )
    cells = experiment.cells(budget, chosen)
    tasks = {task: cell.label for cell in cells for task in cell.tasks()}
    done = finished(files, retry_failed=retry_failed)
    return Plan(cells, files, tasks, sum(len(cell.kept(done)) for cell in cells))


def run(
    name: str,
    budget: str = "quick",
    selection: Selection | None = None,
    folder: Path | None = None,
    *,
    jobs: int = 1,
    retry_failed: bool = False,
    on_row: Listener = lambda row: None,
) -> Plan:
    """Run an experiment, as far as its rows are not there yet.

    Parameters
    ----------
    name : str
        A key of ``EXPERIMENTS``.
    budget : {"quick", "standard", "paper"}
    selection : Selection, optional
    folder : Path, optional
        Of the rows.
    jobs : int, default=1
        Processes, each of one thread.
    retry_failed : bool, default=False
        Measure again what failed.
    on_row : callable
        Called with every new row.
    """
    if jobs < 1:
        raise ValueError(f"jobs={jobs} must be at least 1")
    planned = plan(name, budget, selection, folder, retry_failed=retry_failed)
    if planned.n_done < len(planned.tasks):
        _prepare(name, planned.files, selection)
    run_cells(planned.cells, planned.files, jobs=jobs, retry_failed=retry_failed, on_row=on_row)
    return planned


def _prepare(name: str, files: Files, selection: Selection | None) -> None:
    """Create Optuna's tables once, before several processes want them."""
    files.folder.mkdir(parents=True, exist_ok=True)
    chosen = selection or Selection()
    is_searched = chosen.variant == "tuned"
    if is_searched and isinstance(find_experiment(name).config(), DensityConfig):
        open_storage(chosen.storage or files.storage)
