"""What the server answers, and what it refuses."""

import base64
import contextlib
import http.client
import json
import socket
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qaffde.explore import Explorer, ExplorerServer
from qaffde.explore import server as server_module
from qaffde.explore.requests import RequestError, State, parse_state
from qaffde.explore.server import HEADERS, KINDS, MAX_BODY, PAGES

PLANE = {"shown": [0, 1], "given": {"2": 0.4}, "box": [[-1, 1], [None, 0.5]], "samples": 20}


def get(connection, path, **headers):
    connection.request("GET", connection.prefix + path, headers=headers)
    response = connection.getresponse()
    return response, response.read()


def raw(server, text):
    """Send bytes as they are; the whole answer."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as link:
        link.sendall(text)
        link.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: link.recv(65536), b""))


def test_every_part_of_the_page_is_there(connection):
    assert {"", "explorer.css", "explorer.js", "link.js", "icon.svg"} <= set(PAGES)
    for path, name in PAGES.items():
        response, body = get(connection, path)
        kind = KINDS[name[name.rindex(".") :]]
        assert (response.status, response.headers["Content-Type"]) == (200, kind)
        assert b"://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
        for name, value in HEADERS.items():
            assert response.headers[name] == value


def test_the_page_may_load_nothing_from_elsewhere():
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_model_is_described(connection):
    found = json.loads(get(connection, "api/model")[1])
    assert [c["name"] for c in found["columns"]][3] == "<b>odd</b> name"
    for column in found["columns"]:
        low, high = column["ends"]
        assert low < column["median"] < high
    assert found["facts"] == {"file": "people.qaffde"}


def test_a_picture_is_that_of_the_explorer(server, post):
    status, answer = post(PLANE)
    picture = server.explorer.picture(State((0, 1), {2: 0.4}, ((-1, 1), (-np.inf, 0.5)), 20))
    assert status == 200
    density = np.frombuffer(base64.b64decode(answer["density"]), "<f4")
    np.testing.assert_array_equal(density, picture.density.astype("f4").ravel())
    assert answer["probability"] == picture.probability
    assert answer["points"] ** 2 == len(density)
    assert len(base64.b64decode(answer["samples"])) == 20 * 2 * 4


def test_one_connection_serves_many_pictures(post):
    for k in range(5):
        status, answer = post({"shown": [0], "given": {"1": k / 10}, "draft": True})
        assert (status, answer["draft"]) == (200, True)


@pytest.mark.parametrize(
    ("body", "message"),
    {
        b"": "must be JSON",
        b"{": "must be JSON",
        b"[1]": "a JSON object",
        b'{"shown": [0], "given": {"1": NaN}}': "without NaN",
        b'{"shown": [0], "given": {"1": 1e999}}': "must be finite",
        b'{"shown": [0], "given": {"1": 1' + b"0" * 400 + b"}}": "must be finite",
        b"[" * 60_000: "must be JSON",
        b'{"shown": []}': "one or two column numbers",
        b'{"shown": [0, 1, 2]}': "one or two column numbers",
        b'{"shown": [0, 0]}': "different column numbers",
        b'{"shown": [4]}': "from 0 to 3",
        b'{"shown": [-1]}': "from 0 to 3",
        b'{"shown": [true]}': "from 0 to 3",
        b'{"shown": [[0]]}': "from 0 to 3",
        b'{"shown": [0], "given": []}': "must be an object",
        b'{"shown": [0], "given": {"9": 1}}': "from 0 to 3 as keys",
        b'{"shown": [0], "given": {"x": 1}}': "from 0 to 3 as keys",
        b'{"shown": [0], "given": {"1": "1"}}': "column 1 must be a number",
        b'{"shown": [0], "given": {"1": null}}': "column 1 must be a number",
        b'{"shown": [0], "given": {"0": 1}}': "cannot be both",
        b'{"shown": [0], "given": {"1": 1e200}}': "nearer to the data",
        b'{"shown": [0], "box": 3}': "a pair of numbers",
        b'{"shown": [0], "box": [[0, 1], [0, 1]]}': "a pair of numbers",
        b'{"shown": [0], "box": [[0]]}': "a pair of numbers",
        b'{"shown": [0], "box": [[1, 0]]}': "above the upper",
        b'{"shown": [0], "samples": 1e9}': "whole number",
        b'{"shown": [0], "samples": 100000}': "from 0 to 2000",
        b'{"shown": [0], "seed": -1}': "whole number",
        b'{"shown": [0], "draft": 1}': "true or false",
        b'{"shown": [0], "code": "x"}': "unknown key 'code'",
    }.items(),
    ids=lambda value: None if isinstance(value, str) else value[:40].decode(),
)
def test_what_makes_no_sense_is_refused_and_the_connection_goes_on(post, body, message):
    status, answer = post(body)
    assert status == 400
    assert message in answer["error"]
    assert post({"shown": [0], "draft": True})[0] == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
KEYS = ("shown", "given", "box", "samples", "seed", "draft")


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON)) | JSON)
def test_any_json_is_a_state_or_is_refused(body):
    with contextlib.suppress(RequestError):
        found = parse_state(json.dumps(body).encode(), 4)
        assert len(found.shown) in (1, 2)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_read(body):
    try:
        parse_state(body, 4)
    except RequestError:
        return
    assert json.loads(body)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil:{port}",
        "10.0.0.1:{port}",
        "",
        "[::1]evil:{port}",
    ],
)
def test_other_hosts_are_refused(server, host):
    host = host.format(port=server.server_port)
    text = f"GET {server.prefix}api/model HTTP/1.1\r\nHost: {host}\r\n\r\n"
    answer = raw(server, text.encode())
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"median" not in answer


def test_a_request_needs_one_host(server):
    port, start = server.server_port, f"GET {server.prefix} HTTP/1.1\r\n"
    assert raw(server, f"{start}\r\n".encode()).startswith(b"HTTP/1.1 403")
    twice = f"{start[:-2]}\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n"
    assert raw(server, twice.encode()).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_names_of_this_machine_are_known(server, connection, host):
    assert get(connection, "", Host=host.format(port=server.server_port))[0].status == 200


def test_other_sites_are_refused(server, post, connection):
    assert post(PLANE, Origin=f"http://127.0.0.1:{server.server_port}")[0] == 200
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.server_port}"):
        assert post(PLANE, Origin=origin)[0] == 403
    assert get(connection, "api/model", **{"Sec-Fetch-Site": "cross-site"})[0].status == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Length": str(MAX_BODY + 1)}, 413),
        ({"Content-Length": "9" * 30}, 413),
        ({"Content-Length": "-1"}, 411),
        ({"Content-Length": "²"}, 411),
        ({"Transfer-Encoding": "chunked"}, 411),
    ],
)
def test_bodies_of_the_wrong_kind_are_refused(server, headers, status):
    sent = {"Content-Type": "application/json", "Content-Length": "2", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    host = f"Host: 127.0.0.1:{server.server_port}\r\n"
    start = f"POST {server.prefix}api/picture HTTP/1.1\r\n"
    answer = raw(server, f"{start}{host}{lines}\r\n{{}}".encode("latin-1"))
    assert answer.startswith(f"HTTP/1.1 {status}".encode())
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize(
    "text",
    [
        b"\x00\xff\x00\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"DELETE / HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200,
    ],
    ids=["binary", "short", "version", "method", "long", "headers"],
)
def test_broken_requests_get_an_error_and_harm_nobody(server, post, text):
    answer = raw(server, text)
    assert b'{"error":' in answer
    assert post({"shown": [0], "draft": True})[0] == 200


@pytest.mark.parametrize(
    "path", ["../server.py", "explorer.py", "%2e%2e/x", "/etc/passwd", "api", "explorer.html/"]
)
def test_only_the_parts_of_the_page_are_served(connection, path):
    response, body = get(connection, path)
    assert response.status == 404
    assert json.loads(body) == {"error": "there is no such page"}


def test_a_failure_is_told_and_does_not_end_the_server(server, post, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("of all things")

    with monkeypatch.context() as patch:
        patch.setattr(server.explorer, "picture", fail)
        status, answer = post(PLANE)
    assert (status, answer) == (500, {"error": "ZeroDivisionError: of all things"})
    assert post(PLANE)[0] == 200


def test_a_connection_that_breaks_harms_nobody(server, post):
    host = f"Host: 127.0.0.1:{server.server_port}\r\nContent-Type: application/json\r\n"
    start = f"POST {server.prefix}api/picture HTTP/1.1\r\n"
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.server_port)) as link:
            link.sendall(f"{start}{host}Content-Length: 50\r\n\r\n{{".encode())
    assert post(PLANE)[0] == 200


def test_a_draft_stops_an_exact_picture(server, post, monkeypatch):
    started = threading.Event()

    def slow(state, check):
        if state.draft:
            return picture(state)
        started.set()
        while True:
            time.sleep(0.01)
            check()

    picture = server.explorer.picture
    monkeypatch.setattr(server.explorer, "picture", slow)
    found = []
    waiter = threading.Thread(target=lambda: found.append(post(PLANE)))
    waiter.start()
    started.wait(30)
    other = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    body = json.dumps({**PLANE, "draft": True})
    other.request(
        "POST", f"{server.prefix}api/picture", body, {"Content-Type": "application/json"}
    )
    assert other.getresponse().status == 200
    other.close()
    waiter.join(30)
    assert found == [(200, {"superseded": True})]


def test_port_zero_finds_free_ports(named_model):
    explorer = Explorer(named_model)
    with ExplorerServer(explorer, {}) as first, ExplorerServer(explorer, {}) as second:
        assert first.address.startswith("http://127.0.0.1:")
        assert first.server_port != second.server_port
        assert first.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "path", ["/", "/api/model", "/explorer.js", "/{wrong}/", "/{wrong}/api/model", "{short}"]
)
def test_nobody_gets_in_without_the_token(server, connection, path):
    wrong, short = server.prefix[1:-1][::-1], server.prefix[:-2]
    connection.prefix = ""
    response, body = get(connection, path.format(wrong=wrong, short=short))
    assert response.status == 403
    assert json.loads(body) == {"error": "the address lacks the token that was printed"}
    body = json.dumps(PLANE)
    connection.request("POST", "/api/picture", body, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 403


def test_tokens_are_long_and_new(named_model):
    explorer = Explorer(named_model)
    with ExplorerServer(explorer, {}) as first, ExplorerServer(explorer, {}) as second:
        assert first.prefix != second.prefix
        assert len(first.prefix) > 40
        assert first.address.endswith(first.prefix)


def test_connections_are_limited_and_room_comes_back(server, post):
    before = threading.active_count()
    limit = server_module.MAX_CONNECTIONS
    with contextlib.ExitStack() as opened:
        links = [
            opened.enter_context(
                socket.create_connection(("127.0.0.1", server.server_port), timeout=30)
            )
            for _ in range(limit + 20)
        ]
        assert links[-1].recv(1) == b""  # closed at once
        assert threading.active_count() - before <= limit
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert post({"shown": [0], "draft": True})[0] == 200


def test_pictures_that_wait_are_limited(server, monkeypatch):
    release, answers = threading.Event(), []

    def slow(state, check):
        release.wait(30)
        return picture(state)

    def ask():
        try:
            answers.append(server.picture(State((0,), {}, draft=True)))
        except server_module.SupersededError:
            answers.append(None)

    picture = server.explorer.picture
    monkeypatch.setattr(server.explorer, "picture", slow)
    threads = [threading.Thread(target=ask) for _ in range(server_module.MAX_WAITING + 6)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while answers.count(None) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    release.set()
    for thread in threads:
        thread.join(30)
    assert answers.count(None) == 5
    assert len(answers) == len(threads)
    assert server.asked == 0


def test_a_second_density_is_beside_the_first(named_model):
    moved = type(named_model)(plan=named_model.plan_).fit(named_model.sample(400, 0) + 0.5)
    first, second = Explorer(named_model), Explorer(moved)
    first.share_view(second)
    assert np.array_equal(first.view, second.view)
    state = State((0, 1), {2: 0.4}, ((-1, 1), (-1, 1)))
    with ExplorerServer(first, {}, second=second) as server:
        picture, beside, _ = server.picture(state)
    assert picture.ends == beside.ends
    assert picture.density.shape == beside.density.shape
    assert abs(picture.density - beside.density).max() > 0.01
    assert picture.probability != beside.probability


def test_two_models_need_the_same_columns(named_model, models):
    with pytest.raises(ValueError, match="the same columns"):
        Explorer(named_model).share_view(Explorer(models["gaussian"]))
