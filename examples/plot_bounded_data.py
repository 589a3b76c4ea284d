"""
Data that end at an edge
========================

Shares lie between 0 and 1, and waiting times above 0. A kernel density estimate bleeds over such
an edge, and is half as high as it should be right at it. With known ends the density stays inside.

A kernel at a row near the edge has a part of its mass beyond it. Here the rows are shares with
density :math:`2(1 - x)`, which is highest where it ends.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import KernelDensity

from qaffde import QAFFDE, Real

COLORS = {"QAFFDE": "#0072B2", "KDE": "#D55E00"}
shares = 1 - np.sqrt(np.random.default_rng(0).random((5000, 1)))
models = {
    "QAFFDE": QAFFDE(bandwidth=0.05, columns=Real(0, 1), random_state=0).fit(shares),
    "KDE": KernelDensity(bandwidth=0.05).fit(shares),
}

x = np.linspace(-0.25, 1.25, 1501)
outside = (x < 0) | (x > 1)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.fill_between(x, np.where(outside, 0, 2 * (1 - x)), color="0.87", lw=0, label="truth")
for name, model in models.items():
    density = np.exp(model.score_samples(x[:, None]))
    ax.plot(x, density, color=COLORS[name], lw=2, label=name)
    mass = density[outside].sum() * 0.001
    print(f"{name:<7} beyond the edges {mass:.5f}, at the edge {density[250]:.2f}")
ax.set(xlabel="share", ylabel="density", ylim=(0, 2.3))
ax.spines[["top", "right"]].set_visible(False)
_ = ax.legend(frameon=False)

# %%
# Both smooth with the same bandwidth, so that only the edge differs. Where all ends are known, a
# row beyond them is impossible:

print(f"log-density at -0.1: {models['QAFFDE'].score_samples([[-0.1]])[0]}")

# %%
# Bounds may be known of some columns only, and at one end only: ``None`` leaves the others to the
# data. The second set ends at :math:`x_1 = \pm 4`, at full height, and fades out in the other
# direction. What QAFFDE leaves outside is its background, a broad Gaussian of weight 1/(n + 1): a
# row beyond the edge is then very unlikely, but its log-density is a number.

rng = np.random.default_rng(0)
first = rng.uniform(-4, 4, 5000)
X = np.column_stack([first, rng.normal(np.sin(np.pi * first / 2), 0.4)])
models = {
    "QAFFDE": QAFFDE(bandwidth=0.2, columns=[Real(-4, 4), Real()], random_state=0).fit(X),
    "KDE": KernelDensity(bandwidth=0.2).fit(X),
}
points = np.stack(np.meshgrid(np.linspace(-5, 5, 201), np.linspace(-2.5, 2.5, 101)), axis=-1)
beyond = np.abs(points[..., 0]) > 4
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    density = np.exp(model.score_samples(points.reshape(-1, 2))).reshape(101, 201)
    print(f"{name:<7} beyond the edges {density[beyond].sum() * 0.05**2:.5f}")
    ax.imshow(density, extent=(-5, 5, -2.5, 2.5), origin="lower", aspect="auto", vmin=0)
    ax.vlines((-4, 4), -2.5, 2.5, color="white", lw=1, ls="--")
    ax.set_title(name, color=COLORS[name], weight="bold", loc="left")
    ax.set(xlabel="x₁", xticks=(-4, 0, 4))
_ = axes[0].set(ylabel="x₂")
