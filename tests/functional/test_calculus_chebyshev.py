"""Chebyshev series and the spectrum's diagnostics."""

import math

import pytest
import torch

from qaffde.functional.chebyshev import (
    antiderivative,
    chebyshev_nodes,
    coefficients,
    invert_increasing,
    series_at,
    series_length,
)

Y = torch.linspace(-1, 1, 41, dtype=torch.float64)


@pytest.mark.parametrize("omega", [0.5, 5.0, 60.0, 400.0])
def test_series_resolves_its_frequency(omega):
    c = coefficients(torch.cos(omega * chebyshev_nodes(series_length(omega)) + 0.3))
    found = series_at(c.expand(len(Y), -1), Y)
    torch.testing.assert_close(found, torch.cos(omega * Y + 0.3), rtol=0, atol=1e-9)


@pytest.mark.parametrize("omega", [0.5, 5.0, 60.0])
def test_antiderivative_starts_at_minus_one(omega):
    c = coefficients(torch.cos(omega * chebyshev_nodes(series_length(omega))))
    found = series_at(antiderivative(c).expand(len(Y), -1), Y)
    expected = (torch.sin(omega * Y) + math.sin(omega)) / omega
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("power", [0, 2, 20])
def test_inverse_of_increasing_series(power):
    """Including a density that vanishes in the middle, where Newton's steps fail."""
    slope = coefficients(chebyshev_nodes(40) ** power).expand(len(Y), -1)
    c = antiderivative(slope)
    level = torch.linspace(0, 1, len(Y), dtype=torch.float64) * c.sum(1)
    found = invert_increasing(c, slope, level)
    torch.testing.assert_close(series_at(c, found), level, rtol=0, atol=1e-12)
    found = invert_increasing(c[:1], slope[:1], level)  # one series for all
    torch.testing.assert_close(series_at(c, found), level, rtol=0, atol=1e-12)
