"""Kernel density estimates side by side: one kernel, each library in its own way.

Every method is fitted to whitened rows with one bandwidth h, the standard deviation of an
isotropic Gaussian kernel, and then gives log-densities. Only what a method needs is imported, once
it is asked for, so that a library that is missing costs its own row and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

N_FEATURES, RANK = 1000, 100
BLOCK = 1024  # rows, for the bare products: their features stay in cache, as ours do
GRID = (512, 512)
REL_ERROR = 0.01
PILOT_ROWS = 10_000
BASE: dict[int, dict[str, Any]] = {2: {"base_measure": "box"}}
"""Base measures of ours by the number of columns; chosen on other seeds than the published one."""
MANY_COLUMNS_BASE: dict[str, Any] = {"base_measure": 8}


class Fitted(Protocol):
    """What a method leaves behind."""

    def score_samples(self, X: Array) -> Array:
        """Log-densities of shape (n,) at rows of shape (n, d)."""


@dataclass(frozen=True)
class Scorer:
    """A function of queries as a fitted method."""

    log_density: Callable[[Array], Array]

    def score_samples(self, X: Array) -> Array:
        """Log-densities of shape (n,) at rows of shape (n, d)."""
        return self.log_density(X)


@dataclass(frozen=True)
class Method:
    """One line of the comparison.

    Parameters
    ----------
    label : str
        Its name in tables.
    fit : callable
        Of rows and the bandwidth.
    modules : tuple of str
        What is imported before anything is measured.
    package : str
        Whose version a row names.
    columns : tuple of int or None
        Numbers of columns that it can do; None is any.
    kind : {"kernel", "likelihood", "bare"}
        A kernel density estimate, another density, or operations that are no density.
    """

    label: str
    fit: Callable[[Array, float], Fitted]
    modules: tuple[str, ...]
    package: str
    columns: tuple[int, ...] | None = None
    kind: str = "kernel"


def fit_qaffde(X: Array, h: float, rank: int | float, dtype: str = "float64") -> Fitted:
    """Algorithm 2 at a bandwidth that is given: no search."""
    from qaffde import QAFFDE, ComputeConfig

    base = BASE.get(X.shape[1], MANY_COLUMNS_BASE)
    compute = ComputeConfig(dtype=dtype)
    model = QAFFDE(N_FEATURES, bandwidth=h, rank=rank, compute=compute, random_state=0, **base)
    return model.fit(X)


def fit_qaffde_sgd(X: Array, h: float) -> Fitted:
    """Maximum likelihood with nothing to search: a few iterations from Algorithm 2."""
    from qaffde import QAFFDESGD, TrainingConfig

    base = BASE.get(X.shape[1], MANY_COLUMNS_BASE)
    training = TrainingConfig(max_iter=10)
    model = QAFFDESGD(
        N_FEATURES, bandwidth=h, ridge=1e-3, training=training, random_state=0, **base
    )
    return model.fit(X)


def fit_bare(X: Array, h: float, rank: int) -> Fitted:
    """Cosines and φᵀφ by blocks; then cosines, a product with L, and the sum of squares."""
    generator = torch.Generator().manual_seed(0)
    W, L = (_normal(shape, generator) for shape in ((N_FEATURES, X.shape[1]), (rank, N_FEATURES)))
    rho = np.zeros((N_FEATURES, N_FEATURES))
    for x in torch.as_tensor(X).split(BLOCK):
        phi = (x @ W.T).cos_().numpy()
        rho += phi.T @ phi

    def squares(Q: Array) -> Array:
        blocks = torch.as_tensor(Q).split(BLOCK)
        return torch.cat([((x @ W.T).cos_() @ L.T).square_().sum(1) for x in blocks]).numpy()

    return Scorer(squares)


def fit_sklearn(X: Array, h: float, rtol: float) -> Fitted:
    """Tree of scikit-learn, exact or to a relative tolerance."""
    from sklearn.neighbors import KernelDensity

    return KernelDensity(bandwidth=h, rtol=rtol, atol=0).fit(X)


def fit_scipy(X: Array, h: float) -> Fitted:
    """All kernels summed; its covariance is that of the rows, which are white, times h²."""
    from scipy.stats import gaussian_kde

    estimate = gaussian_kde(X.T, bw_method=h)
    return Scorer(lambda Q: _log(estimate.evaluate(Q.T)))


def fit_fft(X: Array, h: float) -> Fitted:
    """A grid of densities by the fast Fourier transform, and linear interpolation in it."""
    from KDEpy import FFTKDE
    from scipy.interpolate import RegularGridInterpolator

    points, values = FFTKDE(kernel="gaussian", bw=h).fit(X).evaluate(GRID)
    axes = [np.unique(points[:, 0]), np.unique(points[:, 1])]
    surface = RegularGridInterpolator(axes, values.reshape(GRID), bounds_error=False, fill_value=0)
    return Scorer(lambda Q: _log(surface(Q)))


def fit_tree(X: Array, h: float) -> Fitted:
    """KDEpy's search for the kernels that are near enough to count."""
    from KDEpy import TreeKDE

    estimate = TreeKDE(kernel="gaussian", bw=h).fit(X)
    return Scorer(lambda Q: _log(estimate.evaluate(Q)))


def fit_mlpack(X: Array, h: float) -> Fitted:
    """Two trees, to a relative tolerance. It would score all rows if it had no query to fit."""
    from mlpack import kde

    options = {"bandwidth": h, "rel_error": REL_ERROR}
    first = kde(
        reference=X,
        query=X[:1].copy(),
        kernel="gaussian",
        tree="kd-tree",
        algorithm="dual-tree",
        copy_all_inputs=True,  # it would sort the caller's rows
        **options,
    )
    model = first["output_model"]
    return Scorer(lambda Q: _log(kde(input_model=model, query=Q.copy(), **options)["predictions"]))


def fit_keops(X: Array, h: float) -> Fitted:
    """All kernels, never more of them in memory than fit into registers; float32."""
    from pykeops.torch import LazyTensor

    n, d = X.shape
    rows = torch.as_tensor(X / h, dtype=torch.float32)
    constant = np.log(n) + d * np.log(h * np.sqrt(2 * np.pi))

    def log_density(Q: Array) -> Array:
        queries = torch.as_tensor(Q / h, dtype=torch.float32)
        difference = LazyTensor(queries[:, None]) - LazyTensor(rows[None])
        exponent = -0.5 * (difference**2).sum(-1)
        return exponent.logsumexp(1, backend="CPU")[:, 0].double().numpy() - constant

    return Scorer(log_density)


def fit_figtree(X: Array, h: float) -> Fitted:
    """Improved fast Gauss transform.

    Its tolerance is absolute: a share of the median of the same sum over some of the rows.
    """
    from pyfigtree import figtree

    n, d = X.shape
    weight = np.full(n, 1 / n)
    width = np.sqrt(2) * h
    share, some = REL_ERROR, X[:PILOT_ROWS]
    pilot = figtree(some, X[:100], np.full(len(some), 1 / len(some)), width, eval="direct")
    epsilon = share * float(np.median(pilot))
    mass = (np.sqrt(np.pi) * width) ** d
    return Scorer(lambda Q: _log(figtree(X, Q, weight, width, epsilon) / mass))


METHODS: dict[str, Method] = {
    "qaffde-100": Method(
        f"QAFFDE, rank {RANK}", lambda X, h: fit_qaffde(X, h, RANK), ("qaffde",), "qaffde"
    ),
    "bare-100": Method(
        f"bare cost, rank {RANK}", lambda X, h: fit_bare(X, h, RANK), (), "torch", kind="bare"
    ),
    "qaffde-single": Method(
        f"QAFFDE, rank {RANK}, float32",
        lambda X, h: fit_qaffde(X, h, RANK, "float32"),
        ("qaffde",),
        "qaffde",
    ),
    "qaffde-full": Method(
        "QAFFDE, full rank", lambda X, h: fit_qaffde(X, h, 1.0), ("qaffde",), "qaffde"
    ),
    "bare-full": Method(
        "bare cost, full rank",
        lambda X, h: fit_bare(X, h, N_FEATURES),
        (),
        "torch",
        kind="bare",
    ),
    "qaffde-sgd": Method("QAFFDE-SGD", fit_qaffde_sgd, ("qaffde",), "qaffde", kind="likelihood"),
    "sklearn-exact": Method(
        "scikit-learn, exact",
        lambda X, h: fit_sklearn(X, h, 0.0),
        ("sklearn.neighbors",),
        "scikit-learn",
    ),
    "sklearn-1e-2": Method(
        "scikit-learn, rtol 1e-2",
        lambda X, h: fit_sklearn(X, h, REL_ERROR),
        ("sklearn.neighbors",),
        "scikit-learn",
    ),
    "scipy": Method("SciPy gaussian_kde", fit_scipy, ("scipy.stats",), "scipy"),
    "kdepy-fft": Method(
        "KDEpy FFTKDE (a grid)", fit_fft, ("KDEpy", "scipy.interpolate"), "KDEpy", columns=(2,)
    ),
    "kdepy-tree": Method("KDEpy TreeKDE", fit_tree, ("KDEpy",), "KDEpy"),
    "mlpack": Method("mlpack, rel_error 1e-2", fit_mlpack, ("mlpack",), "mlpack"),
    "pykeops": Method("pykeops, float32", fit_keops, ("pykeops.torch",), "pykeops"),
    "figtree": Method("FIGTree", fit_figtree, ("pyfigtree",), "pyfigtree"),
}


def _normal(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _log(density: Array) -> Array:
    """Logarithm of densities that may be zero, or below it by rounding."""
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(density, 0.0))
