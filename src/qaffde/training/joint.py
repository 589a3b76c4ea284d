"""Density matrix and encoder learned together, by the exact likelihood."""

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
    r"""Born density that learns in the coordinates :math:`e = T^\top \phi` of a whitening.

    .. math:: \log p(x) = \log m(x) + \log \frac{\lVert A e \rVert^2}{\lVert A \rVert^2}

    There :math:`T^\top (G + \mu I) T = I`: one learning rate serves all directions, and the ridge
    is part of the normalizer. In ``eval`` mode it is not, and this is a density.
    """

    transform: Tensor
    share: Tensor

    def __init__(self, space: Whitening, state: DensityMatrix) -> None:
        super().__init__()
        self.features, self.measure = deepcopy(space.features), deepcopy(space.measure)
        self.state = DensityMatrix(state.factor.detach())
        self.register_buffer("transform", space.transform)
        self.register_buffer("share", 1 - space.ridge / space.level)  # diagonal of T'GT

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,), less the ridge's penalty while training."""
        log_p = self.state(self.features(x) @ self.transform) + self.measure.log_density(x)
        if isinstance(self.measure, KernelMeasure):
            return log_p - self.measure.log_normalizer(self.transform, self.features)
        if self.training:
            return log_p
        squares = self.state.factor.square()
        return log_p - ((squares * self.share).sum() / squares.sum()).log()


def train_jointly(
    space: Whitening,
    state: DensityMatrix,
    around: Callable[[Density], Density],
    rows: Rows,
    valid: Rows,
    config: LoopConfig,
    generator: Generator,
    run: Run,
) -> tuple[BornDensity, History]:
    """Train a Born density together with the map in front of it, from a state in its coordinates.

    `around` makes the density of rows from the Born density; its parameters learn in place. Rows
    (n, d) come with weights (n,). The Born density inside is returned, in double precision.
    """
    born = LearnedBorn(space, state)
    device = space.level.device
    density = around(born).to(device, torch.float32)
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
