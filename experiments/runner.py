"""Run the cells of an experiment, in this process or in several, and keep their rows.

Rows are appended by whoever measures them, each as soon as it is there: whatever ends a run, the
next one goes on after the last row.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from experiments.cells import Cell, Ledger
from experiments.pictures import TRUTH
from experiments.rows import Row, append_row, read_rows

POLL_SECONDS = 0.3
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
}


@dataclass(frozen=True)
class Files:
    """Where an experiment of a budget keeps what it measures.

    Parameters
    ----------
    folder : Path
    stem : str
        ``planar-quick``, say.
    """

    folder: Path
    stem: str

    @property
    def rows(self) -> Path:
        """JSON lines, one for each trial and training."""
        return self.folder / f"{self.stem}.jsonl"

    @property
    def pictures(self) -> Path:
        """JSON lines with what figures need."""
        return self.folder / f"{self.stem}.mesh.jsonl"

    @property
    def scratch(self) -> Path:
        """Folder of the checkpoints of rows that are under way."""
        return self.folder / f"{self.stem}.unfinished"

    @property
    def locks(self) -> Path:
        """Folder of a lock for each row; its files are empty and may be removed after a run."""
        return self.folder / f"{self.stem}.locks"

    @property
    def storage(self) -> str:
        """URL of Optuna's SQLite file."""
        return f"sqlite:///{(self.folder / f'{self.stem}.optuna.db').absolute()}"


Listener = Callable[[Row], None]


def run_cells(
    cells: Sequence[Cell],
    files: Files,
    *,
    jobs: int = 1,
    retry_failed: bool = False,
    on_row: Listener = lambda row: None,
) -> None:
    """Measure what the file of rows does not have.

    Parameters
    ----------
    cells : sequence of Cell
    files : Files
    jobs : int, default=1
        Processes; each has one thread, and so has this one if it is the only one.
    retry_failed : bool, default=False
        Measure again what failed.
    on_row : callable
        Called in this process with every new row.
    """
    n_seen = len(read_rows(files.rows))
    done = finished(files, retry_failed=retry_failed)
    left = [cell for cell in cells if len(cell.kept(done)) < len(cell.tasks())]
    if not left:
        return
    work = [(cell, Ledger(cell.kept(done), files.rows, n_seen, files.locks)) for cell in left]
    if jobs == 1:
        with one_thread():
            for cell, ledger in work:
                _run_cell(cell, ledger, files, on_row)
    else:
        _run_parallel(work, files, min(jobs, len(left)), on_row)


def finished(files: Files, *, retry_failed: bool = False) -> dict[str, Row]:
    """Rows that are there, by identity; the last of two counts."""
    rows = {row["id"]: row for row in read_rows(files.rows)}
    if retry_failed:
        return {key: row for key, row in rows.items() if row["status"] != "failed"}
    return rows


@contextmanager
def one_thread() -> Iterator[None]:
    """Let this process compute with one thread; afterwards it is as it was."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _run_cell(
    cell: Cell, ledger: Ledger, files: Files, on_row: Listener = lambda row: None
) -> None:
    for measured in cell.run(ledger):
        for picture in _new_pictures(measured.pictures, files):
            append_row(picture, files.pictures)
        append_row(measured.row, files.rows)
        on_row(measured.row)


def _new_pictures(pictures: Sequence[Row], files: Files) -> list[Row]:
    """Those to keep: the truth is the same for all methods and is kept once."""
    if not pictures:
        return []
    known = {picture["id"] for picture in read_rows(files.pictures)}
    return [p for p in pictures if p["method"] != TRUTH or p["id"] not in known]


def _run_parallel(
    work: Sequence[tuple[Cell, Ledger]], files: Files, jobs: int, on_row: Listener
) -> None:
    new = _Tail(files.rows)
    others = set(multiprocessing.active_children())
    with _environment(ONE_THREAD):
        pool = ProcessPoolExecutor(
            jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker
        )
        try:
            waiting = {pool.submit(_run_cell, cell, ledger, files) for cell, ledger in work}
            while waiting:
                over, waiting = wait(waiting, POLL_SECONDS, return_when=FIRST_COMPLETED)
                for row in new.rows():
                    on_row(row)
                _raise_errors(over)
        except BaseException:  # Ctrl-C as well: what is measured is on the disk
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _raise_errors(over: set[Future[None]]) -> None:
    for future in over:
        future.result()


def _start_worker() -> None:
    """One thread, and an end when the parent's comes, whatever kills it."""
    torch.set_num_threads(1)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Tail:
    """Rows that came to a file since it was last looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size, self.seen = self._size(), len(read_rows(path))

    def rows(self) -> list[Row]:
        if (size := self._size()) == self.size:
            return []
        new = read_rows(self.path)[self.seen :]
        self.size, self.seen = size, self.seen + len(new)
        return new

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0
