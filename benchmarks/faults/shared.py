"""One model shared by many: threads that do everything at once, and hostile requests."""

import contextlib
import http.client
import json
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.faults.attempts import Attempt
from benchmarks.faults.files import HOSTILE, cut, flip, splice
from qaffde import QAFFDE, QAFFDESGD, TrainingConfig, load
from qaffde.explore import Explorer, ExplorerServer

X = np.random.default_rng(0).normal(size=(300, 3))
N_THREADS = 6
STATE = {"shown": [0, 1], "given": {"2": 0.4}, "box": [[-1, 1], [None, 0.5]], "samples": 20}


def start_threads(folder: Path) -> Attempt:
    """Threads must find what one alone does."""
    path = folder / "model"
    training = TrainingConfig(max_iter=3)

    def make(seed: int) -> QAFFDE:
        return QAFFDE(n_features=40, bandwidth=0.6, base_measure=2, random_state=seed)

    def train() -> QAFFDESGD:
        fixed = {"ridge": 0.01, "base_measure": "box", "training": training, "random_state": 0}
        return QAFFDESGD(24, 0.6, **fixed)

    model = make(0).fit(X)
    model.save(path)
    works: list[Callable[[], Any]] = [
        lambda: make(1).fit(X).score_samples(X),
        lambda: make(2).partial_fit(X[:150]).partial_fit(X[150:]).score_samples(X),
        lambda: train().fit(X).score_samples(X),
        lambda: model.score_samples(X),
        lambda: model.sample(30, random_state=3),
        lambda: model.marginal([1]).cdf(X[:, 1:2]),
        lambda: model.condition({0: 0.3}).mean(),
        lambda: load(path).score_samples(X),
        lambda: model.save(path),
    ]
    alone = [work() for work in works]

    def attempt(rng: Generator) -> str:
        chosen = rng.integers(len(works), size=2 * N_THREADS).tolist()
        with ThreadPoolExecutor(N_THREADS) as pool:
            found = list(pool.map(lambda k: works[k](), chosen))
        wrong = [k for k, f in zip(chosen, found, strict=True) if not np.array_equal(f, alone[k])]
        return f"works {wrong} differ" if wrong else "same"

    return attempt


class Watched(ExplorerServer):
    """Server that remembers errors of its handlers, but for connections that break."""

    errors: list[str]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note an error."""
        error = sys.exception()
        if not isinstance(error, OSError):
            self.errors.append(repr(error))


def start_requests(folder: Path) -> Attempt:
    """A server that answers a good request after every hostile one."""
    model = QAFFDE(n_features=40, bandwidth=0.8, base_measure="gaussian", random_state=0).fit(X)
    server = Watched(Explorer(model), {})
    server.errors = []
    threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
    good = json.loads(_post(server, STATE)[1])["density"]

    def attempt(rng: Generator) -> str:
        answer = _sent(server, _hostile(server, rng), rng)
        status, body = _post(server, STATE)
        if server.errors:
            return server.errors.pop()
        if status != 200 or json.loads(body)["density"] != good:
            return f"then a good request has status {status}"
        if not answer:
            return "closed"
        code = answer[9:12]
        fine = code[:1] in (b"2", b"4") or code in (b"501", b"505")
        known = (answer.startswith(b"HTTP/1.1 ") and fine) or answer.startswith(
            b'{"error"'
        )  # HTTP/0.9
        return "answered" if known else f"says {answer[:60]!r}"

    return attempt


def _hostile(server: ExplorerServer, rng: Generator) -> bytes:
    """Bytes of one request."""
    body = json.dumps(_hostile_state(rng)).encode()
    token, host = server.prefix, f"127.0.0.1:{server.server_port}"
    paths = ("api/picture", "api/model", "", "../../etc/passwd", "explorer.js", "%00", "a" * 9000)
    path = token + paths[rng.integers(len(paths))] if rng.random() < 0.8 else "/" + paths[-1]
    method = ("POST", "GET", "PUT", "HEAD", "DELETE", "X" * 70)[
        rng.choice(6, p=[0.7, *[0.06] * 5])
    ]
    sizes = (len(body), len(body), len(body), 0, -1, 2**40, "x", len(body) + 5)
    headers = {
        "Host": (host, host, host, "evil.example", "")[rng.integers(5)],
        "Content-Type": ("application/json", "application/json", "text/plain")[rng.integers(3)],
        "Content-Length": sizes[rng.integers(len(sizes))],
        "Connection": "close",
    }
    if rng.random() < 0.2:
        headers |= {f"X-{k}": "y" * int(rng.integers(3000)) for k in range(rng.integers(150))}
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    content = "\r\n".join(lines).encode() + body
    spoil = (flip, cut, splice, lambda c, _: c, lambda c, _: c)[rng.integers(5)]
    return spoil(content, rng)


def _hostile_state(rng: Generator) -> Any:
    """A state with values replaced, or something else."""
    state: dict[str, Any] = json.loads(json.dumps(STATE))
    names = [*state, "draft", "seed", "levels", "__class__"]
    for _ in range(rng.integers(3)):
        state[names[rng.integers(len(names))]] = HOSTILE[rng.integers(len(HOSTILE))]
    if rng.random() < 0.3:
        state["given"] = {str(rng.integers(-1, 5)): float(10.0 ** rng.integers(-300, 300))}
        state["shown"] = rng.integers(-1, 4, size=rng.integers(4)).tolist()
    return state if rng.random() < 0.9 else HOSTILE[rng.integers(len(HOSTILE))]


def _sent(server: ExplorerServer, content: bytes, rng: Generator) -> bytes:
    """The answer to bytes as they are; some senders leave before it comes."""
    address = ("127.0.0.1", server.server_port)
    with socket.create_connection(address, timeout=15) as link, contextlib.suppress(OSError):
        link.sendall(content)
        link.shutdown(socket.SHUT_WR)
        if rng.random() < 0.9:
            return b"".join(iter(lambda: link.recv(65536), b""))
    return b""


def _post(server: ExplorerServer, state: Any) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=15)
    headers = {"Content-Type": "application/json"}
    with contextlib.closing(connection):
        connection.request("POST", server.prefix + "api/picture", json.dumps(state), headers)
        response = connection.getresponse()
        return response.status, response.read()
