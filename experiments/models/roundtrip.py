"""RoundTrip: two generators, two discriminators and what they learn from each other."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from experiments.models.roundtrip_density import INTEGRATIONS, RoundTripDensity
from experiments.models.roundtrip_networks import Dense, Layered, Painter, Viewer
from qaffde.baselines.base import FlowDensity, TrainedEstimator
from qaffde.parameters import check_choice, check_count
from qaffde.training import LoopConfig, TrainingConfig
from qaffde.training.loop import Loss, eager

MAX_LATENT = 100
MAX_HELD_OUT = 1024
"""Rows to choose σ and the best networks by: each costs as many images as there are draws."""

Networks = tuple[Layered, nn.Module, nn.Module]
"""G, H and D_x."""


class RoundTripLoss:
    r"""What RoundTrip minimises, as one loss for one loop.

    .. math:: \begin{aligned}
        L_{G,H} &= (D_x(G(z)) - 1)^2 + (D_z(H(x)) - 1)^2
            + \alpha \lVert x - G(H(x)) \rVert^2 / d + \beta \lVert z - H(G(z)) \rVert^2 / m, \\
        L_D &= \tfrac12 \bigl[ (D_x(x) - 1)^2 + D_x(G(z))^2 + (D_z(z) - 1)^2 + D_z(H(x))^2 \bigr].
        \end{aligned}

    The least-squares losses of the paper. Gradients of :math:`L_{G,H}` reach the generators
    alone (the discriminators' parameters are detached there), those of :math:`L_D` the
    discriminators alone (its G(z) and H(x) are detached), so that a step of Adam on the sum is a
    step of two optimisers at once.

    In evaluation it is the negative log-likelihood of the density with the best σ.

    Parameters
    ----------
    generator : torch.Generator
        Source of z; that of the loop, which a checkpoint holds.
    """

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def __call__(
        self, model: RoundTripDensity, x: Tensor, weight: Tensor, context: Tensor | None = None
    ) -> Tensor:
        """Weighted mean over a batch x of shape (n, d)."""
        if not model.training:
            return model.choose_noise(x, weight, context)
        model.follow()
        c = model.given(x, context)
        z = torch.randn(len(x), model.n_latent, generator=self.generator, dtype=x.dtype)
        fake_x, fake_z = model.generate(z, c), model.encode(x, c)
        alpha, beta = model.cycle_weights
        rows = (
            alpha * (x - model.generate(fake_z, c)).square().mean(1)
            + beta * (z - model.encode(fake_x, c)).square().mean(1)
            + _deceive(model.judge_x, fake_x, c)
            + _deceive(model.judge_z, fake_z, c)
            + _discern(model.judge_x, x, fake_x, c)
            + _discern(model.judge_z, z, fake_z, c)
        )  # (n,)
        return (weight * rows).mean()


def _deceive(judge: nn.Module, fake: Tensor, context: Tensor) -> Tensor:
    """Loss of shape (n,) of who made `fake`; the judge learns nothing from it."""
    frozen = {name: p.detach() for name, p in judge.named_parameters()}
    return (functional_call(judge, frozen, (fake, context)) - 1).square()[:, 0]


def _discern(judge: nn.Module, real: Tensor, fake: Tensor, context: Tensor) -> Tensor:
    """Loss of shape (n,) of the judge; who made `fake` learns nothing from it."""
    verdict = judge(torch.cat([real, fake.detach()]), torch.cat([context, context]))[:, 0]
    on_real, on_fake = verdict.chunk(2)
    return 0.5 * ((on_real - 1).square() + on_fake.square())


@dataclass(eq=False, repr=False)
class RoundTrip(TrainedEstimator):
    r"""RoundTrip (Liu et al., 2021): a density from two generators that undo each other.

    G takes normal z to data, H data to z; discriminators and cycle losses train both
    (``RoundTripLoss``). With :math:`p(x \mid z) = N(G(z), \sigma^2 I)` the density is an
    integral over z, by linearisation, Laplace's approximation or importance sampling
    (``RoundTripDensity``). Linearised, it is of mass one
    only as far as G is straight within σ and H undoes it (on star_eight with α = β = .3 it was .43
    nats above the truth in the mean); importance sampling errs downwards, if at all.

    The networks kept, and σ, are those of the best held-out likelihood; where fewer than twenty
    rows leave nothing to hold out, the last ones and σ = .1 standard deviations.

    Parameters
    ----------
    n_latent : int or None, default=None
        Columns m of z. None is d up to three columns, and half of d beyond, at most 100.
    hidden_size : int, default=64
        Width of the hidden layers, or channels of the convolutions.
    n_hidden : int, default=3
        Number of hidden layers of dense networks.
    architecture : {"dense", "conv"}, default="dense"
        Kind of the networks that see or make x. "conv" needs `image_shape`.
    image_shape : tuple of int, optional
        (H, W) or (C, H, W) of the image in each row.
    integration : {"importance", "linear", "laplace"}, default="importance"
        How the density is integrated over z.
    n_draws : int, default=100
        Draws of importance sampling for each row.
    cycle_x, cycle_z : float, default=1.0
        Weights α and β of the cycle losses. The authors' code has 10, with which generators of
        this size had not found the modes of star_eight after 1700 steps, in one run.
    training, time_limit, verbose, random_state
        As in :class:`qaffde.baselines.TrainedEstimator`.

    References
    ----------
    Liu, Xu, Jiang and Wong, "Density estimation using deep generative neural networks", PNAS 2021.
    """

    n_latent: int | None = None
    hidden_size: int = 64
    n_hidden: int = 3
    architecture: str = "dense"
    image_shape: Sequence[int] | None = None
    integration: str = "importance"
    n_draws: int = 100
    cycle_x: float = 1.0
    cycle_z: float = 1.0
    default_training = TrainingConfig(
        max_steps=8000, batch_size=256, learning_rate=1e-3, clip_norm=None, patience=20
    )
    _max_held_out = MAX_HELD_OUT  # within one batch of the loop, for one σ

    def _loss(self, generator: Generator) -> Loss:
        return RoundTripLoss(generator)

    def _optimizer(
        self, parameters: Iterable[nn.Parameter], config: LoopConfig
    ) -> torch.optim.Optimizer:
        """Adam with the short memory of adversarial training, β = (.5, .9), as the authors."""
        rates: Any = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
        return eager(torch.optim.AdamW)(parameters, betas=(0.5, 0.9), foreach=True, **rates)

    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        self._check_parameters()
        m = default_latent(n_dims) if self.n_latent is None else self.n_latent
        make = self._dense if self.architecture == "dense" else self._convolutional
        generate, encode, judge_x = make(n_dims, m, n_context)
        return RoundTripDensity(
            generate,
            encode,
            judge_x,
            judge_z=Dense(m, n_context, 1, self._hidden),
            n_dims=n_dims,
            n_latent=m,
            cycle_weights=(self.cycle_x, self.cycle_z),
            integration=self.integration,
            n_draws=self.n_draws,
        )

    def _dense(self, d: int, m: int, k: int) -> Networks:
        hidden = self._hidden
        return Dense(m, k, d, hidden), Dense(d, k, m, hidden), Dense(d, k, 1, hidden)

    def _convolutional(self, d: int, m: int, k: int) -> Networks:
        shape, width = image_shape(self.image_shape, d), self.hidden_size
        return Painter(m, k, shape, width), Viewer(shape, k, m, width), Viewer(shape, k, 1, width)

    @property
    def _hidden(self) -> list[int]:
        return [self.hidden_size] * self.n_hidden

    def _check_parameters(self) -> None:
        for name in ("hidden_size", "n_hidden", "n_draws"):
            check_count(name, getattr(self, name))
        if self.n_latent is not None:
            check_count("n_latent", self.n_latent)
        check_choice("architecture", self.architecture, ("dense", "conv"))
        check_choice("integration", self.integration, INTEGRATIONS)
        check_weight("cycle_x", self.cycle_x)
        check_weight("cycle_z", self.cycle_z)


def default_latent(n_dims: int) -> int:
    """Columns of z for d columns: all of up to three, then half of them, at most 100.

    Examples
    --------
    >>> [default_latent(d) for d in (1, 2, 3, 6, 64, 784)]
    [1, 2, 3, 3, 32, 100]
    """
    return min(max(min(n_dims, 3), n_dims // 2), MAX_LATENT)


def image_shape(shape: Any, n_dims: int) -> tuple[int, int, int]:
    """The shape as (C, H, W), if that is what each row holds.

    Examples
    --------
    >>> image_shape((8, 8), 64)
    (1, 8, 8)
    """
    sides = tuple(shape) if isinstance(shape, Sequence) else ()
    if len(sides) not in (2, 3) or math.prod(sides) != n_dims:
        raise ValueError(
            f"image_shape={shape!r} must be (H, W) or (C, H, W) with a product of {n_dims}, the "
            'number of columns; set it so, or take architecture="dense"'
        )
    return (1, *sides)[-3:]


def check_weight(name: str, value: Any) -> None:
    """Reject anything but a finite number of at least 0."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and 0 <= value < math.inf):
        raise ValueError(f"{name}={value!r} must be a number of at least 0")
