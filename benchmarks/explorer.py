"""How many pictures a second the explorer answers, end to end over HTTP.

    python -m benchmarks.explorer [--columns D …] [--updates N] [--features N] [--rows N]
    python -m benchmarks.explorer --models FILE …

A slider is dragged from one end to the other, or where all columns are shown a box: every update
asks for the density, its marginals, 300 draws and the probability of the box, and the next one is
asked for when the answer has been decoded. Updates a second suffer from whatever else the machine
does; processor milliseconds (of server and client together) do not, or less.
"""

import argparse
import base64
import http.client
import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from experiments.rows import Row, markdown_table
from qaffde import QAFFDE, QAFFDESGD, load
from qaffde.explore import Explorer, ExplorerServer

WARM_UP = 10
TARGET = 30.0
HEAD = (
    "model",
    "columns",
    "D",
    "base",
    "terms",
    "state",
    "nodes",
    "updates/s",
    "CPU ms",
    "exact ms",
)


def fitted(columns: Iterable[int], n_features: int, n_rows: int) -> Iterator[Any]:
    """Untuned models of both kinds for each number of columns."""
    for d in columns:
        X = rows(d, n_rows)
        yield QAFFDE(n_features=n_features, random_state=0).fit(X)
        yield QAFFDESGD(n_features=n_features, random_state=0).fit(X)


def rows(d: int, n: int) -> np.ndarray:
    """Three groups on a bent plane, in d columns."""
    rng = np.random.default_rng(0)
    centres = np.array([[-1.5, 1.0], [0.0, -1.2], [1.5, 0.8]])[rng.integers(0, 3, n)]
    mixing = np.eye(2, d) + 0.8 * rng.normal(size=(2, d)) * (d > 2)
    X = centres @ mixing + 0.5 * rng.normal(size=(n, d))
    X[:, 0] += 0.3 * X[:, 1] ** 2
    return X


def states(explorer: Explorer) -> dict[str, list[dict[str, Any]]]:
    """Names of what is dragged, and the states that the page goes through, from 0 to 1."""
    d, (low, high) = len(explorer.names), explorer.view
    middle, width = (low + high) / 2, (high - low) / 4
    found = {"curve, all others given": ([0], range(1, d))}
    if d > 2:
        found["plane, one given, others any"] = ([0, 1], range(2, 3))
        found["plane, all others given"] = ([0, 1], range(2, d))
    else:
        found["plane, moving box"] = ([0, 1], range(0))
    sequences = {}
    for name, (shown, given) in found.items():
        sequence = []
        for share in np.linspace(0.2, 0.8, 200):
            values = dict(zip(map(str, given), explorer.medians[list(given)], strict=True))
            shift = 0.0 if given else (share - 0.5) * width[0]
            if given:
                values[str(given[0])] = low[given[0]] + share * (high - low)[given[0]]
            box = [[middle[c] - width[c] + shift, middle[c] + width[c] + shift] for c in shown]
            sequence.append({"shown": shown, "given": values, "box": box, "samples": 300})
        sequences[name] = sequence
    return sequences


class Connection(http.client.HTTPConnection):
    """Connection that knows the token of the server."""

    prefix: str


@contextmanager
def serving(explorer: Explorer) -> Iterator[Connection]:
    """A server in a thread, and a connection to it."""
    with ExplorerServer(explorer, {}) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        connection = Connection("127.0.0.1", server.server_port)
        connection.prefix = server.prefix
        try:
            yield connection
        finally:
            connection.close()
            server.shutdown()
            thread.join()


def ask(connection: Connection, state: dict[str, Any]) -> dict[str, Any]:
    """One answer, decoded as the page does."""
    body = json.dumps(state)
    connection.request(
        "POST", connection.prefix + "api/picture", body, {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != 200:
        raise RuntimeError(answer["error"])
    density = np.frombuffer(base64.b64decode(answer["density"]), "<f4")
    return {**answer, "density": density}


def measure(model: Any, n_updates: int) -> Iterator[Row]:
    """One row for each kind of picture of a model."""
    explorer = Explorer(model)
    facts = {
        "model": type(model).__name__,
        "columns": len(explorer.names),
        "D": int(model.n_fourier_features_),
        "base": str(model.base_measure_),
        "terms": len(explorer.density.terms),
    }
    with serving(explorer) as connection:
        for name, sequence in states(explorer).items():
            picked = [sequence[k % len(sequence)] for k in range(0, 7 * n_updates, 7)]
            for state in picked[:WARM_UP]:
                ask(connection, {**state, "draft": True})
            wall, processor = time.perf_counter(), time.process_time()
            nodes = [ask(connection, {**state, "draft": True})["nodes"] for state in picked]
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            ask(connection, picked[-1])
            exact = time.process_time()
            ask(connection, picked[-1])
            yield {
                **facts,
                "state": name,
                "nodes": int(median(nodes)),
                "updates_per_second": n_updates / wall,
                "cpu_ms": 1e3 * processor / n_updates,
                "exact_ms": 1e3 * (time.process_time() - exact),
            }


def line(row: Row) -> list[str]:
    """A row as cells of a table."""
    whole = [str(row[key]) for key in ("model", "columns", "D", "base", "terms", "state", "nodes")]
    return [*whole, *(f"{row[key]:.0f}" for key in ("updates_per_second", "cpu_ms", "exact_ms"))]


def main(arguments: list[str] | None = None) -> list[Row]:
    """Measure models that are given, or fitted here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, nargs="+", default=[2, 4, 6])
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--models", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    models = (
        map(load, options.models)
        if options.models
        else fitted(options.columns, options.features, options.rows)
    )
    found: list[Row] = []
    for model in models:
        found += measure(model, options.updates)
        print(line(found[-1]), flush=True)
    slow = sum(row["updates_per_second"] < TARGET for row in found)
    print(f"\n{torch.get_num_threads()} threads\n\n{markdown_table(HEAD, map(line, found))}\n")
    print(f"{len(found) - slow} of {len(found)} kinds of picture at {TARGET:.0f} a second or more")
    return found


if __name__ == "__main__":
    main()
