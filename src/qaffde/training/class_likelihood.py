r"""Gradient training of the density matrices of all classes (paper, Algorithm 3 and Section 4.3).

The factors learn in coordinates :math:`e = T^\top \phi` that are orthonormal on the base measure,
where one learning rate serves all directions: :math:`L_c = A_c T^\top`. Frozen features of rows
without an encoder never change, so the coordinates of all rows are computed once, and the
normaliser of a class is a weighted norm of A_c. Otherwise G comes in, computed anew where it
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
"""Steps after which the Gram matrix of learning features is computed anew, where its gradient has
no say: the normaliser of a class is then but a slowly moving constant."""


class ClassStates(nn.Module):
    """Density matrices of C classes in coordinates that are known.

    Parameters
    ----------
    factor : Tensor of shape (C, r, n)
        A, the start.
    metric : Tensor of shape (n,)
        Mass of each coordinate on the base measure.
    log_prior : Tensor of shape (C,)
    epsilon : float
        Weight of the base measure in each density.
    penalized : bool
        Whether coordinates count as of mass one while training: the ridge's penalty.
    dropout : float, default=0.0
        Share of the coordinates that a step of training does not see.
    """

    metric: Tensor
    log_prior: Tensor

    def __init__(
        self,
        factor: Tensor,
        metric: Tensor,
        log_prior: Tensor,
        epsilon: float,
        *,
        penalized: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.factor = nn.Parameter(factor.clone())
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("metric", metric)
        self.register_buffer("log_prior", log_prior)
        self.epsilon = epsilon
        self.penalized = penalized

    def forward(self, e: Tensor) -> Tensor:
        """Log-densities of shape (n, C), relative to the base measure."""
        flat = self.penalized and self.training
        metric = torch.ones_like(self.metric) if flat else self.metric
        seen = QF.born_rule(self.dropout(e), self.factor)
        return log_defended(seen / QF.born_mass(self.factor, metric), self.epsilon)


class ClassNetwork(nn.Module):
    """Density matrices of C classes behind features, and an encoder, that may learn.

    Parameters
    ----------
    space : Whitening
        Coordinates of the start.
    factor : Tensor of shape (C, r, n)
        A, the start.
    log_prior : Tensor of shape (C,)
    epsilon : float
    generative : bool
        Whether likelihoods count, and with them the gradient of G and the ridge's penalty.
    learn_features : bool
    dropout : float, default=0.0
        Share of the features that a step of training does not see.
    coder : ImageCoder, optional
    augment : callable, optional
        ``augment(images, generator)``, while training.
    generator : torch.Generator, optional
        Handed to `augment`.
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
        *,
        generative: bool,
        learn_features: bool,
        dropout: float = 0.0,
        coder: ImageCoder | None = None,
        augment: Augment | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        start = space.features
        self.features = FourierFeatures(start.W, start.b, start.a, learnable=learn_features)
        self.measure = deepcopy(space.measure)
        self.coder, self.dropout = coder, nn.Dropout(dropout)
        self.factor = nn.Parameter(factor.clone())
        self.epsilon, self.ridge = epsilon, space.ridge
        self.generative, self.learn_features = generative, learn_features
        self.augment, self.generator = augment, generator
        self.register_buffer("transform", space.transform)
        self.register_buffer("log_prior", log_prior)
        self.register_buffer("gram", space.measure.gram(space.features))
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Log-densities of shape (n, C), relative to the base measure."""
        L = self.factor @ self.transform.T
        mass = QF.born_mass(L, self._gram())
        if self.generative and self.training:
            mass = mass + self.ridge * L.square().sum((1, 2))
        phi = self.dropout(self.features(self._codes(x)))
        return log_defended(QF.born_rule(phi, L) / mass, self.epsilon)

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
