"""What the search needs to know of a way to find a density: its features, judge and strategy."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, BoxMeasure, FourierFeatures
from qaffde.selection.base_measure import BaseSpec, measure_ends
from qaffde.selection.plan import Choice, background_weight
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.search import Search, Split
from qaffde.selection.spec import ModelSpec
from qaffde.selection.summary import Summary
from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.compute import ComputeConfig


class Method(ABC):
    """A way to find a density: closed form or maximum likelihood.

    Parameters
    ----------
    spec : ModelSpec
    policy : SelectionPolicy
    compute : ComputeConfig
    seed : int

    Attributes
    ----------
    tolerance : float
        Eigenvalues of G below this share of the largest count as zero.
    """

    usual_tolerance: float

    def __init__(
        self, spec: ModelSpec, policy: SelectionPolicy, compute: ComputeConfig, seed: int
    ) -> None:
        self.spec, self.policy, self.compute, self.seed = spec, policy, compute, seed
        given = policy.tolerance
        self.tolerance = self.usual_tolerance if isinstance(given, str) else float(given)

    @abstractmethod
    def scores(self, measure: BaseMeasure, choice: Choice, splits: list[Split]) -> Tensor:
        """Held-out log-densities of a choice on a measure."""

    @abstractmethod
    def choose(self, search: Search, bases: list[BaseSpec], h: Tensor | None) -> Choice:
        """Strategy of the search; a bandwidth that is given stays as it is."""

    @abstractmethod
    def unsearched(self, base: BaseSpec, h: Tensor, count: float) -> Choice:
        """The choice where there is nothing to search for, or to search by."""

    @abstractmethod
    def width(self, choice: Choice, measure: BaseMeasure) -> Tensor:
        """Bandwidth of the frequencies, of shape (d,)."""

    @abstractmethod
    def measurement(self, measure: BaseMeasure) -> str:
        """How the density matrix is found."""

    @abstractmethod
    def rank(self, d: int) -> int | float | str:
        """Rank of the density matrix of d columns."""

    def generator(self) -> Generator:
        """A new generator, always from the same seed."""
        return torch.Generator().manual_seed(self.seed)

    def draw_features(
        self,
        choice: Choice,
        measure: BaseMeasure,
        ends: Tensor,
        n: int | None,
        generator: Generator,
    ) -> FourierFeatures:
        """Frequencies for n rows (None: rows are still to come) between ends of shape (2, d)."""
        d = ends.shape[1]
        if choice.bare:
            return constant_feature(d)
        D = self.spec.n_features
        if isinstance(D, str):
            D = self.policy.n_features(n, d, choice.base.n_components)
        h, policy = self.width(choice, measure), self.policy
        lower, upper = measure_ends(measure, ends, policy.gaussian_reach)
        period = upper - lower + policy.lattice_margin * h
        return FourierFeatures.draw(self.spec.frequency_kind(d), int(D), h, period, generator)

    def features(
        self, choice: Choice, measure: BaseMeasure, z: Summary, n: int | None
    ) -> FourierFeatures:
        """Features of the plan, learned by Algorithm 1 if they are to be adaptive."""
        generator = self.generator()
        features = self.draw_features(choice, measure, z.moments.ends, n, generator)
        if self.spec.features != "adaptive" or choice.bare:
            return features
        h = self.width(choice, measure)
        return fit_adaptive_features(features, z.rows, h, generator=generator)

    def reach(self, choice: Choice, measure: BaseMeasure, ends: Tensor) -> Tensor:
        """Ends that rows must keep to: a box stops there, a lattice begins to repeat itself."""
        kept = torch.stack(measure_ends(measure, ends, self.policy.gaussian_reach))
        if isinstance(measure, BoxMeasure):
            return kept
        infinite = torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64).expand_as(kept)
        if choice.bare or self.spec.frequency_kind(ends.shape[1]) != "lattice":
            return infinite.clone()
        margin = self.policy.lattice_margin / 2 * self.width(choice, measure)
        return kept + margin * infinite.sign()

    def log_defended(self, log_p: Tensor, z: Tensor, count: float) -> Tensor:
        """Log-densities with the background that a fit to `count` rows will have."""
        d = z.shape[1]
        zero = torch.zeros(d, dtype=torch.float64)
        spread = self.policy.background_spread * torch.eye(d, dtype=torch.float64)
        epsilon = torch.tensor(background_weight(self.policy.background, count)).double()
        log_broad = QF.log_gaussian_density(z, zero, spread)
        return torch.logaddexp(log_p + torch.log1p(-epsilon), log_broad + epsilon.log())


def constant_feature(d: int) -> FourierFeatures:
    """The one feature of d columns that leaves a base measure as it is."""
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    return FourierFeatures(zero.expand(1, d).clone(), zero, one)


def sized(bases: Sequence[BaseSpec], chosen: BaseSpec) -> list[BaseSpec]:
    """Base measures of which those of open size have the chosen one."""
    return [base if base.n_components else chosen for base in bases]
