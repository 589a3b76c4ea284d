r"""
Base measures
=============

The density is a base measure times a squared trigonometric form. The base says where the density
can be, the form what it looks like there.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from qaffde import QAFFDE
from qaffde.nn import find_born

PARTS = np.array([(0.45, -3.0, 0.25), (0.35, 0.0, 0.6), (0.2, 4.0, 0.4)])  # weight, mean, spread
rng = np.random.default_rng(0)


def draw(n: int) -> np.ndarray:
    """Rows of a mixture of three Gaussians."""
    part = rng.choice(3, n, p=PARTS[:, 0])
    return rng.normal(PARTS[part, 1], PARTS[part, 2])[:, None]


def log_truth(X: np.ndarray) -> np.ndarray:
    """Log-density of the mixture."""
    weight, mean, spread = PARTS.T
    terms = weight * np.exp(-0.5 * ((X - mean) / spread) ** 2) / (np.sqrt(2 * np.pi) * spread)
    return np.log(terms.sum(axis=1))


# %%
# The same rows on three bases, each with the bandwidth that suits it by held-out likelihood. In
# gray the base m(x), dashed the form that multiplies it, in blue their product. On the box the
# form does all the work; on the mixture, which is close to the density already, it only corrects.
# (A lattice of frequencies, the default in one column, repeats itself after a period, and a
# Gaussian reaches beyond it. Sobol points do not repeat.)

rows, test = draw(3000), draw(10_000)
x = np.linspace(-6, 6.5, 1251)[:, None]
figure, axes = plt.subplots(3, 1, figsize=(9, 7), sharex=True, layout="constrained")
for ax, base in zip(axes, ("box", "gaussian", "mixture"), strict=True):
    model = QAFFDE(base_measure=base, features="sobol", random_state=0).fit(rows)
    plan, born = model.plan_, find_born(model.density_)
    z = (torch.as_tensor(x) - plan.location) / plan.scale
    m = (born.measure.log_density(z).exp() / plan.scale).numpy()
    density = np.exp(model.score_samples(x))
    form = np.divide(density, m, out=np.full_like(m, np.nan), where=m > 1e-4)
    excess = np.mean(log_truth(test) - model.score_samples(test))
    ax.fill_between(x[:, 0], m, color="0.85", lw=0, label="base m(x)")
    ax.plot(x, density, color="#0072B2", lw=2, label="density")
    ax.set_title(
        f"{base}: bandwidth {model.bandwidth_[0]:.2f}, rank {model.rank_}, "
        f"{excess:.4f} nats from the truth",
        loc="left",
    )
    ax.set(ylabel="density", ylim=(0, 0.85))
    ax.spines[["top"]].set_visible(False)
    twin = ax.twinx()
    twin.plot(x, form, "--", color="#D55E00", lw=1.2)
    twin.set_ylim(0, 1.05 * np.nanmax(form))
    twin.set_ylabel("form", color="#D55E00")
    twin.spines[["top"]].set_visible(False)
axes[0].legend(frameon=False, loc="upper right")
_ = axes[-1].set(xlabel="x")
