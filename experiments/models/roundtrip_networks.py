"""Networks of RoundTrip: fully connected for tables, convolutional for images.

Each is a module ``network(input, context)``; the context of shape (n, k) may have no columns.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import fold

from experiments.models.class_flows import each_class

FEW_CHANNELS = 4
"""Channels up to which a transposed convolution of tangents is a product and a sum of patches."""


class Bounded(nn.Module):
    """Numbers between two ends, by a logistic curve.

    Parameters
    ----------
    lower, upper : float

    Examples
    --------
    >>> Bounded(-1.0, 3.0)(torch.tensor([-99.0, 0.0, 99.0]))
    tensor([-1.,  1.,  3.])
    """

    lower: Tensor
    upper: Tensor

    def __init__(self, lower: float, upper: float) -> None:
        super().__init__()
        self.register_buffer("lower", torch.tensor(lower))
        self.register_buffer("upper", torch.tensor(upper))

    def forward(self, x: Tensor) -> Tensor:
        """Values of any shape."""
        return self.lower + (self.upper - self.lower) * x.sigmoid()

    def slope(self, x: Tensor) -> Tensor:
        """Derivative at each x."""
        share = x.sigmoid()
        return (self.upper - self.lower) * share * (1 - share)


class Layered(nn.Module):
    """Network of layers that are linear, leaky ReLUs or bounds.

    Parameters
    ----------
    layers : modules
        From (n, n_in + n_context) to (n, n_out).
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Output of shape (n, n_out)."""
        output: Tensor = self.layers(torch.cat([x, context], 1))
        return output

    def push(self, x: Tensor, context: Tensor, tangents: Tensor) -> Tensor:
        """Derivatives (n, m, n_out) at x along m tangents for each row, (n, m, n_in)."""
        unmoved = tangents.new_zeros(*tangents.shape[:2], context.shape[1])
        return carry(self.layers, torch.cat([x, context], 1), torch.cat([tangents, unmoved], 2))


class Dense(Layered):
    """Fully connected network from (n, n_in) and a context to (n, n_out).

    Parameters
    ----------
    n_in, n_context, n_out : int
    hidden : list of int
        Widths of the hidden layers, of leaky ReLUs: with SiLU units the generators had
        not found the rays of star_eight after 1500 steps, in one run.

    Examples
    --------
    >>> Dense(2, 0, 3, [8, 8])(torch.zeros(5, 2), torch.zeros(5, 0)).shape
    torch.Size([5, 3])
    """

    def __init__(self, n_in: int, n_context: int, n_out: int, hidden: list[int]) -> None:
        widths = [n_in + n_context, *hidden]
        super().__init__(*_dense(*widths), nn.Linear(widths[-1], n_out))


class Crop(nn.Module):
    """The upper left part of images."""

    def __init__(self, size: Iterable[int]) -> None:
        super().__init__()
        self.size = tuple(size)

    def forward(self, images: Tensor) -> Tensor:
        """Images of shape (n, C, H, W)."""
        return images[..., : self.size[0], : self.size[1]]


class Painter(Layered):
    """Convolutional network from (n, n_in) and a context to flat images (n, C·H·W).

    A linear map to a quarter of the size, then two transposed convolutions that double it. Images
    of any size are met exactly: of an odd one, a row or column too much is cropped.

    Parameters
    ----------
    n_in, n_context : int
    shape : (int, int, int)
        C, H, W.
    n_channels : int
        Of the half-sized images; twice as many of the quarter-sized.
    hidden : list of int, default=[]
        Widths of dense layers before.
    ends : (float, float), optional
        Of the pixels.

    Examples
    --------
    >>> Painter(4, 0, (1, 8, 7), 16)(torch.zeros(5, 4), torch.zeros(5, 0)).shape
    torch.Size([5, 56])
    """

    def __init__(
        self,
        n_in: int,
        n_context: int,
        shape: tuple[int, int, int],
        n_channels: int,
        hidden: Sequence[int] = (),
        ends: tuple[float, float] | None = None,
    ) -> None:
        n_colors, *size = shape
        half = _shrunk(size)
        quarter = _shrunk(half)
        super().__init__(
            *_dense(n_in + n_context, *hidden, 2 * n_channels * math.prod(quarter)),
            nn.Unflatten(1, (2 * n_channels, *quarter)),
            nn.ConvTranspose2d(2 * n_channels, n_channels, 4, stride=2, padding=1),
            Crop(half),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(n_channels, n_colors, 4, stride=2, padding=1),
            Crop(size),
            nn.Flatten(),
            *([] if ends is None else [Bounded(*ends)]),
        )


class Viewer(nn.Module):
    """Convolutional network from flat images (n, C·H·W) and a context to (n, n_out).

    Parameters
    ----------
    shape : (int, int, int)
        C, H, W.
    n_context, n_out : int
    n_channels : int
        Of the half-sized images; twice as many of the quarter-sized.
    hidden : list of int, default=[]
        Widths of dense layers behind.
    pooled : bool, default=False
        Whether images are halved by maxima after convolutions of 5 × 5, as LeNet's are, and a
        third convolution doubles the channels again; else by convolutions of 3 × 3 with a stride
        of two.

    Examples
    --------
    >>> Viewer((1, 8, 7), 0, 4, 16)(torch.zeros(5, 56), torch.zeros(5, 0)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        n_context: int,
        n_out: int,
        n_channels: int,
        hidden: Sequence[int] = (),
        *,
        pooled: bool = False,
    ) -> None:
        super().__init__()
        n_colors, *size = shape
        half, quarter = n_channels, 2 * n_channels
        last = 2 * quarter if pooled else quarter
        n_seen = last * math.prod(_shrunk(_shrunk(size)))
        self.look = nn.Sequential(
            nn.Unflatten(1, shape),
            *_halve(n_colors, half, pooled=pooled),
            *_halve(half, quarter, pooled=pooled),
            *([nn.Conv2d(quarter, last, 3, padding=1), nn.LeakyReLU(0.2)] if pooled else []),
            nn.Flatten(),
            *_dense(n_seen, *hidden),
        )
        self.read = nn.Linear([n_seen, *hidden][-1] + n_context, n_out)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Output of shape (n, n_out)."""
        return self.read(torch.cat([self.look(x), context], 1))


class EachClass(nn.Module):
    """A network for each class, which share nothing.

    Parameters
    ----------
    networks : modules
        Without a context; painters or viewers, one for each column of the one-hot context.

    Examples
    --------
    >>> networks = EachClass([Painter(4, 0, (1, 8, 8), 16) for _ in range(3)])
    >>> networks(torch.zeros(5, 4), torch.eye(3)[[0, 1, 2, 0, 1]]).shape
    torch.Size([5, 64])
    """

    def __init__(self, networks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Outputs of shape (n, n_out) of one-hot classes (n, K)."""
        return each_class(self.networks, context, lambda f, rows: f(x[rows], x[rows, :0]))

    def push(self, z: Tensor, context: Tensor, tangents: Tensor) -> Tensor:
        """Derivatives (n, m, n_out) at z along tangents (n, m, n_in), of painters."""
        return each_class(
            self.networks, context, lambda f, rows: f.push(z[rows], z[rows, :0], tangents[rows])
        )


def carry(layers: Iterable[nn.Module], x: Tensor, tangents: Tensor) -> Tensor:
    """Derivatives (n, m, n_out) of layers at rows x (n, n_in) along tangents (n, m, n_in).

    A linear layer does with tangents what it does with rows, less its bias; what acts on each
    number alone has a slope.
    """
    n, m = tangents.shape[:2]
    t = tangents.flatten(0, 1)
    for layer in layers:
        if isinstance(layer, nn.LeakyReLU | Bounded):
            t = (t.unflatten(0, (n, m)) * _slope(layer, x)[:, None]).flatten(0, 1)
        else:
            t = _unbiased(layer, t)
        x = layer(x)
    return t.unflatten(0, (n, m))


def _unbiased(layer: nn.Module, t: Tensor) -> Tensor:
    """What a linear layer makes of rows or images, less its bias.

    A transposed convolution of many small images is quicker as one product and a sum of patches
    where it leaves few channels (a fifth of the time for one), and else where channels lie side
    by side in memory (half).
    """
    if isinstance(layer, nn.ConvTranspose2d):
        if layer.out_channels <= FEW_CHANNELS:
            size = layer(t[:1]).shape[2:]
            patches = layer.weight.flatten(1).T @ t.flatten(2)  # (n, C·k·k, h·w)
            fixed: Any = {"stride": layer.stride, "padding": layer.padding}
            return fold(patches, size, layer.kernel_size, **fixed)
        t = t.contiguous(memory_format=torch.channels_last)
    biases = {k: torch.zeros_like(b) for k, b in layer.named_parameters() if k == "bias"}
    output: Tensor = functional_call(layer, biases, (t,))
    return output


def _slope(layer: nn.LeakyReLU | Bounded, x: Tensor) -> Tensor:
    """Derivative of a layer that acts on each number alone."""
    if isinstance(layer, Bounded):
        return layer.slope(x)
    return torch.where(x > 0, 1.0, layer.negative_slope)


def _dense(*widths: int) -> list[nn.Module]:
    """Linear layers between these widths, each before leaky ReLUs."""
    return [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.LeakyReLU(0.2))]


def _halve(n_in: int, n_out: int, *, pooled: bool) -> list[nn.Module]:
    """Layers from images with n_in channels to images of half the size with n_out."""
    if pooled:
        convolve = nn.Conv2d(n_in, n_out, 5, padding=2)
        return [convolve, nn.MaxPool2d(2, ceil_mode=True), nn.LeakyReLU(0.2)]
    return [nn.Conv2d(n_in, n_out, 3, stride=2, padding=1), nn.LeakyReLU(0.2)]


def _shrunk(size: Iterable[int]) -> tuple[int, ...]:
    """Half of each length, rounded up, as a stride of two leaves it."""
    return tuple(-(-length // 2) for length in size)
