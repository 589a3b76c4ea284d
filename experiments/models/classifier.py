"""Flows that are conditional on the class, and classification by one of them."""

from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Generator, Tensor, nn

from experiments.models.bayes import BayesRule
from qaffde.baselines.base import FlowDensity, TrainedEstimator
from qaffde.baselines.flows import MAF
from qaffde.estimators.base import Array, draw
from qaffde.nn import Density, StandardizedDensity
from qaffde.parameters import check_count, generator_from


class GivenContext(Density):
    """Conditional density at one context.

    Parameters
    ----------
    density : FlowDensity
    context : Tensor of shape (k,)
    """

    context: Tensor

    def __init__(self, density: FlowDensity, context: Tensor) -> None:
        super().__init__()
        self.density = density
        self.register_buffer("context", context)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,)."""
        return self.density.log_prob(x, self.context.expand(len(x), -1))

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Draws of shape (n, d)."""
        return self.density.sample(n, generator, self.context.expand(n, -1))


class ClassFlows(FlowDensity):
    """A flow for each class, which share nothing.

    Parameters
    ----------
    flows : FlowDensity modules
        Without a context; one for each column of the one-hot context that this density has.
    """

    def __init__(self, flows: Iterable[FlowDensity]) -> None:
        super().__init__()
        self.flows = nn.ModuleList(flows)

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Log-density of shape (n,) of rows of one-hot classes (n, C)."""
        return each_class(self.flows, context, lambda flow, rows: flow.log_prob(x[rows]))

    def sample(self, n: int, generator: Generator, context: Tensor | None = None) -> Tensor:
        """Draws of shape (n, d) of one-hot classes (n, C)."""
        return each_class(
            self.flows, context, lambda flow, rows: flow.sample(len(rows), generator)
        )


def each_class(
    modules: nn.ModuleList, context: Tensor | None, give: Callable[[Any, Tensor], Tensor]
) -> Tensor:
    """What the module of each class gives for its rows, in the order of the rows.

    Parameters
    ----------
    modules : ModuleList of length C
    context : Tensor of shape (n, C)
        One-hot classes of the rows.
    give : callable
        Of a module and the numbers of its rows.

    Examples
    --------
    >>> x = torch.tensor([[1.0], [2.0], [3.0]])
    >>> kept_or_zero = nn.ModuleList([nn.Identity(), nn.Threshold(9, 0)])
    >>> each_class(kept_or_zero, torch.eye(2)[[1, 0, 1]], lambda f, rows: f(x[rows])).flatten()
    tensor([0., 2., 0.])
    """
    if context is None:
        raise ValueError("one module for each class needs the classes as its context")
    order = context.argmax(1).argsort(stable=True)
    rows = order.split(context.count_nonzero(0).tolist())
    given = [give(module, r) for module, r in zip(modules, rows, strict=True) if len(r)]
    return torch.cat(given)[order.argsort()]


def class_flow(
    flow: TrainedEstimator, n_dims: int, n_classes: int, *, shared: bool
) -> FlowDensity:
    """Untrained density given one-hot classes: one flow for all, or one for each."""
    if shared:
        return flow._build(n_dims, n_classes)
    return ClassFlows(flow._build(n_dims) for _ in range(n_classes))


class FlowClassifier(BayesRule, BaseEstimator):
    r"""Classifier by Bayes' rule, with one flow for all classes.

    .. math:: P(c \mid x) \propto P(c)\, p(x \mid c)

    The flow sees the class as a one-hot context, so that classes share what they have in common.

    Parameters
    ----------
    flow : MADE, MAF, IAF, RealNVP or NSF, optional
        Its parameters count; it is not fitted itself. ``MAF()`` by default.
    random_state : int, RandomState instance or None, default=None
        Of the training, in place of the flow's.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
    class_prior_ : ndarray of shape (K,)
    class_densities_ : list of K qaffde.nn.StandardizedDensity
        :math:`p(x \mid c)`.
    history_ : qaffde.training.History
    n_features_in_ : int
    """

    def __init__(self, flow: TrainedEstimator | None = None, random_state: Any = None) -> None:
        self.flow = flow
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the flow on the rows of `X` given their classes.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        rows, labels, weight = self._validated(X, y, sample_weight)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        prior = np.bincount(codes, weight)
        self.class_prior_ = prior / prior.sum()

        flow = clone(MAF() if self.flow is None else self.flow)
        flow.set_params(random_state=self.random_state)
        one_hot = torch.eye(len(self.classes_), dtype=torch.float64)
        trained = flow.train_density(torch.tensor(rows), torch.tensor(weight), one_hot[codes])
        units = trained.location, trained.scale
        self.class_densities_: list[StandardizedDensity] = [
            StandardizedDensity(GivenContext(trained.density, given), *units)
            .requires_grad_(False)
            .eval()
            for given in one_hot
        ]
        self.history_ = trained.history
        return self

    def log_density(self, X: ArrayLike) -> Array:
        """Log-density of each row under each class.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, K)
        """
        check_is_fitted(self)
        rows = torch.tensor(validate_data(self, X, dtype=np.float64, order="C", reset=False))
        with torch.no_grad():
            return torch.stack([p.log_prob(rows) for p in self.class_densities_], 1).numpy()

    def sample(self, n_samples: int, label: Any, random_state: Any = None) -> Array:
        """Draw rows of one class.

        Parameters
        ----------
        n_samples : int
        label : object
            One of ``classes_``.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, d)
        """
        check_is_fitted(self)
        check_count("n_samples", n_samples)
        found = np.flatnonzero(self.classes_ == label)
        if not len(found):
            raise ValueError(f"label={label!r} is not known; choose one of {list(self.classes_)}")
        density = self.class_densities_[found[0]]
        with torch.no_grad():
            return draw(density, n_samples, generator_from(random_state)).numpy()

    def _validated(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Array, NDArray[Any], Array]:
        """Rows, labels and weights; rows without weight are dropped."""
        rows, labels = validate_data(self, X, y, dtype=np.float64, order="C", ensure_min_samples=2)
        check_classification_targets(labels)
        weight = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        return rows[weight > 0], labels[weight > 0], weight[weight > 0]
