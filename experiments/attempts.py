"""One attempt at a row: what it found, or why it found nothing, and how long it took."""

import time
import warnings
from collections.abc import Callable
from typing import Any

from experiments.rows import Row, provenance
from qaffde.training.checkpoint import State


class Times:
    """Seconds of a fit and of scoring, on the clock and of the processor.

    Parameters
    ----------
    earlier : State, optional
        What an interrupted fit left in its checkpoint: its seconds count too.
    """

    def __init__(self, earlier: State | None = None) -> None:
        spent = earlier or {"seconds": 0.0, "processor_seconds": 0.0}
        self.seconds: dict[str, float] = {}
        self.earlier = {"fit": (spent["seconds"], spent["processor_seconds"])}

    def fit(self, call: Callable[[], Any]) -> Any:
        """Result of a call that fits."""
        return self._timed("fit", call)

    def score(self, call: Callable[[], Any]) -> Any:
        """Result of a call that scores."""
        return self._timed("score", call)

    def record(self) -> Row:
        """What a row keeps."""
        return {name: round(value, 3) for name, value in self.seconds.items()}

    def _timed(self, name: str, call: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        spent, spent_cpu = self.earlier.get(name, (0.0, 0.0))
        self.seconds[f"{name}_seconds"] = spent + time.perf_counter() - wall
        self.seconds[f"{name}_cpu_seconds"] = spent_cpu + time.process_time() - cpu
        return result


def attempt(row: Row, work: Callable[[], Row]) -> Row:
    """The row with what the work found, or with the reason why it found nothing."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = work()
        except Exception as error:  # whatever it is, the other cells go on
            found = {
                "status": "failed",
                "error": {"type": type(error).__name__, "message": str(error)},
            }
    return (
        row
        | found
        | {
            "warnings": sorted({f"{w.category.__name__}: {w.message}" for w in caught}),
            "seconds": round(time.perf_counter() - start, 3),
            **provenance(),
        }
    )
