"""Markdown pages from rows: ours beside the paper's."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from experiments.kernel import errors_of
from experiments.methods import METHODS
from experiments.results import (
    HIGHER_IS_BETTER,
    METRICS,
    OURS,
    SECONDS,
    Figure,
    Results,
    paper_figures,
)
from experiments.rows import Row, markdown_table
from experiments.sets import dims_and_scale

DIGITS = {"spearman": 4, "mean_absolute_error": 5, "excess_nll": 5}
METRIC_NOTES = {
    "spearman": "Rank correlation of the estimated and the true density at test rows; higher "
    "is better.",
    "mean_absolute_error": "Mean absolute error of the density at test rows; lower is better.",
    "excess_nll": "Negative log-likelihood of test rows above that of the true density, in "
    "nats; lower is better, ± one standard error where there is one seed. DMKDE is not a "
    "density and has none.",
}
BOLD = {
    False: "The best of a line in bold.",
    True: "The best of a line in bold, the paper's figures in brackets.",
}
EXCERPT = {
    "spearman": "Spearman correlation",
    "excess_nll": "Negative log-likelihood above that of the true density, in nats",
}
UNTUNED = (
    "The methods as they come: every parameter at its default, on as many rows. Means over seeds, "
    "± their standard deviation. Rows that name a `source` are older, and of other draws."
)
NEURAL = tuple(name for name, method in METHODS.items() if method.kind == "neural")


def planar_page(results: Results, title: str, budget: str) -> str:
    """Tables of the planar densities."""
    paper = paper_figures()["planar"]
    parts = [
        f"# {title}",
        f"Untuned, tuned, and the best of the others.\n\n{planar_excerpt(results)}",
        _preamble(results, "planar", budget),
        *(
            f"## {METRICS[metric]}\n\n{METRIC_NOTES[metric]} {BOLD[metric in paper]}\n\n"
            f"{metric_table(results, metric, paper.get(metric, {}))}"
            for metric in METRICS
        ),
        f"## Ours and the best of the others\n\n{ours_table(results)}\n\n{verdict(results)}",
        f"## Seconds\n\n{seconds_table(results)}",
        *_untuned_parts(results, METRICS, paper),
        "## Pictures\n\n![Densities on a mesh](figures/planar_mesh.png)\n\n"
        "![True against estimated density](figures/planar_scatter.png)",
        _chosen(results),
    ]
    return "\n\n".join([*parts, rebuild("planar", budget)])


def planar_excerpt(results: Results) -> str:
    """Ours, untuned and tuned, beside the best of the others."""
    paper = paper_figures()["planar"]
    parts = (
        f"{title}:\n\n{variants_table(results, metric, paper.get(metric, {}))}"
        for metric, title in EXCERPT.items()
    )
    return "\n\n".join(parts)


def dimensions_page(results: Results, title: str, budget: str) -> str:
    """Tables of the random mixtures."""
    names = results.sets
    scales = sorted({dims_and_scale(name)[1] for name in names}, reverse=True)
    parts = [f"# {title}", _preamble(results, "dimensions", budget)]
    for scale in scales:
        of_scale = [name for name in names if dims_and_scale(name)[1] == scale]
        for metric in ("spearman", "excess_nll"):
            table = metric_table(results, metric, {}, of_scale)
            parts.append(
                f"## {METRICS[metric]}, s = {scale:g}\n\n{METRIC_NOTES[metric]} "
                f"{BOLD[False]}\n\n{table}"
            )
    parts += [
        f"## Ours among the neural methods\n\n{dimension_verdict(results)}",
        f"## Seconds\n\n{seconds_table(results)}",
        *_untuned_parts(results, ("spearman", "excess_nll"), {}),
    ]
    return "\n\n".join([*parts, _paper_dimensions(), rebuild("dimensions", budget)])


def kernel_page(rows: Sequence[Row], title: str, budget: str) -> str:
    """Table of the approximations of the kernel."""
    errors = errors_of(rows)
    sizes = sorted({D for by_size in errors.values() for D in by_size})
    lines = [
        [str(D), *(_kernel_cell(by_size.get(D, [])) for by_size in errors.values())] for D in sizes
    ]
    return "\n\n".join(
        [
            f"# {title}",
            f"Mean squared error on held-out pairs, budget `{budget}`, mean over seeds and its "
            "range. RFF are random features, AFF those of Algorithm 1; ² where the squared inner "
            "product approximates the kernel, as the method needs it.",
            markdown_table(["D", *errors], lines),
            "![The kernel by few features](figures/kernel.png)",
            rebuild("kernel", budget),
        ]
    )


def metric_table(
    results: Results,
    metric: str,
    paper: Mapping[str, Mapping[str, float]],
    sets: Sequence[str] | None = None,
) -> str:
    """Sets by methods, the best of each line in bold, the paper's figure in brackets."""
    lines = []
    for name in sets or results.sets:
        best = results.best(name, metric, results.methods)
        cells = [
            _cell(
                results.figure(name, m, metric), metric, paper.get(m, {}).get(name), bold=m == best
            )
            for m in results.methods
        ]
        lines.append([name, *cells])
    return markdown_table(["set", *(METHODS[m].label for m in results.methods)], lines)


def variants_table(results: Results, metric: str, paper: Mapping[str, Mapping[str, float]]) -> str:
    """A line for each set: ours untuned and tuned, the best of the others, and the paper's."""
    ours = [
        (variant, m, f"{METHODS[m].label}, {word}")
        for word, variant in (("untuned", results.untuned), ("tuned", results))
        for m in OURS
        if m in variant.methods
    ]
    others = [m for m in results.methods if m not in OURS]
    published = paper.get("qaffde", {})
    lines = []
    for name in results.sets:
        line = [_cell(variant.figure(name, m, metric), metric) for variant, m, _ in ours]
        line.append(_named(results, name, results.best(name, metric, others), metric))
        if published:
            line.append(f"{published[name]:.4f}" if name in published else "")
        lines.append([name, *line])
    head = ["set", *(label for *_, label in ours), "best other, tuned"]
    return markdown_table(head + (["the paper's QAFFDE"] if published else []), lines)


def _untuned_parts(
    results: Results, metrics: Iterable[str], paper: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Tables of the defaults, where there are rows of them."""
    untuned = results.untuned
    if not untuned.finals:
        return []
    parts = [f"## Untuned\n\n{UNTUNED}"]
    for metric in metrics:
        table = metric_table(untuned, metric, paper.get(metric, {}))
        parts.append(f"### {METRICS[metric]}, untuned\n\n{table}")
    return [*parts, f"### Seconds, untuned\n\n{seconds_table(untuned)}"]


def ours_table(results: Results) -> str:
    """A line for each set: the better of ours, the best of the others, and who wins."""
    others = [m for m in results.methods if m not in OURS]
    lines = []
    for name in results.sets:
        line = [name]
        for metric in METRICS:
            ours, theirs = results.best(name, metric, OURS), results.best(name, metric, others)
            line += [
                _named(results, name, ours, metric, bold=is_best(results, name, metric)),
                _named(results, name, theirs, metric),
            ]
        lines.append(line)
    head = [part for metric in METRICS.values() for part in (f"{metric}, ours", "others")]
    return markdown_table(["set", *head], lines)


def is_best(results: Results, name: str, metric: str, rivals: Sequence[str] | None = None) -> bool:
    """Whether the better of ours is best on a set, or within one standard error of it."""
    others = [m for m in rivals or results.methods if m not in OURS]
    ours, theirs = results.best(name, metric, OURS), results.best(name, metric, others)
    if ours is None or theirs is None:
        return ours is not None
    mine, other = results.figure(name, ours, metric), results.figure(name, theirs, metric)
    assert mine is not None
    assert other is not None
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    return sign * (mine.value - other.value) <= max(mine.uncertainty, other.uncertainty)


def seconds_table(results: Results) -> str:
    """Median seconds over sets, for each method, and what all of it took."""
    lines, totals = [], []
    for method in results.methods:
        medians = [f"{results.seconds(method, key):.3g}" for key in SECONDS]
        totals.append(results.total_seconds(method))
        lines.append([METHODS[method].label, *medians, f"{totals[-1]:.0f}"])
    lines.append(["all", "", "", f"{sum(totals):.0f}"])
    return markdown_table(["method", *SECONDS.values(), "all trials and trainings s"], lines)


def _cell(
    figure: Figure | None, metric: str, paper: float | None = None, *, bold: bool = False
) -> str:
    text = "" if figure is None else number(figure, metric)
    text = f"**{text}**" if bold and text else text
    return f"{text} ({paper:.4f})".strip() if paper is not None else text


def number(figure: Figure, metric: str) -> str:
    """A figure, with its spread over seeds or, for one seed, its standard error."""
    digits = DIGITS.get(metric, 3)
    doubt = figure.spread if figure.spread is not None else figure.error
    return f"{figure.value:.{digits}f}" + (f" ± {doubt:.{digits}f}" if doubt is not None else "")


def _named(
    results: Results, name: str, method: str | None, metric: str, *, bold: bool = False
) -> str:
    figure = None if method is None else results.figure(name, method, metric)
    if method is None or figure is None:
        return ""
    text = f"{figure.value:.{DIGITS[metric]}f}"
    return f"{f'**{text}**' if bold else text} {METHODS[method].label}"


def _preamble(results: Results, experiment: str, budget: str) -> str:
    finals = [row for of in results.finals.values() for row in of]
    if not finals:
        raise ValueError(
            f"{experiment} has no final row of the budget {budget!r}; "
            f"run: python -m experiments run {experiment} --budget {budget}"
        )
    config = finals[0]["config"]
    pruned = sum(row["status"] == "pruned" for row in results.trials)
    return (
        f"Budget `{budget}`: {config['trials']} trials for every method, the first with its "
        f"default parameters, trained on {config['n_search']:,} rows and judged by the "
        f"likelihood of {config['n_valid']:,} others; the best then trained on "
        f"{config['n_train']:,} rows and measured on {config['n_test']:,} more. "
        f"{len(finals)} final trainings, {len(results.trials)} trials of which {pruned} were "
        f"pruned, {len(results.failures)} failures. Where a method has several seeds, the mean ± "
        "the standard deviation over them."
    )


def verdict(results: Results) -> str:
    """On how many sets ours is best, and how its training time compares."""
    n = len(results.sets)
    counts = {m: sum(is_best(results, name, m) for name in results.sets) for m in METRICS}
    said = ", ".join(f"{METRICS[m]} on {count} of {n}" for m, count in counts.items())
    return (
        f"Ours, the better of the two, is best or within one standard error of it: {said} sets."
        f"{_speed(results)}"
    )


def _speed(results: Results) -> str:
    medians = {
        method: results.seconds(method, "fit_cpu_seconds")
        for method in (*OURS, "nsf")
        if method in results.methods
    }
    if "nsf" not in medians or len(medians) < 2:
        return ""
    shares = " and ".join(
        f"{value / medians['nsf']:.2f} ({METHODS[m].label})"
        for m, value in medians.items()
        if m != "nsf"
    )
    return f" Median training time as a share of NSF's: {shares}."


def dimension_verdict(results: Results) -> str:
    """On how many sets ours has the highest Spearman correlation among the neural methods."""
    rivals = [m for m in results.methods if m in NEURAL]
    won = [name for name in results.sets if is_best(results, name, "spearman", rivals)]
    lost = [name for name in results.sets if name not in won]
    beaten = f" Not on {', '.join(lost)}." if lost else ""
    leads = sum(results.best(name, "spearman", (*OURS, *rivals)) in OURS for name in results.sets)
    return (
        "Among the neural methods Spearman is highest for the better of ours on "
        f"{leads} of {len(results.sets)} sets, and highest or within one standard error of it on "
        f"{len(won)}.{beaten}"
    )


def _paper_dimensions() -> str:
    figures = paper_figures()["dimensions"]["spearman"]
    said = "; ".join(
        f"{METHODS[m].label} " + ", ".join(f"{v} at d = {d}" for d, v in by_size.items())
        for m, by_size in figures.items()
        if m != "source"
    )
    return (
        "## The paper\n\nThe paper has a figure and no table. Its text says of Spearman's "
        f"correlation, nearly: {said}.\n\n![Spearman over dimensions](figures/dimensions.png)"
    )


def _chosen(results: Results) -> str:
    lines = []
    for (name, method), rows in results.finals.items():
        lines.append([name, METHODS[method].label, shown_parameters(rows[0]["sampled"])])
    return "## What was chosen\n\n" + markdown_table(["set", "method", "parameters"], lines)


def shown_parameters(sampled: Mapping[str, object]) -> str:
    """Parameters that a trial drew; those of the first are the defaults.

    Examples
    --------
    >>> shown_parameters({"n_layers": 3, "learning_rate": 0.00123})
    'n_layers 3, learning_rate 0.00123'
    """
    said = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in sampled.items())
    return ", ".join(said) or "defaults"


def _kernel_cell(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    errors = [row["mse"] for row in rows]
    return f"{mean(errors):.1e} ({min(errors):.1e} to {max(errors):.1e})"


def rebuild(experiment: str, budget: str) -> str:
    """How a page is made again, and its rows."""
    rest = f"{experiment} --budget {budget}"
    return (
        f"Rebuild this page from the rows with `python -m experiments report {rest}`; "
        f"measure again with `python -m experiments run {rest}`.\n"
    )
