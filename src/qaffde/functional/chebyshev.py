r"""Chebyshev series on [−1, 1]: one-dimensional integrals and quantiles to rounding error.

A trigonometric polynomial of frequencies up to Ω is an entire function, and its series
:math:`f = \sum_k c_k T_k` ends, to rounding, soon after k = Ω (its coefficients are Bessel
functions :math:`J_k(\Omega)`). The antiderivative is a series again, so a distribution function
costs one small product per row.
"""

import math

import torch
from torch import Tensor


def series_length(omega: float) -> int:
    """Number of coefficients that resolve frequencies up to `omega` on [−1, 1] to about 1e-12.

    Examples
    --------
    >>> series_length(0.0), series_length(100.0)
    (14, 152)
    """
    return math.ceil(omega + 8 * omega ** (1 / 3) + 14)


def chebyshev_nodes(n: int) -> Tensor:
    """Roots of T_n, float64 of shape (n,)."""
    return torch.cos(math.pi * (torch.arange(n, dtype=torch.float64) + 0.5) / n)


def chebyshev_basis(y: Tensor, n: int) -> Tensor:
    """T_0 … T_{n−1} at `y`, of shape (..., n)."""
    return torch.cos(torch.arange(n, dtype=y.dtype) * y.clamp(-1, 1).arccos()[..., None])


def coefficients(values: Tensor) -> Tensor:
    """Coefficients of the series through `values` of shape (..., n) at the n nodes.

    Examples
    --------
    >>> coefficients(2 * chebyshev_nodes(3)).round(decimals=12).abs()
    tensor([0., 2., 0.], dtype=torch.float64)
    """
    n = values.shape[-1]
    transform = chebyshev_basis(chebyshev_nodes(n), n) * (2 / n)
    transform[:, 0] /= 2
    return values @ transform


def antiderivative(c: Tensor) -> Tensor:
    """Coefficients, one more than in `c`, of the integral from −1.

    Examples
    --------
    >>> antiderivative(torch.tensor([1.0]))  # the integral of 1 from −1 is 1 + y
    tensor([1., 1.])
    """
    n = c.shape[-1]
    padded = torch.cat([c, c.new_zeros(*c.shape[:-1], 2)], -1)
    left = padded[..., :n].clone()
    left[..., 0] *= 2
    k = torch.arange(1, n + 1, dtype=c.dtype)
    rest = (left - padded[..., 2:]) / (2 * k)
    signs = 1 - 2 * (k % 2)
    return torch.cat([-(rest * signs).sum(-1, keepdim=True), rest], -1)


def series_at(c: Tensor, y: Tensor) -> Tensor:
    """Series of coefficients (n, m), row by row, at points `y` of shape (n,)."""
    size = max(1, 2**17 // c.shape[-1])  # rows whose cosines stay in cache
    parts = zip(c.expand(len(y), -1).split(size), y.split(size), strict=True)
    return torch.cat([(rows * chebyshev_basis(at, c.shape[-1])).sum(-1) for rows, at in parts])


def invert_increasing(c: Tensor, slope: Tensor, target: Tensor, n_steps: int = 60) -> Tensor:
    """Points y in [−1, 1] where increasing series reach `target` of shape (n,).

    Newton's steps inside a bracket, until every value is within 1e-13 of its target, in shares of
    the whole rise. The series, zero at −1, and their derivatives are of shapes (n, m + 1), (n, m),
    or one for all targets.
    """
    n = len(target)
    lower, upper, y = _between_knots(c, target)
    c, slope = c.expand(n, -1), slope.expand(n, -1)
    tolerance = 1e-13 * c.sum(1)  # every T_k(1) is one
    found, rows = y.clone(), torch.arange(n)
    for _ in range(n_steps):
        basis = chebyshev_basis(y, c.shape[-1])
        excess = (c * basis).sum(-1) - target
        lower, upper = torch.where(excess < 0, y, lower), torch.where(excess < 0, upper, y)
        step = y - excess / (slope * basis[..., :-1]).sum(-1)
        inside = (step > lower) & (step < upper)
        left = excess.abs() > tolerance
        y = torch.where(left, torch.where(inside, step, (lower + upper) / 2), y)
        found[rows] = y
        n_left = int(left.sum())
        if n_left == 0:
            break
        if n_left < len(left) / 2:  # a copy pays
            parts = rows, c, slope, target, tolerance, lower, upper, y
            rows, c, slope, target, tolerance, lower, upper, y = (part[left] for part in parts)
    return found


def _between_knots(c: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Knots (n,) below and above where increasing series reach `target`, and a guess between."""
    m = c.shape[-1]
    knots = -torch.cos(math.pi * torch.arange(m + 1, dtype=c.dtype) / m)
    values = (c @ chebyshev_basis(knots, m).T).cummax(1).values
    levels = target[None] if len(c) == 1 else target[:, None]
    right = torch.searchsorted(values, levels).clamp(1, m)
    below, above = (values.gather(1, at).flatten() for at in (right - 1, right))
    right = right.flatten()
    lower, upper = knots[right - 1], knots[right]
    share = ((target - below) / (above - below)).nan_to_num(0.5).clamp(0, 1)
    return lower, upper, lower + share * (upper - lower)
