"""Bandwidths by a rule."""

import torch
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.summary import Summary
from qaffde.training.closed_form import effective_count

RULES = ("auto", "scott", "silverman")


def scott(n: float, d: int) -> float:
    """Scott's factor n^(−1/(d+4)), in standard deviations of n (effective) rows of d columns.

    Examples
    --------
    >>> round(scott(1000, 1), 4)
    0.2512
    """
    return n ** (-1 / (d + 4))


def silverman(n: float, d: int) -> float:
    """Silverman's factor (n(d+2)/4)^(−1/(d+4)), in the same units.

    Examples
    --------
    >>> round(silverman(1000, 1), 4)
    0.2661
    """
    return (n * (d + 2) / 4) ** (-1 / (d + 4))


def bandwidth_by_rule(
    rule: str, z: Summary, generator: Generator, policy: SelectionPolicy
) -> Tensor:
    """Bandwidth of shape (d,) by the rule "auto", "scott" or "silverman", for standardized rows.

    "auto" is that of the exact kernel density estimate, for the "kernel" base, which has no
    likelihood of its own.
    """
    n, d = effective_count(z.weight), z.rows.shape[1]
    if rule == "auto":
        factor = held_out_kde(z.rows, z.weight, generator, policy)
    else:
        factor = scott(n, d) if rule == "scott" else silverman(n, d)
    return torch.full((d,), factor, dtype=torch.float64)


def draw_rows(weight: Tensor, n: int, generator: Generator) -> Tensor:
    """Indices of at most `n` rows: a subset under equal weights, else a weighted resample.

    Systematic resampling: the number of copies of a row differs from its share by less than one.
    """
    if bool((weight == weight[0]).all()):
        return torch.randperm(len(weight), generator=generator)[:n]
    n = min(n, len(weight))
    ticks = (torch.arange(n) + torch.rand((), generator=generator)) / n
    cumulative = (weight / weight.sum()).cumsum(0)
    return torch.searchsorted(cumulative, ticks.to(weight)).clamp(max=len(weight) - 1)


def held_out_kde(
    Z: Tensor, weight: Tensor, generator: Generator, policy: SelectionPolicy = DEFAULT_POLICY
) -> float:
    """Bandwidth of the best held-out likelihood of the exact estimate on a sample of the rows.

    What is best for the sample is then shrunk to the number of rows by n^(−1/(d+4)), the rate at
    which the best bandwidth falls.
    """
    n, d = Z.shape
    sample = Z[draw_rows(weight, policy.kde_rows, generator)]
    valid, train = sample.split([len(sample) // 4, len(sample) - len(sample) // 4])
    squares = torch.cdist(valid, train).square()

    def value(h: float) -> float:
        width = torch.tensor(h, dtype=Z.dtype)
        log_kernel = -squares * QF.gamma_from_bandwidth(width)
        return float(log_kernel.logsumexp(1).mean() - QF.log_kernel_mass(width, d))

    steps, start = range(-policy.kde_steps, policy.kde_steps + 1), scott(len(train), d)
    widths = [start * 2 ** (step / 2) for step in steps]
    return max(widths, key=value) * (len(train) / n) ** (1 / (d + 4))
