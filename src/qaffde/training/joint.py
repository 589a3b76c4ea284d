r"""Density matrix and encoder learned together, by the exact likelihood."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Generator, Tensor

from qaffde.nn import BornDensity, Density, DensityMatrix, KernelMeasure
from qaffde.training.config import LoopConfig
from qaffde.training.likelihood import Whitening
from qaffde.training.loop import Rows, train
from qaffde.training.losses import negative_log_likelihood
from qaffde.training.run import History, Run


class LearnedBorn(Density):
    r"""Born density that learns in the coordinates where it started.

    With the factor :math:`L = A\, T^\top`, T the whitening of the features, one learning rate
    serves all directions. While it trains, the ridge is part of its normalizer:

    .. math:: \log p(x) = \log m(x) + \log \lVert L \phi(x) \rVert^2
              - \log\bigl(\operatorname{tr}(L G L^\top) + \mu \lVert L \rVert^2\bigr)

    and in ``eval`` mode it is a density.

    Parameters
    ----------
    space : Whitening
    state : DensityMatrix
        The start.
    """

    transform: Tensor

    def __init__(self, space: Whitening, state: DensityMatrix) -> None:
        super().__init__()
        self.features = deepcopy(space.features)
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
        log_mass = self.measure.log_normalizer(L, self.features)
        if isinstance(self.measure, KernelMeasure):
            return self.state.log_trace() + log_mass
        if not self.training:
            return log_mass
        return torch.logaddexp(log_mass, (self.ridge * L.square().sum()).log())


def train_jointly(
    born: LearnedBorn,
    space: Whitening,
    around: Callable[[Density], Density],
    rows: Rows,
    valid: Rows,
    config: LoopConfig,
    generator: Generator,
    run: Run,
) -> tuple[BornDensity, History]:
    """Train a Born density together with the map in front of it.

    Parameters
    ----------
    born : LearnedBorn
        The start.
    space : Whitening
        Its coordinates.
    around : callable
        From the Born density to that of rows; its parameters learn in place.
    rows, valid : tuples of rows of shape (n, d) and weights of shape (n,)
    config : LoopConfig
    generator : torch.Generator
    run : Run

    Returns
    -------
    BornDensity, History
        The Born density inside, in double precision.
    """
    density = around(born)
    device = space.level.device
    density.to(device, torch.float32)
    history = train(
        density,
        negative_log_likelihood,
        tuple(part.to(device, torch.float32) for part in rows),
        tuple(part.to(device, torch.float32) for part in valid),
        config,
        generator,
        **run.loop_arguments("learning", config.max_steps),
    )
    density.double()
    learned = DensityMatrix(born.state.factor.detach().to(space.level))
    return space.density(learned).cpu(), history
