"""A kernel density estimate of so many kernels at most."""

import warnings
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from torch import Generator, Tensor

from qaffde import nn
from qaffde.estimators.base import DensityEstimator, FileMixin, all_or_nothing
from qaffde.parameters import check_count, check_positive, generator_from


@dataclass(eq=False, repr=False)
class KernelMixture(FileMixin, DensityEstimator):
    r"""Kernel density estimate whose scoring cost does not grow with the rows.

    Rows in units of their standard deviation are grouped by k-means, and each group is one
    Gaussian kernel, at its mean, of variance :math:`h^2` and that within the group. With up to
    `n_kernels` rows each is a kernel of its own, which is the usual estimate.

    The kernels have the covariance :math:`h^2 C^w` for the correlations C of the columns: with
    w = 0 the columns count alike, as for nearest neighbors; with w = 1 so do all directions, as
    for the Mahalanobis distance. C is shrunk (Chen et al., "Shrinkage algorithms for MMSE
    covariance estimation", 2010), so that there may be more columns than rows. Columns
    that are constant keep their own unit, as in :class:`sklearn.preprocessing.StandardScaler`.

    Parameters
    ----------
    n_kernels : int, default=512
    bandwidth : float, default=0.5
        h in units of Scott's rule, :math:`n^{-1/(d + 4)}` standard deviations, which is that of
        a single Gaussian; less follows rows more closely.
    whitening : float in [0, 1], default=0.5
        w.
    random_state : int, RandomState instance or None, default=None
        Of the groups.

    Attributes
    ----------
    density_ : qaffde.nn.KernelMixture
    bandwidth_ : float
        h, in standard deviations.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X had names

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> model = KernelMixture(random_state=0).fit(X)
    >>> model.score_samples([[0.0, 0.0]]).round(1)  # the true log-density is -1.84
    array([-2.])
    """

    n_kernels: int = 512
    bandwidth: float = 0.5
    whitening: float = 0.5
    random_state: Any = None
    density_: nn.KernelMixture = field(init=False)
    bandwidth_: float = field(init=False)

    @all_or_nothing
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the kernels to the rows of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : ignored
        sample_weight : array-like of shape (n,), optional
        """
        check_count("n_kernels", self.n_kernels)
        check_positive("bandwidth", self.bandwidth)
        if not 0 <= self.whitening <= 1:
            raise ValueError(f"whitening={self.whitening!r} must be a number from 0 to 1")
        rows, weight, _ = self._validated(X, sample_weight)
        share = weight / weight.sum()
        location, axes = _axes(rows, share, self.whitening)
        n = float(1 / share.square().sum())
        h = float(self.bandwidth) * n ** (-1 / (rows.shape[1] + 4))
        mass, centers, within = self._groups((rows - location) @ axes, share)
        widths = (within + h**2).sqrt()
        self.density_ = nn.KernelMixture(location, axes, mass.log(), centers, widths)
        self.bandwidth_ = h
        return self

    def _groups(self, z: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Shares (K,), means (K, d) and variances along each axis (K,) of groups of rows."""
        if len(z) <= self.n_kernels:
            return share, z, torch.zeros(len(z), dtype=z.dtype)
        from sklearn.cluster import KMeans

        generator = generator_from(self.random_state)
        some = torch.randperm(len(z), generator=generator)[: 20 * self.n_kernels]
        seed = generator.initial_seed() % 2**32
        means = KMeans(self.n_kernels, init="random", n_init=1, max_iter=20, random_state=seed)
        with warnings.catch_warnings():  # of copies, which are one group
            warnings.simplefilter("ignore", ConvergenceWarning)
            means.fit(z[some].numpy(), sample_weight=share[some].numpy())
        own = torch.tensor(means.predict(z.numpy())).long()
        mass = torch.zeros(self.n_kernels, dtype=z.dtype).index_add(0, own, share)
        total = torch.zeros(self.n_kernels, z.shape[1], dtype=z.dtype)
        centers = total.index_add(0, own, share[:, None] * z) / mass[:, None]
        away = share * (z - centers[own]).square().mean(1)
        within = torch.zeros_like(mass).index_add(0, own, away) / mass
        kept = mass > 0
        return mass[kept], centers[kept], within[kept]

    def _draw(self, n: int, generator: Generator) -> Tensor:
        return self.density_.sample(n, generator)


def _axes(rows: Tensor, share: Tensor, whitening: float) -> tuple[Tensor, Tensor]:
    """Mean (d,) of the rows, and axes (d, d) along which their covariance is C^(1 - w)."""
    location = share @ rows
    deviation = (share @ (rows - location).square()).sqrt()
    tiny = 1e-12 * rows.abs().amax(0)
    scale = torch.where(deviation > tiny, deviation, 1.0)
    if not whitening:
        return location, torch.diag(1 / scale)
    z = (rows - location) / scale
    C = (z * share[:, None]).T @ z
    d, n = len(C), 1 / share.square().sum()
    size, middle = C.square().mean(), C.diagonal().mean()
    apart = (n + 1) * (size - middle**2 / d)
    shrinkage = ((size + middle**2) / apart).clamp(max=1) if apart > 0 else torch.ones(())
    C = (1 - shrinkage) * C + shrinkage * torch.eye(d, dtype=C.dtype)
    lam, U = torch.linalg.eigh(C)
    floor = lam.max() * torch.finfo(lam.dtype).eps
    return location, (U * lam.clamp(min=floor) ** (-whitening / 2)) / scale[:, None]
