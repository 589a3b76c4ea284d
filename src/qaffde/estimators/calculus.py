"""The calculus of a fitted density: marginals, conditionals, probabilities, draws, moments."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from qaffde.boxes import (
    Column,
    check_box,
    resolve_columns,
    resolve_condition,
    resolve_region,
)
from qaffde.estimators.base import Array, DensityEstimator, FileMixin
from qaffde.estimators.information import InformationMixin
from qaffde.frames import with_index
from qaffde.functional.regions import N_POINTS, check_mass, weighted_quantile
from qaffde.nn import BornMixture, TableDensity, expand, find_born
from qaffde.parameters import Seed, check_choice, check_count, generator_from
from qaffde.schema import Schema


class BornEstimator(FileMixin, InformationMixin, DensityEstimator):
    """Density estimator with the exact calculus of densities whose base measure is finite."""

    ensure_all_finite = "allow-nan"

    def _log_density(self, rows: Array) -> Array:
        """Log-density of rows; what is missing is integrated out."""
        if not np.isnan(rows).any():
            return super()._log_density(rows)
        return self._mixture().log_prob(torch.tensor(rows)).numpy()

    def marginal(self, columns: Iterable[Column]) -> "DerivedDensity":
        """Density of some columns, in the order given; the others are integrated out.

        Parameters
        ----------
        columns : iterable of int or str
            Numbers or names.
        """
        density = self._mixture()
        keep = resolve_columns(columns, density.n_dims, self._names())
        return self._derived(density.marginal(keep), keep)

    def condition(
        self, values: Mapping[Column, ArrayLike]
    ) -> "DerivedDensity | list[DerivedDensity]":
        """Density of the other columns where some have given values.

        Parameters
        ----------
        values : dict of {int or str: value or array of shape (m,)}
            Value of each given column: a number, or the label of a category; or m of them.

        Returns
        -------
        DerivedDensity, or a list of m of them where values are arrays
            To score or fill many rows, each under its own condition,
            :meth:`conditional_score_samples` and :meth:`impute` are faster.
        """
        density = self._mixture()
        n, names = density.n_dims, self._names()
        columns, given, many = resolve_condition(values, n, names, self.schema_)
        rest = [c for c in range(n) if c not in columns]
        rows = torch.as_tensor(given)
        found = [self._derived(density.condition(columns, row), rest) for row in rows]
        for derived, row in zip(found, given, strict=True):
            derived.given = self._said(columns, row)
        return found if many else found[0]

    def conditional_score_samples(self, X: ArrayLike, given: Iterable[Column]) -> Array:
        """Log-density (n,) of each row's other columns, given that row's values of some columns.

        Parameters
        ----------
        X : array-like of shape (n, d)
        given : iterable of int or str
            Columns to condition on.
        """
        rows = self._rows(X)
        columns = resolve_columns(given, rows.shape[1], self._names())
        if len(columns) == rows.shape[1]:
            raise ValueError("every column is given: no column is left to have a density")
        order = [*columns, *(c for c in range(rows.shape[1]) if c not in columns)]
        density = self._mixture().reordered(order)
        return density.log_prob_given(rows[:, order], len(columns)).numpy()

    def probability(self, lower: Any, upper: Any = None, *, return_error: bool = False) -> Any:
        """Probability of the box between `lower` and `upper`, or of a region of some columns.

        Columns with two infinite ends are integrated out first. On the others it is exact to 1e-9
        where that takes less than about half a second: always in one column, nearly always for a
        box base and in two columns. Otherwise it is an unbiased mean over quasi-random points in
        the box.

        Parameters
        ----------
        lower, upper : float or array-like of shape (d,)
            May be infinite. Or, in place of both, a dict of {column: values}: a pair
            ``(lower, upper)`` with None for an open end, a value, or a list of values. A pair of a
            periodic column may go over its cut: ``(22, 4)``.
        return_error : bool, default=False
            Whether to return the error as well.

        Returns
        -------
        probability, error : float
            The error, only with `return_error`, is zero where the probability is exact, otherwise
            half the width of its 99 % confidence interval.
        """
        density: Any = self._mixture()
        if isinstance(lower, Mapping):
            if upper is not None:
                raise ValueError("a region is one dict: {column: (lower, upper), ...}")
            *ends, masks = resolve_region(lower, density.n_dims, self._names(), self.schema_)
        else:
            ends, masks = [end[None] for end in check_box(lower, upper, density.n_dims)], {}
        sets = [{k: torch.as_tensor(mask) for k, mask in masks.items()}] if masks else []
        found = density.probability(*map(torch.as_tensor, ends), *sets)
        value, error = (float(part.sum()) for part in found)
        return (value, error) if return_error else value

    def cdf(self, X: ArrayLike, *, return_error: bool = False) -> Any:
        """Distribution function P(x₁ ≤ X₁, …, x_d ≤ X_d) of each row; see :meth:`probability`.

        Parameters
        ----------
        X : array-like of shape (n, d), or numbers of any shape where there is one column
            Infinite values are allowed.
        return_error : bool, default=False
            Whether to return the error of each row as well.
        """
        shape = np.shape(X)
        if len(shape) < 2 and self._mixture().n_dims == 1:
            column = self._table(np.reshape(np.asarray(X, dtype=np.float64), (-1, 1)))
            found = self.cdf(column, return_error=True)
            value, error = (part.reshape(shape)[()] for part in found)
            return (value, error) if return_error else value
        rows = self._rows(X, ensure_all_finite=False)
        if rows.isnan().any():
            raise ValueError("X contains NaN; use inf for columns that do not matter")
        value, error = (part.numpy() for part in self._mixture().cdf(rows))
        return (value, error) if return_error else value

    def ppf(self, q: ArrayLike) -> Array:
        """Quantiles of a density of one column, of the shape of `q`.

        Parameters
        ----------
        q : float or array-like
            Probabilities in [0, 1].
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

    def _draw(self, n: int, generator: Generator) -> Tensor:
        return self._mixture().sample(n, generator)

    def impute(self, X: ArrayLike, method: str = "sample", random_state: Seed = None) -> Any:
        """Fill missing values from their conditional density, given what the row has.

        Parameters
        ----------
        X : array-like of shape (n, d), or a data frame
            NaN, or a null of the frame, where a value is missing.
        method : {"sample", "mean"}, default="sample"
            A draw from the conditional, or its mean.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n, d), or a data frame like that of the fit
        """
        check_choice("method", method, ("sample", "mean"))
        rows = self._rows(X, ensure_all_finite="allow-nan")
        density, generator = self._mixture(), generator_from(random_state)
        filled = density.fill(rows, generator if method == "sample" else None)
        lost = ~filled.isfinite().all(1)
        if lost.any():
            raise ValueError(
                f"row {int(lost.int().argmax())} cannot be filled: what it has lies so far from "
                "the data that the rest overflows; leave the row out"
            )
        return with_index(self._table(filled.numpy()), X)

    def mean(self) -> Array:
        """Mean of the density, of shape (d,); to about 1e-8 of the deviation of mapped columns."""
        return self._mixture().mean().numpy()

    def covariance(self) -> Array:
        """Covariance of the density, (d, d); to about 1e-6 of the deviations of mapped columns."""
        covariance = self._mixture().covariance().numpy()
        if not np.isfinite(covariance).all():
            raise ValueError("the variance of a column overflows; divide the column first")
        return covariance

    def hdr_level(
        self, mass: ArrayLike, n_samples: int = N_POINTS, random_state: Seed = None
    ) -> Any:
        r"""Log-density at the edge of the smallest region of a given mass.

        The quantile of the log-density over draws from the density itself, or over n even
        quantiles of a density of one column. The mass of the region found is off by about
        :math:`\sqrt{\alpha(1-\alpha)/n}`, or one over n.

        Parameters
        ----------
        mass : float or array-like
            α in (0, 1), one or several.
        n_samples : int, default=10000
        random_state : int, RandomState instance or None, default=None
        """
        levels = check_mass(mass)
        check_count("n_samples", n_samples)
        if self.n_features_in_ > 1:
            points = self._draws(n_samples, random_state)
            weight = np.ones(len(points))
        else:
            points, weight = (part.numpy() for part in self._mixture().even_points(n_samples))
        found = weighted_quantile(self._log_density(points), weight, 1 - levels)
        if not np.isfinite(found).all():
            raise ValueError(
                "much of the mass lies so far out that its density is zero in float64; leave out "
                "rows that are far from all others"
            )
        return found

    def purity(self) -> float:
        """Purity tr σ² of the density matrix: one for a pure state, 1/r for r equal ones."""
        return float(self._spectrum().square().sum())

    def von_neumann_entropy(self) -> float:
        """Von Neumann entropy −tr σ log σ of the density matrix, in nats."""
        lam = self._spectrum()
        return -float(torch.special.xlogy(lam, lam).sum())

    def effective_rank(self) -> float:
        """Exponential of the von Neumann entropy: how many states the data fill."""
        return math.exp(self.von_neumann_entropy())

    def _spectrum(self) -> Tensor:
        check_is_fitted(self)
        try:
            return find_born(self.density_).spectrum()
        except TypeError as error:
            wrong = "mixtures of tables and chains have no density matrix"
            raise ValueError(wrong) from error

    def _mixture(self) -> BornMixture | TableDensity:
        check_is_fitted(self)
        return expand(self.density_)

    def _rows(self, X: ArrayLike, *, ensure_all_finite: bool | str = True) -> Tensor:
        check_is_fitted(self)
        return torch.tensor(self._numbers(X, ensure_all_finite=ensure_all_finite))

    def _derived(self, density: Any, columns: list[int]) -> "DerivedDensity":
        """A density of some of the columns."""
        schema = None if self.schema_ is None else self.schema_.select(columns)
        return DerivedDensity(density, self._names(columns), schema, getattr(self, "given", ""))

    def _said(self, columns: list[int], values: Array) -> str:
        """A condition in words, after those on which the density is conditioned already."""
        names = self._names(columns)
        said: list[Any] = [f"{value:g}" for value in values]
        if self.schema_ is not None:
            own = zip(self.schema_.select(columns).columns, values, strict=True)
            said = [c.decode(v[None]).values[0] if c.codes else f"{v:g}" for c, v in own]
        pairs = zip(columns if names is None else names, said, strict=True)
        before = [self.given] if getattr(self, "given", "") else []
        return ", ".join([*before, *(f"{name} = {value}" for name, value in pairs)])


@dataclass(eq=False, repr=False)
class DerivedDensity(BornEstimator):
    """A marginal or conditional of a fitted density: a density estimator that is born fitted.

    Parameters
    ----------
    density : qaffde.nn.BornMixture or qaffde.nn.TableDensity
    feature_names : ndarray of str, optional
    schema : Schema, optional
    given : str, default=""
        What it is conditioned on, in words.

    Examples
    --------
    >>> from qaffde import QAFFDE
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = QAFFDE(n_features=64, bandwidth=0.4, base_measure="gaussian").fit(X)
    >>> first = model.marginal([0])
    >>> first.cdf([[np.inf]]).round(9), first.sample(3, random_state=0).shape
    (array([1.]), (3, 1))
    """

    density: BornMixture | TableDensity
    feature_names: Any = None
    schema: Schema | None = None
    given: str = ""

    def __post_init__(self) -> None:
        self.density_, self.schema_ = self.density, self.schema
        if self.feature_names is not None:
            self.feature_names_in_ = self.feature_names

    @property
    def n_features_in_(self) -> int:
        """The number of columns."""
        return self.density.n_dims

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Return the density as it is: there is nothing to learn."""
        return self
