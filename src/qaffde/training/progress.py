"""Progress of a training, printed for whoever asks for it."""

import math
from collections.abc import Callable

from qaffde.training.history import History


def print_progress(max_steps: int) -> Callable[[History], None]:
    """Report that prints a line for each evaluation, with rich where it is installed.

    Parameters
    ----------
    max_steps : int
        Steps in all, if nothing ends training sooner.

    Examples
    --------
    >>> print(progress_line(History([250], [1.31], [1.25], [1e-3], [2.5]), max_steps=1000))
    step  250/1000  train 1.3100  valid 1.2500  learning rate 1.0e-03  2.5 s
    """
    show = line_printer()
    return lambda history: show(progress_line(history, max_steps))


def progress_line(history: History, max_steps: int) -> str:
    """Text of the last evaluation."""
    valid = history.valid_loss[-1]
    parts = [
        f"step {history.steps[-1]:>{len(str(max_steps))}}/{max_steps}",
        f"train {history.train_loss[-1]:.4f}",
        "" if math.isnan(valid) else f"valid {valid:.4f}",
        f"learning rate {history.learning_rate[-1]:.1e}",
        f"{history.seconds[-1]:.1f} s",
        f"recoveries {history.n_recoveries}" if history.n_recoveries else "",
        f"stopped by {history.stopped_by}" if history.stopped_by else "",
    ]
    return "  ".join(part for part in parts if part)


def line_printer() -> Callable[[str], None]:
    """Function that prints a line, with rich where it is installed."""
    try:
        from rich.console import Console
    except ImportError:
        return print
    return Console(highlight=True, soft_wrap=True).print
