r"""Algorithm 2: the density matrix in one pass, and the density that is read from it.

The paper reads the state ρ with the features that prepared it, :math:`\phi^\top \rho \phi`. Those
are not orthonormal, so the reading has a floor and no finite integral. Two exact readings replace
it, both of the form :math:`p(x) = m(x) \lVert L \phi(x) \rVert^2` with integral one:

``direct``
    :math:`L^\top L = \rho / \operatorname{tr}(\rho G)`: the paper's function, restricted to the
    base measure and divided by its integral.
``square_root``
    :math:`L^\top L = G^{-1/2} \rho\, G^{-1/2}`: φ prepares the state, and the orthonormal features
    :math:`G^{-1/2} \phi` closest to φ measure it. In quantum information this is the square-root
    or "pretty good" measurement (Hausladen and Wootters, 1994); its elements
    :math:`m(x)\, G^{-1/2} \phi \phi^\top G^{-1/2} dx` add up to the identity, so that the outcome
    has total probability tr ρ = 1. Whatever the features span on the data is seen without a floor,
    and :math:`G^{-1/2}` halves the exponent of the spectrum, so frequencies of bandwidth √2·h
    resolve a kernel of bandwidth h: in d dimensions 2^{d/2} times fewer features.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, BornDensity, FourierFeatures, KernelMeasure

Rank = int | float | str


def density_matrix(features: FourierFeatures, batches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Sum of w φ(x) φ(x)ᵀ over batches of points and weights; memory does not see their number.

    From the second batch on, features on a lattice leave their moments of waves behind, which is
    much shorter (see :mod:`qaffde.functional.lattice`), and enter ρ in the end.

    Parameters
    ----------
    features : FourierFeatures
    batches : iterable of (points of shape (n, d), weights of shape (n,))

    Returns
    -------
    Tensor of shape (D, D)
    """
    D, lattice = features.n_features, QF.Lattice.of(features.W.detach())
    rho = torch.zeros(D, D, dtype=torch.float64, device=features.W.device)
    moments = None
    with torch.no_grad():
        for number, (x, weight) in enumerate(batches):
            if number and lattice is not None:
                moments = lattice.add_moments(moments, x, weight)
            else:
                QF.add_rank_update(rho, features(x).mul_(weight.sqrt()[:, None]))
        rho = QF.symmetrize_lower(rho)
        if lattice is not None and moments is not None:
            rho += lattice.gram(lattice.characteristic(moments), features.b, features.a)
    return rho


def row_batches(
    X: Tensor, weight: Tensor, batch_size: int = 1024
) -> Iterable[tuple[Tensor, Tensor]]:
    """Blocks of rows small enough for their features to stay in cache."""
    return zip(X.split(batch_size), weight.split(batch_size), strict=True)


def read_direct(
    features: FourierFeatures,
    rho: Tensor,
    measure: BaseMeasure,
    *,
    rank: Rank,
    min_trace: float,
    tolerance: float,
) -> BornDensity:
    """Density m φᵀρφ / tr(ρG) with the leading eigenpairs of ρ (paper, Eq. 4)."""
    lam, V = QF.leading_eigenpairs(rho, len(rho))
    r = QF.resolve_rank(rank, lam, min_trace)
    density = BornDensity(features, lam[:r, None].sqrt() * V[:r], measure)
    return density if isinstance(measure, KernelMeasure) else density.normalize_()


def read_square_root(
    features: FourierFeatures,
    rho: Tensor,
    measure: BaseMeasure,
    *,
    rank: Rank,
    min_trace: float,
    tolerance: float,
) -> BornDensity:
    """Density m φᵀG^{−1/2} ρ G^{−1/2}φ with the leading eigenpairs of ρ on the range of G."""
    U, gram_lam = QF.range_eigenpairs(measure.gram(features), tolerance)
    lam, V = QF.leading_eigenpairs(U.T @ rho @ U, U.shape[1])
    r = QF.resolve_rank(rank, lam, min_trace)
    factor = (lam[:r, None] / lam[:r].sum()).sqrt() * V[:r] * gram_lam.rsqrt()
    return BornDensity(features, factor @ U.T, measure)


READINGS: dict[str, Callable[..., BornDensity]] = {
    "direct": read_direct,
    "square_root": read_square_root,
}

SPECTRUM_WIDENING = {"direct": 1.0, "square_root": math.sqrt(2)}
"""Bandwidth of the frequencies, in bandwidths of the kernel that the reading then resolves."""
