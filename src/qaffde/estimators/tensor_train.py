"""QAFFDETensorTrain: the density matrix of many columns, as a tensor train."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self, cast

import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from qaffde.estimators.base import RowsLike, all_or_nothing, training_of
from qaffde.estimators.calculus import BornEstimator
from qaffde.nn import AtomColumn, RealColumn, TableColumn, TableDensity
from qaffde.parameters import check_count, generator_from
from qaffde.selection import SelectionPolicy
from qaffde.selection.policy import DEFAULT_POLICY
from qaffde.selection.table_columns import normal_scores
from qaffde.training.run import Run
from qaffde.training.tensor_train import TensorTrainConfig, fit_train, resolution_knots

MAX_CELLS, CELL_ROWS = 150, 50
"""Cells of the histogram that says where functions are dense: at most, and rows for each."""


@dataclass(eq=False, repr=False)
class QAFFDETensorTrain(BornEstimator):
    r"""Density of many columns by the Born rule of a tensor train (matrix-product state).

    Every column is mapped to its normal scores z and has K orthonormal functions e of its own.
    The amplitude is a product of matrices, one for each column,

    .. math:: p(x) = \lVert A_1(z_1) A_2(z_2) \cdots A_d(z_d) \rVert^2
              \prod_t \varphi(z_t)\, z_t'(x_t), \qquad
              A_t(z) = W_t \operatorname{diag}(V_t e(z))

    trained by maximum likelihood. It integrates to one exactly; marginals, conditionals, boxes,
    distribution functions and draws are products of the same matrices, at a cost that is linear in
    the columns. Columns that are (nearly) linear functions of each other need large bonds; the
    mixtures of :class:`QAFFDESGD` may suit them better.

    Parameters
    ----------
    n_features : int or "auto", default="auto"
        Number K of functions of a column; "auto" is up to 48, fewer for few rows.
    bond : int or "auto", default="auto"
        Size χ of the matrices; "auto" is up to 96, by the cube root of the number of rows.
    rank : int or "auto", default="auto"
        Number of amplitudes whose squares are summed; "auto" is 8.
    columns : "auto", kind, list of d kinds, dict of {column: kind} or None, default="auto"
        Kinds of the columns, as in :class:`QAFFDE`.
    training : TensorTrainConfig, optional
        Steps, batches, learning rate and ridge; the parameters above come first.
    time_limit : float or None, default=None
        Seconds. As many steps are taken as fit into it, at a rate that falls with the time.
    verbose : bool, default=False
        Print progress: a line for each evaluation.
    policy : SelectionPolicy, optional
        Constants of the maps of columns.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    density_ : qaffde.nn.TableDensity
        A torch module.
    bond_, rank_, n_features_in_ : int
    history_ : qaffde.training.History
    feature_names_in_ : ndarray of str, where X had names

    References
    ----------
    Han et al., "Unsupervised generative modeling using matrix product states", 2018. Novikov et
    al., "Tensor-train density estimation", 2021. Loconte et al., "Subtractive mixture models via
    squaring", 2024.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2)) @ [[1, 0.8], [0, 0.6]]
    >>> model = QAFFDETensorTrain(random_state=0).fit(X)
    >>> model.condition({0: 1.0}).mean().round(1)  # the true mean is 0.8
    array([0.8])
    """

    n_features: int | str = "auto"
    bond: int | str = "auto"
    rank: int | str = "auto"
    columns: Any = "auto"
    _: KW_ONLY
    training: TensorTrainConfig | None = None
    time_limit: float | None = None
    verbose: bool = False
    policy: SelectionPolicy | None = None
    random_state: Any = None
    default_training = TensorTrainConfig()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @all_or_nothing
    def fit(self, X: RowsLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to the rows of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d), or a source of chunks
            A source of chunks, as in :meth:`QAFFDE.fit`, or a Dask collection as a
            :class:`qaffde.distributed.DaskSource`, is fitted by a sample of a million rows.
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Chunks bring their own weights.
        """
        for name in ("n_features", "bond", "rank"):
            check_count(name, getattr(self, name), auto=True)
        training: Any = training_of(self)
        run = Run(self.time_limit, training.checkpoint, verbose=bool(self.verbose))
        generator = generator_from(self.random_state)
        seed = generator.initial_seed()
        source = self._source(X, sample_weight)
        columns, rows, parts, weight = normal_scores(source, self.policy or DEFAULT_POLICY, seed)
        n = len(rows)
        kinds = [part for column in columns for part in column.parts]
        given = {"n_functions": self.n_features, "bond": self.bond, "rank": self.rank}
        numbers: Any = {name: k for name, k in given.items() if not isinstance(k, str)}
        config = replace(training.for_rows(n), **numbers)
        knots = [k for c, x in zip(columns, rows.T, strict=True) for k in knots_of(c, x)]
        train, history = fit_train(kinds, parts, weight, config, generator, run, knots)
        self.density_ = TableDensity(train, columns).requires_grad_(False).eval()
        self.bond_, self.rank_, self.history_ = max(train.bonds), train.end.shape[1], history
        return self

    def _spectrum(self) -> Tensor:
        check_is_fitted(self)
        train: Any = self.density_.density
        return cast("Tensor", train.spectrum())


def knots_of(column: TableColumn, x: Tensor) -> list[Tensor | None]:
    """Knots of the functions of each part of a column with values (n,)."""
    real = column.rest if isinstance(column, AtomColumn) else column
    if not isinstance(real, RealColumn):
        return [None]
    known = x[~x.isnan() & (x != column.value if isinstance(column, AtomColumn) else True)]
    n_cells, knots = min(MAX_CELLS, len(known) // CELL_ROWS), None

    def level(at: Tensor) -> Tensor:
        return torch.special.ndtr(real.encode(at)[0][:, 0])

    if n_cells > 1:
        knots = resolution_knots(known, level, n_cells)
    return [None, knots] if isinstance(column, AtomColumn) else [knots]
