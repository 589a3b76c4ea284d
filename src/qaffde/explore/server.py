"""A small web server for one page and the pictures that it asks for."""

import base64
import ipaddress
import json
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from qaffde.explore.requests import RequestError, State, parse_state
from qaffde.explore.views import Explorer, Picture
from qaffde.plot.cells import Array

ASSETS = files("qaffde.explore") / "assets"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGES = {"": "explorer.html"} | {
    file.name: file.name for file in ASSETS.iterdir() if Path(file.name).suffix in KINDS
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MAX_BODY = 65_536
MAX_CONNECTIONS, MAX_WAITING = 32, 8
"""Connections at a time, each a thread, and pictures that may wait for each other."""
STRANGER_SECONDS, IDLE_SECONDS = 10, 60
"""How long a connection may be silent before it has shown the token, and after."""
LOOPBACK = "127.0.0.1"


class SupersededError(RuntimeError):
    """Somebody waits for another picture."""


class ExplorerServer(ThreadingHTTPServer):
    """Server of one model, for those who know the token in its address.

    Parameters
    ----------
    explorer : Explorer
    facts : mapping
        What the page says of the model.
    host, port : str, int
        Where to listen; port 0 is any that is free.
    second : Explorer, optional
        Another density of the same columns, to look at beside the first.
    """

    daemon_threads = True

    def __init__(
        self,
        explorer: Explorer,
        facts: Mapping[str, Any],
        host: str = LOOPBACK,
        port: int = 0,
        second: Explorer | None = None,
    ) -> None:
        self.explorer, self.facts, self.host, self.second = explorer, facts, host, second
        self.prefix = f"/{secrets.token_urlsafe()}/"
        self.lock, self.gate, self.asked = threading.Lock(), threading.Lock(), 0
        self.connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)

    @property
    def address(self) -> str:
        """Where the page is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_port}{self.prefix}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, or close it where there are too many."""
        if self.connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, then make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release()

    def picture(self, state: State) -> tuple[Picture, Picture | None, float]:
        """Pictures of both densities, if there are two, and the seconds they took.

        They are made for one state at a time; a draft waits for no other.
        """
        self._count(1, 1 + MAX_WAITING)
        try:
            with self.lock:
                start = time.perf_counter()
                picture = self.explorer.picture(state, lambda: self._count(0, 1))
                return picture, self._beside(state), time.perf_counter() - start
        finally:
            self._count(-1)

    def _beside(self, state: State) -> Picture | None:
        """Picture of the second density, if there is one and it is not zero at the condition."""
        if self.second is None:
            return None
        try:
            return self.second.picture(state, lambda: self._count(0, 1))
        except RequestError:
            return None

    def _count(self, change: int, most: float = math.inf) -> None:
        """Follow how many pictures are asked for, and refuse to have too many."""
        with self.gate:
            if self.asked + change > most:
                raise SupersededError
            self.asked += change

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that break."""


class Handler(BaseHTTPRequestHandler):
    """Answers to one connection."""

    server: ExplorerServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "qaffde", ""
    timeout = STRANGER_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        """The page, its parts, and the facts of the model."""
        self._answer(self._page)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        """A picture of the state that the body describes."""
        self._answer(self._picture)

    def _answer(self, make: Callable[[str], Any]) -> None:
        """Send what is made of a path: a file of the page, or an object as JSON."""
        status = HTTPStatus.OK
        try:
            answer = make(self._allowed_path())
        except SupersededError:
            answer = {"superseded": True}
        except RequestError as error:
            status, answer = error.status, {"error": str(error)}
        except Exception as error:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            answer = {"error": f"{type(error).__name__}: {error}"}
        if status not in (HTTPStatus.OK, HTTPStatus.BAD_REQUEST):  # its body may be unread
            self.close_connection = True
        self._send(status, answer)

    def _page(self, path: str) -> str | dict[str, Any]:
        if path in PAGES:
            return PAGES[path]
        if path != "api/model":
            raise RequestError("there is no such page", HTTPStatus.NOT_FOUND)
        return {"columns": self.server.explorer.columns, "facts": dict(self.server.facts)}

    def _picture(self, path: str) -> dict[str, Any]:
        if path != "api/picture":
            raise RequestError("there is no such page", HTTPStatus.NOT_FOUND)
        state = parse_state(self._body(), len(self.server.explorer.names))
        picture, beside, seconds = self.server.picture(state)
        other = {} if beside is None else {"other": _plain(beside)}
        timed = {"draft": state.draft, "milliseconds": 1e3 * seconds}
        return {**_plain(picture), **other, **timed}

    def _allowed_path(self) -> str:
        """What is asked for, after the token.

        Refused is what comes by another name or from another site (DNS rebinding, forgery), and
        from those who lack the token.
        """
        hosts, prefix = self.headers.get_all("Host", []), self.server.prefix
        path = self.path.partition("?")[0]
        origin = self.headers.get("Origin")
        same_site = self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        known = secrets.compare_digest(path[: len(prefix)].encode(), prefix.encode())
        same_site |= not path.startswith(f"{prefix}api/")
        if len(hosts) != 1 or not _known_host(hosts[0], self.server.host, self.server.server_port):
            raise RequestError("this server does not answer to that Host", HTTPStatus.FORBIDDEN)
        if not known:
            message = "the address lacks the token that was printed"
            raise RequestError(message, HTTPStatus.FORBIDDEN)
        if origin not in (None, f"http://{hosts[0]}") or not same_site:
            raise RequestError("requests from other sites are refused", HTTPStatus.FORBIDDEN)
        self.connection.settimeout(IDLE_SECONDS)
        return path.removeprefix(prefix)

    def _body(self) -> bytes:
        """The body of a request."""
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not (length.isascii() and length.isdigit()):
            raise RequestError("a body needs one Content-Length", HTTPStatus.LENGTH_REQUIRED)
        if len(length) > 9 or int(length) > MAX_BODY:
            message = f"a body has at most {MAX_BODY} bytes"
            raise RequestError(message, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self.headers.get_content_type() != "application/json":
            raise RequestError(
                "a body must be application/json", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise RequestError("the body is shorter than it says", HTTPStatus.REQUEST_TIMEOUT)
        return body

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        """Errors of the protocol, in the form of all others."""
        self.close_connection = True
        status = HTTPStatus(code)
        self._send(status, {"error": message or status.phrase})

    def _send(self, status: HTTPStatus, answer: str | Mapping[str, Any]) -> None:
        """Send a file of the page, or an object as JSON."""
        if isinstance(answer, str):
            body, kind = (ASSETS / answer).read_bytes(), KINDS[Path(answer).suffix]
        else:
            body = json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
            kind = "application/json"
        self.send_response(status)
        own = {"Content-Type": kind, "Content-Length": str(len(body))}
        end = {"Connection": "close"} if self.close_connection else {}
        for name, value in (HEADERS | own | end).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: a page that moves asks thirty times a second."""


def _known_host(host: str, bound: str, port: int) -> bool:
    """Whether a Host header names this server; literal addresses cannot be rebound."""
    name, colon, number = host.rpartition(":")
    if not colon or number.endswith("]"):
        name, number = host, "80"
    name = name.removeprefix("[").removesuffix("]").lower()
    if number != str(port):
        return False
    literal = _address(name) is not None and not is_loopback(bound)
    return name == bound.lower() or is_loopback(name) or literal


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> Any:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _plain(picture: Picture) -> dict[str, Any]:
    """A picture as JSON; arrays are float32, little-endian, in base64."""
    return {
        **vars(picture),
        "density": _packed(picture.density),
        "points": len(picture.density),
        "sides": [_packed(side) for side in picture.sides],
        "samples": _packed(picture.samples),
        "levels": picture.levels.tolist(),
        "quantiles": [part.tolist() for part in picture.quantiles],
    }


def _packed(values: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode("ascii")
