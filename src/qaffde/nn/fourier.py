"""Fourier features as a layer."""

import torch
from torch import Generator, Tensor, nn

from qaffde import functional as QF


class FourierFeatures(nn.Module):
    r"""Features :math:`\phi_i(x) = a_i \cos(w_i \cdot x + b_i)` (paper, Section 3.1).

    Their inner product approximates :math:`k_{\gamma/2}`, its square the Gaussian kernel
    :math:`k_\gamma` of the given bandwidth.

    Parameters
    ----------
    W, b, a : Tensors of shapes (D, d), (D,), (D,)
        Frequencies, phases and amplitudes.
    learnable : bool, default=False
        Whether W and b are parameters (a is always fixed) or buffers.

    Examples
    --------
    >>> layer = FourierFeatures.draw("sobol", 256, bandwidth=torch.ones(2))
    >>> x = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    >>> phi = layer(x)
    >>> phi.shape
    torch.Size([2, 256])
    >>> kernel = (phi @ phi.T).square()
    >>> torch.allclose(kernel[0, 1], torch.tensor(-1.0).exp(), atol=0.02)
    True
    """

    W: Tensor
    b: Tensor
    a: Tensor

    def __init__(self, W: Tensor, b: Tensor, a: Tensor, *, learnable: bool = False) -> None:
        super().__init__()
        if learnable:
            self.W, self.b = nn.Parameter(W.clone()), nn.Parameter(b.clone())
        else:
            self.register_buffer("W", W)
            self.register_buffer("b", b)
        self.register_buffer("a", a)

    @classmethod
    def draw(
        cls,
        kind: str,
        n_features: int,
        bandwidth: Tensor,
        period: Tensor | None = None,
        generator: Generator | None = None,
        *,
        learnable: bool = False,
    ) -> "FourierFeatures":
        """Draw frequencies of a `kind` in :data:`qaffde.functional.FREQUENCIES`.

        Parameters
        ----------
        kind : {"random", "paired", "orthogonal", "sobol", "lattice"}
        n_features : int
            D; kinds that come in pairs round it down.
        bandwidth : Tensor of shape (d,)
        period : Tensor of shape (d,), optional
            What "lattice" repeats after; by default 12 bandwidths.
        generator : torch.Generator, optional
            Source of randomness; a new one with seed 0 by default.
        learnable : bool, default=False
        """
        period = 12 * bandwidth if period is None else period
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        return cls(
            *QF.FREQUENCIES[kind](n_features, bandwidth, period, generator), learnable=learnable
        )

    @property
    def n_features(self) -> int:
        """The number of features D."""
        return len(self.b)

    @property
    def n_dims(self) -> int:
        """The number of columns d."""
        return self.W.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        """Features of shape (..., D) of points of shape (..., d)."""
        flat = QF.fourier_features(x.reshape(-1, x.shape[-1]), self.W, self.b, self.a)
        return flat.reshape(*x.shape[:-1], self.n_features)

    def extra_repr(self) -> str:
        """Show the sizes and whether W and b learn."""
        learnable = isinstance(self.W, nn.Parameter)
        return f"n_dims={self.n_dims}, n_features={self.n_features}, learnable={learnable}"
