"""What is settled before the classes are summed up: projection, base measure, features."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, FourierFeatures, GaussianMeasure
from qaffde.nn.class_density import Projection
from qaffde.selection.base_measure import fit_mixture
from qaffde.training import fit_adaptive_features

MAX_COLUMNS = 16
"""Columns beyond which "auto" projects."""
MAX_COMPONENTS = 50
EXPLAINED = 0.95
"""Share of the variance that "auto" keeps, if so many components hold it."""
NEGLIGIBLE = 1e-10
"""Share of the largest variance below which an axis is empty."""
LEAST_NOISE = 1e-6
"""Share of the mean variance of the axes that a direction without axis has at least."""
SHRINKAGE = 1e-3
ROUNDING = 1e-14
"""Relative error of principal variances."""
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows (n, d), class numbers (n,) and weights (n,), and the number of classes."""

    X: Tensor
    y: Tensor
    weight: Tensor
    n_classes: int

    def part(self, chosen: Tensor) -> "LabelledRows":
        """Some of the rows."""
        return LabelledRows(self.X[chosen], self.y[chosen], self.weight[chosen], self.n_classes)

    @property
    def class_weight(self) -> Tensor:
        """Weight of each class, of shape (C,)."""
        return torch.zeros(self.n_classes, dtype=torch.float64).index_add_(0, self.y, self.weight)

    @property
    def log_prior(self) -> Tensor:
        """Logarithm of each class's share."""
        return (self.class_weight / self.class_weight.sum()).log()


@dataclass(frozen=True, eq=False)
class ClassFrame:
    """Projection, base measure and features: what all classes, and all chunks of rows, share.

    Parameters
    ----------
    projection : Projection
    bandwidth : Tensor of shape (q,)
        Of the frequencies, in the units of z.
    measure : BaseMeasure
        Of z.
    features : FourierFeatures
        Of z.
    gram : Tensor of shape (D, D)
        Of the features on the measure.
    """

    projection: Projection
    bandwidth: Tensor
    measure: BaseMeasure
    features: FourierFeatures
    gram: Tensor

    def coordinates(self, X: Tensor) -> Tensor:
        """Coordinates of shape (n, q) of rows of shape (n, d)."""
        return project(self.projection, X)

    def phi(self, X: Tensor) -> Tensor:
        """Features of shape (n, D) of rows of shape (n, d)."""
        return self.features(self.coordinates(X))


def project(projection: Projection, X: Tensor) -> Tensor:
    """Coordinates of many rows, of which no second copy is made."""
    return torch.cat([projection(x.double()) for x in X.split(BLOCK)])


def settle_projection(
    X: Tensor, weight: Tensor, n_components: int | str | None, *, whiten: bool
) -> Projection:
    """Centre and scale columns, or project them on principal axes.

    Columns are scaled to unit variance one by one; principal components by one number, so that
    distances stay those of the data, or one by one if they are to be white.
    """
    share = (weight / weight.sum()).double()
    location = sum(s @ x.double() for s, x in _blocks(share, X))
    d = X.shape[1]
    assert isinstance(location, Tensor)
    if n_components is None or (n_components == "auto" and d <= MAX_COLUMNS):
        variance = sum(s @ (x - location).square() for s, x in _blocks(share, X))
        return Projection(location, _safe_root(torch.as_tensor(variance), location))
    covariance = X.new_zeros(d, d, dtype=torch.float64)
    for s, x in _blocks(share, X):
        centred = (x - location) * s.sqrt()[:, None]
        covariance.addmm_(centred.T, centred)
    most = min(MAX_COMPONENTS if n_components == "auto" else int(n_components), d)
    variance, axes = _principal(covariance, most)
    if n_components == "auto":
        explained = variance.cumsum(0) / covariance.trace()
        most = min(most, int((explained < EXPLAINED).sum()) + 1)
    most = max(1, min(most, int((variance > NEGLIGIBLE * variance[0]).sum())))
    variance, axes = variance[:most], axes[:, :most]
    scale = variance if whiten else variance.mean().expand(most)
    noise = _left_out(covariance.trace() - variance.sum(), d - most, variance.mean())
    return Projection(location, _safe_root(scale.clone(), location[:1]), axes, noise)


def _left_out(total: Tensor, n_directions: int, usual: Tensor) -> Tensor | None:
    """Variance along each direction that has no axis; None where all have one."""
    if n_directions == 0:
        return None
    least = LEAST_NOISE * usual if usual > 0 else torch.ones_like(usual)
    return (total / n_directions).clamp(min=least)


def _blocks(share: Tensor, X: Tensor) -> "zip[tuple[Tensor, Tensor]]":
    return zip(share.split(BLOCK), (x.double() for x in X.split(BLOCK)), strict=False)


def _safe_root(variance: Tensor, location: Tensor) -> Tensor:
    """Standard deviation; one where there is none but rounding."""
    scale = variance.sqrt()
    constant = scale <= 1e-13 * location.abs().expand_as(scale)
    return torch.where(constant | ~(scale > 0), torch.ones_like(scale), scale)


def _principal(covariance: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Leading variances, falling, and their axes as columns, each of them pointing one way."""
    lam, V = QF.leading_eigenpairs(covariance, most, ROUNDING)
    sign = V.gather(1, V.abs().argmax(1, keepdim=True)).sign()
    return lam, (V * sign).T.contiguous()


def settle_measure(
    Z: Tensor, weight: Tensor, base_measure: str, n_components: int, generator: Generator
) -> GaussianMeasure:
    """One Gaussian with the rows' covariance, or a mixture of them."""
    if base_measure == "mixture":
        return fit_mixture(Z, weight, n_components, generator)
    share = weight / weight.sum()
    mean = share @ Z
    covariance = (Z - mean).T @ ((Z - mean) * share[:, None])
    diagonal = covariance.diagonal().clamp(min=SHRINKAGE)
    shrunk = torch.lerp(covariance, diagonal.diag(), SHRINKAGE)
    shrunk.diagonal().clamp_(min=SHRINKAGE)
    return GaussianMeasure(torch.ones(1, dtype=Z.dtype), mean[None], shrunk[None])


def settle_features(
    kind: str, n_features: int, bandwidth: Tensor, Z: Tensor | None, generator: Generator
) -> FourierFeatures:
    """Frequencies of a bandwidth of shape (q,), by Algorithm 1 if they are to be adaptive."""
    q = len(bandwidth)
    chosen = ("sobol" if q <= 6 else "orthogonal") if kind in ("auto", "adaptive") else kind
    features = FourierFeatures.draw(chosen, n_features, bandwidth, None, generator)
    if kind == "adaptive" and Z is not None:
        features = fit_adaptive_features(features, Z, bandwidth, generator=generator)
    return features
