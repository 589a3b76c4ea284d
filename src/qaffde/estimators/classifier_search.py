"""Bandwidth, measurement, ridge and rank of a classifier, by what it says of rows held out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.estimators.classifier_closed import (
    ROUGH,
    WITH_RIDGE,
    ClassReader,
    ClassSums,
    Reading,
)
from qaffde.estimators.classifier_frame import ClassFrame, LabelledRows, settle_features
from qaffde.nn import BaseMeasure
from qaffde.nn.class_density import Projection, log_defended

ROWS, ROWS_PER_FEATURE = 4000, 5
"""At least so many rows are looked at, and more for more features."""
FEATURES = 512
"""To choose how to read, no more features than these; then, for smaller bandwidths, all."""
FINEST = 0.4
"""Share of the bandwidth that was best for fewer features, below which more do not reach."""
FEW_ROWS = 30
"""Below this there is nothing to hold out."""
VALID_SHARE = 0.25
BANDWIDTHS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
"""In units of √q, about the distance of a row from the middle of q coordinates."""
RIDGES = {"pretty_good": (1e-3,), "coherent": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)}
RANKS = (3, 10, 30, 100)
USUAL = 0.5
"""Bandwidth where there is nothing to choose by."""


@dataclass(frozen=True, eq=False)
class ClassCandidate:
    """A bandwidth of the frequencies, of shape (q,), and a reading."""

    bandwidth: Tensor
    reading: Reading

    def __str__(self) -> str:
        reading, h = self.reading, float(self.bandwidth.mean())
        ridge = f" ridge {reading.ridge:g}" if reading.measurement in WITH_RIDGE else ""
        return f"bandwidth {h:.3g} {reading.measurement}{ridge} rank {reading.rank}"


@dataclass(frozen=True, eq=False)
class ClassSearch:
    """What to choose from, and how to judge it.

    Parameters
    ----------
    seed : int
        Of the features: those that are judged are those of the fit, if they are as many.
    features : str
    n_features : int
    measurements : sequence of str
    ridge : float or None
        None is a choice to be made.
    rank : int, float or None
    generative : bool
        Judge by the likelihood of rows, not by that of their classes.
    for_bandwidth : bool
        Whether nothing but a rough bandwidth is asked for.
    epsilon, tolerance : float
    """

    seed: int
    features: str
    n_features: int
    measurements: Sequence[str]
    ridge: float | None
    rank: int | float | None
    generative: bool
    for_bandwidth: bool
    epsilon: float
    tolerance: float

    def run(
        self,
        Z: Tensor,
        y: Tensor,
        weight: Tensor,
        measure: BaseMeasure,
        bandwidth: Tensor | None,
        n_classes: int,
        generator: Generator,
    ) -> tuple[ClassCandidate, dict[str, float]]:
        """The best candidate, and the held-out loss of all of them."""
        widths = [bandwidth] if bandwidth is not None else self._bandwidths(Z)
        fixed = self._fixed(Z, widths)
        if fixed is not None:
            return fixed, {}
        rows = LabelledRows(Z, y, weight, n_classes)
        best, losses = self._best(rows, measure, widths, FEATURES, generator)
        if len(widths) == 1 or self.n_features <= FEATURES or self.for_bandwidth:
            return best, losses
        reading, most = best.reading, float(best.bandwidth.mean())
        finer = replace(self, measurements=(reading.measurement,), rank=reading.rank)
        widths = [h for h in widths if FINEST * most < float(h.mean()) <= most]
        best, more = finer._best(rows, measure, widths, self.n_features, generator)
        return best, losses | more

    def _best(
        self,
        rows: LabelledRows,
        measure: BaseMeasure,
        widths: list[Tensor],
        n_features: int,
        generator: Generator,
    ) -> tuple[ClassCandidate, dict[str, float]]:
        """The best of some bandwidths, with at most so many features."""
        D = min(self.n_features, n_features)
        part = torch.randperm(len(rows.y), generator=generator)[: max(ROWS, ROWS_PER_FEATURE * D)]
        n_valid = int(VALID_SHARE * len(part))
        valid, chosen = rows.part(part[:n_valid]), rows.part(part[n_valid:])
        found = {}
        for h in widths:
            frame = self._frame(h, D, chosen.X, measure)
            sums = ClassSums.of(frame, chosen.X, chosen.y, chosen.weight, rows.n_classes)
            for reading, loss in self._judge(frame, sums, valid):
                found[ClassCandidate(h, reading)] = loss
        best = min(found, key=lambda candidate: found[candidate])
        return best, {f"{candidate} of {D} features": loss for candidate, loss in found.items()}

    def _fixed(self, Z: Tensor, widths: list[Tensor]) -> ClassCandidate | None:
        """The one candidate where nothing is to be chosen, or nothing to choose by."""
        measurement = self.measurements[0]
        settled = (
            len(widths) == 1
            and len(self.measurements) == 1
            and (self.ridge is not None or measurement not in WITH_RIDGE)
            and (self.rank is not None or measurement == "coherent")
        )
        if not settled and len(Z) >= FEW_ROWS:
            return None
        h = widths[0] if len(widths) == 1 else USUAL * _unit(Z)
        ridge = RIDGES["pretty_good"][-1] if self.ridge is None else self.ridge
        rank = RANKS[1] if self.rank is None else self.rank
        return ClassCandidate(h, Reading(measurement, ridge, rank))

    @staticmethod
    def _bandwidths(Z: Tensor) -> list[Tensor]:
        return [factor * _unit(Z) for factor in BANDWIDTHS]

    def _frame(self, h: Tensor, D: int, Z: Tensor, measure: BaseMeasure) -> ClassFrame:
        """Frame of rows that are coordinates already."""
        generator = torch.Generator().manual_seed(self.seed)
        kind = "auto" if self.features == "adaptive" else self.features
        features = settle_features(kind, D, h, Z, generator)
        units = Projection(torch.zeros_like(h), torch.ones_like(h))
        return ClassFrame(units, h, measure, features, measure.gram(features))

    def _judge(
        self, frame: ClassFrame, sums: ClassSums, rows: LabelledRows
    ) -> list[tuple[Reading, float]]:
        phi = frame.phi(rows.X)
        share = rows.weight / rows.weight.sum()
        log_prior = (sums.weight / sums.weight.sum()).clamp(min=1e-300).log()
        reader = ClassReader(sums, frame.gram, self.tolerance)
        most = max(self._ranks(len(frame.gram)))
        found = []
        for measurement in self.measurements:
            for ridge in self._ridges(measurement):
                lam, V = reader.spectra(measurement, ridge, most, ROUGH)
                born, ranks = self._born(phi, lam, V, frame.gram)
                for rank, b in zip(ranks, born, strict=True):
                    log_ratio = log_defended(b, self.epsilon)
                    log_joint = log_ratio + log_prior
                    values = log_ratio if self.generative else log_joint.log_softmax(1)
                    loss = -float(share @ values.gather(1, rows.y[:, None])[:, 0])
                    found.append((Reading(measurement, ridge, rank), loss))
        return found

    def _ridges(self, measurement: str) -> Sequence[float]:
        if measurement not in WITH_RIDGE:
            return (0.0,)
        return RIDGES[measurement] if self.ridge is None else (self.ridge,)

    def _ranks(self, D: int) -> Sequence[int]:
        if self.rank is None:
            return RANKS
        return (QF.resolve_rank(self.rank, torch.empty(D), 1.0),)

    def _born(
        self, phi: Tensor, lam: Tensor, V: Tensor, G: Tensor
    ) -> tuple[list[Tensor], list[int]]:
        """‖L_c φ‖² of mass one, of shape (n, C), for several ranks at the cost of the largest."""
        ranks = sorted({min(rank, lam.shape[1]) for rank in self._ranks(len(G))})
        lam, V = lam[:, : ranks[-1]], V[:, : ranks[-1]]
        mass = (lam * ((V @ G) * V).sum(2)).cumsum(1)
        squares = (torch.einsum("nd,crd->ncr", phi, V).square() * lam).cumsum(2)
        return [squares[:, :, r - 1] / mass[:, r - 1] for r in ranks], ranks


def _unit(Z: Tensor) -> Tensor:
    q = Z.shape[1]
    return torch.full((q,), math.sqrt(q), dtype=torch.float64)
