r"""Gradient training of the density matrices of all classes (paper, Algorithm 3 and Section 4.3).

The factors learn in coordinates :math:`e = T^\top \phi` that are orthonormal on the base measure,
where one learning rate serves all directions: :math:`L_c = A_c T^\top`. Frozen features of rows
without an encoder never change, so the coordinates of all rows are computed once, and the
normalizer of a class is a weighted norm of A_c. Otherwise G comes in, computed anew where it
changes.
"""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Generator, Tensor, nn

from qaffde import functional as QF
from qaffde.nn import FourierFeatures
from qaffde.nn.class_density import ImageCoder, log_defended, of_class
from qaffde.training.likelihood import Whitening

Augment = Callable[[Tensor, Generator], Tensor]
REFRESH = 20
"""Steps after which the Gram matrix of learning features is computed anew, where its gradient is
not used: the normalizer of a class is then a slowly moving constant."""


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
    generative : bool
        Whether likelihoods count, and with them the gradient of G and the ridge's penalty.
    in_coordinates : bool, default=False
        Whether inputs are coordinates e, and not rows: where neither features nor encoder learn.
    learn_features : bool, default=False
    dropout : float, default=0.0
        Share of the features, or coordinates, that a step of training does not see.
    coder : ImageCoder, optional
    augment : callable, optional
        ``augment(images, generator)``, while training.
    generator : torch.Generator, optional
        Handed to `augment`.
    """

    transform: Tensor
    log_prior: Tensor
    gram: Tensor
    penalty: Tensor
    age: Tensor

    def __init__(
        self,
        space: Whitening,
        factor: Tensor,
        log_prior: Tensor,
        epsilon: float,
        *,
        generative: bool,
        in_coordinates: bool = False,
        learn_features: bool = False,
        dropout: float = 0.0,
        coder: ImageCoder | None = None,
        augment: Augment | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        start, share = space.features, space.ridge / space.level
        self.features = FourierFeatures(start.W, start.b, start.a, learnable=learn_features)
        self.measure = deepcopy(space.measure)
        self.coder, self.dropout = coder, nn.Dropout(dropout)
        self.factor = nn.Parameter(factor.clone())
        self.epsilon, self.in_coordinates = epsilon, in_coordinates
        self.generative, self.learn_features = generative, learn_features
        self.augment, self.generator = augment, generator
        gram = 1 - share if in_coordinates else space.measure.gram(start)
        self.register_buffer("transform", space.transform)
        self.register_buffer("log_prior", log_prior)
        self.register_buffer("gram", gram)
        self.register_buffer("penalty", share if in_coordinates else share.new_tensor(space.ridge))
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Log-densities of shape (n, C), relative to the base measure."""
        L = self.factor if self.in_coordinates else self.factor @ self.transform.T
        mass = QF.born_mass(L, self._gram())
        if self.generative and self.training:
            mass = mass + (self.penalty * L.square()).sum((1, 2))
        seen = x if self.in_coordinates else self.features(self._codes(x))
        return log_defended(QF.born_rule(self.dropout(seen), L) / mass, self.epsilon)

    def _codes(self, x: Tensor) -> Tensor:
        if self.coder is None:
            return x
        inputs = self.coder.inputs(x)
        if self.training and self.augment is not None and self.generator is not None:
            inputs = self.augment(inputs, self.generator)
        return self.coder.encode(inputs)

    def _gram(self) -> Tensor:
        if not self.learn_features:
            return self.gram
        if self.generative or not self.training:
            return self.measure.gram(self.features)
        if self.age % REFRESH == 0:
            self.gram = self.measure.gram(self.features).detach()
        self.age += 1
        return self.gram


def conditional_loss(module: nn.Module, x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
    """Mean −w log P(y | x), by Bayes' rule with the module's prior."""
    log_joint = module(x) + module.log_prior
    return -(weight * of_class(log_joint.log_softmax(1), y)).mean()


def generative_loss(module: nn.Module, x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
    """Mean −w log p(x | y), relative to the base measure."""
    return -(weight * of_class(module(x), y)).mean()


LOSSES = {"conditional": conditional_loss, "generative": generative_loss}
