"""A runner of commands, tables in every format, and a small model."""

import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("typer", reason="the command line needs the extra 'cli'")
pytest.importorskip("pyarrow", reason="reading data needs the extra 'data'")

from typer.testing import CliRunner

from qaffde.cli.app import app

SMALL = ["--features", "32", "--bandwidth", "0.5", "--base-measure", "gaussian"]


@pytest.fixture(scope="session")
def frame():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    return pd.DataFrame({"x": x, "y": 0.5 * x + rng.normal(size=200)})


@pytest.fixture(scope="session")
def write():
    """Write a frame in the format of a suffix."""

    def written(frame, path):
        match path.suffix:
            case ".csv":
                frame.to_csv(path, index=False)
            case ".tsv":
                frame.to_csv(path, index=False, sep="\t")
            case ".gz":
                frame.to_csv(path, index=False)
            case ".parquet":
                frame.to_parquet(path, index=False)
            case ".arrow" | ".feather":
                frame.to_feather(path)
            case ".npy":
                np.save(path, frame.to_numpy())
            case ".npz":
                np.savez(path, **{name: frame[name].to_numpy() for name in frame})
        return path

    return written


class Result:
    """What a command left: exit code, standard output and standard error."""

    def __init__(self, found):
        self.code, self.out, self.err = found.exit_code, found.stdout, found.stderr
        self.exception = found.exception

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(scope="session")
def qaffde():
    """Run a command; a traceback is a failure of the test."""

    def run(*arguments, input=None):
        found = CliRunner().invoke(app, [*map(str, arguments)], input=input)
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
        return Result(found)

    return run


@pytest.fixture(scope="session")
def model(qaffde, frame, write, tmp_path_factory):
    """File of a model of the columns x and y."""
    folder = tmp_path_factory.mktemp("model")
    data = write(frame, folder / "data.csv")
    done = qaffde("fit", data, "-o", folder / "model.qaffde", *SMALL)
    assert done.code == 0, done.err
    return folder / "model.qaffde"
