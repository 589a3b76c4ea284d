"""
A first density
===============

Fit a density to rows, see what was chosen, look at it, and compare it with the truth.

The rows are drawn from a spiral with Gaussian noise. Its density is the mean of Gaussians along
the spiral, a kernel density estimate on the curve itself: there is a truth to compare with.
The estimator never sees it: it gets the rows, and nothing else.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr
from sklearn.neighbors import KernelDensity

from qaffde import QAFFDE, DensityDisplay

NOISE = 0.4
rng = np.random.default_rng(0)


def spiral(t: np.ndarray) -> np.ndarray:
    """Points (n, 2) of the curve at angles between 0 and 2π."""
    return np.stack([t * np.sin(2 * t), t * np.cos(2 * t)], axis=1)


def draw(n: int) -> np.ndarray:
    """Rows (n, 2): points of the curve with noise."""
    return rng.normal(spiral(rng.uniform(0, 2 * np.pi, n)), NOISE)


X = draw(2000)
model = QAFFDE(random_state=0).fit(X)

# %%
# Nothing had to be tuned. The likelihood of held-out rows has chosen the base measure and a
# bandwidth for each column:

print(f"base measure    {model.base_measure_}")
print(f"bandwidth       {model.bandwidth_.round(2)}")
print(f"features, rank  {model.n_fourier_features_}, {model.rank_}")

# %%
# ``score_samples`` is the log-density, and :class:`~qaffde.DensityDisplay` draws it. The
# lines hold half and nine tenths of its mass.

_ = DensityDisplay.from_estimator(model, X)

# %%
# Is it a density? It integrates to one in closed form. A sum over a fine grid agrees:

x, y = np.linspace(-20, 20, 401), np.linspace(-20, 20, 401)
grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
print(f"mass by a sum over a grid  {np.exp(model.score_samples(grid)).sum() * 0.1**2:.6f}")

# %%
# And the mass of any box is a method, whose ends may be infinite:

positive = model.probability([0, 0], [np.inf, np.inf])
print(f"both columns positive: {positive:.3f}, of the rows {np.mean((X > 0).all(axis=1)):.3f}")

# %%
# Is it a good one? Fresh rows tell. The excess is what the log-likelihood lacks of that of the
# true density, in nats for each row: it estimates the Kullback–Leibler divergence, and no other
# density than the truth has zero.

test = draw(20_000)
curve = spiral(2 * np.pi * (np.arange(1000) + 0.5) / 1000)
truth = KernelDensity(bandwidth=NOISE).fit(curve).score_samples(test)
estimate = model.score_samples(test)
excess = truth - estimate
print(f"excess    {excess.mean():.4f} ± {excess.std() / np.sqrt(len(test)):.4f} nats")
print(f"Spearman  {spearmanr(truth, estimate).statistic:.4f}")

# %%
# Draws from the density are exact and independent. Here they are beside fresh rows of the truth.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(9.5, 4.4), sharex=True, sharey=True, layout="constrained"
)
left.scatter(*model.sample(2000, random_state=0).T, s=3, color="#0072B2", lw=0)
left.set_title("drawn from the estimate", loc="left")
right.scatter(*test[:2000].T, s=3, color="0.3", lw=0)
right.set_title("drawn from the truth", loc="left")
