r"""Density matrices of all classes, in closed form or by gradient descent (paper, Section 4.3).

**Closed form.** With the :class:`ClassSums` of the rows, their mean density matrix
:math:`\bar\rho = \sum_c \rho_c / \sum_c w_c` and a ridge μ on it, every reading is a factor L_c,
and :math:`m \lVert L_c \phi \rVert^2 / \operatorname{tr}(L_c G L_c^\top)` is a density whatever
L_c is:

``direct``
    :math:`L_c^\top L_c = \rho_c`, the paper's.
``square_root``
    :math:`G^{-1/2} \rho_c G^{-1/2}`: that of :class:`~qaffde.QAFFDE`, a kernel density estimate
    of each class.
``pretty_good``
    :math:`(\bar\rho + \mu)^{-1/2} \rho_c (\bar\rho + \mu)^{-1/2}`: the measurement that tells the
    states of classes apart nearly as well as any (Hausladen and Wootters, 1994).
``coherent``
    :math:`(\bar\rho + \mu)^{-1} \psi_c \psi_c^\top (\bar\rho + \mu)^{-1}`: a pure state, whose
    amplitude is the least-squares estimate of the class's share of the rows.

**Gradient descent** (Algorithm 3). The factors learn in coordinates :math:`e = T^\top \phi` that
are orthonormal on the base measure, where one learning rate serves all directions:
:math:`L_c = A_c T^\top`. Coordinates that never change are computed once.
"""

import math
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize

from qaffde import functional as QF
from qaffde.nn import FourierFeatures
from qaffde.nn.encoded import ImageCoder
from qaffde.training.closed_form import row_batches
from qaffde.training.config import TrainingConfig
from qaffde.training.likelihood import Whitening

MEASUREMENTS = ("direct", "square_root", "pretty_good", "coherent")
CLASS_BATCH = 256
"""Rows of a batch of Adam, unless the settings say otherwise."""
ROUGH = 0.01
"""Relative error of eigenvalues that comparing readings, or starting from one, can bear."""


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Rows with the numbers of their classes."""

    X: Tensor  # (n, d)
    y: Tensor  # (n,), numbers of classes from 0 on
    weight: Tensor  # (n,), positive
    n_classes: int

    def part(self, chosen: Tensor) -> "LabeledRows":
        """Some of the rows."""
        return LabeledRows(self.X[chosen], self.y[chosen], self.weight[chosen], self.n_classes)

    @property
    def class_weight(self) -> Tensor:
        """Weight of each class, of shape (C,)."""
        return self.weight.new_zeros(self.n_classes).index_add_(0, self.y, self.weight)

    @property
    def log_prior(self) -> Tensor:
        """Logarithm of each class's share, of shape (C,)."""
        return (self.class_weight / self.class_weight.sum()).log()


@dataclass(frozen=True, eq=False)
class ClassSums:
    r"""Sufficient statistics of weighted rows of C classes; they add up over rows.

    .. math:: \rho_c = \sum_{i \in c} w_i \phi_i \phi_i^\top, \qquad
              \psi_c = \sum_{i \in c} w_i \phi_i

    of shapes (C, D, D) and (C, D), and the weights of the classes, of shape (C,).
    """

    rho: Tensor
    psi: Tensor
    weight: Tensor

    @classmethod
    def of(cls, features: FourierFeatures, rows: LabeledRows) -> "ClassSums":
        """Sums over rows in the units of the features, each row seen once."""
        C, D = rows.n_classes, features.n_features
        rho = torch.zeros(C, D, D, dtype=torch.float64)
        psi = torch.zeros(C, D, dtype=torch.float64)
        for c in rows.y.unique().tolist():
            own = rows.part(rows.y == c)
            for z, w in row_batches(own.X, own.weight):
                phi = features(z)
                psi[c] += w @ phi
                QF.add_rank_update(rho[c], phi.mul_(w.sqrt()[:, None]))
            rho[c] = QF.symmetrize_lower(rho[c])
        return cls(rho, psi, rows.class_weight)

    def __add__(self, other: "ClassSums") -> "ClassSums":
        return ClassSums(self.rho + other.rho, self.psi + other.psi, self.weight + other.weight)

    def means(self) -> tuple[Tensor, Tensor, Tensor]:
        """Means ρ_c and ψ_c, and ρ̄ of all rows; a class without rows has those of all."""
        total = self.weight.sum()
        pooled = self.rho.sum(0) / total
        empty = self.weight == 0
        count = self.weight.masked_fill(empty, 1.0)
        rho = torch.where(empty[:, None, None], pooled, self.rho / count[:, None, None])
        psi = torch.where(empty[:, None], self.psi.sum(0) / total, self.psi / count[:, None])
        return rho, psi, pooled


@dataclass(frozen=True, eq=False)
class ClassReader:
    """All readings of some sums, for a Gram matrix G of shape (D, D).

    Eigenvalues below a share `tolerance` of the largest count as zero, and need be right to the
    relative `error` only. All ranks up to `max_rank` share their eigenpairs.
    """

    sums: ClassSums
    G: Tensor
    tolerance: float
    error: float = 0.0
    max_rank: int | float = 1
    _known: dict[tuple[str, float], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def factor(self, measurement: str, ridge: float, rank: int | float | str) -> Tensor:
        """Factor of shape (C, r, D), of mass one."""
        r = QF.resolve_rank(rank, self.G[0], 1.0)
        if (measurement, ridge) not in self._known:
            most = max(r, QF.resolve_rank(self.max_rank, self.G[0], 1.0))
            self._known[measurement, ridge] = self._spectra(measurement, ridge, most)
        lam, V = self._known[measurement, ridge]
        factor = lam[:, :r, None].sqrt() * V[:, :r]
        return factor / QF.born_mass(factor, self.G).sqrt()[:, None, None]

    def _spectra(self, measurement: str, ridge: float, rank: int) -> tuple[Tensor, Tensor]:
        """Eigenpairs (C, n) and (C, n, D) of the matrices of the classes in a measurement."""
        rho, psi, _ = self._means
        if measurement == "coherent":
            w = psi @ _power(self._pooled, -1.0, ridge)
            return w.square().sum(1, keepdim=True), normalize(w, dim=1)[:, None]
        if measurement == "square_root":
            R = _power(QF.range_eigenpairs(self.G, self.tolerance), -0.5, 0.0)
            rho = R @ rho @ R
        elif measurement == "pretty_good":
            R = _power(self._pooled, -0.5, ridge)
            rho = R @ rho @ R
        return QF.leading_eigenpairs(rho, rank, self.error)

    @cached_property
    def _means(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.sums.means()

    @cached_property
    def _pooled(self) -> tuple[Tensor, Tensor]:
        return QF.range_eigenpairs(self._means[2], self.tolerance)


def _power(spectrum: tuple[Tensor, Tensor], power: float, ridge: float) -> Tensor:
    """(M + μ)^power on the range of M, for μ = ridge times the largest eigenvalue."""
    U, lam = spectrum
    return (U * (lam + ridge * lam[-1]) ** power) @ U.T


class ClassStates(nn.Module):
    """Density matrices of C classes that learn, and with them features or an encoder.

    They start from a factor A of shape (C, r, n) in the coordinates of `space`, each with the
    weight `epsilon` of the base measure. Inputs are coordinates where neither features nor a coder
    learn; else rows, or what the coder encodes, in its `unit` of shape (q,). The generator is for
    the augmentation.
    """

    unit: Tensor
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
        unit: Tensor | None = None,
    ) -> None:
        super().__init__()
        start, self.learns = space.features, training.learn_features
        self.features = FourierFeatures(start.W, start.b, start.a, learnable=self.learns)
        self.measure = deepcopy(space.measure)
        self.coder, self.dropout = coder, nn.Dropout(training.dropout)
        self.factor = nn.Parameter(factor.clone())
        self.epsilon, self.in_coordinates = epsilon, in_coordinates
        self.augment, self.generator = training.augment, generator
        gram, age = 1 - space.ridge / space.level, torch.zeros((), dtype=torch.int64)
        buffers = {"unit": unit, "transform": space.transform, "log_prior": log_prior, "age": age}
        for name, value in (buffers | {"gram": gram.diag() if self.learns else gram}).items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """Log-densities of shape (n, C), relative to the base measure."""
        if self.coder is not None:
            inputs = self.coder.inputs(x)
            if self.training and self.augment is not None:
                inputs = self.augment(inputs, self.generator)
            x = self.coder.encode(inputs) / self.unit
        e = self.dropout(x if self.in_coordinates else self.features(x))
        e = e if self.in_coordinates else e @ self.transform
        born = QF.born_rule(e, self.factor) / QF.born_mass(self.factor, self._gram())
        return log_defended(born, self.epsilon)

    def _gram(self) -> Tensor:
        """Gram matrix of the coordinates; while features learn, a constant for twenty steps."""
        if self.learns and (not self.training or self.age % 20 == 0):
            G = self.measure.gram(self.features).detach()
            self.gram = self.transform.T @ G @ self.transform
        self.age += int(self.training)
        return self.gram


def conditional_loss(module: nn.Module, x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
    """Mean −w log P(y | x), by Bayes' rule with the module's prior."""
    log_joint = module(x) + module.log_prior
    return -(weight * of_class(log_joint.log_softmax(1), y)).mean()


def log_defended(born: Tensor, epsilon: float) -> Tensor:
    """Log of (1 − ε) b + ε."""
    return torch.log1p((1 - epsilon) / epsilon * born) + math.log(epsilon)


def of_class(table: Tensor, y: Tensor) -> Tensor:
    """Entry of each row of a table (n, C) in the column of its class, of shape (n,)."""
    return table.gather(1, y[:, None])[:, 0]
