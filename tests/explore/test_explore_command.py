"""``qaffde explore`` as a person runs it."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

pytest.importorskip("typer", reason="the command line needs the extra 'cli'")

from typer.testing import CliRunner

from qaffde import QAFFDE, QAFFDEClassifier
from qaffde.cli import explore as command
from qaffde.cli.app import app
from tests.explore.data import rows


@pytest.fixture(scope="module")
def model_file(named_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "people.qaffde"
    named_model.save(path)
    return path


def heed_interrupts():
    """A shell has what it runs in the background ignore Ctrl-C, and all that this runs as well."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_it_serves_until_interrupted(model_file):
    arguments = [sys.executable, "-m", "qaffde.cli", "explore", str(model_file), "--no-browser"]
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
        preexec_fn=heed_interrupts,
    ) as process:
        try:
            line = process.stdout.readline()
            address = line.split(" is at ")[1].split()[0]
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(address, timeout=60) as page:
                assert b"Density explorer" in page.read()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "stopped\n", "")


@pytest.fixture
def run(monkeypatch):
    """Run the command up to the moment where it would wait."""
    served, opened = [], []
    monkeypatch.setattr(command, "serve", lambda server, quiet: served.append(server))
    monkeypatch.setattr(command.webbrowser, "open", opened.append)

    def ran(*arguments):
        found = CliRunner().invoke(app, ["explore", *map(str, arguments)])
        return found, served, opened

    return ran


def test_the_address_is_printed_and_opened(run, model_file, monkeypatch):
    read = []
    redirection = command.redirection

    def watched(address, folder):
        page = redirection(address, folder)
        read.append(page.read_text())
        assert page.parent.stat().st_mode & 0o077 == 0
        return page

    monkeypatch.setattr(command, "redirection", watched)
    found, served, opened = run(model_file)
    assert found.exit_code == 0
    assert served[0].address in found.stdout
    for thread in command.threading.enumerate():
        if thread.daemon and thread is not command.threading.current_thread():
            thread.join(5)
    (page,) = opened  # a file of this user: all users can see the arguments of a browser
    assert page.startswith("file://")
    assert served[0].prefix not in page
    assert read == [f'<meta http-equiv="refresh" content="0; url={served[0].address}">']


def test_json_is_one_object_with_the_address(run, model_file):
    found, served, _ = run(model_file, "--no-browser", "--json")
    assert json.loads(found.stdout) == {"model": str(model_file), "address": served[0].address}


def test_facts_of_the_model_are_handed_on(run, model_file):
    _, served, _ = run(model_file, "--no-browser")
    expected = {"file": "people.qaffde", "class": "QAFFDE", "features": 40, "base": "gaussian"}
    assert expected.items() <= dict(served[0].facts).items()


def test_other_hosts_come_with_a_warning(run, model_file):
    found, served, _ = run(model_file, "--no-browser", "--host", "0.0.0.0")
    assert "note: anyone who can reach 0.0.0.0" in found.stderr
    assert served[0].server_address[0] == "0.0.0.0"


def test_no_browser_opens_none(run, model_file):
    found, _, opened = run(model_file, "--no-browser")
    assert (found.stderr, opened) == ("", [])


def test_a_port_in_use_is_told(run, model_file, server):
    found, *_ = run(model_file, "--no-browser", "--port", server.server_port)
    assert found.exit_code == 1
    assert found.stderr.startswith("error: ")
    assert "in use" in found.stderr


def test_what_cannot_be_explored_is_told(run, tmp_path):
    labels = rows(60, 2)[:, 0] > 0
    models = {
        "holds a QAFFDEClassifier, which has no": QAFFDEClassifier(n_features=16).fit(
            rows(60, 2), labels
        ),
        "fit with base_measure=": QAFFDE(n_features=16, bandwidth=0.5, base_measure="kernel").fit(
            rows(60, 2)
        ),
    }
    for message, model in models.items():
        path = tmp_path / "model.qaffde"
        model.save(path)
        found, *_ = run(path, "--no-browser")
        assert found.exit_code == 1
        assert message in found.stderr
        assert found.stderr.count("\n") == 1


def test_a_missing_file_is_told(run, tmp_path):
    found, *_ = run(tmp_path / "none.qaffde")
    assert (found.exit_code, "does not exist" in found.stderr) == (1, True)
