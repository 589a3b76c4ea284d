r"""Born densities: base measures, density matrices, and how one is read against the other.

The characteristic function :math:`\chi(\omega) = \int e^{i \omega \cdot x} d\mu(x)` of a base
measure is all that the calculus of Fourier features needs. Gram matrices take it at all sums and
differences of D frequencies, and those pairs are evaluated in D × D products, never as D × D × d
differences. The density matrix of the data is :math:`\rho = \sum_i w_i \, \phi(x_i)
\phi(x_i)^\top = V^\top \Lambda V` (paper, Algorithm 2).
"""

import math
from collections.abc import Callable
from numbers import Integral

import torch
from scipy.linalg import blas
from scipy.sparse.linalg import ArpackError, eigsh
from torch import Tensor

from qaffde.functional.fourier import Array, clipped, has_gradient, namespace_of, reusable


def range_eigenpairs(G: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    r"""Eigenpairs U (D, n) and λ (n,), rising, of a positive semidefinite matrix on its range.

    Powers of G on its range are :math:`U \operatorname{diag}(\lambda^p) U^\top`. Eigenvalues below
    `tolerance` times the largest belong to combinations of features that vanish μ-almost
    everywhere: dividing by them would only magnify rounding.

    Examples
    --------
    >>> U, lam = range_eigenpairs(torch.diag(torch.tensor([4.0, 0.0])), 1e-6)
    >>> (U * lam.rsqrt()) @ U.T
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    lam, U = torch.linalg.eigh(G)
    keep = lam > tolerance * lam[-1]
    return U[:, keep], lam[keep]


def log_box_density(X: Array, lower: Array, upper: Array) -> Array:
    """Log-density of the uniform law on a box; −∞ outside."""
    xp = namespace_of(X)
    inside = ((X >= lower) & (X <= upper)).all(-1)
    return xp.where(inside, -namespace_of(upper).log(upper - lower).sum(), -math.inf)


def box_characteristic(omega: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """χ(ω) = Π_t exp(iω_t c_t) sinc(ω_t L_t / 2), center c and widths L; ω of shape (..., d)."""
    center, width = (lower + upper) / 2, upper - lower
    modulus = torch.sinc(omega * width / (2 * math.pi)).prod(-1)
    return torch.polar(modulus.abs(), omega @ center) * modulus.sign()


def box_pair_characteristics(W: Tensor, b: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Re[e^{i(b_i − b_j)} χ(w_i − w_j) + e^{i(b_i + b_j)} χ(w_i + w_j)] for the box."""
    u = b + W @ ((lower + upper) / 2)
    scaled = W * (upper - lower) / (2 * math.pi)
    total = torch.zeros(())
    for sign in (1.0, -1.0):
        term = torch.cos(u[:, None] - sign * u)
        for column in scaled.T:
            term = term * torch.sinc(column[:, None] - sign * column)
        total = total + term
    return total


def log_gaussian_density(X: Tensor, mean: Tensor, cholesky: Tensor) -> Tensor:
    """Log-density (..., n) of N(mean, LLᵀ) at X (n, d), finite for every finite X.

    Parameters
    ----------
    X, mean, cholesky : Tensors of shapes (n, d), (..., d), (..., d, d)
    """
    d = X.shape[-1]
    parts = mean.to(X).reshape(-1, d), cholesky.to(X).reshape(-1, d, d)
    log_terms = log_gaussian_terms(X, *whitening(X.new_zeros(()), *parts))
    return log_terms.T.reshape(*mean.shape[:-1], len(X))


def whitening(log_weight: Tensor, mean: Tensor, cholesky: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Affine map by which :func:`log_mixture_density` whitens by K Gaussians in one product.

    From weights (K,) or (), means (K, d) and factors (K, d, d), it is a root (d, d·K), whose first
    K columns give the first whitened coordinates of all components, an offset and log-constants.
    """
    d = mean.shape[1]
    eye = torch.eye(d, dtype=mean.dtype, device=mean.device)
    inverse = torch.linalg.solve_triangular(cholesky, eye, upper=False)
    log_det = cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return (
        inverse.permute(2, 1, 0).flatten(1).contiguous(),
        -(inverse @ mean[..., None])[..., 0].T.flatten(),
        log_weight - log_det - 0.5 * d * math.log(2 * math.pi),
    )


def log_gaussian_terms(X: Array, root: Array, offset: Array, log_constant: Array) -> Array:
    """Logarithms, of shape (n, K), of weighted Gaussian densities at X of shape (n, d)."""
    xp = namespace_of(X)
    white = X @ root
    white += offset
    white = xp.square(white, out=reusable(white))
    log_terms = white.reshape(len(X), X.shape[1], len(log_constant)).sum(1)
    most = xp.finfo(X.dtype).max / 2  # larger squares would overflow
    log_terms = clipped(log_terms, 0.0, most)
    log_terms *= -0.5
    log_terms += log_constant
    return log_terms


def log_mixture_density(X: Array, root: Array, offset: Array, log_constant: Array) -> Array:
    """Logarithm, of shape (n,), of the sum of weighted Gaussian densities."""
    return _log_sum(log_gaussian_terms(X, root, offset, log_constant))


def _log_sum(log_terms: Array) -> Array:
    """Logarithm, of shape (n,), of sums of n rows of exponentials."""
    if log_terms.shape[1] == 1:
        return log_terms[:, 0]
    xp = namespace_of(log_terms)
    most = xp.amax(log_terms, 1)
    share = clipped(log_terms - most[:, None], -80.0, 0.0)  # less underflows, which is slow
    return most + xp.log(xp.exp(share, out=reusable(share)).sum(1))


def monomials(X: Array) -> Array:
    """1, the columns of X (n, d) and the products of two of them, of shape (n, m).

    Examples
    --------
    >>> monomials(torch.tensor([[2.0, 3.0]]))
    tensor([[1., 2., 3., 4., 6., 9.]])
    """
    products = [X[:, j : j + 1] * X[:, j:] for j in range(X.shape[1])]
    return namespace_of(X).concatenate([X[:, :1] * 0 + 1, X, *products], 1)


def gaussian_coefficients(log_weight: Tensor, mean: Tensor, cholesky: Tensor) -> Tensor:
    """Coefficients (m, K) of the :func:`monomials` in the logarithms of K weighted Gaussians.

    All of them at all rows are one product, of one number for each component where whitening
    takes d. What is small in it is a difference of large numbers, see ``is_broad``.
    """
    d = mean.shape[1]
    rows, columns = torch.triu_indices(d, d, device=mean.device)
    precision = torch.cholesky_inverse(cholesky)
    linear = (precision @ mean[:, :, None])[:, :, 0]
    quadratic = -torch.where(rows == columns, 0.5, 1.0).to(mean) * precision[:, rows, columns]
    log_det = cholesky.diagonal(dim1=1, dim2=2).log().sum(1)
    square = d * math.log(2 * math.pi) + (mean * linear).sum(1)
    constant = log_weight - log_det - square / 2
    return torch.cat([constant[:, None], linear, quadratic], 1).T.contiguous()


REACH, MAX_ROUNDING = 10.0, 1e-9
"""Largest |x| of sums of monomials, and nats that they may lose to rounding."""


def is_broad(coefficients: Tensor, d: int) -> Tensor:
    """Which of K Gaussians keep their digits as sums of monomials of d columns, of shape (K,)."""
    largest = monomials(torch.full((1, d), REACH).to(coefficients))
    rounding = torch.finfo(coefficients.dtype).eps * (largest @ coefficients.abs())
    return rounding[0] < MAX_ROUNDING


def log_mixture_by_monomials(
    X: Array,
    coefficients: Array,
    log_narrow: Callable[[Array], Array] | None,
    log_all: Callable[[Array], Array],
) -> Array:
    """Logarithm of the sum of broad Gaussians, in one product, and narrow ones.

    That of all is for rows which are far away.
    """
    if has_gradient(X):
        return log_all(X)
    log_p = _log_sum(monomials(X) @ coefficients)
    if log_narrow is not None:
        log_p = namespace_of(X).logaddexp(log_p, log_narrow(X))
    far = (abs(X) > REACH).any(1)
    if far.any():
        log_p[far] = log_all(X[far])
    return log_p


def gaussian_characteristic(omega: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """χ(ω) = exp(iω·m − ½ωᵀΣω); ω of shape (..., d)."""
    square = ((omega @ covariance) * omega).sum(-1)
    return torch.polar(torch.exp(-0.5 * square), omega @ mean)


LARGE_SQUARE = 1e6
"""Squared frequency beyond which squares of differences are not read from products: they round."""


def gaussian_pair_characteristics(
    W: Tensor, b: Tensor, mean: Tensor, covariance: Tensor
) -> Tensor:
    """Re[e^{i(b_i − b_j)} χ(w_i − w_j) + e^{i(b_i + b_j)} χ(w_i + w_j)] for a Gaussian."""
    u = b + W @ mean
    cosines, sines = torch.outer(u.cos(), u.cos()), torch.outer(u.sin(), u.sin())
    cross = W @ covariance @ W.T
    square = cross.diagonal()
    half = -0.5 * (square[:, None] + square)
    exponents = [half + cross, half - cross]
    known = not (torch.compiler.is_compiling() or square.is_meta)
    if known and square.max() > LARGE_SQUARE:
        V = W @ torch.linalg.cholesky(covariance)
        exponents = [negative_half_squares(V, sign) for sign in (-1, 1)]
    less, more = (exponent.exp() for exponent in exponents)
    return (cosines + sines) * less + (cosines - sines) * more


def negative_half_squares(W: Tensor, sign: int) -> Tensor:
    """−½‖w_i + sign·w_j‖² of rows of shape (H, d), of shape (H, H).

    One scalar product of longer rows, unless that would round too much.

    Examples
    --------
    >>> negative_half_squares(torch.tensor([[0.0], [1e9]]).double(), -1).diagonal()
    tensor([-0., -0.], dtype=torch.float64)
    """
    half, one = W.square().sum(1, keepdim=True) / -2, torch.ones_like(W[:, :1])
    if half.min() >= -LARGE_SQUARE / 2:
        return torch.cat([-sign * W, half, one], 1) @ torch.cat([W, one, half], 1).T
    return -0.5 * sum((w[:, None] + sign * w).square() for w in W.T)


def add_rank_update(rho: Tensor, phi: Tensor) -> None:
    """Add φᵀφ to the lower triangle of `rho` (D, D), float64 and contiguous, in place.

    Features (n, D) are already multiplied by the root of their weight. On the CPU this is one
    symmetric rank-n update (BLAS ``syrk``): half the work of a product, and in float64 no D × D
    temporary.
    """
    if rho.device.type == "cpu" and phi.dtype == torch.float64:
        # Fortran sees C-ordered arrays transposed: its upper triangle is our lower one.
        blas.dsyrk(1.0, phi.numpy().T, beta=1.0, c=rho.numpy().T, overwrite_c=1)
    elif rho.device.type == "cpu" and phi.dtype == torch.float32:
        rho += torch.from_numpy(blas.ssyrk(1.0, phi.numpy().T).T)
    else:
        rho += (phi.T @ phi).to(rho.dtype)


def symmetrize_lower(rho: Tensor) -> Tensor:
    """Return the symmetric matrix whose lower triangle is that of `rho`."""
    return rho.tril() + rho.tril(-1).T


def leading_eigenpairs(M: Tensor, rank: int, tolerance: float = 0.0) -> tuple[Tensor, Tensor]:
    """Largest `rank` eigenvalues, clipped at zero, and their eigenvectors.

    Parameters
    ----------
    M : Tensor of shape (..., D, D)
        Symmetric matrices.
    rank : int
    tolerance : float, default=0.0
        Relative error of the eigenvalues that is good enough: where few are wanted, Lanczos
        iterations find them, from the same start in every call.

    Returns
    -------
    lam : Tensor of shape (..., rank), in falling order
    V : Tensor of shape (..., rank, D), eigenvectors as rows, as in the paper

    Examples
    --------
    >>> lam, V = leading_eigenpairs(torch.diag(torch.tensor([1.0, 3.0])), rank=1)
    >>> lam.item(), V.abs().tolist()
    (3.0, [[0.0, 1.0]])
    """
    if tolerance > 0 and 5 * rank < M.shape[-1]:  # more are found faster with all the others
        found = [_lanczos(matrix, rank, tolerance) for matrix in M.reshape(-1, *M.shape[-2:])]
        lam, vectors = (torch.stack(part) for part in zip(*found, strict=True))
        return lam.reshape(*M.shape[:-2], rank), vectors.reshape(*M.shape[:-2], rank, -1)
    lam, vectors = torch.linalg.eigh(M)
    return (
        lam[..., -rank:].flip(-1).clamp(min=0),
        vectors[..., -rank:].flip(-1).mT.contiguous(),
    )


def _lanczos(M: Tensor, rank: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """Leading eigenpairs of one matrix by ARPACK, or exactly where it does not converge."""
    dtype = torch.float32 if tolerance >= 1e-5 else torch.float64
    start = torch.randn(len(M), generator=torch.Generator().manual_seed(0), dtype=dtype)
    try:
        found = eigsh(M.to("cpu", dtype).numpy(), rank, v0=start.numpy(), tol=tolerance)
    except ArpackError:
        return leading_eigenpairs(M, rank)
    lam, vectors = (torch.from_numpy(part).to(M) for part in found)
    order = lam.argsort(descending=True)
    return lam[order].clamp(min=0), vectors[:, order].T.contiguous()


def resolve_rank(rank: int | float | str, lam: Tensor, min_trace: float) -> int:
    """Turn the user's `rank` into a number of eigenpairs.

    Parameters
    ----------
    rank : int, float or "auto"
        A number, a share of D in (0, 1], or as few as hold the share `min_trace` of the trace.
    lam : Tensor of shape (D,)
        All eigenvalues, in falling order.
    min_trace : float

    Examples
    --------
    >>> lam = torch.tensor([0.7, 0.2, 0.1, 0.0])
    >>> resolve_rank(2, lam, 1.0), resolve_rank(0.25, lam, 1.0), resolve_rank("auto", lam, 0.95)
    (2, 1, 3)
    """
    if isinstance(rank, str):
        share = lam.cumsum(0) / lam.sum()
        return min(int((share < min_trace).sum()) + 1, len(lam))
    if isinstance(rank, Integral):
        return min(int(rank), len(lam))
    return max(1, math.ceil(round(rank * len(lam), 6)))


def born_rule(phi: Array, L: Array) -> Array:
    r"""Born rule :math:`\phi^\top \rho\, \phi = \lVert L \phi \rVert^2`, not divided by a trace.

    It is of shape (...), or (..., C) for the factors (C, r, D) of C density matrices.

    Parameters
    ----------
    phi, L : Arrays of shapes (..., D), and (r, D) or (C, r, D)

    Examples
    --------
    >>> born_rule(torch.tensor([[1.0, 2.0]]), torch.eye(2))
    tensor([5.])
    """
    amplitudes = phi @ L.reshape(-1, L.shape[-1]).T
    squares = namespace_of(phi).square(amplitudes, out=reusable(amplitudes))
    return squares.reshape(*phi.shape[:-1], *L.shape[:-1]).sum(-1)


def born_mass(L: Tensor, G: Tensor) -> Tensor:
    r"""Integral :math:`\operatorname{tr}(L G L^\top)` of the Born rule, of shape () or (C,).

    Parameters
    ----------
    L : Tensor of shape (r, D) or (C, r, D)
    G : Tensor of shape (D, D), or (D,) for a diagonal matrix

    Examples
    --------
    >>> born_mass(torch.tensor([[1.0, 2.0]]), torch.tensor([1.0, 0.5]))
    tensor(3.)
    """
    image = L * G if G.ndim == 1 else L @ G
    return (image * L).sum((-2, -1))
