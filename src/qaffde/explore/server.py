"""A small web server for one page and the pictures that it asks for."""

import base64
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qaffde.explore.requests import RequestError, State, parse_state
from qaffde.explore.views import Explorer, Picture

Array = NDArray[np.float64]

ASSETS = files("qaffde.explore") / "assets"
PAGES = {
    "/": ("explorer.html", "text/html; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("explorer", "controls", "plane", "curve", "scales", "link")
    },
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
IDLE_SECONDS = 60
LOOPBACK = "127.0.0.1"


class SupersededError(RuntimeError):
    """Somebody waits for another picture."""


class ExplorerServer(ThreadingHTTPServer):
    """Server of one model.

    Parameters
    ----------
    explorer : Explorer
    facts : mapping
        What the page says of the model.
    host, port : str, int
        Where to listen; port 0 is any that is free.
    """

    daemon_threads = True

    def __init__(
        self,
        explorer: Explorer,
        facts: Mapping[str, Any],
        host: str = LOOPBACK,
        port: int = 0,
    ) -> None:
        self.explorer, self.facts, self.host = explorer, facts, host
        self.lock, self.waiting = threading.Lock(), 0
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)

    @property
    def address(self) -> str:
        """Where the page is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_port}/"

    def picture(self, state: State) -> tuple[Picture, float]:
        """A picture and the seconds it took, one at a time; a draft waits for no other picture."""
        self.waiting += 1
        with self.lock:
            self.waiting -= 1
            start = time.perf_counter()
            picture = self.explorer.picture(state, self._check)
            return picture, time.perf_counter() - start

    def _check(self) -> None:
        if self.waiting:
            raise SupersededError

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that break."""


class Handler(BaseHTTPRequestHandler):
    """Answers to one connection."""

    server: ExplorerServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "qaffde", ""
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        """The page, its parts, and the facts of the model."""
        if not self._allowed():
            return
        path = self.path.partition("?")[0]
        if path == "/api/model":
            self._send_json(HTTPStatus.OK, self._model())
        elif path in PAGES:
            name, kind = PAGES[path]
            self._send(HTTPStatus.OK, (ASSETS / name).read_bytes(), kind)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        """A picture of the state that the body describes."""
        if not self._allowed():
            return
        body = self._body()
        if body is None:
            return
        if self.path != "/api/picture":
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            return
        try:
            state = parse_state(body, len(self.server.explorer.names))
            picture, seconds = self.server.picture(state)
        except RequestError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except SupersededError:
            self._send_json(HTTPStatus.OK, {"superseded": True})
        except Exception as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        else:
            answer = {**_plain(picture), "draft": state.draft, "milliseconds": 1e3 * seconds}
            self._send_json(HTTPStatus.OK, answer)

    def _model(self) -> dict[str, Any]:
        explorer = self.server.explorer
        parts = zip(explorer.names, explorer.view.T.tolist(), explorer.medians, strict=True)
        columns = [{"name": n, "ends": e, "median": float(m)} for n, e, m in parts]
        return {"columns": columns, "facts": dict(self.server.facts)}

    def _allowed(self) -> bool:
        """Refuse what comes by another name or from another site (DNS rebinding, forgery)."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not _known_host(hosts[0], self.server.host, self.server.server_port):
            self._refuse(HTTPStatus.FORBIDDEN, "this server does not answer to that Host")
            return False
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{hosts[0]}":
            self._refuse(HTTPStatus.FORBIDDEN, "requests from other sites are refused")
            return False
        site = self.headers.get("Sec-Fetch-Site", "none")
        if site not in ("none", "same-origin") and self.path.startswith("/api/"):
            self._refuse(HTTPStatus.FORBIDDEN, "requests from other sites are refused")
            return False
        return True

    def _body(self) -> bytes | None:
        """The body of a request, or None where it was refused."""
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "a body needs one Content-Length")
        elif len(length) > 9 or int(length) > MAX_BODY:
            self._refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {MAX_BODY} bytes"
            )
        elif self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a body must be application/json")
        else:
            body = self.rfile.read(int(length))
            if len(body) == int(length):
                return body
            self.close_connection = True
        return None

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self.close_connection = status != HTTPStatus.BAD_REQUEST  # that body was read to its end
        self._send_json(status, {"error": message})

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        """Errors of the protocol, in the form of all others."""
        self.close_connection = True
        status = HTTPStatus(code)
        self._send_json(status, {"error": message or status.phrase})

    def _send_json(self, status: HTTPStatus, answer: Mapping[str, Any]) -> None:
        text = json.dumps(answer, allow_nan=False, separators=(",", ":"))
        self._send(status, text.encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
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
    if name in ("localhost", bound.lower()):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or not is_loopback(bound)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _plain(picture: Picture) -> dict[str, Any]:
    """A picture as JSON; arrays are float32, little-endian, in base64."""
    probability = picture.probability
    return {
        "ends": picture.ends,
        "density": _packed(picture.density),
        "points": len(picture.density),
        "sides": [_packed(side) for side in picture.sides],
        "samples": _packed(picture.samples),
        "levels": picture.levels.tolist(),
        "quantiles": [part.tolist() for part in picture.quantiles],
        "probability": probability,
        "log_given": picture.log_given,
        "nodes": picture.nodes,
    }


def _packed(values: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode("ascii")
