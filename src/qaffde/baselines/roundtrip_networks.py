"""Networks of RoundTrip: fully connected for tables, convolutional for images.

Each is a module ``network(input, context)``; the context of shape (n, k) may have no columns.
"""

import math
from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor, nn


class Dense(nn.Module):
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
        super().__init__()
        widths = [n_in + n_context, *hidden]
        layers = [
            part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.LeakyReLU(0.2))
        ]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], n_out))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Output of shape (n, n_out)."""
        return self.layers(torch.cat([x, context], 1))


class Painter(nn.Module):
    """Convolutional network from (n, n_in) and a context to flat images (n, C·H·W).

    A linear map to a quarter of the size, then twice: enlarge, convolve. Images of any size are
    met exactly, since enlarging takes the size and not the factor.

    Parameters
    ----------
    n_in, n_context : int
    shape : (int, int, int)
        C, H, W.
    n_channels : int
        Of the half-sized images; twice as many of the quarter-sized.

    Examples
    --------
    >>> Painter(4, 0, (1, 8, 7), 16)(torch.zeros(5, 4), torch.zeros(5, 0)).shape
    torch.Size([5, 56])
    """

    def __init__(
        self, n_in: int, n_context: int, shape: tuple[int, int, int], n_channels: int
    ) -> None:
        super().__init__()
        n_colors, *size = shape
        half, quarter = _shrunk(size), _shrunk(_shrunk(size))
        self.layers = nn.Sequential(
            nn.Linear(n_in + n_context, 2 * n_channels * math.prod(quarter)),
            nn.LeakyReLU(0.2),
            nn.Unflatten(1, (2 * n_channels, *quarter)),
            nn.Upsample(size=half),
            nn.Conv2d(2 * n_channels, n_channels, 3, padding=1),
            nn.LeakyReLU(0.2),
            nn.Upsample(size=tuple(size)),
            nn.Conv2d(n_channels, n_colors, 3, padding=1),
            nn.Flatten(),
        )

    def forward(self, z: Tensor, context: Tensor) -> Tensor:
        """Images of shape (n, C·H·W)."""
        return self.layers(torch.cat([z, context], 1))


class Viewer(nn.Module):
    """Convolutional network from flat images (n, C·H·W) and a context to (n, n_out).

    Parameters
    ----------
    shape : (int, int, int)
        C, H, W.
    n_context, n_out : int
    n_channels : int
        Of the half-sized images; twice as many of the quarter-sized.

    Examples
    --------
    >>> Viewer((1, 8, 7), 0, 4, 16)(torch.zeros(5, 56), torch.zeros(5, 0)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self, shape: tuple[int, int, int], n_context: int, n_out: int, n_channels: int
    ) -> None:
        super().__init__()
        n_colors, *size = shape
        n_seen = 2 * n_channels * math.prod(_shrunk(_shrunk(size)))
        self.look = nn.Sequential(
            nn.Unflatten(1, shape),
            nn.Conv2d(n_colors, n_channels, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(n_channels, 2 * n_channels, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
        )
        self.read = nn.Linear(n_seen + n_context, n_out)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Output of shape (n, n_out)."""
        return self.read(torch.cat([self.look(x), context], 1))


def _shrunk(size: Iterable[int]) -> tuple[int, ...]:
    """Half of each length, rounded up, as a stride of two leaves it."""
    return tuple(-(-length // 2) for length in size)
