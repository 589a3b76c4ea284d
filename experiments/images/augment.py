"""Augmentation: other images of the same things, for training.

Each is called as ``augment(images, generator)`` and takes all its randomness from the generator.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

Augment = Callable[[Tensor, Generator], Tensor]


@dataclass(frozen=True)
class RandomShift:
    """Move each image by up to some pixels each way; its edge is repeated where it leaves a gap.

    The same as a random crop of a padded image.

    Parameters
    ----------
    pixels : int, default=2

    Examples
    --------
    >>> images = torch.arange(4.0).reshape(1, 1, 2, 2)
    >>> RandomShift(1)(images, torch.Generator().manual_seed(0)).shape
    torch.Size([1, 1, 2, 2])
    """

    pixels: int = 2

    def __post_init__(self) -> None:
        if isinstance(self.pixels, bool) or not isinstance(self.pixels, int) or self.pixels < 1:
            raise ValueError(f"pixels={self.pixels!r} must be a whole number of at least 1")

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Shifted images of shape (n, channels, height, width)."""
        n, _, height, width = images.shape
        top, left = torch.randint(2 * self.pixels + 1, (2, n), generator=generator)
        padded = pad(images, [self.pixels] * 4, mode="replicate")
        rows = (top[:, None] + torch.arange(height))[:, None, :, None]
        columns = (left[:, None] + torch.arange(width))[:, None, None, :]
        index = torch.arange(n)[:, None, None, None]
        channels = torch.arange(images.shape[1])[:, None, None]
        return padded[index, channels, rows, columns]


@dataclass(frozen=True)
class RandomFlip:
    """Mirror each image, left to right, or not, with equal chance.

    Examples
    --------
    >>> image = torch.tensor([[[[1.0, 2.0]]]]).expand(3, 1, 1, 2)
    >>> RandomFlip()(image, torch.Generator().manual_seed(1))[:, 0, 0, 0].unique()
    tensor([1., 2.])
    """

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Images of the same shape (n, channels, height, width)."""
        flipped = torch.rand(len(images), generator=generator) < 0.5
        return torch.where(flipped[:, None, None, None], images.flip(3), images)


class Augmentation:
    """Several augmentations, one after the other.

    Parameters
    ----------
    *parts : callable
        Each as ``part(images, generator)``.

    Examples
    --------
    >>> Augmentation(RandomShift(4), RandomFlip())
    Augmentation(RandomShift(pixels=4), RandomFlip())
    """

    def __init__(self, *parts: Augment) -> None:
        self.parts = parts

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Images that went through all parts."""
        for part in self.parts:
            images = part(images, generator)
        return images

    def __repr__(self) -> str:
        return f"Augmentation({', '.join(map(repr, self.parts))})"
