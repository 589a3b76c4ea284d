"""What a classifier does around its fit: rows and labels, what is settled, what is kept."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Generator, Tensor

from qaffde.estimators.base import Array
from qaffde.estimators.bayes import BayesRule
from qaffde.estimators.classifier_closed import ClassReader, ClassSums, Reading
from qaffde.estimators.classifier_fit import fit_encoder, fit_states
from qaffde.estimators.classifier_frame import (
    ClassFrame,
    LabelledRows,
    project,
    settle_features,
    settle_measure,
    settle_projection,
)
from qaffde.estimators.classifier_parameters import ClassifierParameters
from qaffde.estimators.classifier_search import ClassSearch
from qaffde.estimators.persistence import FileMixin
from qaffde.nn.class_density import ClassBorn, ClassDensity
from qaffde.parameters import (
    check_bandwidth,
    check_mixture,
)
from qaffde.selection.policy import DEFAULT_POLICY
from qaffde.training import History

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


class ClassifierBase(FileMixin, BayesRule, ClassifierParameters):
    """Rows, settling and predictions; the parameters are those of :class:`QAFFDEClassifier`."""

    frame_: ClassFrame
    sums_: ClassSums
    reading_: Reading
    search_: dict[str, float]
    history_: list[History]
    _density: ClassDensity | None

    def log_density(self, X: ArrayLike) -> Array:
        """Log-density of each row in each class.

        Of the row itself, or of its code (`encoder`).

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, C)
        """
        rows = self._rows(X)
        with torch.no_grad():
            return torch.cat([self.density_(x) for x in rows.split(self._batch_rows)]).numpy()

    @property
    def density_(self) -> ClassDensity:
        """Densities of all classes; read from the sums when first asked for after an update."""
        if self._density is None:
            self._density = self._read(self.frame_, self.reading_, self.sums_)
        return self._density

    @property
    def rank_(self) -> int:
        """Rank of each density matrix."""
        return self.density_.born.rank

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
        return DEFAULT_POLICY.n_features(None if stream else 2 * len(X), q)

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

    def _fit_encoder(
        self, rows: LabelledRows, classes: NDArray[Any], generator: Generator
    ) -> Self:
        shape = self._check_shape(rows.X.shape[1])
        features = self.features, self._size(rows.X, 2, stream=False), self.bandwidth
        density, h, history = fit_encoder(
            self.encoder, shape, features, rows, self._gradient_settings(), generator
        )
        return self._learn_gradient(density, h, rows, classes, {}, history)

    def _fit_gradient(
        self,
        frame: ClassFrame,
        rows: LabelledRows,
        classes: NDArray[Any],
        search: dict[str, float],
        generator: Generator,
    ) -> Self:
        density, history = fit_states(frame, rows, self._gradient_settings(), generator)
        h = frame.bandwidth * frame.projection.scale
        return self._learn_gradient(density, h, rows, classes, search, history)

    def _read(self, frame: ClassFrame, reading: Reading, sums: ClassSums) -> ClassDensity:
        factor = ClassReader(sums, frame.gram, float(self.tolerance)).factor(reading)
        born = ClassBorn(frame.features, factor, frame.measure, float(self.background))
        return ClassDensity(frame.projection, born)

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
