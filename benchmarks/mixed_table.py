"""Excess over the true entropy on a generated table of mixed columns with gaps.

    python -m benchmarks.mixed_table run [--rows N] [--seeds N] [--out FILE]
    python -m benchmarks.mixed_table report [--results FILE] [--page FILE]

Regions (five categories), ages (integers), incomes (log-normal given age and region), hours of the
day (periodic, given the region), and an amount that is often zero (given the income); 5 % of all
cells are missing at random. The true density of the known cells of a row is a sum over regions and
ages and, where the income is missing, a quadrature: the excess is in nats for each row.
"""

import time
from itertools import product

import numpy as np
import torch
from scipy.special import expit, logsumexp
from scipy.stats import norm

from benchmarks.commands import run_or_report
from experiments.rows import ROOT, markdown_table, provenance
from qaffde import QAFFDE, QAFFDESGD, Atom, Category, Integer, Periodic, Real

SHARES = np.array([0.35, 0.25, 0.2, 0.12, 0.08])
AGES = np.arange(18, 91)
OLD, WIDE = np.array([38, 42, 47, 55, 60]), np.array([10, 12, 12, 11, 9])
RICH = np.array([10.2, 10.0, 9.7, 9.5, 9.9])
HOURS, SPREAD = np.array([9.0, 13.0, 18.0, 22.5, 1.0]), np.array([2.5, 3.0, 2.0, 2.5, 4.0])
NAMES = ("region", "age", "income", "hour", "amount")
GAPS, N_TEST = 0.05, 5000
METHODS = {"QAFFDE": QAFFDE, "QAFFDESGD": QAFFDESGD}
RESULTS = ROOT / "benchmarks/results/mixed_table.jsonl"
PAGE = ROOT / "docs/maps.md"
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def log_ages():
    """Logarithm (5, 73) of the masses of ages given regions."""
    log_p = norm.logpdf(AGES, OLD[:, None], WIDE[:, None])
    return log_p - logsumexp(log_p, axis=1, keepdims=True)


def log_income_mean(region, age):
    """Mean of the log-income."""
    return RICH[region] + 0.02 * (age - 45) - 5e-4 * (age - 45) ** 2


def zero_share(log_income):
    """Probability of no amount."""
    return expit(2 * (9.8 - log_income))


def draw(n, seed, gaps=GAPS):
    """Rows (n, 5) of codes, ages, incomes, hours and amounts, NaN where a cell is missing."""
    rng = np.random.default_rng(seed)
    region = rng.choice(5, n, p=SHARES)
    masses = np.exp(log_ages())[region].cumsum(1)
    age = AGES[(masses < rng.random((n, 1))).sum(1).clip(max=len(AGES) - 1)]
    log_income = log_income_mean(region, age) + 0.45 * rng.normal(size=n)
    hour = (HOURS[region] + SPREAD[region] * rng.normal(size=n)) % 24
    amount = np.exp(0.8 * (log_income - 10) + 3 + 0.7 * rng.normal(size=n))
    amount[rng.random(n) < zero_share(log_income)] = 0.0
    rows = np.stack([region, age, np.exp(log_income), hour, amount], axis=1)
    rows[rng.random(rows.shape) < gaps] = np.nan
    return rows[~np.isnan(rows).all(1)]


def log_density(rows):
    """True log-density (n,) of the known cells of rows."""
    return np.array([_log_density(*row) for row in rows])


def _log_density(region, age, income, hour, amount):
    cells = np.log(SHARES)[:, None] + log_ages()  # (5, 73)
    if not np.isnan(region):
        cells[np.arange(5) != region] = -np.inf
    if not np.isnan(age):
        cells[:, age != AGES] = -np.inf
    if not np.isnan(hour):
        turns = hour + 24 * np.arange(-3, 4)[:, None]
        cells = cells + logsumexp(norm.logpdf(turns, HOURS, SPREAD), axis=0)[:, None]
    mean = log_income_mean(np.arange(5)[:, None], AGES)
    if not np.isnan(income):
        cells = cells + norm.logpdf(np.log(income), mean, 0.45) - np.log(income)
        return logsumexp(cells) + _log_amount(np.log(income), amount)
    nodes = mean[..., None] + 0.45 * NODES
    inner = logsumexp(_log_amount(nodes, amount), axis=-1, b=WEIGHTS / WEIGHTS.sum())
    return logsumexp(cells + inner)


def _log_amount(log_income, amount):
    """Log-density of an amount given log-incomes; zero where it is missing."""
    if np.isnan(amount):
        return np.zeros_like(log_income)
    if amount == 0:
        return np.log(zero_share(log_income))
    log_p = norm.logpdf(np.log(amount), 0.8 * (log_income - 10) + 3, 0.7) - np.log(amount)
    return log_p + np.log1p(-zero_share(log_income))


def impossible_mass(model):
    """Largest density of rows that cannot be, and probability of values below their ends."""
    row = [0, 30, 1e4, 5, 0]
    changes = (0, 5), (1, -3), (1, 30.5), (2, -1), (4, -1)  # a column, and a value it cannot have
    rows = torch.tensor([[*row[:k], value, *row[k + 1 :]] for k, value in changes]).double()
    density = model.density_.log_prob(rows).exp().max()
    below = [model.probability({k: (None, -1e-300)}) for k in (1, 2, 4)]
    return float(density), float(max(below))


def run(n, n_seeds):
    """One row for each estimator and seed of the training rows."""
    kinds = [Category(range(5)), Integer(), Real(lower=0), Periodic(24), Atom(0, Real(lower=0))]
    test = draw(N_TEST, 10_000)
    true = log_density(test)
    for seed, (name, estimator) in product(range(n_seeds), METHODS.items()):
        train, began = draw(n, seed), time.process_time()
        model = estimator(columns=kinds, random_state=seed).fit(train)
        seconds, loss = time.process_time() - began, true - model.score_samples(test)
        row = {"method": name, "rows": n, "seed": seed, "fit_cpu_seconds": seconds}
        row |= {"excess": loss.mean(), "standard_error": loss.std() / len(loss) ** 0.5}
        row |= {"base_measure": model.plan_.base, "has_waves": model.plan_.has_waves}
        density, mass = impossible_mass(model)
        row |= {"impossible_density": density, "impossible_mass": mass}
        yield {**row, **provenance()}


def body(rows):
    """Excess by method and seed."""
    head = ["estimator", "seed", "excess in nats", "density", "impossible values", "s"]
    return markdown_table(head, map(_line, rows))


def _line(row):
    density = f"{row['base_measure']}{', waves' if row['has_waves'] else ''}"
    impossible = f"{max(row['impossible_density'], row['impossible_mass']):g}"
    excess = f"{row['excess']:.4f} ± {row['standard_error']:.4f}"
    return [
        row["method"],
        str(row["seed"]),
        excess,
        density,
        impossible,
        f"{row['fit_cpu_seconds']:.0f}",
    ]


def main(arguments=None):
    """Run the command line."""
    options = {"rows": {"type": int, "default": 50_000}, "seeds": {"type": int, "default": 3}}

    def measured(given):
        return run(given.rows, given.seeds)

    run_or_report(__doc__, RESULTS, PAGE, measured, body, arguments, options)


if __name__ == "__main__":
    main()
