r"""
A network with a Born density for its head
==========================================

A network that predicts one number says nothing of how sure it is, and where several answers are
right it predicts their mean, which is none of them. Here its last layer is
:class:`~qaffde.nn.ConditionalBorn`: a whole density for each input, normalized exactly at every
step of the training.

The rows are a classical example (Bishop, 1994): y is uniform on [0, 1], and
:math:`x = y + 0.3 \,\sin(2\pi y) + \text{noise}`. From y to x there is one answer, from x back to
y there are up to three.
"""

import math
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import PowerNorm
from torch import Tensor, nn

from qaffde import Real
from qaffde.nn import ConditionalBorn
from qaffde.training import LoopConfig, train

NOISE = 0.08
generator = torch.Generator().manual_seed(0)


def curve(y: Tensor) -> Tensor:
    """Mean of x given y."""
    return y + 0.3 * torch.sin(2 * math.pi * y)


def draw(n: int) -> tuple[Tensor, Tensor]:
    """Pairs of x and y, both of shape (n, 1)."""
    y = torch.rand(n, 1, dtype=torch.float64, generator=generator)
    noise = torch.randn(n, 1, dtype=torch.float64, generator=generator)
    return curve(y) + NOISE * noise, y


def mlp(n_outputs: int) -> nn.Sequential:
    """A network of one input and two hidden layers."""
    return nn.Sequential(
        nn.Linear(1, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, n_outputs)
    ).double()


x, y = draw(5000)

# %%
# The head
# --------
# :class:`~qaffde.nn.ConditionalBorn` is the last layer: from what the network puts out to an
# object like those of ``torch.distributions``. The target says that y lies between 0 and 1.


class BornHead(nn.Module):
    """Born density of y given x."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.layer = mlp(64), ConditionalBorn(64, target=Real(0, 1)).double()

    def at(self, x: Tensor) -> Any:
        """Densities of y at inputs (n, 1)."""
        return self.layer(self.network(x))

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-densities of shape (n,) of y, each given its x."""
        return self.at(x).log_prob(y[:, 0])


# %%
# Training
# --------
# The loss is the mean negative log-likelihood, and all of it learns together.
# :func:`qaffde.training.train` is one loop of many that would do; it keeps the state that was best
# on held-out rows. Beside it, the same network with a Gaussian for a head: a mean and a spread for
# each input.


class GaussianHead(nn.Module):
    """Normal density of y given x."""

    def __init__(self) -> None:
        super().__init__()
        self.network = mlp(2)

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-densities of shape (n,) of y, each given its x."""
        mean, log_scale = self.network(x).unbind(1)
        return torch.distributions.Normal(mean, log_scale.exp()).log_prob(y[:, 0])


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean negative log-likelihood."""
    return -model.log_prob(x, y).mean()


torch.manual_seed(0)
models = {"Born": BornHead(), "Gaussian": GaussianHead()}
config = LoopConfig(max_steps=1000, batch_size=250, learning_rate=1e-2, eval_every=100)
for model in models.values():
    train(model, loss, (x[:4000], y[:4000]), (x[4000:], y[4000:]), config, generator)

# %%
# The truth is known: by Bayes' rule the density of y given x is that of the noise, divided by its
# integral over y.

grid = torch.linspace(1e-6, 1 - 1e-6, 401, dtype=torch.float64)[:, None]


def true_log_prob(x: Tensor, y: Tensor) -> Tensor:
    """Log of the true density of y given x."""
    noise = torch.distributions.Normal(0.0, NOISE)
    mass = torch.trapezoid(noise.log_prob(x - curve(grid).T).exp(), grid[:, 0])
    return noise.log_prob(x - curve(y))[:, 0] - mass.log()


with torch.no_grad():
    test = draw(10_000)
    truth = true_log_prob(*test).mean()
    print(f"truth     log-likelihood {truth:.3f}")
    for name, model in models.items():
        score = model.log_prob(*test).mean()
        print(f"{name:<9} log-likelihood {score:.3f}, {truth - score:.3f} nats short of the truth")

# %%
# What it learned
# ---------------
# Densities of y from bottom to top, one for each x, all on the scale of the truth (colors follow
# the square root).

across = torch.linspace(-0.1, 1.1, 301, dtype=torch.float64)
pairs = torch.stack(torch.meshgrid(across, grid[:, 0], indexing="xy"), -1).reshape(-1, 1, 2)
figure, axes = plt.subplots(
    1, 3, figsize=(9.5, 3.6), sharex=True, sharey=True, layout="constrained"
)
log_probs = {"truth": true_log_prob} | {name: model.log_prob for name, model in models.items()}
with torch.no_grad():
    images = {name: f(*pairs.unbind(2)).exp().reshape(401, 301) for name, f in log_probs.items()}
scale = PowerNorm(0.5, vmin=0, vmax=float(images["truth"].quantile(0.999)))
for ax, (name, image) in zip(axes, images.items(), strict=True):
    ax.imshow(image, origin="lower", extent=(-0.1, 1.1, 0, 1), aspect="auto", norm=scale)
    ax.set_title(name, loc="left", weight="bold")
    ax.set(xlabel="x")
_ = axes[0].set(ylabel="y")

# %%
# At one x the head is a density like any other: it integrates to one, and has exact draws.

figure, axes = plt.subplots(1, 3, figsize=(9.5, 3), sharex=True, sharey=True, layout="constrained")
for ax, value in zip(axes, (0.2, 0.5, 0.9), strict=True):
    given = torch.full_like(grid, value)
    with torch.no_grad():
        density = models["Born"].at(given[:1])
        draws = density.sample((2000,))
        p = density.log_prob(grid[:, 0]).exp()
        gaussian = models["Gaussian"].log_prob(given, grid).exp()
    ax.hist(draws[:, 0], bins=50, range=(0, 1), density=True, color="0.87", label="draws")
    ax.plot(grid, true_log_prob(given, grid).exp(), "k--", lw=1, label="truth")
    ax.plot(grid, p, color="#0072B2", lw=2, label="Born head")
    ax.plot(grid, gaussian, color="#D55E00", lw=1.5, label="Gaussian head")
    ax.set_title(f"x = {value}", loc="left")
    ax.set(xlabel="y")
    ax.spines[["top", "right"]].set_visible(False)
_ = axes[0].legend(frameon=False, fontsize=9)
