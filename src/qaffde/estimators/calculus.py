"""The calculus of a fitted density: marginals, conditionals, probabilities, draws, moments."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from qaffde.estimators.base import Array, DensityEstimator
from qaffde.estimators.columns import Column, check_box, resolve_columns, resolve_condition
from qaffde.estimators.parameters import check_choice, check_count
from qaffde.estimators.random import generator_from
from qaffde.estimators.regions import RegionMixin, Seed
from qaffde.nn import BornMixture, expand


class BornEstimator(RegionMixin, DensityEstimator):
    """Density estimator with the exact calculus of sums of trigonometric terms.

    Every operation needs a finite base measure: box, Gaussian or mixture.
    """

    def marginal(self, columns: Iterable[Column]) -> "DerivedDensity":
        """Density of some columns, in the order given; the others are integrated out.

        Parameters
        ----------
        columns : iterable of int or str
            Numbers or names.

        Returns
        -------
        DerivedDensity
        """
        density = self._mixture()
        keep = resolve_columns(columns, density.n_dims, self._names())
        return DerivedDensity(density.marginal(keep), self._names(keep))

    def condition(
        self, values: Mapping[Column, ArrayLike]
    ) -> "DerivedDensity | list[DerivedDensity]":
        """Density of the other columns where some have given values.

        Parameters
        ----------
        values : dict of {int or str: float or array of shape (m,)}
            Value of each given column. Arrays stand for m conditions at once.

        Returns
        -------
        DerivedDensity, or a list of m of them where values are arrays
            They share their matrices: many conditions need little memory. To score or fill many
            rows, each under its own condition, :meth:`conditional_score_samples` and
            :meth:`impute` are faster.
        """
        density = self._mixture()
        columns, given, many = resolve_condition(values, density.n_dims, self._names())
        names = self._names([c for c in range(density.n_dims) if c not in columns])
        found = []
        for row in torch.as_tensor(given):
            conditional = density.condition(columns, row)
            if not conditional.terms:
                raise ValueError(f"the density is zero at columns {columns} = {row.tolist()}")
            found.append(DerivedDensity(conditional, names))
        return found if many else found[0]

    def conditional_score_samples(self, X: ArrayLike, given: Iterable[Column]) -> Array:
        """Log-density of each row's other columns, given that row's values of some columns.

        Parameters
        ----------
        X : array-like of shape (n, d)
        given : iterable of int or str
            Columns to condition on.

        Returns
        -------
        ndarray of shape (n,)
        """
        rows = self._rows(X)
        columns = resolve_columns(given, rows.shape[1], self._names())
        if len(columns) == rows.shape[1]:
            raise ValueError("every column is given: no column is left to have a density")
        marginal = DerivedDensity(self._mixture().marginal(columns))
        return self.score_samples(X) - marginal.score_samples(rows[:, columns])

    def probability(self, lower: ArrayLike, upper: ArrayLike) -> float:
        """Probability of the box between `lower` and `upper`.

        Columns with two infinite ends are integrated out first. On the remaining ones it is exact
        for a box base and in one dimension; a Gaussian base with correlations is integrated by
        quadrature to rounding in two and three columns, and by quasi-random points, to about
        1e-4, beyond.

        Parameters
        ----------
        lower, upper : float or array-like of shape (d,)
            May be infinite.
        """
        density = self._mixture()
        ends = check_box(lower, upper, density.n_dims)
        return float(density.probability(*(torch.as_tensor(end) for end in ends)))

    def cdf(self, X: ArrayLike) -> Array:
        """Distribution function P(x₁ ≤ X₁, …, x_d ≤ X_d) of each row; see :meth:`probability`.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Infinite values are allowed.
        """
        rows = self._rows(X, ensure_all_finite=False)
        if rows.isnan().any():
            raise ValueError("X contains NaN; use inf for columns that do not matter")
        return self._mixture().cdf(rows).numpy()

    def ppf(self, q: ArrayLike) -> Array:
        """Quantiles of a density of one column.

        Parameters
        ----------
        q : float or array-like
            Probabilities in [0, 1].

        Returns
        -------
        ndarray of the shape of `q`
        """
        density = self._mixture()
        if density.n_dims != 1:
            raise ValueError(
                f"quantiles need one column, this density has {density.n_dims}; take a marginal "
                "or a conditional first"
            )
        levels = np.asarray(q, dtype=np.float64)
        if not ((levels >= 0) & (levels <= 1)).all():
            raise ValueError("q must lie between 0 and 1")
        return density.ppf(torch.tensor(levels.ravel())).numpy().reshape(levels.shape)

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> Array:
        """Exact independent draws.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, d)
        """
        check_count("n_samples", n_samples)
        return self._mixture().sample(int(n_samples), generator_from(random_state)).numpy()

    def impute(self, X: ArrayLike, method: str = "sample", random_state: Seed = None) -> Array:
        """Fill missing values from their conditional density, given what the row has.

        Parameters
        ----------
        X : array-like of shape (n, d)
            NaN where a value is missing.
        method : {"sample", "mean"}, default="sample"
            A draw from the conditional, or its mean.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n, d)
            A copy without NaN.
        """
        check_choice("method", method, ("sample", "mean"))
        rows = self._rows(X, ensure_all_finite="allow-nan")
        density, generator = self._mixture(), generator_from(random_state)
        patterns, group = rows.isnan().unique(dim=0, return_inverse=True)
        for number, missing in enumerate(patterns):
            if not missing.any():
                continue
            have, lack = ((missing == flag).nonzero()[:, 0].tolist() for flag in (False, True))
            ordered, which = density.reordered([*have, *lack]), group == number
            given = rows[which][:, have]
            filled = (
                ordered.mean_given(given)
                if method == "mean"
                else ordered.sample_given(given, generator)
            )
            rows[which.nonzero(), torch.tensor(lack)] = filled
        return rows.numpy()

    def mean(self) -> Array:
        """Mean of the density, of shape (d,), in closed form."""
        return self._mixture().mean().numpy()

    def covariance(self) -> Array:
        """Covariance of the density, of shape (d, d), in closed form."""
        return self._mixture().covariance().numpy()

    def _mixture(self) -> BornMixture:
        check_is_fitted(self)
        return expand(self.density_)

    def _names(self, columns: list[int] | None = None) -> Any:
        names = getattr(self, "feature_names_in_", None)
        return names if names is None or columns is None else names[columns]

    def _rows(self, X: ArrayLike, *, ensure_all_finite: bool | str = True) -> Tensor:
        check_is_fitted(self)
        checked = validate_data(
            self,
            X,
            dtype=np.float64,
            order="C",
            reset=False,
            ensure_all_finite=ensure_all_finite,
        )
        return torch.tensor(checked)


class DerivedDensity(BornEstimator):
    """A marginal or conditional of a fitted density: a density estimator that is born fitted.

    Parameters
    ----------
    density : qaffde.nn.BornMixture
    feature_names : ndarray of str, optional

    Examples
    --------
    >>> from qaffde import QAFFDE
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = QAFFDE(n_features=64, bandwidth=0.4, base_measure="gaussian").fit(X)
    >>> first = model.marginal([0])
    >>> first.cdf([[np.inf]]).round(9), first.sample(3, random_state=0).shape
    (array([1.]), (3, 1))
    """

    def __init__(self, density: BornMixture, feature_names: Any = None) -> None:
        self.density = density
        self.feature_names = feature_names

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Return the density as it is: there is nothing to learn."""
        return self

    @property
    def density_(self) -> BornMixture:  # type: ignore[override]
        """The density, a torch module."""
        return self.density

    @property
    def n_features_in_(self) -> int:
        """The number of columns."""
        return self.density.n_dims

    @property
    def feature_names_in_(self) -> Any:
        """The names of the columns, where the fit had them."""
        if self.feature_names is None:
            raise AttributeError("the density was fitted without column names")
        return self.feature_names

    def __sklearn_is_fitted__(self) -> bool:
        return True
