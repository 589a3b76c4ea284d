"""The shape of a fitted density: its score function, its modes and their basins."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from qaffde.estimators.base import Array, DensityEstimator
from qaffde.nn import RealColumn, TableDensity, shape
from qaffde.parameters import Seed, check_count, check_positive, check_share, guard

N_STARTS = 2000
FAR = -1e100
"""Log-density below which it is cut off, and has no derivative."""
BLOCK = 2048
"""Rows whose derivatives are computed at once."""

if TYPE_CHECKING:
    _Base = DensityEstimator
else:
    _Base = object


@dataclass(frozen=True, eq=False)
class Modes:
    r"""Modes of a density, the highest first.

    Attributes
    ----------
    points : ndarray of shape (m, d)
    log_density : ndarray of shape (m,)
    mass : ndarray of shape (m,)
        Share of the draws that lie in the basin of each mode, from which one ascends to it: within
        about :math:`\sqrt{\alpha (1 - \alpha) / n}` for n draws.
    prominence : ndarray of shape (m,)
        How far the log-density falls on the best way to a higher mode; infinite for the highest.
    """

    points: Array
    log_density: Array
    mass: Array
    prominence: Array

    def __len__(self) -> int:
        return len(self.points)

    def __str__(self) -> str:
        lines = ["log-density  mass   prominence  point"]
        parts = zip(self.log_density, self.mass, self.prominence, self.points, strict=True)
        for log_p, mass, prominence, point in parts:
            where = ", ".join(f"{x:.4g}" for x in point)
            lines.append(f"{log_p:>11.4f}  {mass:.3f}  {prominence:>10.3f}  {where}")
        return "\n".join(lines)


@guard
class ShapeMixin(_Base):
    """Derivatives of the log-density, and modes; of real columns."""

    @abstractmethod
    def _mixture(self) -> Any:
        """The density as a sum of terms."""

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
        n_samples: int = N_STARTS,
        random_state: Seed = None,
    ) -> Modes:
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
        x = torch.from_numpy(self._draws(n_samples, random_state))
        unit = x.std(0)
        ends = torch.cat([shape.ascend(self.density_, part, unit) for part in x.split(BLOCK)])

        with torch.no_grad():
            log_p = self.density_.log_prob(ends)
        basin = shape.distinct(ends, log_p, unit)
        inside = (log_p.masked_fill(basin != k, -torch.inf) for k in range(int(basin.max()) + 1))
        best = torch.stack([own.argmax() for own in inside])
        height = log_p[best]
        with torch.no_grad():
            edges = shape.saddles(self.density_, x, basin, ends[best], unit)
        share, heights = (basin.bincount() / len(x)).tolist(), height.tolist()
        owner = shape.persistence(heights, edges, prominence)[0]
        owner = shape.without_light(owner, share, edges, mass)
        edges = [(level, owner[a], owner[b]) for level, a, b in edges if owner[a] != owner[b]]
        rises = shape.persistence(heights, edges, 0.0)[1]
        kept = sorted(set(owner))
        masses = [sum(m for m, k in zip(share, owner, strict=True) if k == own) for own in kept]
        points = ends[best[kept]].numpy(), height[kept].numpy()
        return Modes(*points, np.array(masses), np.array(rises)[kept])

    def _derivative(self, X: ArrayLike, order: int) -> Array:
        """First or second derivatives of the log-density at rows that have any."""
        self._check_real()
        rows = torch.tensor(self._numbers(X))
        parts = [shape.derivatives(self.density_, part) for part in rows.split(BLOCK)]
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
