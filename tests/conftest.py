"""Quadrature that several layers are measured with, and a search that costs little."""

from importlib import import_module

import numpy as np
import pytest
import torch

from qaffde import SelectionPolicy


@pytest.fixture(scope="session")
def legendre():
    """Nodes of shape (n^d, d) and weights of shape (n^d,) of Gauss–Legendre on a box."""

    def rule(lower, upper, n):
        nodes, weights = (torch.tensor(part) for part in np.polynomial.legendre.leggauss(n))
        half = (torch.as_tensor(upper) - torch.as_tensor(lower)) / 2
        centre = (torch.as_tensor(upper) + torch.as_tensor(lower)) / 2
        d = len(half)
        points = torch.cartesian_prod(*[nodes] * d).reshape(-1, d)
        volumes = torch.cartesian_prod(*[weights] * d).reshape(-1, d).prod(1)
        return centre + half * points, volumes * half.prod()

    return rule


@pytest.fixture
def short_search(monkeypatch):
    """Candidates of QAFFDESGD are trained for fewer iterations, unless a policy says otherwise."""
    module = import_module("qaffde.selection.selector")
    monkeypatch.setattr(module, "DEFAULT_POLICY", SelectionPolicy(judge_iterations=10))
