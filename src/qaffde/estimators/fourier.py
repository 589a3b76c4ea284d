"""Fourier features as a scikit-learn transformer."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde import nn
from qaffde.estimators.base import FileMixin
from qaffde.parameters import (
    check_bandwidth,
    check_choice,
    check_count,
    check_lattice,
    generator_from,
)
from qaffde.selection.bandwidth import scott, silverman
from qaffde.training import fit_adaptive_features

RULES = ("scott", "silverman", "median")
FEATURES = (*QF.FREQUENCIES, "adaptive")
FAR = 1e100
"""Bandwidths from the center beyond which all rows have the same features."""
MEDIAN_ROWS = 1000
"""Rows whose distances have the median that is a bandwidth."""
LATTICE_MARGIN = 6.0  # deviations of the kernel between the data and their next image: e^−18


@dataclass(eq=False, repr=False)
class FourierFeatures(FileMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Map rows to Fourier features whose inner products approximate a Gaussian kernel.

    .. math:: \phi_i(x) = a_i \cos(w_i \cdot x + b_i), \qquad
              \langle \phi(x), \phi(y) \rangle^2 \approx
              k(x, y) = \exp\Bigl( -\frac{\lVert x - y \rVert^2}{2 h^2} \Bigr)

    The inner product is squared because a density matrix squares it (paper, Eq. 2). With
    ``squared=False``, for linear models, it is not, as in
    :class:`sklearn.kernel_approximation.RBFSampler` with ``gamma = 1 / (2 h²)``.

    Parameters
    ----------
    n_features : int, default=100
        Number D of features. All kinds but "random" come in pairs of a cosine and a sine (and
        "lattice" with a constant): they round it down.
    bandwidth : "scott", "silverman", "median", float or array-like of shape (d,), default="scott"
        Standard deviation h of the kernel, for all columns or for each. Scott's and Silverman's
        rules give each column its own; "median" is the median distance of two rows.
    features : str, default="sobol"
        How the frequencies are found: "random" (the classic, with random phases), "paired",
        "orthogonal", "sobol" (quasi-random: the lowest error up to six columns or so), "lattice"
        (a Fourier series over the range of the data, up to four columns), or "adaptive"
        ("sobol", then learned on the data by the paper's Algorithm 1).
    squared : bool, default=True
        Whether the squared inner product or the inner product itself approximates the kernel.
    random_state : int, RandomState or None, default=None
        Pass an integer for the same features every time.

    Attributes
    ----------
    bandwidth_ : ndarray of shape (d,)
        Bandwidth of the kernel, one for each column.
    location_ : ndarray of shape (d,)
        Mean of the data, which is subtracted: far from zero the phases would lose their digits.
    frequencies_ : ndarray of shape (D, d)
    phases_, amplitudes_ : ndarrays of shape (D,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X had names

    See Also
    --------
    qaffde.nn.FourierFeatures : The same map as a torch layer.

    Examples
    --------
    >>> from sklearn.metrics.pairwise import rbf_kernel
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> phi = FourierFeatures(n_features=200, bandwidth=0.5, random_state=0).fit_transform(X)
    >>> phi.shape
    (500, 200)
    >>> error = (phi @ phi.T) ** 2 - rbf_kernel(X, gamma=1 / (2 * 0.5**2))
    >>> bool(np.sqrt(np.mean(error**2)) < 0.01)
    True
    """

    n_features: int = 100
    _: KW_ONLY
    bandwidth: str | float | ArrayLike = "scott"
    features: str = "sobol"
    squared: bool = True
    random_state: int | RandomState | None = None

    def fit(self, X: ArrayLike, y: None = None) -> Self:
        """Find the bandwidth and the frequencies for rows `X` of shape (n, d)."""
        rows: Any = validate_data(self, X, dtype=[np.float64, np.float32]).astype(np.float64)
        check_count("n_features", self.n_features)
        check_choice("features", self.features, FEATURES)
        check_bandwidth(self.bandwidth, rows.shape[1], RULES)
        if not isinstance(self.squared, bool | np.bool_):
            raise ValueError(f"squared={self.squared!r} must be True or False")
        check_lattice(self.features, rows.shape[1])
        generator = generator_from(self.random_state)

        self.location_ = rows.mean(0)
        centered = rows - self.location_
        self.bandwidth_ = self._find_bandwidth(centered, generator)
        h = torch.tensor(self.bandwidth_)
        layer = self._find_features(torch.tensor(centered), h, generator)
        parts = layer.W.numpy(), layer.b.numpy(), layer.a.numpy()
        self.frequencies_, self.phases_, self.amplitudes_ = parts
        if not (np.isfinite(self.location_).all() and np.isfinite(self.frequencies_).all()):
            raise ValueError(
                "the values of X are too large or too close together for float64; bring columns "
                "to a common scale, for instance with StandardScaler"
            )
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Features (n, D) of rows (n, d): in float32 if `X` is, computed in float64."""
        check_is_fitted(self)
        rows: Any = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        most = np.finfo(np.float64).max
        far = np.minimum(FAR * self.bandwidth_, most)  # phases of infinity would be NaN
        centered = torch.from_numpy(np.clip(rows - self.location_, -far, far))
        parts = map(torch.tensor, (self.frequencies_, self.phases_, self.amplitudes_))
        phi = QF.fourier_features(centered, *parts)
        return phi.numpy().astype(rows.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return len(self.phases_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _find_bandwidth(self, X: NDArray[np.float64], generator: Generator) -> NDArray[np.float64]:
        n, d = X.shape
        if (numbers := check_bandwidth(self.bandwidth, d, RULES)) is not None:
            return numbers.numpy()
        if self.bandwidth == "median":
            return np.full(d, median_distance(X, generator))
        factor = scott(n, d) if self.bandwidth == "scott" else silverman(n, d)
        with np.errstate(over="ignore"):
            deviation = X.std(0)
        if not np.isfinite(deviation).all():
            raise ValueError(
                "the values are so large that their variance overflows; divide the columns first, "
                "or pass bandwidth as a number"
            )
        return factor * np.where((np.ptp(X, axis=0) > 0) & (deviation > 0), deviation, 1.0)

    def _find_features(self, X: Tensor, h: Tensor, generator: Generator) -> nn.FourierFeatures:
        """Draw frequencies, and learn them if they are to be adaptive."""
        # The square of k(h√2) is k(h): what is drawn for h approximates k(h√2) before squaring.
        drawn_h = h if self.squared else h / math.sqrt(2)
        kind = "sobol" if self.features == "adaptive" else self.features
        period = X.amax(0) - X.amin(0) + LATTICE_MARGIN * math.sqrt(2) * drawn_h
        layer = nn.FourierFeatures.draw(kind, self.n_features, drawn_h, period, generator)
        if self.features != "adaptive":
            return layer
        squared = bool(self.squared)
        return fit_adaptive_features(layer, X, h, squared=squared, generator=generator)


def median_distance(X: NDArray[np.float64], generator: Generator) -> float:
    """Median distance of two different rows (of at most 1000), one where no two rows differ.

    Examples
    --------
    >>> median_distance(np.array([[0.0], [1.0], [4.0]]), torch.Generator())
    3.0
    """
    rows = torch.randperm(len(X), generator=generator)[:MEDIAN_ROWS]
    distances = pdist(X[rows.numpy()])
    distances = distances[distances > 0]
    return float(np.median(distances)) if len(distances) else 1.0
