"""What a classifier does around its fit: checks of parameters and rows, and what is settled."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Generator, Tensor, nn

from qaffde.estimators.assembly import default_size
from qaffde.estimators.classifier_closed import MEASUREMENTS, ClassSums, Reading
from qaffde.estimators.classifier_density import ClassDensity
from qaffde.estimators.classifier_fit import RANK, RIDGE, GradientSettings
from qaffde.estimators.classifier_frame import (
    ClassFrame,
    LabelledRows,
    project,
    settle_features,
    settle_measure,
    settle_projection,
)
from qaffde.estimators.classifier_search import ClassSearch
from qaffde.estimators.classifier_training import LOSSES
from qaffde.estimators.parameters import (
    check_bandwidth,
    check_choice,
    check_count,
    check_mixture,
    check_rank,
    check_share,
)
from qaffde.estimators.persistence import FileMixin
from qaffde.training import History, LoopConfig

FEATURES = ("auto", "sobol", "orthogonal", "paired", "random", "adaptive")
N_EVALUATIONS = 50
MAX_AMPLITUDES = 1 << 22
"""Numbers that scoring holds at a time, beside the rows: 32 MB."""
FLOATS = [np.float64, np.float32]
CHOSEN_AMONG = {
    ("closed_form", "conditional"): ("pretty_good", "coherent", "square_root"),
    ("closed_form", "generative"): ("square_root",),
    ("gradient", "conditional"): ("coherent",),
    ("gradient", "generative"): ("square_root",),
}
"""Measurements that "auto" compares; gradient training takes but the bandwidth from them."""


class ClassifierBase(FileMixin, BaseEstimator):
    """Checks and settling; the parameters are those of :class:`QAFFDEClassifier`."""

    classes_: NDArray[Any]
    class_prior_: NDArray[np.float64]
    frame_: ClassFrame
    sums_: ClassSums
    reading_: Reading
    search_: dict[str, float]
    history_: list[History]
    _density: ClassDensity | None

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
        self._loop()
        self._check_network()
        if self.checkpoint is not None and self.random_state is None:
            raise ValueError(
                "checkpoint needs a random_state: without one no two fits are the same, and one "
                "that was killed could not be taken up again"
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
            epsilon=float(self.background),
            tolerance=float(self.tolerance),
            validation_fraction=float(self.validation_fraction),
            augment=self.augment,
            config=self._loop(),
            checkpoint=self.checkpoint,
            verbose=bool(self.verbose),
        )

    def _labelled(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[LabelledRows, NDArray[Any]]:
        """Rows and their classes; those without weight are dropped."""
        rows, labels = validate_data(
            self, X, y, dtype=FLOATS, order="C", ensure_min_samples=2, reset=reset
        )
        check_classification_targets(labels)
        weight = self._weights(rows, labels, sample_weight)
        kept = weight > 0
        classes, codes = np.unique(labels[kept], return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y holds only the class {classes.tolist()} among rows of positive weight; a "
                "classifier needs at least two classes"
            )
        return _tensors(rows[kept], codes, weight[kept], len(classes)), classes

    def _chunk(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, first: bool
    ) -> LabelledRows:
        """Rows for the classes that are known."""
        if self.class_weight == "balanced":
            raise ValueError(
                'class_weight="balanced" needs all rows at once; give a dict of weights, or priors'
            )
        if len(self.classes_) < 2:
            raise ValueError(f"classes={self.classes_.tolist()} must be at least two classes")
        rows, labels = validate_data(self, X, y, dtype=FLOATS, order="C", reset=first)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y holds labels {unknown.tolist()} that are not among the classes "
                f"{self.classes_.tolist()}; name all classes in the first call of partial_fit"
            )
        weight = self._weights(rows, labels, sample_weight)
        codes = np.searchsorted(self.classes_, labels)
        return _tensors(rows, codes, weight, len(self.classes_))

    def _weights(
        self, rows: Any, labels: NDArray[Any], sample_weight: ArrayLike | None
    ) -> NDArray[np.float64]:
        weight = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, labels)
        return weight

    def _rows(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        return torch.tensor(validate_data(self, X, dtype=FLOATS, order="C", reset=False))

    @property
    def _batch_rows(self) -> int:
        """Rows to score at a time."""
        factor = self.density_.born.factor
        return max(1, min(1024, MAX_AMPLITUDES // (factor.shape[0] * factor.shape[1])))

    def _settle(
        self, rows: LabelledRows, generator: Generator, *, stream: bool = False
    ) -> tuple[ClassFrame, Reading, dict[str, float]]:
        """Projection, base measure, features and reading, from the rows."""
        projection = settle_projection(
            rows.X, rows.weight, self.n_components, whiten=bool(self.whiten)
        )
        Z, weight = project(projection, rows.X), rows.weight
        q = projection.n_components
        numbers = check_bandwidth(self.bandwidth, q, ("auto",))
        size = rows.n_classes if self.n_base_components == "auto" else int(self.n_base_components)
        if self.base_measure == "mixture":
            check_mixture(size, len(Z))
        measure = settle_measure(Z, weight, self.base_measure, size, generator)
        D = self._size(rows.X, q, stream=stream)
        h = None if numbers is None else numbers / projection.scale
        seed = int(torch.randint(2**31, (), generator=generator))
        candidate, search = self._search(D, seed).run(
            Z, rows.y, weight, measure, h, rows.n_classes, generator
        )
        source = torch.Generator().manual_seed(seed)
        features = settle_features(self.features, D, candidate.bandwidth, Z, source)
        frame = ClassFrame(
            projection, candidate.bandwidth, measure, features, measure.gram(features)
        )
        return frame, candidate.reading, search

    def _search(self, D: int, seed: int) -> ClassSearch:
        named = self.measurement != "auto" and self.training == "closed_form"
        free_ridge = self.ridge == "auto" or self.training == "gradient"
        free_rank = self.rank == "auto" or self.training == "gradient"
        return ClassSearch(
            seed=seed,
            features=self.features,
            n_features=D,
            measurements=(
                (self.measurement,) if named else CHOSEN_AMONG[self.training, self.objective]
            ),
            ridge=None if free_ridge else float(self.ridge),
            rank=None if free_rank else self.rank,
            generative=self.objective == "generative",
            for_bandwidth=self.training == "gradient",
            epsilon=float(self.background),
            tolerance=float(self.tolerance),
        )

    def _size(self, X: Tensor, q: int, *, stream: bool) -> int:
        if self.n_features != "auto":
            return int(self.n_features)
        return default_size(None if stream else 2 * len(X), q)

    def _learn(
        self,
        frame: ClassFrame,
        reading: Reading,
        sums: ClassSums,
        search: dict[str, float],
        density: ClassDensity | None = None,
    ) -> Self:
        """Take over a new state; a density that is not given is read when it is asked for."""
        self.frame_, self.reading_, self.sums_ = frame, reading, sums
        self._density = density
        self.search_, self.history_ = search, []
        self.measurement_, self.ridge_ = reading.measurement, reading.ridge
        self.bandwidth_ = (frame.bandwidth * frame.projection.scale).numpy()
        self.n_components_ = frame.projection.n_components
        self.n_fourier_features_ = frame.features.n_features
        self.class_prior_ = self._prior(sums.weight)
        return self

    def _learn_gradient(
        self,
        density: ClassDensity,
        bandwidth: Tensor,
        rows: LabelledRows,
        classes: NDArray[Any],
        search: dict[str, float],
        history: History,
    ) -> Self:
        for name in ("frame_", "reading_", "sums_"):
            self.__dict__.pop(name, None)
        self._density = density
        self.classes_ = classes
        self.search_, self.history_ = search, [history]
        self.measurement_, self.ridge_ = "gradient", self._gradient_settings().ridge
        self.bandwidth_ = bandwidth.numpy()
        self.n_components_ = density.born.features.n_dims
        self.n_fourier_features_ = density.born.features.n_features
        self.class_prior_ = self._prior(rows.class_weight)
        return self

    def _prior(self, weight: Tensor) -> NDArray[np.float64]:
        if self.priors is not None:
            return np.array(self.priors, dtype=np.float64)
        return (weight / weight.sum()).numpy()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "class_prior_")


def _tensors(
    rows: Any, codes: NDArray[Any], weight: NDArray[np.float64], n_classes: int
) -> LabelledRows:
    return LabelledRows(
        torch.tensor(rows),
        torch.as_tensor(codes.reshape(-1), dtype=torch.int64),
        torch.tensor(weight),
        n_classes,
    )
