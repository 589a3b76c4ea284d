"""What an untuned fit costs, beside other methods in the same run.

    python -m benchmarks.speed run [--only LINE …] [--flow-sets NAME …] [--repetitions R]
    python -m benchmarks.speed report [--results FILE] [--page FILE]

A row is one comparison: all its cases were measured one after the other in one run, so that their
ratios count and their seconds only describe the machine. Time is processor time on one thread,
that of children where a process is started; ``threads`` and ``demo`` leave threads as they are.
Fits are repeated in one process after a small one that warms up, and medians count. Rows are
appended as they are measured, and comparisons that are there with all their cases are not
measured again.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from benchmarks.commands import run_and_report
from benchmarks.peer_worker import timed
from experiments.images.loaders import data_folder
from experiments.pages import fill
from experiments.rows import ROOT, Row, append_row, markdown_table, provenance, read_rows
from experiments.targets import PLANAR, Target, get_target, random_gmm
from qaffde import QAFFDE, QAFFDESGD
from qaffde.baselines import KDE, NSF
from qaffde.explore.requests import State
from qaffde.explore.views import Explorer
from qaffde.nn import GaussianMeasure

ROWS = ROOT / "benchmarks/results/speed.jsonl"
PAGE = ROOT / "docs/speed.md"
OURS = {"QAFFDE": QAFFDE, "QAFFDESGD": QAFFDESGD}
CV_KDE, CV_KDE_SINGLE = "KDE, 20 bandwidths", "KDE, 20 bandwidths, float32"
FOLDS, N_BANDWIDTHS = 5, 20
KERNELS_AT_ONCE = 2**17
"""Kernels of a block: its numbers stay in cache, where exponentials are quickest."""
LOG_NOTHING = -80.0
"""Log of a kernel that adds nothing to the nearest one; exponentials that underflow are slow."""
KDE_ROWS = 5000
"""Held-out rows that judge the kernel density estimate, whose scores are dear."""
PLENTY = 15.0
"""Seconds after which a fit is not repeated."""
HEAVY = ("qaffde.baselines", "zuko", "pandas", "matplotlib", "dask", "optuna")
"""Packages that importing the estimators must not load."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sizes:
    """Rows of each comparison, and how often it is repeated.

    Parameters
    ----------
    n_kde, n_planar, n_gmm, n_power, n_five, n_planes, n_demo : int
        Rows to fit.
    n_score : int
        Held-out rows that judge a fit, and POWER's to score.
    flow_steps : int
        At most so many steps of the flow, its default.
    flow_sets : tuple of str
        Planar sets on which the flow is fitted too.
    repetitions : int
        Of fits and of processes; what takes long is not repeated.
    time_limit : int
        Seconds that a fit beside a busy process is given.
    """

    n_kde: int = 20_000
    n_planar: int = 100_000
    n_gmm: int = 40_000
    n_power: int = 100_000
    n_five: int = 50_000
    n_planes: int = 20_000
    n_demo: int = 10_000
    n_score: int = 50_000
    flow_steps: int = NSF.default_training.max_steps
    flow_sets: tuple[str, ...] = PLANAR
    repetitions: int = 3
    time_limit: int = 10


class Line(NamedTuple):
    """One comparison: what it measures, and on which data sets.

    Parameters
    ----------
    work : str
        Its name in the table, with the sizes of the row.
    sets : tuple of str
        Data sets, one row each.
    measure : callable
        From a data set and sizes to the cases of its row.
    """

    work: str
    sets: tuple[str, ...]
    measure: Callable[[str, Sizes], dict[str, Row]]


class NoDataError(Exception):
    """The data of a comparison are not on this machine."""


def fit_kde(name: str, sizes: Sizes) -> dict[str, Row]:
    """Both estimators and the kernel density estimate whose bandwidth is cross-validated."""
    target = get_target(name)
    X, held_out = _rows_of(target, sizes.n_kde, sizes)
    cases = _our_fits(X, held_out, target, sizes)
    for case, dtype in ((CV_KDE, torch.float64), (CV_KDE_SINGLE, torch.float32)):
        bandwidth, times = _repeated(
            lambda dtype=dtype: cross_validated_bandwidth(X, dtype), sizes.repetitions
        )
        density = KDE(bandwidth=bandwidth).fit(X)
        cases[case] = times | _quality(density, held_out[:KDE_ROWS], target)
    return cases


def cross_validated_bandwidth(X: Array, dtype: torch.dtype = torch.float64) -> float:
    """Bandwidth with the best mean log-likelihood of five folds, of 20 below Scott's rule.

    Distances are computed once for all bandwidths. Scott's factor times the mean standard
    deviation is the largest, a thirtieth of it the smallest.
    """
    n, d = X.shape
    largest = float(X.std(axis=0).mean()) * n ** (-1 / (d + 4))
    bandwidths = torch.as_tensor(np.geomspace(largest / 30, largest, N_BANDWIDTHS))
    order = np.random.default_rng(0).permutation(n)
    rows = torch.as_tensor(X[order], dtype=dtype)
    folds = torch.arange(n) % FOLDS
    total = sum(
        _log_likelihoods(rows[folds == k], rows[folds != k], bandwidths) for k in range(FOLDS)
    )
    log_volume = d * bandwidths.log()
    return float(bandwidths[(total / n - log_volume).argmax()])


def _log_likelihoods(queries: torch.Tensor, rows: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """Sums over queries of log Σ exp(-‖q − x‖²/2h²), one for each bandwidth."""
    found = torch.zeros(len(h), dtype=torch.float64)
    for block in queries.split(max(1, KERNELS_AT_ONCE // len(rows))):
        squares = torch.cdist(block, rows, compute_mode="donot_use_mm_for_euclid_dist").square_()
        nearest = squares.amin(1, keepdim=True)
        squares -= nearest
        kernels = torch.empty_like(squares)
        for i, scale in enumerate((-0.5 / h.square()).tolist()):
            sums = torch.mul(squares, scale, out=kernels).clamp_(min=LOG_NOTHING).exp_().sum(1)
            found[i] += float((sums.log() + scale * nearest[:, 0]).sum())
    return found


def fit_planar(name: str, sizes: Sizes) -> dict[str, Row]:
    """Both estimators and the flow on a planar set."""
    target = get_target(name)
    X, held_out = _rows_of(target, sizes.n_planar, sizes)
    cases = _our_fits(X, held_out, target, replace(sizes, repetitions=1))
    if name in sizes.flow_sets:
        cases["NSF"] = _flow_fit(X, held_out, target, sizes)
    return cases


def fit_gmm(name: str, sizes: Sizes) -> dict[str, Row]:
    """Both estimators and the flow on a random mixture of ten columns."""
    target = random_gmm(10, scale=0.2)
    X, held_out = _rows_of(target, sizes.n_gmm, sizes)
    fits = _our_fits(X, held_out, target, replace(sizes, repetitions=1))
    return fits | {"NSF": _flow_fit(X, held_out, target, sizes)}


def power(name: str, sizes: Sizes) -> dict[str, Row]:
    """Both estimators on POWER; scores of each beside a mixture with as many parts."""
    X, held_out = (_stored(name, part, n) for part, n in _power_parts(sizes))
    cases: dict[str, Row] = {}
    for case, estimator in OURS.items():
        _warm_up(estimator, X)
        model, times = _repeated(lambda of=estimator: of(random_state=0).fit(X), 1)
        parts = count_parts(model.density_)
        cases[case] = times | _quality(model, held_out) | {"parts": parts}
        rival = _mixture(X, max(1, parts))
        calls = {case: model.score_samples, f"mixture for {case}": rival.score_samples}
        for who, seconds in _in_turn(calls, held_out, 2 * sizes.repetitions + 1).items():
            cases.setdefault(who, {"parts": parts})["score_cpu_seconds"] = seconds
    return cases


def count_parts(density: torch.nn.Module) -> int:
    """Gaussians in the base measures of a density."""
    measures = [part for part in density.modules() if isinstance(part, GaussianMeasure)]
    return sum(len(measure.weights) for measure in measures)


def threads(name: str, sizes: Sizes) -> dict[str, Row]:
    """Fits in fresh processes beside a busy one: threads by default, and one thread."""
    found: dict[str, list[Row]] = {}
    with _busy_process():
        for _ in range(sizes.repetitions):
            for how, number in (("default threads", None), ("one thread", 1)):
                arguments = [name, str(sizes.n_kde), *OURS]
                printed = _python("-c", FIT_IN_CHILD, *arguments, threads=number)
                for case, times in json.loads(printed).items():
                    found.setdefault(f"{case}, {how}", []).append(times)
    return {case: _medians(times) for case, times in found.items()}


FIT_IN_CHILD = """
import json, sys
import qaffde
from benchmarks.peer_worker import timed
from experiments.targets import get_target

name, n, *cases = sys.argv[1:]
X = get_target(name).sample(int(n), random_state=0)
found = {}
for case in cases:
    make = getattr(qaffde, case)
    make(random_state=0).fit(X[:500])
    _, wall, busy = timed(lambda: make(random_state=0).fit(X))
    found[case] = {"seconds": wall, "cpu_seconds": busy}
print(json.dumps(found))
"""


def planes(name: str, sizes: Sizes) -> dict[str, Row]:
    """Pictures of two columns while the values of the others move, as the explorer draws them."""
    d = int(name)
    X = random_gmm(d, scale=0.2).sample(sizes.n_planes, random_state=0)
    cases = {}
    for case, estimator in OURS.items():
        draw = Explorer(estimator(random_state=0).fit(X)).picture
        rows = X[: 20 * sizes.repetitions + 5, 2:]
        states = [State((0, 1), dict(enumerate(row, 2)), draft=True) for row in rows.tolist()]
        times = [timed(partial(draw, state))[1:] for state in states]
        spent = [{"seconds": wall, "cpu_seconds": busy} for wall, busy in times[5:]]
        cases[case] = _medians(spent)
    return cases


def limits(name: str, sizes: Sizes) -> dict[str, Row]:
    """Untuned fits of five columns: in their own time, and with a limit beside a busy process."""
    X = random_gmm(5, scale=0.2).sample(sizes.n_five, random_state=0)
    cases = {}
    for case, estimator in OURS.items():
        _warm_up(estimator, X)
        _, cases[case] = _repeated(lambda of=estimator: of(random_state=0).fit(X), 1)
    with _busy_process(), catch_warnings():
        simplefilter("ignore", ConvergenceWarning)
        for case, estimator in OURS.items():
            model = estimator(random_state=0, time_limit=float(sizes.time_limit))
            _, cases[f"{case}, limit"] = _repeated(lambda of=model: of.fit(X), 1)
    return cases


def help_page(name: str, sizes: Sizes) -> dict[str, Row]:
    """``qaffde --help`` beside an interpreter that does nothing."""
    commands = {"python": ("-c", "pass"), "qaffde --help": ("-m", "qaffde.cli", "--help")}
    return _processes(commands, 2 * sizes.repetitions + 1)


def imports(name: str, sizes: Sizes) -> dict[str, Row]:
    """Importing the estimators beside what they stand on; packages that each has loaded."""
    statements = (
        "import torch, sklearn.mixture",
        "import qaffde",
        "from qaffde import QAFFDE, QAFFDESGD",
    )
    cases = _processes({line: ("-c", line) for line in statements}, 2 * sizes.repetitions + 1)
    for line in statements:
        loaded = _python("-c", f"{line}\nimport sys\nprint(*sys.modules)").split()
        cases[line]["loads"] = [package for package in HEAVY if package in loaded]
    return cases


def demo(name: str, sizes: Sizes) -> dict[str, Row]:
    """What ``make demo`` runs once everything is installed."""
    with TemporaryDirectory() as folder:
        picture = str(Path(folder) / "demo.png")
        rows = ("--rows", str(sizes.n_demo), "--target", name)
        command = ("-m", "experiments", "demo", *rows, "--output", picture)
        return _processes({"qaffde demo": command}, 1, threads=None)


LINES = {
    "fit_kde": Line("fit of {n_kde:,} × 2", ("swiss_roll",), fit_kde),
    "fit_planar": Line("fit of {n_planar:,} × 2", PLANAR, fit_planar),
    "fit_gmm": Line("fit of {n_gmm:,} × 10", ("random_gmm",), fit_gmm),
    "power": Line("POWER", ("power",), power),
    "planes": Line("plane of {set} columns", ("4", "6"), planes),
    "limits": Line("fit of {n_five:,} × 5", ("random_gmm",), limits),
    "threads": Line("beside a busy process", ("swiss_roll",), threads),
    "help": Line("command line", ("",), help_page),
    "import": Line("import", ("",), imports),
    "demo": Line("make demo", ("swiss_roll",), demo),
}


def run(only: Iterable[str], sizes: Sizes, path: Path) -> None:
    """Append the row of each comparison that the file does not have yet."""
    done = {(row["line"], row["set"], "NSF" in row["cases"]) for row in read_rows(path)}
    for name in only:
        for of in LINES[name].sets:
            flow = name == "fit_gmm" or (name == "fit_planar" and of in sizes.flow_sets)
            if (name, of, True) in done or (name, of, flow) in done:
                continue
            print(f"{name} {of}".strip(), flush=True)
            try:
                cases = LINES[name].measure(of, sizes)
            except NoDataError as error:
                print(f"{name}: skipped, {error}", flush=True)
                continue
            row = {"line": name, "set": of, "sizes": _numbers(sizes), "cases": cases}
            append_row(row | provenance(), path)
            print(json.dumps({name: cases}, ensure_ascii=False), flush=True)


def _numbers(sizes: Sizes) -> Row:
    return {name: value for name, value in vars(sizes).items() if isinstance(value, int)}


def _rows_of(target: Target, n: int, sizes: Sizes) -> tuple[Array, Array]:
    return target.sample(n, random_state=0), target.sample(sizes.n_score, random_state=1)


def _stored(name: str, part: str, n: int) -> Array:
    path = data_folder() / name / f"{part}.npy"
    if not path.exists():
        raise NoDataError(
            f"{name}/{part}.npy is not in the folder of data, which QAFFDE_DATA names; it is an "
            "array of rows"
        )
    return np.load(path, mmap_mode="r")[:n].astype(float)


def _power_parts(sizes: Sizes) -> tuple[tuple[str, int], ...]:
    return ("train", sizes.n_power), ("test", sizes.n_score)


def _our_fits(X: Array, held_out: Array, target: Target, sizes: Sizes) -> dict[str, Row]:
    cases = {}
    for case, estimator in OURS.items():
        _warm_up(estimator, X)
        model, times = _repeated(lambda of=estimator: of(random_state=0).fit(X), sizes.repetitions)
        cases[case] = times | _quality(model, held_out, target)
    return cases


def _warm_up(estimator: Any, X: Array) -> None:
    """Imports and first allocations, on nobody's clock."""
    estimator(random_state=0).fit(X[:500]).score_samples(X[:10])


def _flow_fit(X: Array, held_out: Array, target: Target, sizes: Sizes) -> Row:
    _spline_flow(1).fit(X[:500])
    model, times = _repeated(lambda: _spline_flow(sizes.flow_steps).fit(X), 1)
    return times | _quality(model, held_out, target)


def _spline_flow(steps: int) -> NSF:
    return NSF(training=replace(NSF.default_training, max_steps=steps), random_state=0)


def _quality(model: Any, held_out: Array, target: Target | None = None) -> Row:
    """Held-out mean log-likelihood, and how far it is below the truth's where that is known."""
    scores = model.score_samples(held_out)
    row: Row = {"log_likelihood": float(scores.mean())}
    if target is not None:
        short = target.log_prob(held_out) - scores
        error = float(short.std() / len(short) ** 0.5)
        row |= {"excess_nll": float(short.mean()), "excess_nll_error": error}
    return row


def _mixture(X: Array, parts: int) -> GaussianMixture:
    """Mixture to score with: its parts count, not its fit."""
    with catch_warnings():
        simplefilter("ignore", ConvergenceWarning)
        mixture = GaussianMixture(
            parts, max_iter=1, init_params="random_from_data", reg_covar=1e-3, random_state=0
        )
        return mixture.fit(X[: max(20 * parts, 1000)])


def _repeated(call: Callable[[], Any], repetitions: int) -> tuple[Any, Row]:
    """Last result and medians of wall and processor seconds."""
    times: list[Row] = []
    while len(times) < repetitions and sum(each["cpu_seconds"] for each in times) < PLENTY:
        result, wall, busy = timed(call)
        times.append({"seconds": wall, "cpu_seconds": busy})
    return result, _medians(times)


def _in_turn(
    calls: dict[str, Callable[[Array], Any]], X: Array, repetitions: int
) -> dict[str, float]:
    """Median processor seconds of calls with X, one after the other in each round."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repetitions):
        for name, call in calls.items():
            found[name].append(timed(lambda call=call: call(X))[2])
    return {name: median(seconds) for name, seconds in found.items()}


def _processes(
    commands: dict[str, tuple[str, ...]], repetitions: int, threads: int | None = 1
) -> dict[str, Row]:
    """Medians of processes that end before the next starts, all commands in each round.

    The first round, which writes bytecode, does not count, unless it is the only one.
    """
    found: dict[str, list[Row]] = {name: [] for name in commands}
    for _ in range(repetitions + (repetitions > 1)):
        for name, command in commands.items():
            start, busy = time.perf_counter(), _children()
            _python(*command, threads=threads)
            spent = {"seconds": time.perf_counter() - start, "cpu_seconds": _children() - busy}
            found[name].append(spent)
    return {name: _medians(times[-repetitions:]) for name, times in found.items()}


def _medians(times: list[Row]) -> Row:
    medians = {key: median(each[key] for each in times) for key in ("seconds", "cpu_seconds")}
    return medians | {"repetitions": len(times)}


def _children() -> float:
    """Processor seconds of the children that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


def _python(*arguments: str, threads: int | None = 1) -> str:
    """Output of a Python process that has this repository; None leaves threads to torch."""
    left_out = ("OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE")
    environment = {key: value for key, value in os.environ.items() if key not in left_out}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]} failed: {done.stderr[-2000:]}")
    return done.stdout


@contextmanager
def _busy_process() -> Iterator[None]:
    """One processor is taken meanwhile."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def table(rows: list[Row]) -> str:
    """One line for each case of each comparison, the last row of each counting."""
    last = {(row["line"], row["set"]): row for row in rows}
    lines: list[list[str]] = []
    for name in LINES:
        of = [row for (line, _), row in last.items() if line == name]
        if of:
            lines += TABLES[name](of)
    head = ["work", "method", "runs", "processor s", "wall s", "ratio", "aim", "held-out quality"]
    return markdown_table(head, lines)


def _fits(name: str, rival: str, aim: str) -> Callable[[list[Row]], list[list[str]]]:
    """Lines of fits, means over sets; ratios on those sets that have the rival."""

    def lines(rows: list[Row]) -> list[list[str]]:
        cases = list(dict.fromkeys(case for row in rows for case in row["cases"]))
        return [line(case, rows) for case in cases]

    def line(case: str, rows: list[Row]) -> list[str]:
        of = [row["cases"][case] for row in rows if case in row["cases"]]
        both = [row["cases"] for row in rows if rival in row["cases"]]
        ours, theirs = (sum(row[who]["cpu_seconds"] for row in both) for who in (case, rival))
        work = LINES[name].work.format(**rows[0]["sizes"])
        sets = f", mean of {len(of)} sets" if len(of) > 1 else f", {_set_of(case, rows)}"
        ratio = f"{ours / theirs:.3g} × {rival}" if both and case != rival else ""
        quality = f"excess NLL {fmean(row['excess_nll'] for row in of):.4f}"
        return _line(work + sets, case, of, ratio, aim if case in OURS else "", quality)

    return lines


def _set_of(case: str, rows: list[Row]) -> str:
    return next(row["set"] for row in rows if case in row["cases"])


def _line(
    work: str, case: str, of: list[Row], ratio: str = "", aim: str = "", quality: str = ""
) -> list[str]:
    busy, wall = (fmean(row[key] for row in of) for key in ("cpu_seconds", "seconds"))
    return [
        work,
        case,
        str(of[0]["repetitions"]),
        f"{busy:.3g}",
        f"{wall:.3g}",
        ratio,
        aim,
        quality,
    ]


def _power_lines(rows: list[Row]) -> list[list[str]]:
    (row,) = rows
    cases, sizes = row["cases"], row["sizes"]
    lines = []
    for case in OURS:
        quality = f"log-likelihood {cases[case]['log_likelihood']:.4f}"
        work = f"fit of POWER, {sizes['n_power']:,} × 6"
        lines.append(_line(work, case, [cases[case]], "", "30 s", quality))
    for case in OURS:
        theirs = cases[f"mixture for {case}"]["score_cpu_seconds"]
        for who in (case, f"mixture for {case}"):
            seconds, parts = cases[who]["score_cpu_seconds"], cases[case]["parts"]
            each = f"{1e6 * seconds / sizes['n_score']:.3g} µs a row"
            method = who if who == case else f"GaussianMixture, {parts} parts"
            ratio, aim = (f"{seconds / theirs:.3g} × its mixture", "2 ×, 10 µs a row")
            work = f"score {sizes['n_score']:,} × 6"
            ours = (ratio, aim) if who == case else ("", "")
            lines.append([work, method, "", f"{seconds:.3g}", "", *ours, each])
    return lines


def _thread_lines(rows: list[Row]) -> list[list[str]]:
    (row,) = rows
    lines = []
    for case in OURS:
        many, one = (row["cases"][f"{case}, {how}"] for how in ("default threads", "one thread"))
        ratios = [f"{many[key] / one[key]:.3g}" for key in ("cpu_seconds", "seconds")]
        shown = f"{ratios[0]} × (wall {ratios[1]} ×) one thread"
        lines.append(
            _line(LINES["threads"].work, f"{case}, default threads", [many], shown, "1.05 ×")
        )
        lines.append(_line(LINES["threads"].work, f"{case}, one thread", [one]))
    return lines


def _plane_lines(rows: list[Row]) -> list[list[str]]:
    lines = []
    for row in rows:
        for case, of in row["cases"].items():
            work = LINES["planes"].work.format(set=row["set"])
            rate = f"{1 / of['cpu_seconds']:.3g} a second"
            lines.append(_line(work, case, [of], "", "30 a second", rate))
    return lines


def _limit_lines(rows: list[Row]) -> list[list[str]]:
    (row,) = rows
    work, limit = LINES["limits"].work.format(**row["sizes"]), row["sizes"]["time_limit"]
    lines = []
    for case, of in row["cases"].items():
        if case in OURS:
            lines.append(_line(work, case, [of], "", "20 s"))
            continue
        over = f"{of['seconds'] / limit:.3g} × its limit, wall"
        method = f"{case} {limit} s, beside a busy process"
        lines.append(_line(work, method, [of], over, "1.1 ×"))
    return lines


def _process_lines(
    name: str, ours: str, rival: str, aim: str
) -> Callable[[list[Row]], list[list[str]]]:
    def lines(rows: list[Row]) -> list[list[str]]:
        (row,) = rows
        found = []
        for case, of in row["cases"].items():
            ratio = of["cpu_seconds"] / row["cases"][rival]["cpu_seconds"]
            shown = f"{ratio:.3g} × `{rival}`" if case != rival else ""
            loads = f"loads {', '.join(of['loads']) or 'none of them'}" if "loads" in of else ""
            last = aim if case == ours else ""
            found.append(_line(LINES[name].work, f"`{case}`", [of], shown, last, loads))
        return found

    return lines


TABLES = {
    "fit_kde": _fits("fit_kde", CV_KDE, ".2 ×"),
    "fit_planar": _fits("fit_planar", "NSF", ".025 ×"),
    "fit_gmm": _fits("fit_gmm", "NSF", ".2 ×"),
    "power": _power_lines,
    "planes": _plane_lines,
    "limits": _limit_lines,
    "threads": _thread_lines,
    "help": _process_lines("help", "qaffde --help", "python", ".4 s"),
    "import": _process_lines(
        "import",
        "from qaffde import QAFFDE, QAFFDESGD",
        "import torch, sklearn.mixture",
        "1.05 ×",
    ),
    "demo": _process_lines("demo", "qaffde demo", "qaffde demo", "20 s"),
}


def report(rows: list[Row], page: Path = PAGE) -> str:
    """Write the table between the markers of the page."""
    if not rows:
        raise SystemExit("no rows; run `python -m benchmarks.speed run` first")
    text = table(rows)
    fill(page, "speed", text)
    return text


def main(arguments: list[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run the command line; `sizes` are the published ones by default."""
    options = _parser().parse_args(arguments)
    if options.command == "report":
        print(report(read_rows(options.results), options.page))
        return
    sizes = replace(sizes or Sizes(), flow_sets=tuple(options.flow_sets))
    if options.repetitions:
        sizes = replace(sizes, repetitions=options.repetitions)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            run(options.only, sizes, options.out)
    finally:
        torch.set_num_threads(before)
    print(table(read_rows(options.out)))


def _parser() -> ArgumentParser:
    commands = run_and_report(__doc__, ROWS, PAGE)
    add = commands.run.add_argument
    add("--only", nargs="+", choices=LINES, default=list(LINES), metavar="LINE")
    add("--flow-sets", nargs="*", choices=PLANAR, default=PLANAR, metavar="NAME")
    add("--repetitions", type=int, help="of each fit and process")
    return commands.parser


if __name__ == "__main__":
    main()
