"""Classification by one density per class: closed form, gradient descent, behind an encoder."""

import os
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _check_partial_fit_first_call

from qaffde.estimators.classifier_base import ClassifierBase
from qaffde.estimators.classifier_closed import ClassSums
from qaffde.random import generator_from


def _adds_rows(model: "QAFFDEClassifier") -> bool:
    if model.training != "closed_form":
        raise AttributeError(
            "gradient training is no sum over rows, so it cannot add any; set "
            'training="closed_form", or fit again with all rows'
        )
    return True


class QAFFDEClassifier(ClassifierBase):
    r"""Classifier by Bayes' rule, with one density per class.

    .. math:: P(c \mid x) \propto P(c)\, p(x \mid c), \qquad
              p(x \mid c) = m(x)\, \frac{\lVert L_c \phi(x) \rVert^2}
              {\operatorname{tr}(L_c G L_c^\top)}

    All classes share the Fourier features φ and the base measure m, and so the Gram matrix G
    that normalises each density exactly: densities compare across classes, and with each other
    (:meth:`log_density`), so that a row which no class explains can be refused.

    Parameters
    ----------
    n_features : int or "auto", default="auto"
        Number D of Fourier features; "auto" is up to 1000. A closed form keeps one D × D matrix
        for each class.
    bandwidth : "auto", float or array of q floats, default="auto"
        Bandwidth of the frequencies, in the units of the data (of the code behind an encoder).
        "auto" minimises the log-loss of rows held out.
    rank : int, float or "auto", default="auto"
        Of each density matrix: a number, or a share of D. "auto" is chosen with the bandwidth;
        for gradient training it is 20.
    features : {"auto", "sobol", "orthogonal", "paired", "random", "adaptive"}, default="auto"
        How frequencies are found. "auto" are Sobol points up to six coordinates and orthogonal
        random ones beyond; "adaptive" trains them by the paper's Algorithm 1.
    training : {"closed_form", "gradient"}, default="closed_form"
        The paper's QAFFDE and QAFFDE-SGD.
    objective : {"conditional", "generative"}, default="conditional"
        What is maximised, or chosen by: the likelihood of classes given rows, or of rows given
        classes. The former classifies better, the latter gives better densities.
    measurement : {"auto", "direct", "square_root", "pretty_good", "coherent"}, default="auto"
        How a closed form reads its density matrices; see
        ``qaffde.estimators.classifier_closed``. "direct" is the paper's. "auto" chooses among
        the last three for the conditional objective, and is "square_root" for the generative one.
    ridge : float or "auto", default="auto"
        Share of the largest eigenvalue that is added to all, of the mean density matrix in
        "pretty_good" and "coherent", of G in gradient training (where "auto" is 1e-3).
    n_components : int, "auto" or None, default="auto"
        Principal components that rows are projected on. "auto" projects more than 16 columns, on
        as many components as hold 95 % of the variance and at most 50. What they leave out is
        normal noise of one variance in the densities, the same for all classes.
    whiten : bool, default=False
        Whether principal components are scaled to one variance.
    base_measure : {"gaussian", "mixture"}, default="gaussian"
        Of all classes together.
    n_base_components : int or "auto", default="auto"
        Gaussians of the mixture; "auto" is one for each class.
    priors : array of shape (C,), optional
        Probabilities of the classes; their frequencies (weighted) by default. Training does not
        see them: they shift the log-odds of what was trained.
    class_weight : dict, "balanced" or None, default=None
        Multiplies `sample_weight` by class.
    learn_features : bool, default=False
        Whether gradient training changes the frequencies too.
    feature_dropout : float, default=0.0
        Share of the features that a step of gradient training does not see, drawn anew for each
        row: many features then cannot learn rows by heart. For the conditional objective.
    encoder : torch.nn.Module, optional
        Network from inputs to codes (n, k), of which the densities then are; a copy is trained
        together with them by the conditional objective. See :class:`qaffde.nn.LeNet`. Codes pass
        through a hyperbolic tangent, so that they cannot run away. It replaces the projection.
    image_shape : tuple (channels, height, width), optional
        Shape of the encoder's inputs, which rows are the flat form of.
    augment : callable, optional
        ``augment(images, generator)`` returns other images of the same shape (n, C, H, W), for
        training only.
    background : float, default=1e-4
        Weight of the base measure in every class, so that no row is impossible.
    tolerance : float, default=1e-7
        Eigenvalues below this share of the largest count as zero.
    max_steps, batch_size, learning_rate, weight_decay, clip_norm
        Of Adam: 2000, 256, 3e-3, 0 and 10; the rate falls linearly to 1e-5.
    validation_fraction, patience : default=0.1, 10
        Share of rows that Adam does not see, and fiftieths of `max_steps` without improvement on
        them before it stops. What was best on them is kept.
    time_limit : float or None, default=None
        Seconds before Adam stops.
    warm_start : bool, default=False
        Whether another closed-form `fit` keeps projection, base measure and features.
    checkpoint : path or None, default=None
        File to keep Adam's state in; a fit that was killed goes on from it.
    verbose : bool, default=False
        Print progress.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    class_prior_ : ndarray of shape (C,)
    density_ : torch module
        Maps rows of shape (n, d) to log-densities of shape (n, C).
    bandwidth_ : ndarray of shape (q,)
    n_components_ : int
        Coordinates that the features see.
    rank_, n_fourier_features_ : int
    measurement_ : str
        "gradient" where nothing was read.
    ridge_ : float
    search_ : dict of {str: float}
        Held-out loss of every candidate.
    history_ : list of qaffde.training.History
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X had names

    References
    ----------
    Gallego and González, "Quantum Adaptive Fourier Features for Neural Density Estimation", 2022,
    Section 4.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = QAFFDEClassifier(random_state=0).fit(X, y)
    >>> model.predict(X[[0, 60, 149]])
    array([0, 1, 2])
    """

    def __init__(
        self,
        n_features: int | str = "auto",
        bandwidth: Any = "auto",
        rank: int | float | str = "auto",
        features: str = "auto",
        *,
        training: str = "closed_form",
        objective: str = "conditional",
        measurement: str = "auto",
        ridge: float | str = "auto",
        n_components: int | str | None = "auto",
        whiten: bool = False,
        base_measure: str = "gaussian",
        n_base_components: int | str = "auto",
        priors: ArrayLike | None = None,
        class_weight: Any = None,
        learn_features: bool = False,
        feature_dropout: float = 0.0,
        encoder: Any = None,
        image_shape: Any = None,
        augment: Any = None,
        background: float = 1e-4,
        tolerance: float = 1e-7,
        max_steps: int = 2000,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        weight_decay: float = 0.0,
        clip_norm: float | None = 10.0,
        validation_fraction: float = 0.1,
        patience: int | None = 10,
        time_limit: float | None = None,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_features = n_features
        self.bandwidth = bandwidth
        self.rank = rank
        self.features = features
        self.training = training
        self.objective = objective
        self.measurement = measurement
        self.ridge = ridge
        self.n_components = n_components
        self.whiten = whiten
        self.base_measure = base_measure
        self.n_base_components = n_base_components
        self.priors = priors
        self.class_weight = class_weight
        self.learn_features = learn_features
        self.feature_dropout = feature_dropout
        self.encoder = encoder
        self.image_shape = image_shape
        self.augment = augment
        self.background = background
        self.tolerance = tolerance
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit one density to the rows of each class.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        self._check_parameters()
        warm = bool(self.warm_start) and hasattr(self, "frame_")
        rows, classes = self._labelled(X, y, sample_weight, reset=not warm)
        self._check_priors(len(classes))
        generator = generator_from(self.random_state)
        if self.encoder is not None:
            return self._fit_encoder(rows, classes, generator)
        if warm:
            frame, reading, search = self.frame_, self.reading_, self.search_
        else:
            frame, reading, search = self._settle(rows, generator)
        if self.training == "gradient":
            return self._fit_gradient(frame, rows, classes, search, generator)
        sums = ClassSums.of(frame, rows.X, rows.y, rows.weight, rows.n_classes)
        density = self._read(frame, reading, sums)
        self.classes_ = classes
        return self._learn(frame, reading, sums, search, density)

    @available_if(_adds_rows)
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows to the fit.

        The first call settles projection, base measure, features and measurement from its rows:
        make them typical ones. Later calls, and calls after `fit`, add to the density matrices;
        chunks give the same as all their rows in one `fit` with ``warm_start=True``.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        classes : array-like of shape (C,)
            All classes that will ever come; needed in the first call.
        sample_weight : array-like of shape (n,), optional
        """
        self._check_parameters()
        first = not self.__sklearn_is_fitted__()
        if first or classes is not None:
            _check_partial_fit_first_call(self, classes)
        rows = self._chunk(X, y, sample_weight, first=first)
        self._check_priors(len(self.classes_))
        if first:
            settled = self._settle(rows, generator_from(self.random_state), stream=True)
            frame, reading, search = settled
        else:
            frame, reading, search = self.frame_, self.reading_, self.search_
        sums = ClassSums.of(frame, rows.X, rows.y, rows.weight, rows.n_classes)
        return self._learn(frame, reading, sums if first else self.sums_ + sums, search)
