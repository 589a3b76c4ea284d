"""What waves over the parts of a table add to its mixture, on rows that no fit has seen.

    python -m benchmarks.table_waves [curved|household|skin] [rows]

`curved` is generated: an hour, a number that swings twice a day, an integer and a category that
follow it in curves. `household` are minutes of a household (UCI): power, voltage, two meters that
count watt-hours, and the minute of the day. `skin` are pixels (UCI): three integers and a class.
5 % of all cells are missing at random. Both estimators are untuned.
"""

import sys
import time

import numpy as np

from experiments.real_sets import TABLES
from qaffde import QAFFDE, QAFFDESGD, Category, Integer, Periodic, Real

GAPS, N_TEST = 0.05, 5000


def curved(n, rng):
    """Rows (n, 4), and the kinds of their columns."""
    turn, noise = rng.random(n), rng.normal(size=(2, n))
    x = 2 * np.sin(4 * np.pi * turn) + 0.3 * noise[0]
    k = np.round(10 + 6 * np.sin(2 * x) + noise[1])
    c = rng.random(n) < 1 / (1 + np.exp(-3 * np.sin(3 * x)))
    return np.stack([24 * turn, x, k, c], 1), [Periodic(24), Real(), Integer(), Category([0, 1])]


def household(n, rng):
    """Minutes of a household; rounded numbers get back what they lost, at random."""
    with np.load(TABLES / "power_raw.npz") as data:
        some = rng.choice(len(data["minute"]), n, replace=False)
        names = "active_power_w", "voltage_cv", "sub_1", "sub_3", "minute"
        X = np.stack([data[name][some] for name in names], 1).astype(float)
    X[:, [0, 1, 4]] += rng.random((n, 3)) * [2, 1, 1]
    return X, [Real(lower=0), Real(), Integer(), Integer(), Periodic(1440)]


def skin(n, rng):
    """Blue, green and red of pixels, standardized in the file, and whether they are skin."""
    with np.load(TABLES / "adbench_33_skin.npz") as data:
        colors = [np.unique(column, return_inverse=True)[1] for column in data["X"].T]
        X = np.column_stack([*colors, data["y"]]).astype(float)
    return X[rng.permutation(len(X))[:n]], [*[Integer()] * 3, Category([0, 1])]


SETS = {"curved": curved, "household": household, "skin": skin}


def main(name="curved", n=10_000):
    """Print the gain of waves on fresh rows, its standard error, and seconds."""
    rng = np.random.default_rng(0)
    X, kinds = SETS[name](int(n) + N_TEST, rng)
    X[rng.random(X.shape) < GAPS] = np.nan
    test, train = (part[~np.isnan(part).all(1)] for part in (X[:N_TEST], X[N_TEST:]))
    found = {}
    for estimator in (QAFFDE, QAFFDESGD):
        began = time.process_time()
        model = estimator(columns=kinds, random_state=0).fit(train)
        fitted = time.process_time()
        found[estimator] = model.score_samples(test)
        seconds = fitted - began, time.process_time() - fitted
        print(model.plan_)
        print(f"{estimator.__name__}: {found[estimator].mean():.4f} nats a row, ", end="")
        print("{:.1f} s to fit, {:.1f} s to score".format(*seconds), flush=True)
    gain = found[QAFFDESGD] - found[QAFFDE]
    print(f"{name}, {n} rows: waves add {gain.mean():.4f} ± {gain.std() / len(gain) ** 0.5:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
