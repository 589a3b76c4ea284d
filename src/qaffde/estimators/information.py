r"""What a fitted density says of itself and of another: distances, entropies, information, shape.

Integrals of products of densities are closed forms: those of :math:`\int p^2` and
:math:`\int p\,q`, and with them the L2 distance, the Cauchy–Schwarz divergence

.. math:: D_{CS}(p, q) = -\log \frac{\int p\,q}{\sqrt{\int p^2 \int q^2}},

the Rényi entropy of order two, :math:`-\log \int p^2`, and quadratic mutual information. They
are against Lebesgue and counting measure, in the units of the data: other units give other
numbers. What has a logarithm in it (Shannon's entropy, the divergence of Kullback and Leibler,
mutual information) has no closed form, and is an expectation.

An expectation is a quadrature in one and two real columns, else a mean over exact draws. So are
inner products where columns have maps, since the slopes of two maps have no common formula.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import norm

from qaffde.boxes import Column, resolve_columns
from qaffde.estimators.base import Array, DensityEstimator
from qaffde.extras import Printed
from qaffde.nn import BornMixture, RealColumn, TableDensity, comparison, shape
from qaffde.parameters import (
    Seed,
    check_choice,
    check_count,
    check_positive,
    check_share,
    guard,
)

N_DRAWS = 10_000
FAR = -1e100
"""Log-density below which it is cut off, and has no derivative."""
CONFIDENCE = float(norm.ppf(0.995))
"""Standard errors of a mean of draws that hold 99 %."""
UNITS = (
    "the density is too high or too low for float64 in the units of the data; multiply or divide "
    "the columns first"
)
Measured = tuple[float, float]
"""A value, and half the width of its 99 % confidence interval: zero without draws."""
if TYPE_CHECKING:
    _Base = DensityEstimator
else:
    _Base = object


@guard
class InformationMixin(_Base):
    """Distances, divergences, entropies and information of densities.

    With ``return_error=True`` all give half the width of the 99 % confidence interval as well, as
    ``probability`` does; it is zero for closed forms and quadratures.
    """

    @abstractmethod
    def _mixture(self) -> BornMixture | TableDensity:
        """The density as a sum of terms."""

    @abstractmethod
    def marginal(self, columns: Iterable[Column]) -> Any:
        """Density of some columns."""

    def expectation(
        self,
        function: Callable[[Any], ArrayLike],
        columns: Iterable[Column] | None = None,
        *,
        n_samples: int = N_DRAWS,
        random_state: Seed = None,
        return_error: bool = False,
    ) -> Any:
        """Expectation of a function of the rows.

        It is a quadrature in one and two real columns, exact to rounding for polynomials and
        waves, else a mean over draws. For regions :meth:`probability` is closed in any number of
        columns, for waves :meth:`characteristic_function`.

        Parameters
        ----------
        function : callable
            From rows (m, d), or a data frame like that of the fit, to values (m,).
        columns : iterable of int or str, optional
            Columns that the function takes; the others are integrated out first.
        n_samples : int, default=10000
        random_state : int, RandomState instance or None, default=None
        return_error : bool, default=False
        """
        of = self if columns is None else self.marginal(columns)
        found = of._expected(lambda rows: function(of._table(rows)), n_samples, random_state)
        return _answer(found, return_error=return_error)

    def _expected(
        self, function: Callable[[Array], ArrayLike], n_samples: int, random_state: Seed
    ) -> Measured:
        """Expectation of a function of rows as numbers."""
        check_count("n_samples", n_samples, minimum=2)
        rule = comparison.quadrature(self._mixture())
        if rule is not None:
            points, mass = (part.numpy() for part in rule)
            values = np.asarray(function(points), dtype=np.float64)
            return float(mass @ np.where(mass > 0, values, 0)), 0.0
        values = np.asarray(function(self._draws(n_samples, random_state)), dtype=np.float64)
        with np.errstate(invalid="ignore"):
            spread = float(values.std(ddof=1))
        return float(values.mean()), CONFIDENCE * spread / math.sqrt(n_samples)

    def characteristic_function(self, t: ArrayLike) -> Any:
        r"""Characteristic function :math:`E[e^{i t \cdot X}]`, complex (n,), in closed form.

        Parameters
        ----------
        t : array-like of shape (n, d)
        """
        density = self._mixture()
        if not isinstance(density, BornMixture):
            raise ValueError(
                "columns have maps or kinds: their characteristic function is not closed; take "
                "expectation of a cosine and a sine"
            )
        found = comparison.characteristic(density, torch.tensor(np.atleast_2d(t)).double()).numpy()
        if not np.isfinite(found).all():
            raise ValueError(
                f"t {np.atleast_2d(t)[~np.isfinite(found)][0]} is so large for these columns that "
                "t·x overflows in float64; take a smaller one"
            )
        return found

    def inner_product(
        self,
        other: "InformationMixin",
        *,
        n_samples: int = N_DRAWS,
        random_state: Seed = None,
        return_error: bool = False,
    ) -> Any:
        r"""Inner product :math:`\int p(x)\, q(x)\, dx` with a density of the same columns."""
        found = self._inner_product(check_pair(self, other), n_samples, random_state)
        return _answer(found, return_error=return_error)

    def _inner_product(self, other: Any, n_samples: int, random_state: Seed) -> Measured:
        """Inner product, which is a number, and is not zero where a density is its own other."""
        closed = None
        if _same_kinds(self, other):
            closed = comparison.inner_product(self._mixture(), other._mixture())
        if closed is None:
            with np.errstate(over="ignore"):
                found = self._expected(
                    lambda rows: np.exp(_score(other, self, rows)), n_samples, random_state
                )
        else:
            found = float(closed[0]), float(closed[1])
        if not math.isfinite(found[0]) or (other is self and found[0] <= 0):
            raise ValueError(UNITS)
        return found

    def l2_distance(
        self,
        other: "InformationMixin",
        *,
        n_samples: int = N_DRAWS,
        random_state: Seed = None,
        return_error: bool = False,
    ) -> Any:
        r"""Distance :math:`(\int (p - q)^2)^{1/2}` to a density of the same columns."""
        found = _distances(self, other, n_samples, random_state)["l2_distance"]
        return _answer(found, return_error=return_error)

    def cauchy_schwarz_divergence(
        self,
        other: "InformationMixin",
        *,
        n_samples: int = N_DRAWS,
        random_state: Seed = None,
        return_error: bool = False,
    ) -> Any:
        r"""Divergence :math:`-\log(\int pq / \sqrt{\int p^2 \int q^2})`, zero for p = q only."""
        found = _distances(self, other, n_samples, random_state)["cauchy_schwarz_divergence"]
        return _answer(found, return_error=return_error)

    def kl_divergence(
        self,
        other: "InformationMixin",
        *,
        n_samples: int = N_DRAWS,
        random_state: Seed = None,
        return_error: bool = False,
    ) -> Any:
        r"""Divergence :math:`\int p \log (p/q)` from this density to another, in nats."""
        check_pair(self, other)

        def log_ratio(rows: Array) -> Array:
            return self._log_density(rows) - _score(other, self, rows)

        found = self._expected(log_ratio, n_samples, random_state)
        return _answer(found, return_error=return_error)

    def entropy(
        self,
        *,
        n_samples: int = N_DRAWS,
        random_state: Seed = None,
        return_error: bool = False,
    ) -> Any:
        r"""Shannon's (differential) entropy :math:`-\int p \log p`, in nats."""
        found = self._expected(lambda rows: -self._log_density(rows), n_samples, random_state)
        return _answer(found, return_error=return_error)

    def renyi_entropy(
        self,
        *,
        n_samples: int = N_DRAWS,
        random_state: Seed = None,
        return_error: bool = False,
    ) -> Any:
        r"""Rényi's entropy of order two :math:`-\log \int p^2`, in nats."""
        found = _log(self._inner_product(self, n_samples, random_state))
        return _answer((-found[0], found[1]), return_error=return_error)

    def mutual_information(
        self,
        columns: Iterable[Column],
        others: Iterable[Column],
        kind: str = "shannon",
        *,
        n_samples: int = N_DRAWS,
        random_state: Seed = None,
        return_error: bool = False,
    ) -> Any:
        r"""Information that two groups of columns have of each other; zero if independent.

        Parameters
        ----------
        columns, others : iterable of int or str
            Two groups; what is in neither is integrated out.
        kind : {"shannon", "quadratic"}, default="shannon"
            :math:`E \log p(a,b) / (p(a) p(b))`, in nats, or :math:`\int (p(a,b) - p(a) p(b))^2`.
        """
        check_choice("kind", kind, ("shannon", "quadratic"))
        n, names = self._mixture().n_dims, self._names()
        a, b = (resolve_columns(group, n, names) for group in (columns, others))
        joint = self.marginal(resolve_columns([*a, *b], n, None))
        left, right = joint.marginal(range(len(a))), joint.marginal(range(len(a), len(a) + len(b)))

        def log_product(rows: Array) -> Array:
            parts = zip((left, right), (rows[:, : len(a)], rows[:, len(a) :]), strict=True)
            return sum(of._log_density(np.ascontiguousarray(part)) for of, part in parts)

        how = n_samples, random_state
        if kind == "shannon":
            found = joint._expected(
                lambda rows: joint._log_density(rows) - log_product(rows), *how
            )
        else:
            cross = comparison.inner_product(*(of._mixture() for of in (joint, left, right)))
            both = (
                joint._expected(lambda rows: np.exp(log_product(rows)), *how)
                if cross is None
                else (float(cross[0]), float(cross[1]))
            )
            own, (p, dp), (q, dq) = (of._inner_product(of, *how) for of in (joint, left, right))
            value, error = own[0] - 2 * both[0] + p * q, own[1] + 2 * both[1] + p * dq + q * dp
            found = max(value, 0.0), error
        return _answer(found, return_error=return_error)

    def fidelity(self, other: "InformationMixin") -> float:
        r"""Fidelity :math:`(\operatorname{tr}\sqrt{\sqrt\sigma\tau\sqrt\sigma})^2` of the states.

        One for equal density matrices, zero for orthogonal ones. Both fits need the same plan.
        """
        return float(comparison.fidelity(self.density_, check_pair(self, other).density_))

    def trace_distance(self, other: "InformationMixin") -> float:
        r"""Trace distance :math:`\tfrac12 \lVert \sigma - \tau \rVert_1` of the density matrices.

        No measurement tells the states apart with a higher probability than (1 + this) / 2. Both
        fits need the same plan.
        """
        return float(comparison.trace_distance(self.density_, check_pair(self, other).density_))

    def score_function(self, X: ArrayLike) -> Array:
        r"""Gradient :math:`\nabla \log p` of the log-density at each row, of shape (n, d), exact.

        Parameters
        ----------
        X : array-like of shape (n, d)
        """
        return self._derivative(X, 1)

    def hessian(self, X: ArrayLike) -> Array:
        """Matrix of second derivatives of the log-density at each row, of shape (n, d, d), exact.

        Parameters
        ----------
        X : array-like of shape (n, d)
        """
        return self._derivative(X, 2)

    def modes(
        self,
        prominence: float = 0.25,
        mass: float = 0.05,
        n_samples: int = 2000,
        random_state: Seed = None,
    ) -> shape.Modes:
        """Modes of the density, by ascents from exact draws.

        A mode that rises little over the saddle to a higher one, or that has little mass, belongs
        to that one: an estimate has ripples, and more of them at the ends of a box.

        Parameters
        ----------
        prominence : float, default=0.25
            In nats: the density of a mode is at least 28 % above that of the saddle.
        mass : float, default=0.05
            Probability of the basin.
        n_samples : int, default=2000
            Draws to ascend from. A mode whose basin holds none is not seen.
        random_state : int, RandomState instance or None, default=None
        """
        check_positive("prominence", prominence)
        check_share("mass", mass)
        check_count("n_samples", n_samples, minimum=2)
        self._check_real()
        draws = torch.from_numpy(self._draws(n_samples, random_state))
        return shape.find_modes(self.density_, draws, prominence, mass)

    def ridges(self, n_samples: int = 1000, random_state: Seed = None) -> Array:
        """Points of the ridges of the density, of shape (m, d), by ascents from exact draws.

        A ridge is a curve on which the density falls to all sides but along it: what a filament
        of rows is about.

        Parameters
        ----------
        n_samples : int, default=1000
            Draws to ascend from; those that reach no ridge are left out.
        random_state : int, RandomState instance or None, default=None
        """
        check_count("n_samples", n_samples, minimum=2)
        self._check_real()
        if self._mixture().n_dims < 2:
            raise ValueError("one column has no ridges; modes() are its peaks")
        draws = torch.from_numpy(self._draws(n_samples, random_state))
        parts = [shape.ridge_points(self.density_, part) for part in draws.split(shape.BLOCK)]
        return torch.cat(parts).numpy()

    def _derivative(self, X: ArrayLike, order: int) -> Array:
        """First or second derivatives of the log-density at rows that have any."""
        self._check_real()
        rows = torch.tensor(self._numbers(X))
        parts = [shape.derivatives(self.density_, part) for part in rows.split(shape.BLOCK)]
        log_p, found = (torch.cat([part[k] for part in parts]).numpy() for k in (0, order))
        lost = ~np.isfinite(found).reshape(len(found), -1).all(1) | (log_p < FAR)
        if lost.any():
            raise ValueError(
                f"row {lost.argmax()} is so far from the data that the density has no derivative "
                "there in float64; leave it out"
            )
        return found

    def _check_real(self) -> None:
        density = self._mixture()
        columns = density.each() if isinstance(density, TableDensity) else []
        for k, column in enumerate(columns):
            if not isinstance(column, RealColumn):
                raise ValueError(
                    f"column {k} is not real, and there is no derivative along it; take the "
                    "marginal of real columns, or a conditional, first"
                )


@dataclass(frozen=True)
class DensityComparison(Printed):
    """How far two densities p and q are from each other; ``print`` shows a table.

    Each attribute is a value, and ``errors`` has half the width of its 99 % confidence interval:
    zero for closed forms and quadratures.

    Attributes
    ----------
    l2_distance, cauchy_schwarz_divergence, inner_product : float
    square, other_square : float
        ∫p² and ∫q².
    renyi_entropy, other_renyi_entropy : float
    kl_divergence, reverse_kl_divergence : float
        ∫p log(p/q) and ∫q log(q/p), in nats.
    errors : dict of {str: float}
    """

    l2_distance: float
    cauchy_schwarz_divergence: float
    inner_product: float
    square: float
    other_square: float
    renyi_entropy: float
    other_renyi_entropy: float
    kl_divergence: float
    reverse_kl_divergence: float
    errors: dict[str, float]

    def __str__(self) -> str:
        lines = []
        for name, title in TITLES.items():
            plus = f"  ± {self.errors[name]:.2g}" if self.errors[name] else ""
            lines.append(f"{title:<26}{getattr(self, name):>12.6g}{plus}")
        return "\n".join(lines)


TITLES = {
    "l2_distance": "L2 distance",
    "cauchy_schwarz_divergence": "Cauchy–Schwarz divergence",
    "kl_divergence": "KL divergence ∫ p log p/q",
    "reverse_kl_divergence": "KL divergence ∫ q log q/p",
    "inner_product": "inner product ∫ p q",
    "square": "∫ p²",
    "other_square": "∫ q²",
    "renyi_entropy": "Rényi entropy −log ∫ p²",
    "other_renyi_entropy": "Rényi entropy −log ∫ q²",
}


def compare(
    first: InformationMixin,
    second: InformationMixin,
    *,
    n_samples: int = N_DRAWS,
    random_state: Seed = None,
) -> DensityComparison:
    """Compare two fitted densities of the same columns.

    Parameters
    ----------
    first, second : fitted density estimators, or marginals and conditionals of such
    n_samples : int, default=10000
        Draws, for what is neither closed nor a quadrature.
    random_state : int, RandomState instance or None, default=None

    Examples
    --------
    >>> from qaffde import QAFFDE
    >>> rng = np.random.default_rng(0)
    >>> settings = {"n_features": 64, "bandwidth": 0.4, "base_measure": "gaussian"}
    >>> here, there = (QAFFDE(**settings).fit(rng.normal(m, size=(500, 1))) for m in (0, 2))
    >>> compare(here, here).l2_distance, compare(here, there).l2_distance > 0.4
    (0.0, True)
    """
    found = _distances(first, second, n_samples, random_state)
    options: Any = {"n_samples": n_samples, "random_state": random_state, "return_error": True}
    found["kl_divergence"] = first.kl_divergence(second, **options)
    found["reverse_kl_divergence"] = second.kl_divergence(first, **options)
    values = {name: value for name, (value, _) in found.items()}
    return DensityComparison(**values, errors={name: e for name, (_, e) in found.items()})


def _distances(first: Any, second: Any, n_samples: int, random_state: Seed) -> dict[str, Measured]:
    """Inner products of two densities, and what is made of them."""
    check_pair(first, second)
    how = n_samples, random_state
    own, other = (density._inner_product(density, *how) for density in (first, second))
    both = first._inner_product(second, *how)
    square, unsure = max(own[0] + other[0] - 2 * both[0], 0.0), own[1] + other[1] + 2 * both[1]
    logs = [_log(part) for part in (own, other, both)]
    divergence = max((logs[0][0] + logs[1][0]) / 2 - logs[2][0], 0.0)
    return {
        "l2_distance": (math.sqrt(square), unsure / (math.sqrt(square + unsure) or 1.0)),
        "cauchy_schwarz_divergence": (divergence, (logs[0][1] + logs[1][1]) / 2 + logs[2][1]),
        "inner_product": both,
        "square": own,
        "other_square": other,
        "renyi_entropy": (-logs[0][0], logs[0][1]),
        "other_renyi_entropy": (-logs[1][0], logs[1][1]),
    }


def check_pair(first: Any, second: Any) -> Any:
    """The second density, if both are fitted densities of the same columns."""
    if not hasattr(second, "kl_divergence"):
        raise TypeError(
            f"{type(second).__name__} is no fitted density of qaffde: give a QAFFDE, QAFFDESGD or "
            "QAFFDETensorTrain, or a marginal or conditional of one"
        )
    n, m = (density._mixture().n_dims for density in (first, second))
    if n != m:
        raise ValueError(
            f"the densities have {n} and {m} columns; take marginals of the same ones"
        )
    names = [density._names() for density in (first, second)]
    if all(each is not None for each in names) and list(names[0]) != list(names[1]):
        raise ValueError(
            f"the densities have columns {', '.join(map(str, names[0]))} and "
            f"{', '.join(map(str, names[1]))}; bring them into one order with marginal"
        )
    return second


def _same_kinds(first: Any, second: Any) -> bool:
    """Whether numbers of rows mean the same to both densities."""
    kinds = [None if of.schema_ is None else of.schema_.kinds for of in (first, second)]
    return None in kinds or kinds[0] == kinds[1]


def _score(density: Any, like: Any, rows: Array) -> Array:
    """Log-density of rows that are numbers of another density."""
    if _same_kinds(density, like):
        return density._log_density(rows)
    return density.score_samples(like._table(rows))


def _log(found: Measured) -> Measured:
    """Logarithm of a value, and its error."""
    value, error = found
    if value <= 0:
        return -math.inf, error
    return math.log(value), error / value


def _answer(found: Measured, *, return_error: bool) -> Any:
    if math.isnan(found[0]):
        raise ValueError(UNITS)
    return found if return_error else found[0]
