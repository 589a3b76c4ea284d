"""Rows of experiments that are run once and read by many tests."""

import pytest

pytest.importorskip("optuna", reason="experiments need the extra 'search'")

from experiments.runner import Files, run_cells
from tests.experiments.tiny import tiny_cells


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path, "planar-quick")


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """Files of a run that nothing disturbed."""
    files = Files(tmp_path_factory.mktemp("rows"), "planar-quick")
    run_cells(tiny_cells(files), files)
    return files
