r"""
Streams: add, merge, forget
===========================

All that a fit knows of its rows is a sum over them. So rows can come in chunks, come from several
machines, and leave again, and the result is that of one fit, to rounding.

The sum is :math:`\rho = \sum_i w_i \phi(x_i) \phi(x_i)^\top`. What it is a sum *of*, the features,
has to be settled before the first row counts: with numbers for ``bandwidth`` and for the ends of
the columns it does not depend on any row.
"""

import matplotlib.pyplot as plt
import numpy as np

from qaffde import QAFFDE, Real

rng = np.random.default_rng(0)
SETTINGS = {"columns": Real(-5, 5), "bandwidth": 0.3, "random_state": 0}


def rows(day: float, n: int = 2000) -> np.ndarray:
    """Two groups of rows; the second one wanders off as days go by."""
    second = rng.random(n) < 0.4
    return np.where(second, rng.normal(-1 + 0.4 * day, 0.5, n), rng.normal(-2, 0.5, n))[:, None]


def difference(first: QAFFDE, second: QAFFDE) -> float:
    """Largest difference of the log-densities on a grid."""
    x = np.linspace(-4.9, 4.9, 500)[:, None]
    return np.abs(first.score_samples(x) - second.score_samples(x)).max()


# %%
# Add
# ---
# Ten days, a chunk each. ``partial_fit`` adds a chunk, and nothing of it is kept but its sum.

days = [rows(day) for day in range(10)]
stream = QAFFDE(**SETTINGS)
for chunk in days:
    stream.partial_fit(chunk)
whole = QAFFDE(**SETTINGS).fit(np.vstack(days))
print(f"chunks and one fit differ by {difference(stream, whole):.1e}")

# %%
# Merge
# -----
# Two machines with five days each, and no row has to travel.

early, late = (QAFFDE(**SETTINGS).fit(np.vstack(part)) for part in (days[:5], days[5:]))
print(f"merged and one fit differ by {difference(early.merge(late), whole):.1e}")

# %%
# Forget
# ------
# A person asks for the removal of their rows. ``forget`` takes them out of the sum, as if they had
# never been in it.

rest = QAFFDE(**SETTINGS).fit(np.vstack([days[0][100:], *days[1:]]))
stream.forget(days[0][:100])
print(f"without 100 rows, and a fit that never saw them: {difference(stream, rest):.1e}")

# %%
# Rows that were never added are an error, since the sum without them would be the sum of no data:

try:
    stream.forget(np.full((100, 1), 4.5))
except ValueError as error:
    print(error)

# %%
# Drift
# -----
# ``forget(decay=0.5)`` halves the weight of all rows so far. Doing so before each day makes the
# stream follow its data: a day counts half as much as the next.

steady, fading = QAFFDE(**SETTINGS), QAFFDE(**SETTINGS)
x = np.linspace(-4.9, 4.9, 400)
shown = (0, 3, 6, 9)
figure, axes = plt.subplots(2, 2, figsize=(9, 5), sharex=True, sharey=True, layout="constrained")
for day, chunk in enumerate(days):
    steady.partial_fit(chunk)
    fading = fading.forget(decay=0.5) if day else fading
    fading.partial_fit(chunk)
    if day in shown:
        ax = axes.flat[shown.index(day)]
        ax.hist(chunk[:, 0], bins=40, density=True, color="0.87", label="rows of the day")
        for model, label, color in (
            (steady, "all days", "#D55E00"),
            (fading, "decay 0.5", "#0072B2"),
        ):
            ax.plot(x, np.exp(model.score_samples(x[:, None])), color=color, lw=2, label=label)
        ax.set_title(f"day {day}", loc="left")
        ax.spines[["top", "right"]].set_visible(False)
axes[0, 0].legend(frameon=False, loc="upper right", fontsize=9)

# %%
# On the rows of the day after, the one that forgets is the better one:

tomorrow = rows(10)
for name, model in {"all days": steady, "decay 0.5": fading}.items():
    print(f"{name:<10} log-likelihood of day 10: {model.score(tomorrow):.3f}")
