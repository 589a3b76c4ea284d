"""The paper's Figure 2: how well few Fourier features approximate the Gaussian kernel.

RFF are random cosines with random phases, AFF are RFF trained by Algorithm 1, and a square marks
features whose squared inner product approximates the kernel. Beside the paper's four stands what
this library trains by default: Algorithm 1 from Sobol frequencies in cosine–sine pairs. The data
are N(2, 1); errors are over held-out pairs of them.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from experiments.cells import Cell, Ledger, Measured, identity
from experiments.config import KernelBudget, KernelConfig
from experiments.rows import Row, provenance
from qaffde.nn import FourierFeatures
from qaffde.training.adaptive import fit_adaptive_features, pair_kernel, random_pairs

CENTRE = 2.0
"""Of the data, and of the kernel in the left panel."""
BANDWIDTH = torch.tensor([0.3], dtype=torch.float64)
N_TRAIN, N_TEST, N_TEST_PAIRS = 2000, 2000, 20_000
SHOWN_FEATURES = 8
"""Number of features in the left panel, which shows the first seed."""
GRID = torch.linspace(CENTRE - 4, CENTRE + 4, 161, dtype=torch.float64)[:, None]


@dataclass(frozen=True)
class Kind:
    """One way to approximate the kernel, and how it is drawn."""

    start: str
    squared: bool
    adaptive: bool
    colour: str  # of Okabe and Ito's palette, which colour-blind readers can tell apart
    marker: str


KINDS = {
    "RFF": Kind("random", squared=False, adaptive=False, colour="#E69F00", marker="o"),
    "RFF²": Kind("random", squared=True, adaptive=False, colour="#D55E00", marker="s"),
    "AFF": Kind("random", squared=False, adaptive=True, colour="#56B4E9", marker="^"),
    "AFF²": Kind("random", squared=True, adaptive=True, colour="#0072B2", marker="v"),
    "AFF², paired": Kind("sobol", squared=True, adaptive=True, colour="#009E73", marker="D"),
}


@dataclass(frozen=True)
class KernelCell(Cell):
    """One kind of features for one seed, of every size."""

    budget_name: str
    kind: str
    seed: int
    budget: KernelBudget

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.kind}, seed {self.seed}"

    def tasks(self) -> list[str]:
        """Identities of all rows of this cell."""
        return [self.identity(D) for D in self.budget.n_features]

    def identity(self, n_features: int) -> str:
        """Short name of a row: of all that decides what it will hold, but the machine."""
        settings = asdict(replace(self.budget, seeds=(), n_features=()))
        place = [
            "kernel",
            self.budget_name,
            self.kind,
            self.seed,
            n_features,
            self.budget.seeds[0],
        ]
        return identity(place, settings)

    def run(self, ledger: Ledger) -> Iterator[Measured]:
        """Measure what is not done, each row as soon as it is there."""
        b = self.budget
        training = {
            "n_epochs": b.n_epochs,
            "n_pairs": b.n_pairs,
            "batch_size": b.batch_size,
            "learning_rate": b.learning_rate,
        }
        for D in b.n_features:
            name, shown = self.identity(D), (D, self.seed) == (SHOWN_FEATURES, b.seeds[0])
            with ledger.claim(name) as known:
                if known is None:
                    place = {"id": name, "experiment": "kernel", "budget": self.budget_name}
                    yield Measured(place | measure(self.kind, D, self.seed, training, shown=shown))


def kernel_cells(
    config: KernelConfig,
    budget_name: str,
    *,
    kinds: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] | None = None,
) -> list[KernelCell]:
    """Cells of the experiment, or of a part of it."""
    budget = config.budgets[budget_name]
    if seeds:
        budget = replace(budget, seeds=seeds)
    for kind in kinds or ():
        if kind not in KINDS:
            raise ValueError(f"kernel has no method {kind!r}; it has {', '.join(KINDS)}")
    return [
        KernelCell(budget_name, kind, seed, budget)
        for seed in budget.seeds
        for kind in kinds or KINDS
    ]


def measure(
    kind: str, n_features: int, seed: int, training: dict[str, Any], *, shown: bool = False
) -> Row:
    """Row of one approximation: its error on held-out pairs and, if shown, its curve."""
    generator = torch.Generator().manual_seed(seed)
    train, test = _draw_data(N_TRAIN, generator), _draw_data(N_TEST, generator)
    pairs = random_pairs(test, N_TEST_PAIRS, generator)
    start = time.perf_counter()
    features = _find_features(KINDS[kind], n_features, train, training, generator)
    seconds = time.perf_counter() - start
    error = _approximate(KINDS[kind], features, pairs) - pair_kernel(pairs, BANDWIDTH)
    row: Row = {
        "kind": kind,
        "n_features": n_features,
        "seed": seed,
        "status": "complete",
        "mse": error.square().mean().item(),
        "fit_seconds": round(seconds, 3),
        "bandwidth": BANDWIDTH.item(),
        "n_train": N_TRAIN,
        "training": training if KINDS[kind].adaptive else None,
        **provenance(),
    }
    return row | {"curve": _curve(KINDS[kind], features)} if shown else row


def errors_of(rows: Iterable[Row]) -> dict[str, dict[int, list[Row]]]:
    """Rows of all seeds, by kind and by number of features, in the order of both."""
    ordered = sorted(rows, key=lambda row: (row["n_features"], row["seed"]))
    errors: dict[str, dict[int, list[Row]]] = {kind: {} for kind in KINDS}
    for row in ordered:
        errors[row["kind"]].setdefault(row["n_features"], []).append(row)
    return {kind: by_size for kind, by_size in errors.items() if by_size}


def true_curve() -> list[float]:
    """The kernel on the grid."""
    return torch.exp(-0.5 * ((GRID - CENTRE) / BANDWIDTH).square())[:, 0].tolist()


def _draw_data(n: int, generator: Generator) -> Tensor:
    return CENTRE + torch.randn(n, 1, generator=generator, dtype=torch.float64)


def _find_features(
    kind: Kind, n_features: int, X: Tensor, training: dict[str, Any], generator: Generator
) -> FourierFeatures:
    # Frequencies for h give k(h√2), whose square is k(h): what is not squared needs h/√2.
    h = BANDWIDTH if kind.squared else BANDWIDTH / math.sqrt(2)
    features = FourierFeatures.draw(kind.start, n_features, h, generator=generator)
    if not kind.adaptive:
        return features
    return fit_adaptive_features(
        features, X, BANDWIDTH, squared=kind.squared, generator=generator, **training
    )


def _approximate(kind: Kind, features: FourierFeatures, pairs: Tensor) -> Tensor:
    inner = (features(pairs[:, 0]) * features(pairs[:, 1])).sum(1)
    return inner.square() if kind.squared else inner


def _curve(kind: Kind, features: FourierFeatures) -> list[float]:
    pairs = torch.stack([torch.full_like(GRID, CENTRE), GRID], dim=1)
    return [round(value, 5) for value in _approximate(kind, features, pairs).tolist()]
