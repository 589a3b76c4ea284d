r"""Frequencies, phases and density matrix learned together, by the exact likelihood.

G is a closed form of W and b, so its gradient is too: D²·d work for a step, whatever the batch.
"""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor

from qaffde.nn import BornDensity, Density, DensityMatrix, FourierFeatures, KernelMeasure
from qaffde.training.likelihood import Whitening


class LearnedBorn(Density):
    r"""Born density that learns in the coordinates where it started.

    With the factor :math:`L = A\, T^\top`, T the whitening of the first features, one learning
    rate serves all directions. While it trains, the ridge is part of its normaliser:

    .. math:: \log p(x) = \log m(x) + \log \lVert L \phi(x) \rVert^2
              - \log\bigl(\operatorname{tr}(L G L^\top) + \mu \lVert L \rVert^2\bigr)

    and in ``eval`` mode it is a density.

    Parameters
    ----------
    space : Whitening
    state : DensityMatrix
        The start.
    learn_features : bool, default=True
        Whether W and b learn.
    """

    transform: Tensor

    def __init__(
        self, space: Whitening, state: DensityMatrix, *, learn_features: bool = True
    ) -> None:
        super().__init__()
        start = space.features
        self.features = FourierFeatures(start.W, start.b, start.a, learnable=learn_features)
        self.state = DensityMatrix(state.factor.detach())
        self.measure = deepcopy(space.measure)
        self.ridge = space.ridge
        self.register_buffer("transform", space.transform)

    @property
    def factor(self) -> Tensor:
        """The factor L of shape (r, D)."""
        return self.state.factor @ self.transform.T

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,), less the ridge's penalty while training."""
        L = self.factor
        log_born = (self.features(x) @ L.T).square().sum(-1).log()
        return log_born + self.measure.log_density(x) - self._log_mass(L)

    def _log_mass(self, L: Tensor) -> Tensor:
        if isinstance(self.measure, KernelMeasure):
            return self.state.log_trace() + self.measure.log_normalizer(L, self.features)
        log_mass = self.measure.log_normalizer(L, self.features)
        if not self.training:
            return log_mass
        return torch.logaddexp(log_mass, (self.ridge * L.square().sum()).log())

    @torch.no_grad()
    def density(self, space: Whitening) -> BornDensity:
        """What was learned, frozen, on the measure of the start in its full precision."""
        W, b, a = (part.detach().to(space.level) for part in self._map())
        state = DensityMatrix(self.state.factor.detach().to(space.level))
        return replace(space, features=FourierFeatures(W, b, a)).density(state)

    def _map(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.features.W, self.features.b, self.features.a
