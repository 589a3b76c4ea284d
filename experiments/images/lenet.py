"""The paper's convolutional network in front of a density."""

import torch
from torch import Generator, Tensor, nn


class LeNet(nn.Module):
    """Two convolutions and a fully connected layer, from images to codes (paper, Section 4.3).

    Convolutions of 5 × 5 with 20 and 50 filters and same padding, each followed by ReLU and a
    2 × 2 maximum (in the other order: the same, but cheaper); then a fully connected layer.

    Parameters
    ----------
    image_shape : tuple of three int
        Channels, height and width: (1, 28, 28) for MNIST, (3, 32, 32) for CIFAR-10.
    n_codes : int, default=84
        Numbers in a code.
    n_filters : tuple of two int, default=(20, 50)
    dropout : float, default=0.0
        Share of the inputs of the fully connected layer that a step of training does not see.
    generator : torch.Generator, optional
        Source of the first weights; a new one with seed 0 by default.

    Examples
    --------
    >>> LeNet((1, 28, 28))(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 84])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        n_codes: int = 84,
        n_filters: tuple[int, int] = (20, 50),
        dropout: float = 0.0,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        channels, height, width = image_shape
        if min(height, width) < 4:
            raise ValueError(
                f"image_shape={tuple(image_shape)} is too small: two poolings need images of at "
                "least 4 by 4 pixels, given as (channels, height, width)"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout!r} must be a number in [0, 1)")
        self.image_shape = (channels, height, width)
        first, second = self.n_filters = n_filters
        self.n_codes = n_codes
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(  # without torch's own weights: those draw globally
            nn.utils.skip_init(nn.Conv2d, channels, first, 5, padding="same"),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.utils.skip_init(nn.Conv2d, first, second, 5, padding="same"),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.utils.skip_init(nn.Linear, second * (height // 4) * (width // 4), n_codes),
        )
        self._draw(torch.Generator().manual_seed(0) if generator is None else generator)

    def forward(self, images: Tensor) -> Tensor:
        """Codes of shape (n, n_codes) of images of shape (n, channels, height, width)."""
        # With channels last, training takes two thirds of the time on a processor.
        seen = self.layers[:-1](images.contiguous(memory_format=torch.channels_last))
        codes: Tensor = self.layers[-1](self.dropout(seen))
        return codes

    @torch.no_grad()
    def _draw(self, generator: Generator) -> None:
        """Uniform weights of torch's own default scale, from this generator alone."""
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                bound = layer.weight[0].numel() ** -0.5
                layer.weight.uniform_(-bound, bound, generator=generator)
                assert layer.bias is not None
                layer.bias.uniform_(-bound, bound, generator=generator)
