"""RoundTrip for images of several classes, convolutional, with Bayes' rule for the label."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot

from experiments.images.flows import BayesImageClassifier
from experiments.images.pixels import LEVELS
from experiments.models.roundtrip import RoundTrip, image_shape
from experiments.models.roundtrip_density import RoundTripDensity
from experiments.models.roundtrip_networks import Dense, EachClass, Painter, Viewer, carry
from qaffde.parameters import check_choice, check_count
from qaffde.training import History, TrainingConfig, hold_out
from qaffde.training.noise import Noise

MAX_HELD_OUT = 256
"""Images to choose σ and the best networks by: each costs a Jacobian."""


class ClassPainter(Painter):
    """Generator whose first layer is a class's own, and whose convolutions are shared.

    It takes latent columns, classes, and what else a ``Painter`` takes.

    Examples
    --------
    >>> ClassPainter(4, 3, (1, 8, 8), 16)(torch.zeros(5, 4), torch.eye(3)[[0, 1, 2, 0, 1]]).shape
    torch.Size([5, 64])
    """

    def __init__(self, n_latent: int, n_classes: int, *others: Any, **options: Any) -> None:
        super().__init__(n_latent * n_classes, n_classes, *others, **options)

    def forward(self, z: Tensor, context: Tensor) -> Tensor:
        """Images of shape (n, C·H·W) of one-hot classes (n, K)."""
        return super().forward(_routed(z, context), context)

    def push(self, z: Tensor, context: Tensor, tangents: Tensor) -> Tensor:
        """Derivatives (n, m, C·H·W) at z along tangents (n, m, n_latent), of one-hot classes.

        Tangents meet no weights but their class's own.
        """
        first, *rest = self.layers
        weight: Tensor = first.weight  # type: ignore[assignment]
        own = weight[:, : -context.shape[1]].T.unflatten(0, (-1, z.shape[1]))  # (K, n_latent, ·)
        x = first(torch.cat([_routed(z, context), context], 1))
        return carry(rest, x, tangents @ own[context.argmax(1)])


class ClassViewer(nn.Module):
    """Encoder or judge whose last layer is a class's own, and whose convolutions are shared.

    It takes the shape of images, classes, outputs, and what else a ``Viewer`` takes.

    Examples
    --------
    >>> ClassViewer((1, 8, 8), 3, 4, 16)(torch.zeros(5, 64), torch.eye(3)[[0, 1, 2, 0, 1]]).shape
    torch.Size([5, 4])
    """

    def __init__(
        self, shape: tuple[int, int, int], n_classes: int, n_out: int, *others: Any, **more: Any
    ) -> None:
        super().__init__()
        self.viewer = Viewer(shape, 0, n_classes * n_out, *others, **more)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Output of shape (n, n_out) of one-hot classes (n, K)."""
        seen = self.viewer(x, x[:, :0]).unflatten(1, (context.shape[1], -1))
        return (seen * context[..., None]).sum(1)


class BlindViewer(Viewer):
    """Encoder that is not told the class.

    Examples
    --------
    >>> BlindViewer((1, 8, 8), 0, 4, 16)(torch.zeros(5, 64), torch.eye(3)[[0, 1, 2, 0, 1]]).shape
    torch.Size([5, 4])
    """

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Output of shape (n, n_out)."""
        return super().forward(x, x[:, :0])


class ImageDensity(nn.Module):
    """Log-density of bytes given classes, by a density of pixels in units of one size."""

    location: Tensor
    scale: Tensor

    def __init__(
        self, density: RoundTripDensity, location: Tensor, scale: Tensor, n_classes: int
    ) -> None:
        super().__init__()
        self.density, self.n_classes = density, n_classes
        self.register_buffer("location", location)
        self.register_buffer("scale", scale)

    def forward(self, levels: Tensor, y: Tensor) -> Tensor:
        """Log-densities of shape (n,) of bytes (n, d) of classes (n,), as of pixels in [0, 1]."""
        z = in_units(levels, self.location, self.scale)
        log_p = self.density.log_prob(z, one_hot(y, self.n_classes).to(z))
        return log_p - z.shape[1] * self.scale.log()


@dataclass(eq=False, repr=False)
class ImageRoundTrip(BayesImageClassifier):
    r"""RoundTrip (Liu et al., 2021) with convolutions, conditional on the class.

    Generator and encoder have a linear layer for each class and share their convolutions, or are
    each class's own, so that a generator given the wrong class cannot paint what it sees. Or the
    encoder is not told the class, as in the authors' code, and one z is painted as each class.
    Pixels are centred and scaled by one number each; the density needs no noise: it is that of
    the linearised generator or Laplace's approximation, as of
    :class:`~experiments.models.roundtrip.RoundTrip`.

    Parameters
    ----------
    image_shape : tuple of int
        (H, W) or (C, H, W).
    n_latent : int, default=20
        Columns of z.
    n_channels : int, default=32
        Of half-sized images; twice as many of quarter-sized ones.
    hidden_size : int or None, default=None
        Width of a dense layer between z and the convolutions, in generator and encoder, as the
        authors' networks have it; None for none.
    shared : bool, default=True
        Whether classes share their convolutions. Networks of each class's own learn from fewer
        images.
    blind : bool, default=False
        Whether the encoder sees the image alone.
    pooled : bool, default=False
        Whether the encoder halves images by maxima after convolutions of 5 × 5, as LeNet does,
        and has a third convolution, instead of two with strides. On MNIST .978 of 5000 judged
        images were right after 3000 steps instead of .975; a step takes twice as long.
    bounded : bool, default=False
        Whether painted pixels stay in [0, 1], by a logistic curve, as in the authors' code. Where
        most are black or white, images are met more closely: on MNIST the squared distance was a
        sixth less after as many steps.
    integration : {"linear", "laplace"}, default="linear"
        How the density is integrated over z.
    mode_steps : int, default=0
        Steps from what the encoder says towards the most likely z, of "laplace"; each costs as
        much as the density without them. On MNIST, with 10 latent columns and an encoder that is
        told the class, five of them raised the log-density of held-out images by 90 nats.
    early_stopping : bool, default=True
        Whether the networks of the best held-out likelihood are kept, and training ends when it
        has not risen for `patience` of its fifty evaluations; else the last networks, as in the
        authors' code: who classifies may gain by steps that the likelihood loses by. Held-out
        images choose σ in any case.
    cycle_x, cycle_z : float, default=10.0
        Weights of the cycle losses, those of the authors' code.
    max_steps, batch_size, learning_rate, patience, time_limit, checkpoint, verbose, random_state
        As of :class:`~experiments.models.roundtrip.RoundTrip`.
    """

    image_shape: tuple[int, ...]
    _: KW_ONLY
    n_latent: int = 20
    n_channels: int = 32
    hidden_size: int | None = None
    shared: bool = True
    blind: bool = False
    pooled: bool = False
    bounded: bool = False
    integration: str = "linear"
    mode_steps: int = 0
    early_stopping: bool = True
    cycle_x: float = 10.0
    cycle_z: float = 10.0
    max_steps: int = 4000
    batch_size: int = 128
    learning_rate: float = 1e-3
    patience: int | None = 20
    time_limit: float | None = None
    checkpoint: Any = None
    verbose: bool = False
    random_state: Any = None
    density_: ImageDensity = field(init=False)

    def _train(
        self, levels: Tensor, y: Tensor, n_classes: int, generator: Generator
    ) -> tuple[nn.Module, History]:
        settings = self._settings()
        settings._check_parameters()
        config = settings._config()
        shape = image_shape(self.image_shape, levels.shape[1])
        location, scale = pixel_units(levels)
        with Noise(generator):
            density = self._networks(shape, n_classes, pixel_ends(location, scale)).float()
        _lay_out(density, torch.channels_last)  # a quarter off the time of a step
        Z = in_units(levels, location, scale)
        parts = Z, torch.ones(len(y)), one_hot(y, n_classes).float()
        chosen, held_out = hold_out(
            len(y), config.validation_fraction, generator, most=MAX_HELD_OUT
        )
        judges = tuple(part[held_out] for part in parts) if len(held_out) else None
        history = settings.train_module(
            density,
            settings._loss(generator),
            tuple(part[chosen] for part in parts),
            judges if self.early_stopping else None,
            generator,
        )
        if judges is not None and not self.early_stopping:
            density.eval().choose_noise(*judges)
        _lay_out(density, torch.contiguous_format)
        found = ImageDensity(density, location, scale, n_classes)
        return found.eval().requires_grad_(False), history

    def _settings(self) -> RoundTrip:
        """The estimator whose losses, checks and loop these are."""
        return RoundTrip(
            self.n_latent,
            self.n_channels,
            integration=self.integration,
            cycle_x=self.cycle_x,
            cycle_z=self.cycle_z,
            training=TrainingConfig(
                max_steps=self.max_steps,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                clip_norm=None,
                patience=self.patience if self.early_stopping else None,
                checkpoint=self.checkpoint,
            ),
            time_limit=self.time_limit,
            verbose=self.verbose,
            random_state=self.random_state,
        )

    def _networks(
        self,
        shape: tuple[int, int, int],
        n_classes: int,
        pixel_ends: tuple[float, float] = (0.0, 1.0),
    ) -> RoundTripDensity:
        m, width = self.n_latent, self.n_channels
        ends = pixel_ends if self.bounded else None
        hidden = [] if self.hidden_size is None else [self.hidden_size]
        for size in hidden:
            check_count("hidden_size", size)
        check_choice("integration", self.integration, ("linear", "laplace"))
        check_count("mode_steps", self.mode_steps, minimum=0)
        each = range(n_classes)
        paint: ClassPainter | EachClass
        view: BlindViewer | ClassViewer | EachClass
        if self.shared:
            paint = ClassPainter(m, n_classes, shape, width, hidden, ends)
        else:
            paint = EachClass(Painter(m, 0, shape, width, hidden, ends) for _ in each)
        if self.blind:
            view = BlindViewer(shape, 0, m, width, hidden, pooled=self.pooled)
        elif self.shared:
            view = ClassViewer(shape, n_classes, m, width, hidden, pooled=self.pooled)
        else:
            view = EachClass(Viewer(shape, 0, m, width, hidden, pooled=self.pooled) for _ in each)
        return RoundTripDensity(
            paint,
            view,
            ClassViewer(shape, n_classes, 1, width),
            judge_z=Dense(m, n_classes, 1, [2 * width, 2 * width]),
            n_dims=shape[0] * shape[1] * shape[2],
            n_latent=m,
            cycle_weights=(self.cycle_x, self.cycle_z),
            integration=self.integration,
            n_draws=1,
            mode_steps=self.mode_steps,
        )


def _routed(z: Tensor, context: Tensor) -> Tensor:
    """The last axis in the place of its class, and zeros in those of the others."""
    return (context[..., :, None] * z[..., None, :]).flatten(-2)


def _lay_out(network: nn.Module, memory_format: torch.memory_format) -> None:
    """Order in which the weights of convolutions lie in memory."""
    network.to(memory_format=memory_format)  # type: ignore[call-overload]


def pixel_units(levels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of all pixels in [0, 1], each a scalar."""
    counts = torch.bincount(levels.flatten().int(), minlength=LEVELS).double()
    share, values = counts / counts.sum(), torch.arange(LEVELS) / (LEVELS - 1)
    location = share @ values.double()
    spread = (share @ (values.double() - location).square()).sqrt()
    return location.float(), spread.clamp(min=1e-3).float()


def pixel_ends(location: Tensor, scale: Tensor) -> tuple[float, float]:
    """Black and white, centred and scaled."""
    return float(-location / scale), float((1 - location) / scale)


def in_units(levels: Tensor, location: Tensor, scale: Tensor) -> Tensor:
    """Pixels of bytes, centred and scaled."""
    return (levels.float() / (LEVELS - 1) - location) / scale
