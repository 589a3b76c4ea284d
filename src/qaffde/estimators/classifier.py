"""Classification by one density per class: closed form, gradient descent, behind an encoder."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from qaffde.estimators.base import (
    Array,
    FileMixin,
    all_or_nothing,
    log_density,
    read_weight,
    spec_of,
    training_of,
)
from qaffde.nn import Density, find_born
from qaffde.nn.encoded import ImageCoder
from qaffde.parameters import DOUBLE, check_choice, check_priors, check_sum, generator_from
from qaffde.selection import ModelSpec, Plan, SelectionPolicy, select, summarize_classes
from qaffde.selection.classes import of_codes
from qaffde.selection.plan import CLASS_MEASUREMENTS, CLASSIFIER
from qaffde.selection.policy import DEFAULT_POLICY
from qaffde.selection.solver import check_plan, class_sums, train_classes
from qaffde.training import History, TrainingConfig
from qaffde.training.classes import ClassSums, LabeledRows
from qaffde.training.run import Run

FLOATS = [np.float64, np.float32]


def _adds_rows(model: "QAFFDEClassifier") -> bool:
    if model.is_trained:
        raise AttributeError(
            "gradient training is not a sum over rows, so it cannot add any; set "
            'method="auto", or fit again with all rows'
        )
    return True


@dataclass(eq=False, repr=False)
class QAFFDEClassifier(FileMixin, ClassifierMixin, BaseEstimator):
    r"""Classifier by Bayes' rule, with one density per class.

    .. math:: P(c \mid x) \propto P(c)\, p(x \mid c), \qquad
              p(x \mid c) = m(x)\, \frac{\lVert L_c \phi(x) \rVert^2}
              {\operatorname{tr}(L_c G L_c^\top)}

    All classes share the Fourier features φ and the base measure m, and so the Gram matrix G
    that normalizes each density exactly: a row which no class explains can be refused, see
    :meth:`log_density`.

    Parameters
    ----------
    n_features : int or "auto", default="auto"
        Number D of Fourier features; "auto" is up to 1000.
    bandwidth : "auto", float or array of q floats, default="auto"
        Bandwidth of the frequencies, in the units of the data (of the code behind an encoder).
    rank : int, float or "auto", default="auto"
        Of each density matrix: a number, or a share of D; for gradient training "auto" is 20.
    features : {"auto", "sobol", "orthogonal", "paired", "random", "adaptive"}, default="auto"
        How frequencies are found, as in :class:`QAFFDE`.
    method : {"auto", "generative", "direct", "square_root", "pretty_good", "coherent", "gradient"}
        "auto" maximizes the likelihood of the classes of held-out rows over the closed forms
        "square_root", "pretty_good" and "coherent", see ``qaffde.training.classes``; "generative"
        maximizes that of the rows themselves, which gives better densities. "direct" is the
        paper's QAFFDE, "gradient" its QAFFDE-SGD: Adam on the likelihood of classes.
    n_components : int, "auto" or None, default="auto"
        Principal components that rows are projected on. "auto" projects more than 16 columns, on
        as many components as hold 95 % of the variance and at most 50. The rest is normal noise
        in the densities, the same for all classes.
    encoder : torch.nn.Module, optional
        Network from inputs to codes (n, k), of which the densities then are; a copy is trained
        together with them. Rows are reshaped to its `image_shape`, if it has one. Codes pass
        through a hyperbolic tangent.
    priors : array of shape (C,), optional
        Probabilities of the classes; their (weighted) frequencies by default.
    class_weight : dict, "balanced" or None, default=None
        Multiplies `sample_weight` by class.
    plan : Plan, optional
        Plan of an earlier fit (``model.plan_``). Nothing is searched then, and `n_features` to
        `method` and `n_components` are not used.
    time_limit : float or None, default=None
        Seconds. After 70 % of them the search takes its best candidate; training stops at the end.
    verbose : bool, default=False
        Print progress: a line for each candidate of a search and each evaluation of a training.
    training : TrainingConfig, optional
        Settings of gradient training; batches are of 256 rows by default.
    policy : SelectionPolicy, optional
        Constants of the search; `class_ridge`, `background` and `tolerance`.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    classes_, class_prior_ : ndarrays of shape (C,)
    density_ : torch module
        Maps rows of shape (n, d) to log-densities of shape (n, C).
    plan_ : Plan
        Choices, and the candidates that were compared; print it.
    sums_ : ClassSums or None
        Sums over the rows of each class; None after gradient training.
    history_ : list of qaffde.training.History
    n_components_, rank_, n_fourier_features_, n_features_in_ : int
    bandwidth_, measurement_, ridge_ : ndarray of shape (q,), str, float
    feature_names_in_ : ndarray of str, where X had names

    References
    ----------
    Gallego and González, "Quantum Adaptive Fourier Features for Neural Density Estimation", 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = QAFFDEClassifier(random_state=0).fit(X, y)
    >>> model.predict(X[[0, 60, 149]])
    array([0, 1, 2])
    """

    n_features: int | str = "auto"
    bandwidth: Any = "auto"
    rank: int | float | str = "auto"
    features: str = "auto"
    _: KW_ONLY
    method: str = "auto"
    n_components: int | str | None = "auto"
    encoder: Any = None
    priors: ArrayLike | None = None
    class_weight: Any = None
    plan: Plan | None = None
    time_limit: float | None = None
    verbose: bool = False
    training: TrainingConfig | None = None
    policy: SelectionPolicy | None = None
    random_state: Any = None

    @all_or_nothing
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit one density to the rows of each class.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        spec, config = self._settings()
        run = Run(self.time_limit, config.checkpoint, verbose=bool(self.verbose))
        rows = self._rows(X, y, sample_weight)
        seed, training_seed = self._seeds()  # two, or rows would be held out twice
        coder = None if self.encoder is None else ImageCoder.of(self.encoder, rows.X)
        prior = self._prior(rows.class_weight)
        plan = self._plan(rows, coder, spec, seed, run)
        if not self.is_trained:
            sums = class_sums(plan, rows)
            return self.restore(plan, prior, sums, plan.read(sums))
        density, history = train_classes(plan, rows, config, training_seed, run, coder)
        if (file := run.file("search")) is not None:
            file.remove()
        return self.restore(plan, prior, None, density, [history])

    @available_if(_adds_rows)
    @all_or_nothing
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Add rows to the fit.

        The first call selects the plan from its rows: make them typical ones. Later calls, and
        calls after `fit`, add to the sums; chunks give the same as one `fit` with that plan.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        classes : array-like of shape (C,)
            All classes that will ever come; needed in the first call.
        sample_weight : array-like of shape (n,), optional
        """
        spec, config = self._settings(more=True)
        if self.class_weight == "balanced":
            raise ValueError(
                'class_weight="balanced" needs all rows at once; give a dict of weights, or priors'
            )
        first = not self.__sklearn_is_fitted__()
        if first or classes is not None:
            _check_partial_fit_first_call(self, classes)
        rows = self._rows(X, y, sample_weight, self.classes_, reset=first)
        run = Run(self.time_limit, config.checkpoint, verbose=bool(self.verbose))
        plan = self._plan(rows, None, spec, self._seeds()[0], run) if first else self.plan_
        sums = class_sums(plan, rows)
        total = sums if first or self.sums_ is None else self.sums_ + sums
        return self.restore(plan, self._prior(total.weight), total)

    def log_density(self, X: ArrayLike) -> Array:
        """Log-density of each row, or its code behind an encoder, in each class: (n, C)."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return log_density(self.density_, rows, DOUBLE)

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Log-probability of each class for each row, of shape (n, C)."""
        with np.errstate(divide="ignore"):
            return log_softmax(self.log_density(X) + np.log(self.class_prior_), axis=1)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of each class for each row, of shape (n, C)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable class of each row, of shape (n,)."""
        best = self.predict_log_proba(X).argmax(1)
        return self.classes_[best]

    def restore(
        self,
        plan: Plan,
        prior: Array,
        sums: ClassSums | None,
        density: Density | None = None,
        history: list[History] | None = None,
    ) -> Self:
        """Take over the state of a fit; a `density` that is missing is read from the `sums`."""
        self.plan_, self.class_prior_, self.sums_ = plan, prior, sums
        self._density, self.history_ = density, history or []
        self.n_components_ = plan.features.n_dims
        self.n_fourier_features_ = plan.features.n_features
        self.bandwidth_ = (plan.bandwidth * plan.scale).numpy()
        self.measurement_, self.ridge_ = plan.measurement, plan.ridge
        return self

    @property
    def rank_(self) -> int:
        """Rank of each density matrix."""
        return find_born(self.density_).rank

    @property
    def is_trained(self) -> bool:
        """Whether a fit trains by gradient descent: as the plan says, or else `method`."""
        measured = self.plan.measurement if isinstance(self.plan, Plan) else self.method
        return bool(measured == "gradient")

    @property
    def density_(self) -> Density:
        """Densities of all classes; read from the sums when first asked for after an update."""
        if self._density is None:
            assert self.sums_ is not None
            self._density = self.plan_.read(self.sums_)
        return self._density

    def _settings(self, *, more: bool = False) -> tuple[ModelSpec, TrainingConfig]:
        """What the search and the training are asked for, checked; `more` rows may come."""
        check_choice("method", self.method, CLASS_MEASUREMENTS)
        measured = {"measurement": self.method, "base_measure": "gaussian", "open_ended": more}
        spec = spec_of(self, method=CLASSIFIER, transformation=None, **measured)
        config = training_of(self)
        asked = {**vars(config), "encoder": self.encoder is not None}
        for name in ("encoder", "learn_features", "dropout", "augment", "checkpoint"):
            if asked[name] and not self.is_trained:
                raise ValueError(
                    f'{name} needs method="gradient": a closed form learns no such thing'
                )
        if not isinstance(self.encoder, nn.Module | None):
            raise ValueError(
                f"encoder={self.encoder!r} must be a torch module from inputs to codes (n, k)"
            )
        if config.augment is not None and self.encoder is None:
            raise ValueError("augment needs an encoder, which alone sees images")
        return spec, config

    def _seeds(self) -> list[int]:
        """Seeds of the plan and of training."""
        return torch.randint(2**31, (2,), generator=generator_from(self.random_state)).tolist()

    def _plan(
        self, rows: LabeledRows, coder: ImageCoder | None, spec: ModelSpec, seed: int, run: Run
    ) -> Plan:
        """The given plan, or one that is selected; behind a coder, one of its codes."""
        n = (self.policy or DEFAULT_POLICY).rough_rows if self.features == "adaptive" else 2
        seen = rows.X if coder is None else coder.first_codes(rows.X[:n])
        if self.plan is not None:
            return check_plan(self.plan, CLASSIFIER, seen.shape[1])
        if coder is None:
            summary = summarize_classes(rows, seed, self.policy)
        else:
            summary, spec = of_codes(seen, spec, self.policy)
        return select(summary, spec, policy=self.policy, seed=seed, run=run)

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, classes: Any = None, *, reset: bool = True
    ) -> LabeledRows:
        """Rows of positive weight; their classes, if not given, become `classes_`."""
        how = {"dtype": FLOATS, "order": "C", "ensure_min_samples": 2 if reset else 1}
        rows, labels = validate_data(self, X, y, reset=reset, **how)
        check_classification_targets(labels)
        weight = read_weight(sample_weight, rows)
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, labels)
        check_sum(weight)
        kept = weight > 0
        rows, labels, weight = rows[kept], labels[kept], weight[kept]
        self.classes_ = np.unique(labels) if classes is None else classes
        if len(self.classes_) < 2:
            raise ValueError(
                f"only the class {self.classes_.tolist()} has rows of positive weight, or is "
                "named in classes; a classifier needs at least two classes"
            )
        if len(unknown := np.setdiff1d(labels, self.classes_)):
            raise ValueError(
                f"y holds labels {unknown.tolist()} that are not among the classes "
                f"{self.classes_.tolist()}; name all classes in the first call of partial_fit"
            )
        codes = torch.from_numpy(np.searchsorted(self.classes_, labels).astype(np.int64))
        tensors = torch.from_numpy(rows), codes, torch.from_numpy(weight)
        return LabeledRows(*tensors, len(self.classes_))

    def _prior(self, weight: Tensor) -> Array:
        """The given priors, or the shares of the classes."""
        if self.priors is None:
            return (weight / weight.sum()).numpy()
        return check_priors(self.priors, len(weight))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "plan_")
