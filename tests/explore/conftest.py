"""Small models, and a server of one."""

import http.client
import json
import threading

import pandas as pd
import pytest

from qaffde import QAFFDE
from qaffde.explore import Explorer, ExplorerServer
from tests.explore.data import rows


@pytest.fixture(scope="session")
def models():
    """One fitted density of four columns for every kind of base."""
    settings = {
        "box": {"base_measure": "box"},
        "gaussian": {"base_measure": "gaussian"},
        "mixture": {"base_measure": 3},
    }
    return {
        name: QAFFDE(n_features=60, bandwidth=0.7, random_state=0, **setting).fit(rows())
        for name, setting in settings.items()
    }


@pytest.fixture(scope="session")
def explorers(models):
    return {name: Explorer(model) for name, model in models.items()}


@pytest.fixture(scope="session")
def named_model():
    frame = pd.DataFrame(rows(), columns=["height", "weight", "age", "<b>odd</b> name"])
    return QAFFDE(n_features=40, bandwidth=0.8, base_measure="gaussian", random_state=0).fit(frame)


@pytest.fixture(scope="session")
def server(named_model):
    """A running server of a model of named columns."""
    with ExplorerServer(Explorer(named_model), {"file": "people.qaffde"}) as found:
        thread = threading.Thread(target=found.serve_forever, args=[0.05])
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def connection(server):
    found = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    found.prefix = server.prefix
    yield found
    found.close()


@pytest.fixture
def post(connection):
    """Ask for a picture; the answer is its status and its JSON."""

    def posted(body, **headers):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        connection.request("POST", f"{connection.prefix}api/picture", text, sent)
        response = connection.getresponse()
        return response.status, json.loads(response.read())

    return posted
