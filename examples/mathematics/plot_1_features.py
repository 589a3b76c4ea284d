r"""
Fourier features and the kernel
===============================

Cosines of random frequencies, whose squared inner product is a Gaussian kernel: exact in the mean,
and with an error of order :math:`1/\sqrt D` around it.
"""

import matplotlib.pyplot as plt
import torch

from qaffde import functional as QF
from qaffde.nn import FourierFeatures

h = torch.ones(1)
x = torch.linspace(-6, 6, 601)[:, None]

# %%
# A feature is a wave, :math:`\phi_i(x) = a_i \cos(w_i x + b_i)`. Frequencies are drawn from a
# normal law of width :math:`1/(\sqrt2 h)`, so that narrow kernels have fast waves.

features = FourierFeatures.draw("random", 5, h)
figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
for wave, color in zip(features(x).T, plt.cm.viridis(torch.linspace(0, 0.85, 5)), strict=True):
    ax.plot(x, wave, color=color, lw=1.5)
ax.set(xlabel="x", ylabel="φᵢ(x)", xlim=(-6, 6))
ax.spines[["top", "right"]].set_visible(False)

# %%
# The inner product with the features of one point, here zero, is a mean over waves. Where all of
# them are in step it is one, far away they cancel. Its square approximates the kernel
# :math:`k_\gamma` of bandwidth h.

kernel = QF.gaussian_kernel(x, torch.zeros(1, 1), h)[:, 0]
figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.8), sharey=True, layout="constrained")
for ax, n_features in zip(axes, (16, 128, 1024), strict=True):
    for seed, shade in enumerate(("#0072B2", "#56B4E9", "#009E73")):
        generator = torch.Generator().manual_seed(seed)
        phi = FourierFeatures.draw("random", n_features, h, generator=generator)
        square = (phi(x) @ phi(torch.zeros(1, 1)).T).square()
        ax.plot(x, square, color=shade, lw=1.2)
    ax.plot(x, kernel, "k--", lw=1)
    ax.set_title(f"D = {n_features}", loc="left")
    ax.set(xlabel="x", xlim=(-6, 6))
    ax.spines[["top", "right"]].set_visible(False)
_ = axes[0].set(ylabel="⟨φ(x), φ(0)⟩²")

# %%
# A square is never negative, so the noise does not cancel in the mean: far from the point it adds
# 1/D.

far = torch.tensor([[0.0], [50.0]])
for n_features in (16, 128, 1024):
    squares = []
    for seed in range(500):
        generator = torch.Generator().manual_seed(seed)
        phi = FourierFeatures.draw("random", n_features, h, generator=generator)(far)
        squares.append((phi[0] @ phi[1]).square())
    mean = torch.stack(squares).mean()
    print(f"D = {n_features:<5} mean of the square {mean:.5f}, 1/D {1 / n_features:.5f}")
