"""
A chain on a table
==================

:class:`~qaffde.QAFFDEAutoregressive` writes the density of a table as a product: each column given
those before it, by one network. It takes columns of all kinds and draws new rows. What it can
answer exactly depends on the order of the columns: marginals of the first ones, and conditionals
given the first ones.

A made-up year of a bicycle counter: hour, rain (often exactly none), temperature and count.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from qaffde import Atom, Periodic, QAFFDEAutoregressive

rng = np.random.default_rng(0)
n = 6000
hour = rng.choice([8.0, 17.5, 13.0], n, p=[0.35, 0.35, 0.3]) + rng.normal(0, [1.2], n)
rain = np.where(rng.random(n) < 0.7, 0.0, rng.gamma(1.5, 2.0, n))
warm = 14 - 4 * np.cos(2 * np.pi * (hour - 3) / 24) - 0.4 * rain + rng.normal(0, 4, n)
rate = (40 + 8 * warm.clip(0)) * np.exp(-0.35 * rain) * np.where(np.abs(hour - 13) > 2.5, 1.6, 1)
table = pd.DataFrame(
    {"hour": hour % 24, "rain": rain, "temperature": warm, "count": rng.poisson(rate)}
)
kinds = {"hour": Periodic(24), "rain": Atom(0), "count": "integer"}
model = QAFFDEAutoregressive(columns=kinds, random_state=0).fit(table)

# %%
# Draws
# -----
# New rows have the kinds of the table: whole counts, hours on a circle, and no rain on most days.

drawn = model.sample(6000, random_state=0)
print(drawn.head())
figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharex=True, sharey=True, layout="constrained")
for ax, rows, title in zip(axes, (table, drawn), ("rows", "draws"), strict=True):
    dry = rows["rain"] == 0
    for kept, color, label in ((dry, "#D55E00", "dry"), (~dry, "#0072B2", "rain")):
        ax.plot(rows["hour"][kept], rows["count"][kept], ".", ms=2, color=color, label=label)
    ax.set_title(f"{title}: {dry.mean():.0%} dry", loc="left")
    ax.set(xlabel="hour", ylabel="count" if ax is axes[0] else "")
_ = axes[0].legend(frameon=False, markerscale=4)

# %%
# Given the first columns
# -----------------------
# The distribution of the last column, given all others, is exact: quantiles are those of its
# density.

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
hours = np.linspace(6, 20, 15)
for fall, color in ((0.0, "#D55E00"), (3.0, "#0072B2")):
    levels = [
        model.condition({"hour": h, "rain": fall, "temperature": 15.0}).ppf([0.1, 0.5, 0.9])
        for h in hours
    ]
    low, median, high = np.transpose(levels)
    ax.fill_between(hours, low, high, color=color, alpha=0.25, lw=0)
    ax.plot(hours, median, color=color, label="dry" if fall == 0 else f"{fall:.0f} mm of rain")
ax.set(xlabel="hour", ylabel="count at 15 degrees")
_ = ax.legend(frameon=False)

# %%
# Other questions need integrals over the network, which it does not have. They are refused, with
# the estimators that answer them:

try:
    model.condition({"count": 300})
except ValueError as error:
    print(error)
