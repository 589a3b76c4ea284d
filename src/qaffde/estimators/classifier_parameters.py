"""Checks of a classifier's parameters, and the settings that they come to."""

import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator
from torch import nn

from qaffde.estimators.classifier_closed import MEASUREMENTS
from qaffde.estimators.classifier_fit import RANK, RIDGE, GradientSettings
from qaffde.parameters import (
    check_choice,
    check_count,
    check_rank,
    check_share,
)
from qaffde.training import LoopConfig
from qaffde.training.class_likelihood import LOSSES

FEATURES = ("auto", "sobol", "orthogonal", "paired", "random", "adaptive")
N_EVALUATIONS = 50


class ClassifierParameters(BaseEstimator):
    """Parameters, checked; they are those of :class:`QAFFDEClassifier`."""

    def _check_parameters(self) -> None:
        check_count("n_features", self.n_features, auto=True, minimum=2)
        check_rank(self.rank)
        check_choice("features", self.features, FEATURES)
        check_choice("training", self.training, ("closed_form", "gradient"))
        check_choice("objective", self.objective, LOSSES)
        check_choice("measurement", self.measurement, ("auto", *MEASUREMENTS))
        check_choice("base_measure", self.base_measure, ("gaussian", "mixture"))
        check_count("n_base_components", self.n_base_components, auto=True)
        if self.n_components is not None:
            check_count("n_components", self.n_components, auto=True)
        check_share("ridge", self.ridge, auto=True)
        for name in ("background", "tolerance", "validation_fraction"):
            check_share(name, getattr(self, name))
        self._check_dropout()
        self._loop()
        self._check_network()
        if self.checkpoint is not None and self.random_state is None:
            raise ValueError(
                "checkpoint needs a random_state: without one no two fits are the same, and one "
                "that was killed could not be taken up again"
            )

    def _check_dropout(self) -> None:
        """Reject a share of features that cannot be, or that nothing is trained without."""
        if isinstance(self.feature_dropout, Real) and self.feature_dropout == 0:
            return
        check_share("feature_dropout", self.feature_dropout)
        if self.training == "closed_form":
            raise ValueError(
                'feature_dropout needs training="gradient": a closed form sees all features'
            )
        if self.objective == "generative":
            raise ValueError(
                'feature_dropout needs objective="conditional": a density of mass one with all '
                "features is none with some of them"
            )

    def _check_network(self) -> None:
        """Reject what only gradient training, or only an encoder, can use."""
        for name in ("encoder", "learn_features", "checkpoint"):
            value = getattr(self, name)
            if self.training == "closed_form" and value is not None and value is not False:
                raise ValueError(
                    f'{name} needs training="gradient": a closed form learns no such thing'
                )
        if self.encoder is None:
            for name in ("augment", "image_shape"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs an encoder, which alone sees images")
            return
        if not isinstance(self.encoder, nn.Module):
            raise ValueError(
                f"encoder={self.encoder!r} must be a torch module from inputs to codes (n, k)"
            )
        if self.objective == "generative":
            raise ValueError(
                'objective="generative" cannot train an encoder: a likelihood of codes grows '
                'without bound as they shrink to a point. Use objective="conditional", or '
                "QAFFDESGD with an invertible encoder for each class"
            )
        if self.augment is not None and not callable(self.augment):
            raise ValueError(
                f"augment={self.augment!r} must be callable as augment(images, generator)"
            )

    def _check_shape(self, d: int) -> tuple[int, ...] | None:
        if self.image_shape is None:
            return None
        shape = self.image_shape
        numbers = isinstance(shape, Sequence) and all(
            isinstance(size, Integral) and int(size) > 0 for size in shape
        )
        if not numbers or math.prod(shape) != d:
            raise ValueError(
                f"image_shape={shape!r} must be positive whole numbers (channels, height, width) "
                f"of product {d}, the number of columns"
            )
        return tuple(int(size) for size in shape)

    def _check_priors(self, n_classes: int) -> None:
        if self.priors is None:
            return
        try:
            priors = np.asarray(self.priors, dtype=np.float64)
        except (TypeError, ValueError):
            priors = np.full(0, math.nan)
        good = priors.shape == (n_classes,) and (priors >= 0).all()
        if not good or abs(priors.sum() - 1) > 1e-8:
            raise ValueError(
                f"priors={self.priors!r} must be {n_classes} numbers of sum one, none of them "
                "negative: one for each class, in sorted order"
            )

    def _loop(self) -> LoopConfig:
        """Settings of the loop, checked."""
        check_count("max_steps", self.max_steps)
        rate = self.learning_rate
        good = isinstance(rate, Real) and float(rate) > 0
        return LoopConfig(
            max_steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            final_learning_rate=min(1e-5, float(rate)) if good else 0.0,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            eval_every=max(1, self.max_steps // N_EVALUATIONS),
            patience=self.patience,
            time_limit=self.time_limit,
        )

    def _gradient_settings(self) -> GradientSettings:
        return GradientSettings(
            objective=self.objective,
            rank=RANK if self.rank == "auto" else self.rank,
            ridge=RIDGE if self.ridge == "auto" else float(self.ridge),
            learn_features=bool(self.learn_features),
            dropout=float(self.feature_dropout),
            epsilon=float(self.background),
            tolerance=float(self.tolerance),
            validation_fraction=float(self.validation_fraction),
            augment=self.augment,
            config=self._loop(),
            checkpoint=self.checkpoint,
            verbose=bool(self.verbose),
        )
