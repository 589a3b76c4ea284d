r"""Base measures μ as modules.

A measure gives its density and its characteristic function, and from them the Gram matrix
:math:`G = \int \phi \phi^\top d\mu` of Fourier features, in closed form.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from qaffde import functional as QF
from qaffde.nn.fourier import FourierFeatures

MAX_WHITENED = 2**21
"""Numbers that a mixture of Gaussians whitens at once."""


class BaseMeasure(nn.Module, ABC):
    """Base measure of a Born density: its log-density and characteristic function."""

    @abstractmethod
    def log_density(self, x: Tensor) -> Tensor:
        """Log-density log m(x) of shape (n,) at points of shape (n, d)."""

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
        return self._gram(features)

    def _gram(self, features: FourierFeatures) -> Tensor:
        """Gram matrix of any frequencies; measures whose pairs factorize override it."""
        return QF.gram_matrix(features.W, features.b, features.a, self.characteristic)

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

    def log_density(self, x: Tensor) -> Tensor:
        """Minus the log-volume inside, −∞ outside."""
        return QF.log_box_density(x, self.lower, self.upper)

    def characteristic(self, omega: Tensor) -> Tensor:
        """Product of phases and cardinal sines."""
        return QF.box_characteristic(omega, self.lower, self.upper)

    def _gram(self, features: FourierFeatures) -> Tensor:
        """Gram matrix from D × D products."""
        pairs = QF.box_pair_characteristics(features.W, features.b, self.lower, self.upper)
        return 0.5 * torch.outer(features.a, features.a) * pairs


class GaussianMeasure(BaseMeasure):
    """Mixture of K Gaussians; K = 1 is the Gaussian base measure.

    Parameters
    ----------
    weights : Tensor of shape (K,)
        Positive, of sum one.
    means : Tensor of shape (K, d)
    covariances : Tensor of shape (K, d, d)

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
        self.register_buffer("means", means)
        self.register_buffer("covariances", covariances)
        self.register_buffer("cholesky", torch.linalg.cholesky(covariances))

    def log_density(self, x: Tensor) -> Tensor:
        """Log of the weighted sum of the K densities."""
        K, d = self.means.shape
        blocks = x.split(max(1, MAX_WHITENED // (K * d)))
        return torch.cat([self._log_density(block) for block in blocks])

    def _log_density(self, x: Tensor) -> Tensor:
        log_terms = QF.log_gaussian_density(x, self.means, self.cholesky)  # (K, n)
        return (log_terms + self.weights.log()[:, None]).logsumexp(0)

    def characteristic(self, omega: Tensor) -> Tensor:
        """Weighted sum of the K characteristic functions."""
        terms = [QF.gaussian_characteristic(omega, m, S) for _, m, S in self._components()]
        return torch.einsum("k,kn->n", self.weights.to(terms[0]), torch.stack(terms))

    def _gram(self, features: FourierFeatures) -> Tensor:
        """Gram matrix from D × D products, one component after the other."""
        W, b, a = features.W, features.b, features.a
        pairs = torch.zeros_like(a)
        for weight, mean, covariance in self._components():
            pairs = pairs + weight * QF.gaussian_pair_characteristics(W, b, mean, covariance)
        return 0.5 * torch.outer(a, a) * pairs

    def _components(self) -> "zip[tuple[Tensor, Tensor, Tensor]]":
        return zip(self.weights, self.means, self.covariances, strict=True)


class KernelMeasure(BaseMeasure):
    """The paper's normalization: Lebesgue measure on R^d and the constant M_γ.

    The features do not decay, so their Gram matrix does not exist and what is divided by M_γ only
    approximates a density (it has a floor of about 1/(D·M_γ), and its integral over all of R^d
    diverges). Kept for reproducing the paper; its likelihoods compare with nothing.

    Parameters
    ----------
    bandwidth : Tensor of shape (d,)
    """

    bandwidth: Tensor

    def __init__(self, bandwidth: Tensor) -> None:
        super().__init__()
        self.register_buffer("bandwidth", bandwidth)

    def log_density(self, x: Tensor) -> Tensor:
        """Zero: the density of Lebesgue measure is one."""
        return x.new_zeros(len(x))

    def characteristic(self, omega: Tensor) -> Tensor:
        """Undefined: an infinite measure has no characteristic function."""
        raise ValueError(
            "the 'kernel' base measure is infinite and has no characteristic function; "
            "use 'box', 'gaussian' or 'mixture' for an exact density"
        )

    def log_normalizer(self, factor: Tensor, features: FourierFeatures) -> Tensor:
        """Log M_γ, whatever the factor (paper, Eq. 4)."""
        return QF.log_kernel_mass(self.bandwidth, len(self.bandwidth))
