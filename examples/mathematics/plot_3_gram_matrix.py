r"""
The Gram matrix and the normalizer
==================================

What two features have in common under a base measure is a closed form. It makes the features
orthonormal, and the square of their length a density.
"""

import matplotlib.pyplot as plt
import torch

from qaffde import functional as QF
from qaffde.nn import BoxMeasure, FourierFeatures, GaussianMeasure

h = torch.tensor([0.4], dtype=torch.float64)
one = torch.ones_like(h)
features = FourierFeatures.draw("lattice", 21, h, period=8 * one)
measures = {
    "box [-2, 2]": BoxMeasure(-2 * one, 2 * one),
    "Gaussian": GaussianMeasure(one, torch.zeros(1, 1, dtype=h.dtype), one[:, None, None]),
    "mixture of two": GaussianMeasure(
        one.new_tensor([0.5, 0.5]), one.new_tensor([[-1.5], [1.5]]), one.new_full((2, 1, 1), 0.16)
    ),
}

# %%
# :math:`G_{ij} = \int \phi_i \phi_j \, d\mu` needs the characteristic function of μ at sums and
# differences of frequencies, and nothing else. Above the measures, below their Gram matrices. A
# sum over 4000 cells agrees, as far as a sum can.

x = (torch.arange(4000, dtype=h.dtype)[:, None] + 0.5) * 0.004 - 8  # middles of 4000 cells
figure, axes = plt.subplots(
    2, 3, figsize=(9.5, 5), height_ratios=(1, 2), sharey="row", layout="constrained"
)
for (top, bottom), (name, measure) in zip(axes.T, measures.items(), strict=True):
    m = measure.log_density(x).exp()
    G = measure.gram(features)
    summed = features(x).T @ (features(x) * m[:, None]) * 0.004
    print(f"{name:<15} largest difference from the sum {(G - summed).abs().max():.1e}")
    top.fill_between(x[:, 0], m, color="#0072B2", alpha=0.35, lw=0)
    top.set_title(name, loc="left")
    top.set(xlim=(-4, 4), ylim=(0, 0.62))
    top.spines[["top", "right"]].set_visible(False)
    scale = G.diag().rsqrt()
    bottom.imshow(scale[:, None] * G * scale, cmap="RdBu_r", vmin=-1, vmax=1)
    bottom.set(xticks=[], yticks=[])
axes[0, 0].set(ylabel="m(x)")
_ = axes[1, 0].set(ylabel="G, scaled")

# %%
# What one row adds to the density is :math:`m(x) \lvert \phi(x)^\top G^{-1/2} \phi(y) \rvert^2`.
# In the middle of a box that is the Gaussian kernel around y. Near the edge it bends, and its mass
# stays one: that is why nothing bleeds over.

box = measures["box [-2, 2]"]
U, lam = QF.range_eigenpairs(box.gram(features), tolerance=1e-6)
inside = torch.linspace(-2, 2, 2001, dtype=h.dtype)[:, None]
figure, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
for y, color in ((0.0, "#009E73"), (-1.0, "#56B4E9"), (-1.7, "#0072B2"), (-2.0, "#D55E00")):
    point = h.new_tensor([[y]])
    bump = 0.25 * ((features(inside) @ U * lam.rsqrt()) @ (features(point) @ U).T)[:, 0].square()
    mass = torch.trapezoid(bump, inside[:, 0])
    ax.plot(inside, bump, color=color, lw=2, label=f"row at {y:g}: mass {mass:.3f}")
middle = QF.log_gaussian_density(inside, torch.zeros_like(h), (h / 2**0.5).diag()).exp()
ax.plot(inside, middle, "k--", lw=1, label="Gaussian of width h/√2")
ax.set(xlabel="x", ylabel="what the row adds", xlim=(-2.4, 2.4))
ax.vlines((-2, 2), 0, ax.get_ylim()[1], color="0.6", lw=1)
ax.legend(frameon=False, loc="upper right", bbox_to_anchor=(0.9, 1))
ax.spines[["top", "right"]].set_visible(False)
