"""Images of bytes by class-conditional flows: noise, logits, and Bayes' rule for the label."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Generator, Tensor, nn

from experiments.images.pixels import LEVELS, PixelDensity, pixel_loss, pixel_scales
from experiments.models.class_flows import class_flow
from qaffde import QAFFDEClassifier
from qaffde.baselines.base import TrainedEstimator
from qaffde.baselines.flows import MAF
from qaffde.estimators.base import Array
from qaffde.parameters import check_count, check_share, generator_from
from qaffde.training import History, hold_out
from qaffde.training.noise import Noise

MAX_HELD_OUT = 500
"""Images to stop by: each is scored as many times as there are draws."""
SCORED_ROWS = 2048
"""Pairs of an image and a class that are scored at a time."""


class BayesImageClassifier(ClassifierMixin, BaseEstimator):
    r"""Classifier of images by Bayes' rule, :math:`P(c \mid x) \propto P(c)\, p(x \mid c)`.

    Rows are flat images in [0, 1], taken for bytes: the nearest of 256 levels counts. A subclass
    writes ``_train``, which leaves a module from levels (n, d) and classes (n,) to log-densities.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    class_prior_ : ndarray of shape (C,)
    density_ : torch module
    history_ : qaffde.training.History
    n_features_in_ : int
    """

    random_state: Any
    classes_: NDArray[Any]
    class_prior_: Array
    density_: nn.Module
    history_: History
    predict_log_proba = QAFFDEClassifier.predict_log_proba
    predict_proba = QAFFDEClassifier.predict_proba
    predict = QAFFDEClassifier.predict

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on images and their classes.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Pixels in [0, 1].
        y : array-like of shape (n,)
        """
        rows, labels = validate_data(self, X, y, dtype=np.float32, ensure_min_samples=2)
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y holds only the class {classes.tolist()}; at least two are needed")
        levels, labelled = _levels(rows), torch.as_tensor(codes)
        self.density_, self.history_ = self._train(
            levels, labelled, len(classes), generator_from(self.random_state)
        )
        self.classes_ = classes
        self.class_prior_ = np.bincount(codes) / len(codes)
        return self

    @abstractmethod
    def _train(
        self, levels: Tensor, y: Tensor, n_classes: int, generator: Generator
    ) -> tuple[nn.Module, History]:
        """Density of levels (n, d) and classes (n,), and how its training went."""

    def log_density(self, X: ArrayLike) -> Array:
        """Log-density of each image in each class, of shape (n, C)."""
        check_is_fitted(self)
        levels = _levels(validate_data(self, X, dtype=np.float32, reset=False))
        C = len(self.classes_)
        batches = levels.split(max(1, SCORED_ROWS // C))
        with torch.no_grad():
            return torch.cat([self._score(x, C) for x in batches]).double().numpy()

    def _score(self, levels: Tensor, n_classes: int) -> Tensor:
        every = torch.arange(n_classes).repeat_interleave(len(levels))
        scores: Tensor = self.density_(levels.repeat(n_classes, 1), every)
        return scores.reshape(n_classes, len(levels)).T


@dataclass(eq=False, repr=False)
class ImageFlowClassifier(BayesImageClassifier):
    r"""One flow for the images of all classes, the class being its context, or one for each.

    What is usual for flows of images (Dinh et al., 2017; Papamakarios et al., 2017): bytes become
    numbers by uniform noise within their level, drawn anew in every step, and numbers in [0, 1]
    leave their box by :math:`\operatorname{logit}(\alpha + (1 - 2 \alpha) x)`. Columns are then
    standardised within each class, so that the flow starts as naive Bayes on logits. All Jacobians
    are in the density, which is that of the image in [0, 1].

    Parameters
    ----------
    flow : MADE, MAF or RealNVP, optional
        Its parameters count; it is not fitted itself. ``MAF()`` by default.
    alpha : float, default=1e-6
        Of the logit: 1e-6 is usual for MNIST, 0.05 for CIFAR-10.
    n_draws : int, default=1
        Of the noise, when images are scored: the mean log-density over them, which is what
        training maximises, a lower bound of the log-probability of the bytes. All images share
        them. One draw is a poor judge: it moved the accuracy of one MAF on MNIST by .05.
    shared : bool, default=True
        Whether one flow serves all classes. One for each has nothing but its own images to learn
        from, and nothing to blur what is peculiar to them.
    random_state : int, RandomState instance or None, default=None
        Of the training, in place of the flow's.
    """

    flow: TrainedEstimator | None = None
    _: KW_ONLY
    alpha: float = 1e-6
    n_draws: int = 1
    shared: bool = True
    random_state: Any = None
    density_: PixelDensity = field(init=False)

    def _train(
        self, levels: Tensor, y: Tensor, n_classes: int, generator: Generator
    ) -> tuple[nn.Module, History]:
        self._check_parameters()
        flow = clone(MAF() if self.flow is None else self.flow)
        config = flow.set_params(random_state=self.random_state)._config()
        share = config.validation_fraction
        chosen, held_out = hold_out(len(y), share, generator, most=MAX_HELD_OUT)
        scales = pixel_scales(levels[chosen], y[chosen], n_classes, self.alpha, generator)
        with Noise(generator):
            inner = class_flow(flow, levels.shape[1], n_classes, shared=self.shared)
        density = PixelDensity(inner, *scales, self.alpha, self.n_draws, generator).float()
        history = flow.train_module(
            density,
            pixel_loss,
            (levels[chosen], y[chosen]),
            (levels[held_out], y[held_out]) if len(held_out) else None,
            generator,
        )
        return density.eval().requires_grad_(False), history

    def _check_parameters(self) -> None:
        check_share("alpha", self.alpha)
        if self.alpha >= 0.5:
            raise ValueError(f"alpha={self.alpha!r} must be below 0.5, where all pixels are one")
        check_count("n_draws", self.n_draws)


def _levels(rows: NDArray[np.float32]) -> Tensor:
    """Bytes of shape (n, d) of pixels in [0, 1]."""
    if rows.min() < 0 or rows.max() > 1:
        raise ValueError(
            f"X lies between {rows.min():g} and {rows.max():g}; pixels must be in [0, 1]: divide "
            "bytes by 255"
        )
    return torch.from_numpy(np.rint(rows * (LEVELS - 1)).astype(np.uint8))
