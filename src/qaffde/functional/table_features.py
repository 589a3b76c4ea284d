"""Features of the rows of a table by which two samples of rows are told apart.

Coordinates of every column come first, whatever its kind:

| column | coordinates |
| --- | --- |
| real, integer, atom | normal score among the reference rows; beyond them a logarithm |
| periodic | cosine and sine |
| category | one for each of the common labels, one for all others |
| each | one more for its gaps |

Features are, in blocks, those of each column (cosines of its level among the reference rows,
shares of labels and gaps), waves of all coordinates at three scales, and products of two
coordinates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Generator, Tensor

from qaffde.kinds import Category, Kind, Periodic

Array = NDArray[np.float64]

KNOTS, TAIL = 257, 0.002
"""Quantiles of a column, and the level at which its scores end."""
COSINES, HARMONICS = 8, 4
"""Features of a column and of a periodic one; the amplitude of the k-th is 1/√k."""
LABELS, LABEL_DISTANCE = 64, 1.5
"""Common labels of a category, and what a label adds to one coordinate."""
SCALES = (0.5, 1.0, 2.0)
"""Of the waves, in median distances of two rows."""
MAX_PRODUCTS = 300
MEDIAN_ROWS = 500
GAP = 2.0
"""Coordinate of a gap."""


@dataclass(frozen=True, eq=False)
class ColumnCode:
    """Coordinates and features of one column, by the reference values."""

    kind: Kind
    knots: Array
    levels: Array
    unit: float

    @classmethod
    def of(cls, kind: Kind, x: Array) -> "ColumnCode":
        """The code of a column with reference values (n,), of which NaN are gaps."""
        x = x[~np.isnan(x)]
        if isinstance(kind, Category):
            codes, counts = np.unique(x[x >= 0], return_counts=True)
            common = np.sort(codes[np.argsort(-counts, kind="stable")[:LABELS]])
            share = counts[np.searchsorted(codes, common)] / max(len(x), 1)
            return cls(kind, common, share, 1.0)
        if isinstance(kind, Periodic) or not len(x):
            return cls(kind, np.zeros(1), np.full(1, 0.5), 1.0)
        grid = np.quantile(x, np.linspace(0, 1, KNOTS), method="inverted_cdf")
        knots, counts = np.unique(grid, return_counts=True)
        below = np.searchsorted(np.sort(x), knots, "left") / len(x)
        up_to = np.searchsorted(np.sort(x), knots, "right") / len(x)
        wide = np.ptp(np.quantile(x, [0.25, 0.75])) or x.std() or 1.0
        return cls(kind, knots, (below + up_to) / 2, float(wide))

    def level(self, x: Array) -> Array:
        """Levels (n,) among the reference values, zero and one beyond them."""
        return np.interp(x, self.knots, self.levels, 0.0, 1.0)

    def _labels(self, x: Array) -> Array:
        """Indicators (n, C + 1) of the common labels and of all others."""
        found = np.column_stack([*(x[:, None] == self.knots).T, ~np.isin(x, self.knots)])
        return np.where(np.isnan(x)[:, None], 0.0, found)

    def coordinates(self, x: Array) -> Array:
        """Coordinates (n, k) of values (n,)."""
        gap = np.isnan(x)
        if isinstance(self.kind, Category):
            found = LABEL_DISTANCE * self._labels(x)
        elif isinstance(self.kind, Periodic):
            angle = 2 * np.pi * x / self.kind.period
            found = math.sqrt(2) * np.column_stack([np.cos(angle), np.sin(angle)])
        else:
            beyond = x - np.clip(x, self.knots[0], self.knots[-1])
            score = ndtri(np.clip(self.level(x), TAIL, 1 - TAIL))
            far = np.sign(beyond) * np.log1p(np.abs(beyond) / self.unit)
            found = (score + far)[:, None]
        return np.column_stack([np.where(gap[:, None], 0.0, found), GAP * gap])

    def features(self, x: Array) -> Array:
        """Features (n, k) of values (n,)."""
        gap = np.isnan(x)
        if isinstance(self.kind, Category):
            share = np.append(self.levels, 0.0)
            found = self._labels(x) / np.sqrt(share + 0.01)
        elif isinstance(self.kind, Periodic):
            k = np.arange(1, HARMONICS + 1)
            angle = 2 * np.pi * k * x[:, None] / self.kind.period
            found = np.hstack([np.cos(angle), np.sin(angle)]) / np.sqrt(np.tile(k, 2))
        else:
            k = np.arange(1, COSINES + 1)
            found = np.cos(np.pi * k * self.level(x)[:, None]) / np.sqrt(k)
        return np.column_stack([np.where(gap[:, None], 0.0, found), gap])


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """Features of rows; `blocks` (F,) says to which block each belongs, columns first."""

    codes: tuple[ColumnCode, ...]
    W: Tensor
    pairs: Tensor
    blocks: Tensor

    @classmethod
    def of(
        cls, kinds: Sequence[Kind], rows: Array, n_waves: int, generator: Generator
    ) -> "TableFeatures":
        """The features for reference rows (n, d), with so many waves of each scale."""
        codes = tuple(ColumnCode.of(kind, x) for kind, x in zip(kinds, rows.T, strict=True))
        some = rows[torch.randperm(len(rows), generator=generator)[:MEDIAN_ROWS].numpy()]
        z = _coordinates(codes, some)
        near = torch.nn.functional.pdist(z)
        median = float(near[near > 0].median()) if (near > 0).any() else 1.0
        W = torch.randn(len(SCALES) * n_waves, z.shape[1], generator=generator)
        W /= median * torch.tensor(SCALES).repeat_interleave(n_waves)[:, None]
        pairs = torch.combinations(torch.arange(z.shape[1]), with_replacement=True)
        pairs = pairs[torch.randperm(len(pairs), generator=generator)[:MAX_PRODUCTS]]
        sizes = [c.features(x).shape[1] for c, x in zip(codes, some.T, strict=True)]
        sizes += [2 * n_waves] * len(SCALES) + [len(pairs)]
        blocks = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        return cls(codes, W, pairs, blocks)

    def __call__(self, rows: Array) -> Tensor:
        """Features (n, F) of rows (n, d), in single precision."""
        z = _coordinates(self.codes, rows)
        each = [c.features(x) for c, x in zip(self.codes, rows.T, strict=True)]
        columns = torch.from_numpy(np.hstack(each)).float()
        theta = (z @ self.W.T).reshape(len(z), len(SCALES), -1)
        waves = torch.cat([theta.cos(), theta.sin()], 2).flatten(1)
        return torch.cat([columns, waves, z[:, self.pairs[:, 0]] * z[:, self.pairs[:, 1]]], 1)


def _coordinates(codes: Sequence[ColumnCode], rows: Array) -> Tensor:
    """Coordinates (n, K) of rows (n, d)."""
    parts = [code.coordinates(x) for code, x in zip(codes, rows.T, strict=True)]
    return torch.from_numpy(np.hstack(parts)).float()
