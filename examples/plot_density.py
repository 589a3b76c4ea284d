"""
A first density
===============

Fit a density to rows, see what was chosen, look at it, and compare it with the truth.

The rows are drawn from a spiral whose density is known, so that there is a truth to compare with.
The estimator never sees it: it gets the rows, and nothing else.
"""

import matplotlib.pyplot as plt
import numpy as np

from qaffde import QAFFDE
from qaffde.metrics import excess_nll, excess_nll_standard_error, spearman
from qaffde.plot import DensityDisplay
from qaffde.targets import get_target

spiral = get_target("swiss_roll")
X = spiral.sample(2000, random_state=0)
model = QAFFDE(random_state=0).fit(X)

# %%
# Nothing had to be tuned. The likelihood of held-out rows has chosen the base measure and a
# bandwidth for each column:

print(f"base measure    {model.base_measure_}")
print(f"bandwidth       {model.bandwidth_.round(2)}")
print(f"features, rank  {model.n_fourier_features_}, {model.rank_}")

# %%
# ``score_samples`` is the log-density, and :class:`~qaffde.plot.DensityDisplay` draws it. The
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

test = spiral.sample(20_000, random_state=1)
truth, estimate = spiral.log_prob(test), model.score_samples(test)
error = excess_nll_standard_error(truth, estimate)
print(f"excess    {excess_nll(truth, estimate):.4f} ± {error:.4f} nats")
print(f"Spearman  {spearman(truth, estimate):.4f}")

# %%
# Draws from the density are exact and independent. Here they are beside fresh rows of the truth.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(9.5, 4.4), sharex=True, sharey=True, layout="constrained"
)
left.scatter(*model.sample(2000, random_state=0).T, s=3, color="#0072B2", lw=0)
left.set_title("drawn from the estimate", loc="left")
right.scatter(*test[:2000].T, s=3, color="0.3", lw=0)
right.set_title("drawn from the truth", loc="left")
