"""What every stage of a long fit shares: its clock, checkpoints, progress and peers."""

import math
import os
import time
from collections.abc import Callable
from typing import Any

from qaffde.training.checkpoint import Checkpoint
from qaffde.training.peers import ALONE, Peers
from qaffde.training.progress import line_printer, print_progress


class Run:
    """Clock, checkpoint files, progress and peers of one fit.

    Parameters
    ----------
    time_limit : float, optional
        Seconds.
    checkpoint : str or path, optional
        Beginning of the names of the checkpoint files, one for each stage.
    verbose : bool, default=False
        Whether progress is printed (by the first of several processes).
    peers : Peers, default=ALONE

    Examples
    --------
    >>> Run(time_limit=60.0).left <= 60.0
    True
    """

    def __init__(
        self,
        time_limit: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        verbose: bool = False,
        peers: Peers = ALONE,
    ) -> None:
        self.time_limit = math.inf if time_limit is None else time_limit
        self.checkpoint, self.peers = checkpoint, peers
        self.verbose = verbose and peers.rank == 0
        self.started = time.monotonic()
        self.say: Callable[[str], None] = line_printer() if self.verbose else _silent

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def left(self) -> float | None:
        """Seconds that are left, never quite none; None without a limit."""
        return None if math.isinf(self.time_limit) else max(self.time_limit - self.seconds, 1e-3)

    def deadline(self, share: float = 1.0) -> float:
        """When a share of the limit is over, on the clock of :func:`time.monotonic`."""
        return self.started + share * self.time_limit

    def file(self, stage: str) -> Checkpoint | None:
        """Checkpoint of a stage, if there are checkpoints."""
        if self.checkpoint is None:
            return None
        return Checkpoint(f"{os.fspath(self.checkpoint)}.{stage}")

    def loop_arguments(self, stage: str, max_steps: int) -> dict[str, Any]:
        """Arguments of :func:`~qaffde.training.loop.train` for a stage of this fit."""
        return {
            "checkpoint": self.file(stage),
            "report": print_progress(max_steps) if self.verbose else None,
            "peers": self.peers,
        }


def _silent(line: str) -> None:
    """Print nothing."""
