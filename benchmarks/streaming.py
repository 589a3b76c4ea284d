"""A stream of rows through ``partial_fit``: peak memory, and the difference from one fit.

    python -m benchmarks.streaming [--rows N …] [--out FILE]

Chunks come from a generator and are gone once they are added. Each length of the stream runs in a
process of its own, since the peak of the resident set never falls; what the process held after
its first chunk (libraries, features, ρ) is subtracted. Afterwards the same rows are fitted in one
call on the same frame, and the log-densities of both are compared.
"""

import copy
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from benchmarks.commands import new_parser
from experiments.rows import ROOT, Row, markdown_table, provenance, read_rows, write_rows
from experiments.targets import get_target
from qaffde import QAFFDE

ROWS = ROOT / "benchmarks/results/streaming.jsonl"
LENGTHS = (100_000, 300_000, 1_000_000)
CHUNK = 10_000
TEST_ROWS = 10_000
TARGET = "star_eight"


def run(lengths: Iterable[int]) -> Iterator[Row]:
    """One row for each length, measured in a fresh process."""
    for n in lengths:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            yield fresh.submit(measure, n).result()


def measure(n: int) -> Row:
    """Stream `n` rows, then fit them at once."""
    chunks = stream(n)
    model = QAFFDE(random_state=0).partial_fit(next(chunks))
    before, start = peak_memory(), time.perf_counter()
    for chunk in chunks:
        model.partial_fit(chunk)
    test = get_target(TARGET).sample(TEST_ROWS, random_state=10**6)
    log_p = model.score_samples(test)
    seconds, grown = time.perf_counter() - start, peak_memory() - before
    whole = copy.deepcopy(model).set_params(warm_start=True)
    whole.fit(np.concatenate(list(stream(n))))
    return {
        "target": TARGET,
        "n": n,
        "chunk": CHUNK,
        "n_features": model.n_fourier_features_,
        "seconds": round(seconds, 2),
        "peak_growth_mib": round(grown, 1),
        "one_fit_growth_mib": round(peak_memory() - before, 1),
        "max_difference": float(np.abs(log_p - whole.score_samples(test)).max()),
        **provenance(),
    }


def stream(n: int) -> Iterator[NDArray[np.float64]]:
    """Chunks of `n` rows in all, the same in every call."""
    target, sizes = get_target(TARGET), [CHUNK] * (n // CHUNK)
    return (target.sample(size, random_state=seed) for seed, size in enumerate(sizes))


def peak_memory() -> float:
    """Largest resident set of this process so far, in MiB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def table(rows: list[Row]) -> str:
    """All lengths in Markdown."""
    head = ["rows", "stream s", "stream, peak MiB", "one fit, peak MiB", "max |Δ log p|"]
    lines = [
        [
            f"{row['n']:,}",
            f"{row['seconds']:.1f}",
            f"{row['peak_growth_mib']:.0f}",
            f"{row['one_fit_growth_mib']:.0f}",
            f"{row['max_difference']:.1e}",
        ]
        for row in rows
    ]
    return markdown_table(head, lines)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = new_parser(__doc__, ROWS)
    parser.add_argument("--rows", nargs="+", type=int, default=list(LENGTHS), metavar="N")
    options = parser.parse_args(arguments)
    write_rows(run(options.rows), options.out)
    print(table(read_rows(options.out)))


if __name__ == "__main__":
    main()
