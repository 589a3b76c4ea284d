r"""Fourier features and base measures as modules.

A measure μ gives its density and its characteristic function, and from them the Gram matrix
:math:`G = \int \phi \phi^\top d\mu` of Fourier features, in closed form.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from qaffde import functional as QF
from qaffde.functional import born
from qaffde.functional.fourier import Array, LatticeSeries
from qaffde.nn.maps import MapTable


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
        kind : str
        n_features : int
            D; all kinds but "random" come in pairs, and round it down.
        bandwidth, period : Tensors of shape (d,)
            "lattice" repeats after the period, by default 12 bandwidths.
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

    def trimmed(self, share: float) -> "FourierFeatures":
        """Without features whose squared amplitude is below a share of the largest."""
        keep = self.a.square() >= share * self.a.square().max()
        return self if keep.all() else FourierFeatures(self.W[keep], self.b[keep], self.a[keep])

    def forward(self, x: Tensor) -> Tensor:
        """Features of shape (..., D) of points of shape (..., d)."""
        flat = QF.fourier_features(x.reshape(-1, x.shape[-1]), self.W, self.b, self.a)
        return flat.reshape(*x.shape[:-1], self.n_features)

    def extra_repr(self) -> str:
        """Show the sizes and whether W and b learn."""
        learnable = isinstance(self.W, nn.Parameter)
        return f"n_dims={self.n_dims}, n_features={self.n_features}, learnable={learnable}"


class Formula:
    """A function of points with its arrays bound, as :func:`functools.partial` would bind them.

    The arrays can be replaced: by those of NumPy, of another device or of another precision. The
    function is written in operations that NumPy and torch share.

    Examples
    --------
    >>> line = Formula(lambda x, slope: slope * x, torch.tensor([2.0]))
    >>> line.converted(lambda slope: 10 * slope)(torch.ones(1))
    tensor([20.])
    """

    def __init__(self, function: Callable[..., Array], *bound: Any) -> None:
        self.function, self.bound = function, bound

    def __call__(self, x: Array) -> Array:
        """Values of shape (n,) at points of shape (n, d)."""
        return self.function(x, *self.bound)

    @property
    def is_closed(self) -> bool:
        """Whether it is written in shared operations all through, and no module is bound."""
        return all(
            part.is_closed if isinstance(part, Formula) else not isinstance(part, nn.Module)
            for part in self.bound
        )

    def converted(self, convert: Callable[[Tensor], Array]) -> "Formula":
        """The same function of converted tensors, at any depth."""

        def change(part: Any) -> Any:
            if isinstance(part, Formula | LatticeSeries | MapTable):
                return part.converted(convert)
            return convert(part.detach()) if isinstance(part, Tensor) else part

        return Formula(self.function, *map(change, self.bound))


class BaseMeasure(nn.Module, ABC):
    """Base measure of a Born density: its log-density and characteristic function."""

    width = 0
    """Numbers that the log-density of one point takes at once."""

    @abstractmethod
    def formula(self, *, shortcuts: bool = False) -> Formula:
        """The log-density log m(x), of shape (n,), as a function of points of shape (n, d).

        Shortcuts, for scoring, branch on values of points.
        """

    def log_density(self, x: Tensor) -> Tensor:
        """Log-density log m(x) of shape (n,) at points of shape (n, d)."""
        formula = self.formula(shortcuts=not torch.compiler.is_compiling())
        size = max(1, 2**17 // max(self.width, 1))
        return torch.cat([formula(block) for block in x.split(size)])

    @abstractmethod
    def characteristic(self, omega: Tensor) -> Tensor:
        """χ(ω), complex of shape (n,), at frequencies of shape (n, d)."""

    def gram(self, features: FourierFeatures) -> Tensor:
        """Gram matrix G of shape (D, D)."""
        W, b, a = features.W, features.b, features.a
        learning = torch.is_grad_enabled() and W.requires_grad
        lattice = None if learning or torch.compiler.is_compiling() else QF.Lattice.of(W)
        if lattice is not None:
            return lattice.gram(self.characteristic(lattice.frequencies), b, a)
        return 0.5 * torch.outer(a, a) * self._pairs(W, b)

    @abstractmethod
    def _pairs(self, W: Tensor, b: Tensor) -> Tensor:
        """Twice the Gram matrix of cosines of any frequencies, in D × D products."""

    def log_normalizer(self, factor: Tensor, features: FourierFeatures) -> Tensor:
        """Logarithm of ∫‖Lφ‖²dμ = tr(LGLᵀ) for a factor L of shape (r, D)."""
        return QF.born_mass(factor, self.gram(features)).log()


class BoxMeasure(BaseMeasure):
    """Uniform law on a box.

    Parameters
    ----------
    lower, upper : Tensors of shape (d,)

    Examples
    --------
    >>> BoxMeasure(torch.zeros(2), torch.ones(2)).log_density(torch.tensor([[0.5, 0.5]]))
    tensor([-0.])
    """

    lower: Tensor
    upper: Tensor

    def __init__(self, lower: Tensor, upper: Tensor) -> None:
        super().__init__()
        self.register_buffer("lower", lower)
        self.register_buffer("upper", upper)

    def formula(self, *, shortcuts: bool = False) -> Formula:
        """Minus the log-volume inside, −∞ outside."""
        return Formula(QF.log_box_density, self.lower, self.upper)

    def characteristic(self, omega: Tensor) -> Tensor:
        """Product of phases and cardinal sines."""
        return QF.box_characteristic(omega, self.lower, self.upper)

    def _pairs(self, W: Tensor, b: Tensor) -> Tensor:
        return QF.box_pair_characteristics(W, b, self.lower, self.upper)


class GaussianMeasure(BaseMeasure):
    """Mixture of K Gaussians; K = 1 is the Gaussian base measure.

    Parameters
    ----------
    weights, means, covariances : Tensors of shapes (K,), (K, d), (K, d, d)
        Weights are positive, of sum one.

    Examples
    --------
    >>> standard = GaussianMeasure(torch.ones(1), torch.zeros(1, 2), torch.eye(2)[None])
    >>> standard.log_density(torch.zeros(1, 2)).exp()
    tensor([0.1592])
    """

    weights: Tensor
    means: Tensor
    covariances: Tensor
    cholesky: Tensor

    def __init__(self, weights: Tensor, means: Tensor, covariances: Tensor) -> None:
        super().__init__()
        self.register_buffer("weights", weights)
        self.register_buffer("means", means.contiguous())  # as files have it, to the last bit
        self.register_buffer("covariances", covariances)
        self.register_buffer("cholesky", torch.linalg.cholesky(covariances))

    @property
    def width(self) -> int:  # type: ignore[override]
        """K."""
        return len(self.weights)

    def formula(self, *, shortcuts: bool = False) -> Formula:
        """Log of the weighted sum of the K densities."""
        parts = self.weights.log(), self.means, self.cholesky
        every = Formula(born.log_mixture_density, *born.whitening(*parts))
        if not shortcuts or len(self.weights) == 1:
            return every
        coefficients = QF.gaussian_coefficients(*parts)
        broad = born.is_broad(coefficients, self.means.shape[1])
        if not broad.any():
            return every
        few = born.whitening(*(part[~broad] for part in parts))
        narrow = None if broad.all() else Formula(born.log_mixture_density, *few)
        broad_ones = coefficients[:, broad].contiguous()
        return Formula(born.log_mixture_by_monomials, broad_ones, narrow, every)

    def characteristic(self, omega: Tensor) -> Tensor:
        """Weighted sum of the K characteristic functions."""
        laws = zip(self.means, self.covariances, strict=True)
        terms = [QF.gaussian_characteristic(omega, *law) for law in laws]
        return torch.einsum("k,kn->n", self.weights.to(terms[0]), torch.stack(terms))

    def _pairs(self, W: Tensor, b: Tensor) -> Tensor:
        pairs = torch.zeros_like(b)
        for weight, *law in zip(self.weights, self.means, self.covariances, strict=True):
            pairs = pairs + weight * QF.gaussian_pair_characteristics(W, b, *law)
        return pairs


class KernelMeasure(BaseMeasure):
    """The paper's normalization: Lebesgue measure on R^d and the constant M_γ.

    The features do not decay, so their Gram matrix does not exist and what is divided by M_γ only
    approximates a density: it has a floor of about 1/(D·M_γ), and its integral diverges.

    Parameters
    ----------
    bandwidth : Tensor of shape (d,)
    """

    bandwidth: Tensor

    def __init__(self, bandwidth: Tensor) -> None:
        super().__init__()
        self.register_buffer("bandwidth", bandwidth)

    def formula(self, *, shortcuts: bool = False) -> Formula:
        """Zero: the density of Lebesgue measure is one."""
        return Formula(lambda x: 0 * x[:, 0])

    def characteristic(self, omega: Tensor) -> Tensor:
        """Undefined: an infinite measure has no characteristic function."""
        raise ValueError(
            "the 'kernel' base measure is infinite and has no characteristic function; "
            "use 'box', 'gaussian' or 'mixture' for an exact density"
        )

    def _pairs(self, W: Tensor, b: Tensor) -> Tensor:
        return self.characteristic(W)

    def log_normalizer(self, factor: Tensor, features: FourierFeatures) -> Tensor:
        """Log M_γ, whatever the factor (paper, Eq. 4)."""
        return QF.log_kernel_mass(self.bandwidth, len(self.bandwidth))
