"""How well an estimated density agrees with a true one, on points drawn from the true one."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr


def spearman(log_p_true: ArrayLike, log_p_est: ArrayLike) -> float:
    """Spearman's rank correlation of the two densities.

    Ranks are the same for densities and log-densities, so nothing is exponentiated. Undefined
    (NaN, with SciPy's warning) where one of the two is constant.

    Parameters
    ----------
    log_p_true, log_p_est : array-like of shape (n,)
        Log-densities at the same points.

    Examples
    --------
    >>> spearman([-3.0, -2.0, -1.0], [-9.0, -4.0, -1.0])
    1.0
    """
    log_p_true, log_p_est = _checked(log_p_true, log_p_est)
    return float(spearmanr(log_p_true, log_p_est).statistic)


def mean_absolute_error(log_p_true: ArrayLike, log_p_est: ArrayLike) -> float:
    r"""Mean absolute error of the density (not of its logarithm), as in the paper.

    .. math:: \frac1n \sum_i |p(x_i) - \hat p(x_i)|

    Log-densities, of shape (n,), are those at the same points.

    Examples
    --------
    >>> round(mean_absolute_error(np.log([0.5, 0.3]), np.log([0.4, 0.3])), 6)
    0.05
    """
    log_p_true, log_p_est = _checked(log_p_true, log_p_est)
    with np.errstate(over="ignore"):
        return float(np.mean(np.abs(np.exp(log_p_true) - np.exp(log_p_est))))


def excess_nll(log_p_true: ArrayLike, log_p_est: ArrayLike) -> float:
    r"""Excess of the estimate's negative log-likelihood over the truth's, in nats.

    .. math:: \frac1n \sum_i \log p(x_i) - \log\hat p(x_i) \;\approx\;
        \mathrm{KL}(p \,\|\, \hat p), \qquad x_i \sim p

    The difference is paired: both log-densities are taken at the same points. So the noise of the
    entropy, which all the points share, cancels, and what remains is only the noise of the
    log-ratio. The expectation is zero for the true density and positive for any other, which
    makes this metric proper. One point of estimated density zero makes it infinite.

    Parameters
    ----------
    log_p_true, log_p_est : array-like of shape (n,)
        Log-densities at the same points, drawn from the true density.

    See Also
    --------
    excess_nll_standard_error

    Examples
    --------
    >>> excess_nll([-1.0, -2.0], [-1.5, -2.0])
    0.25
    >>> excess_nll([-1.0, -2.0], [-1.5, -np.inf])
    inf
    """
    log_p_true, log_p_est = _checked(log_p_true, log_p_est)
    return float(np.mean(log_p_true - log_p_est))


def excess_nll_standard_error(log_p_true: ArrayLike, log_p_est: ArrayLike) -> float:
    r"""Estimate the standard error of `excess_nll` over the draw of the points.

    .. math:: \sqrt{\frac{1}{n(n-1)} \sum_i (\ell_i - \bar\ell)^2}, \qquad
        \ell_i = \log p(x_i) - \log\hat p(x_i)

    Infinite where the excess is.

    Parameters
    ----------
    log_p_true, log_p_est : array-like of shape (n,)
        Log-densities at the same points, drawn from the true density.

    Examples
    --------
    >>> excess_nll_standard_error([-1.0, -2.0], [-1.5, -2.0])
    0.25
    """
    log_p_true, log_p_est = _checked(log_p_true, log_p_est)
    log_ratio = log_p_true - log_p_est
    if np.isinf(log_ratio).any():
        return float("inf")
    return float(np.std(log_ratio, ddof=1) / np.sqrt(len(log_ratio)))


METRICS = {
    metric.__name__: metric
    for metric in (spearman, mean_absolute_error, excess_nll, excess_nll_standard_error)
}


def density_metrics(log_p_true: ArrayLike, log_p_est: ArrayLike) -> dict[str, float]:
    """All metrics, by name, of log-densities at points drawn from the true density.

    Examples
    --------
    >>> metrics = density_metrics([-1.0, -2.0], [-1.5, -2.0])
    >>> list(metrics)
    ['spearman', 'mean_absolute_error', 'excess_nll', 'excess_nll_standard_error']
    >>> metrics["excess_nll"]
    0.25
    """
    return {name: metric(log_p_true, log_p_est) for name, metric in METRICS.items()}


def _checked(
    log_p_true: ArrayLike, log_p_est: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    log_p_true = np.asarray(log_p_true, dtype=np.float64)
    log_p_est = np.asarray(log_p_est, dtype=np.float64)
    if log_p_true.ndim != 1 or log_p_true.shape != log_p_est.shape:
        raise ValueError(
            "log_p_true and log_p_est must be vectors of one length, "
            f"got shapes {log_p_true.shape} and {log_p_est.shape}"
        )
    if len(log_p_true) < 2:
        raise ValueError(f"the metrics need at least two points, got {len(log_p_true)}")
    if not np.isfinite(log_p_true).all():
        raise ValueError(
            "log_p_true must be finite: evaluate on points drawn from the true density"
        )
    if not (log_p_est < np.inf).all():
        raise ValueError("log_p_est must not be NaN or +inf; -inf, a density of zero, is allowed")
    return log_p_true, log_p_est
