r"""
The density matrix
==================

The mean of :math:`\phi \phi^\top` over the rows holds all that the estimate knows of them. A few
of its eigenvectors do the work.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from qaffde import QAFFDE
from qaffde import functional as QF
from qaffde.nn import FourierFeatures

rng = np.random.default_rng(0)
rows = np.where(rng.random(2000) < 0.6, rng.normal(-1.5, 0.5, 2000), rng.normal(1.5, 0.8, 2000))
X = torch.as_tensor(rows)[:, None]
h = torch.tensor([0.4], dtype=torch.float64)

# %%
# 33 features on a lattice of frequencies, cosines first, then sines, and their density matrix:

features = FourierFeatures.draw("lattice", 33, h, period=torch.full_like(h, 12.0))
phi = features(X)
rho = phi.T @ phi / len(X)
lam, V = QF.leading_eigenpairs(rho, len(rho))
x = torch.linspace(-5, 5, 401, dtype=torch.float64)[:, None]
waves = features(x) @ V.T * lam.sqrt()  # (401, D): Λ^{1/2} V φ(x)

figure, axes = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained")
limit = float(rho.abs().max())
image = axes[0].imshow(rho, cmap="RdBu_r", vmin=-limit, vmax=limit)
figure.colorbar(image, ax=axes[0], shrink=0.8)
axes[0].set_title("ρ", loc="left")
axes[1].semilogy(np.arange(1, 31), lam[:30], "o-", color="#0072B2", ms=4)
axes[1].set_title("its eigenvalues", loc="left")
axes[1].set(xlabel="rank")
for k, color in enumerate(plt.cm.viridis(np.linspace(0, 0.85, 4))):
    axes[2].plot(x, waves[:, k].square(), color=color, lw=1.8, label=f"{k + 1}")
axes[2].set_title("what the first four add", loc="left")
axes[2].legend(frameon=False)
for ax in axes[1:]:
    ax.spines[["top", "right"]].set_visible(False)
kept = (lam.cumsum(0) / lam.sum() < 0.9999).sum() + 1
print(f"{kept} of {len(lam)} eigenvectors hold 99.99 % of the trace")

# %%
# The paper divides :math:`\lVert \Lambda^{1/2} V \phi(x) \rVert^2` by the constant
# :math:`M_\gamma`, the mass of a kernel. With random frequencies that has the floor of the figure
# before, and no integral over the line: where there are no rows, it is not small, and it goes on
# for ever. With a base measure it is a density.

wide = np.linspace(-12, 12, 2401)
truth = 0.6 * np.exp(-0.5 * ((wide + 1.5) / 0.5) ** 2) / 0.5
truth = (truth + 0.4 * np.exp(-0.5 * ((wide - 1.5) / 0.8) ** 2) / 0.8) / np.sqrt(2 * np.pi)
figure, ax = plt.subplots(figsize=(9, 3.2), layout="constrained")
ax.fill_between(wide, truth, color="0.87", lw=0, label="truth")
for base, color in (("kernel", "#D55E00"), ("gaussian", "#0072B2")):
    model = QAFFDE(100, bandwidth=0.3, features="random", base_measure=base, random_state=0)
    density = np.exp(model.fit(rows[:, None]).score_samples(wide[:, None]))
    mass = np.trapezoid(density, wide)
    label = "divided by a constant" if base == "kernel" else "with a Gaussian base"
    ax.plot(wide, density, color=color, lw=1.5, label=f"{label}: mass {mass:.2f} in view")
ax.set(xlabel="x", ylabel="density", xlim=(-12, 12))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
