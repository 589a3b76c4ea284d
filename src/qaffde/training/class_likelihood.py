r"""Gradient training of the density matrices of all classes (paper, Algorithm 3 and Section 4.3).

The factors learn in coordinates :math:`e = T^\top \phi` that are orthonormal on the base measure,
where one learning rate serves all directions: :math:`L_c = A_c T^\top`. Frozen features of rows
without an encoder never change, so the coordinates of all rows are computed once.
"""

from copy import deepcopy

import torch
from torch import Generator, Tensor, nn

from qaffde import functional as QF
from qaffde.nn import FourierFeatures
from qaffde.nn.class_density import ImageCoder, log_defended, of_class
from qaffde.training.config import TrainingConfig
from qaffde.training.likelihood import Whitening

REFRESH = 20
"""Steps after which the Gram matrix of learning features is computed anew; no gradient goes
through it."""


class ClassStates(nn.Module):
    """Density matrices of C classes that learn, and with them features or an encoder.

    Parameters
    ----------
    space : Whitening
        Coordinates of the start.
    factor : Tensor of shape (C, r, n)
        A, the start.
    log_prior : Tensor of shape (C,)
    epsilon : float
        Weight of the base measure in each density.
    training : TrainingConfig
        Whether features learn, dropout and augmentation.
    in_coordinates : bool
        Whether inputs are coordinates e, and not rows: where neither features nor encoder learn.
    coder : ImageCoder, optional
    generator : torch.Generator
        Handed to the augmentation.
    """

    transform: Tensor
    log_prior: Tensor
    gram: Tensor
    age: Tensor

    def __init__(
        self,
        space: Whitening,
        factor: Tensor,
        log_prior: Tensor,
        epsilon: float,
        training: TrainingConfig,
        generator: Generator,
        *,
        in_coordinates: bool,
        coder: ImageCoder | None = None,
    ) -> None:
        super().__init__()
        start, self.learns = space.features, training.learn_features
        self.features = FourierFeatures(start.W, start.b, start.a, learnable=self.learns)
        self.measure = deepcopy(space.measure)
        self.coder, self.dropout = coder, nn.Dropout(training.dropout)
        self.factor = nn.Parameter(factor.clone())
        self.epsilon, self.in_coordinates = epsilon, in_coordinates
        self.augment, self.generator = training.augment, generator
        self.register_buffer("transform", space.transform)
        self.register_buffer("log_prior", log_prior)
        gram = 1 - space.ridge / space.level
        self.register_buffer("gram", gram.diag() if self.learns else gram)
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Log-densities of shape (n, C), relative to the base measure."""
        if self.in_coordinates:
            e = self.dropout(x)
        else:
            e = self.dropout(self.features(self._codes(x))) @ self.transform
        born = QF.born_rule(e, self.factor) / QF.born_mass(self.factor, self._gram())
        return log_defended(born, self.epsilon)

    def _codes(self, x: Tensor) -> Tensor:
        if self.coder is None:
            return x
        inputs = self.coder.inputs(x)
        if self.training and self.augment is not None:
            inputs = self.augment(inputs, self.generator)
        return self.coder.encode(inputs)

    def _gram(self) -> Tensor:
        """Gram matrix of the coordinates; while features learn, a slowly moving constant."""
        if self.learns and (not self.training or self.age % REFRESH == 0):
            G = self.measure.gram(self.features).detach()
            self.gram = self.transform.T @ G @ self.transform
        self.age += int(self.training)
        return self.gram


def conditional_loss(module: nn.Module, x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
    """Mean −w log P(y | x), by Bayes' rule with the module's prior."""
    log_joint = module(x) + module.log_prior
    return -(weight * of_class(log_joint.log_softmax(1), y)).mean()
