r"""Fourier features whose inner product approximates the square root of a Gaussian kernel.

.. math:: \phi_i(x) = a_i \cos(w_i \cdot x + b_i)

The paper squares the inner product (Eq. 2): :math:`k_\gamma = k_{\gamma/2}^2 \approx
\langle \phi(x), \phi(y) \rangle^2`, so frequencies follow the spectrum of :math:`k_{\gamma/2}`,
which is :math:`\mathcal{N}(0, \gamma I)`. Every map here returns the same three tensors,

* ``W`` of shape (D, d), the frequencies,
* ``b`` of shape (D,), the phases (a sine is a cosine with phase −π/2),
* ``a`` of shape (D,), the amplitudes,

so that everything downstream is written once.
"""

import math
from collections.abc import Callable

import torch
from scipy.stats import qmc
from torch import Generator, Tensor


def gamma_from_bandwidth(h: Tensor) -> Tensor:
    """Turn bandwidths into the paper's γ = 1/(2h²): the only place where this is done.

    Parameters
    ----------
    h : Tensor, any shape
        Standard deviation of the kernel, one per column or one for all.
    """
    return 0.5 / h.square()


def gaussian_kernel(X: Tensor, Y: Tensor, h: Tensor) -> Tensor:
    """Gaussian kernel k_γ between all rows of `X` and all rows of `Y`.

    Parameters
    ----------
    X : Tensor of shape (n, d)
    Y : Tensor of shape (m, d)
    h : Tensor of shape () or (d,)
        Bandwidth.

    Returns
    -------
    Tensor of shape (n, m)

    Examples
    --------
    >>> from torch import tensor
    >>> gaussian_kernel(tensor([[0.0]]), tensor([[0.0], [1.0]]), tensor(1.0))
    tensor([[1.0000, 0.6065]])
    """
    root_gamma = gamma_from_bandwidth(h).sqrt()
    difference = (X * root_gamma)[:, None] - (Y * root_gamma)
    return difference.square().sum(-1).neg().exp()


def log_kernel_mass(h: Tensor, n_dims: int) -> Tensor:
    r"""Logarithm of :math:`M_\gamma = \int k_\gamma(x, y)\,dy = (2 \pi h^2)^{d/2}`.

    Parameters
    ----------
    h : Tensor of shape () or (d,)
        Bandwidth.
    n_dims : int
        The dimension d.
    """
    return 0.5 * (math.pi / gamma_from_bandwidth(h)).log().expand(n_dims).sum()


Frequencies = tuple[Tensor, Tensor, Tensor]


def fourier_features(X: Tensor, W: Tensor, b: Tensor, a: Tensor) -> Tensor:
    """Evaluate φ_i(x) = a_i cos(w_i·x + b_i).

    Parameters
    ----------
    X : Tensor of shape (n, d)
    W, b, a : Tensors of shapes (D, d), (D,), (D,)

    Returns
    -------
    Tensor of shape (n, D)

    Examples
    --------
    >>> fourier_features(torch.zeros(1, 1), torch.ones(2, 1), torch.zeros(2), torch.ones(2))
    tensor([[1., 1.]])
    """
    phase = torch.addmm(b, X, W.T)  # (n, D)
    if phase.requires_grad:
        return phase.cos() * a
    return phase.cos_().mul_(a)


def random_frequencies(
    n_features: int, h: Tensor, period: Tensor, generator: Generator
) -> Frequencies:
    """Rahimi and Recht's features, the paper's: Gaussian frequencies, uniform phases."""
    Z = torch.randn(n_features, len(h), generator=generator, dtype=h.dtype)
    b = 2 * math.pi * torch.rand(n_features, generator=generator, dtype=h.dtype)
    return Z * _spectral_scale(h), b, _equal_amplitudes(n_features, h)


def paired_frequencies(
    n_features: int, h: Tensor, period: Tensor, generator: Generator
) -> Frequencies:
    """Gaussian frequencies, each as a cosine and a sine: ‖φ(x)‖ is the same for every x."""
    Z = torch.randn(_n_pairs(n_features), len(h), generator=generator, dtype=h.dtype)
    return _pair(Z * _spectral_scale(h), _equal_amplitudes(2 * len(Z), h)[: len(Z)])


def orthogonal_frequencies(
    n_features: int, h: Tensor, period: Tensor, generator: Generator
) -> Frequencies:
    """Orthogonal random features (Yu et al., 2016), paired.

    Blocks of d orthogonal directions with independent χ_d lengths: up to sign, which a cosine
    and sine pair does not see, each frequency has the law of a Gaussian one, but within a block
    they do not repeat each other.
    """
    n, d = _n_pairs(n_features), len(h)
    blocks = torch.randn(-(-n // d), d, d, generator=generator, dtype=h.dtype)
    Q = torch.linalg.qr(blocks).Q
    lengths = torch.randn(len(blocks), d, d, generator=generator, dtype=h.dtype).norm(dim=-1)
    Z = (Q * lengths[..., None]).reshape(-1, d)[:n]
    return _pair(Z * _spectral_scale(h), _equal_amplitudes(2 * n, h)[:n])


def sobol_frequencies(
    n_features: int, h: Tensor, period: Tensor, generator: Generator
) -> Frequencies:
    """Quasi-Monte Carlo frequencies, paired: scrambled Sobol points through the normal quantile.

    Sobol points are balanced in powers of two only, so the next power is drawn and its head kept.
    """
    n = _n_pairs(n_features)
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    points = qmc.Sobol(len(h), rng=seed).random_base2(max(n - 1, 1).bit_length())[:n]
    Z = torch.special.ndtri(torch.as_tensor(points, dtype=torch.float64)).to(h)
    return _pair(Z * _spectral_scale(h), _equal_amplitudes(2 * n, h)[:n])


def lattice_frequencies(
    n_features: int, h: Tensor, period: Tensor, generator: Generator
) -> Frequencies:
    """Fourier series of the kernel on a torus of the given period: no randomness at all.

    The frequencies are 2πk/P for integer vectors k, heaviest first, and a_k² is the spectrum at
    2πk/P (the trapezoidal rule on Bochner's integral, exact up to the wrapped kernel). In one and
    two dimensions this has neither the variance nor the floor of random frequencies; the number
    of lattice points in a ball makes it useless beyond four.

    Parameters
    ----------
    n_features : int
        Upper bound of D: one constant and as many cosine–sine pairs as fit.
    h, period : Tensors of shape (d,)
        Bandwidth and period P of each column, in the same units.
    """
    n = (n_features - 1) // 2
    step = 2 * math.pi / period
    K = _half_lattice(n, step * h)  # (n, d), the origin left out
    W = torch.cat([torch.zeros(1, len(h), dtype=h.dtype), K * step])
    weight = torch.exp(-0.5 * (W / _spectral_scale(h)).square().sum(1))
    weight[0] /= 2  # k and −k share a pair; the origin stands alone
    W, b, a = _pair(W, (weight / weight.sum()).sqrt())
    keep = torch.arange(len(b)) != n + 1  # all but the sine of the zero frequency
    return W[keep], b[keep], a[keep]


FREQUENCIES: dict[str, Callable[[int, Tensor, Tensor, Generator], Frequencies]] = {
    "random": random_frequencies,
    "paired": paired_frequencies,
    "orthogonal": orthogonal_frequencies,
    "sobol": sobol_frequencies,
    "lattice": lattice_frequencies,
}


def _spectral_scale(h: Tensor) -> Tensor:
    """Standard deviation √γ of the spectrum of k_{γ/2}."""
    return gamma_from_bandwidth(h).sqrt()


def _n_pairs(n_features: int) -> int:
    return max(n_features // 2, 1)


def _equal_amplitudes(n_features: int, h: Tensor) -> Tensor:
    return torch.full((n_features,), math.sqrt(2 / n_features), dtype=h.dtype)


def _pair(W: Tensor, a: Tensor) -> Frequencies:
    b = torch.zeros(len(W), dtype=W.dtype)
    return torch.cat([W, W]), torch.cat([b, b - math.pi / 2]), torch.cat([a, a])


def _half_lattice(n: int, weight: Tensor) -> Tensor:
    """First n integer vectors by Σ(weight·k)², one of each pair ±k, without the origin."""
    d = len(weight)
    volume = math.pi ** (d / 2) / math.gamma(d / 2 + 1)
    radius = (2 * n / volume * weight.prod().item()) ** (1 / d) + weight.norm().item()
    reach = [min(int(radius / w) + 1, n) for w in weight.tolist()]  # n of them fill any axis
    axes = [torch.arange(-m, m + 1) for m in reach]
    K = torch.cartesian_prod(*axes).reshape(-1, d)
    K = K[len(K) // 2 + 1 :].to(weight)  # lexicographically after the origin: one of each pair
    return K[torch.argsort((K * weight).square().sum(1), stable=True)[:n]]
