"""QAFFDEAutoregressive: a joint density as a chain of conditional Born densities."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

from numpy.typing import ArrayLike

from qaffde.boxes import Column, resolve_columns
from qaffde.estimators.base import RowsLike, all_or_nothing, training_of
from qaffde.estimators.calculus import BornEstimator
from qaffde.nn import TableDensity
from qaffde.parameters import check_count, check_share, generator_from
from qaffde.selection import SelectionPolicy
from qaffde.selection.policy import DEFAULT_POLICY
from qaffde.selection.table_columns import normal_scores
from qaffde.training import TrainingConfig
from qaffde.training.chain import ChainSizes, fit_chain, make_chain
from qaffde.training.run import Run


@dataclass(eq=False, repr=False)
class QAFFDEAutoregressive(BornEstimator):
    r"""Joint density of many columns, each given those before it.

    .. math:: p(x) = \prod_t p(x_t \mid x_1, x_2, \ldots, x_{t-1})

    One masked residual network gives all conditional densities, each a Born density on a base of
    Gaussians as in :class:`QAFFDERegressor`. Log-densities and draws are exact. Marginals,
    conditionals, probabilities and filled gaps are exact where they need integrals of the first
    columns only: conditionals *given* the first columns, quantiles and probabilities of one column
    given those before it. All others are refused; :class:`QAFFDETensorTrain`, :class:`QAFFDESGD`
    and :class:`QAFFDE` have them.

    Parameters
    ----------
    order : iterable of int or str, optional
        All columns in the order of the chain; by default that of `X`.
    width, n_blocks : int or "auto", int, default="auto", 2
        Of the network: size of its layers, and residual blocks; "auto" is 64 to 256, by the root
        of the number of rows. It sees 8 to 32 cosines of each column, by the cube root.
    n_components, n_functions, rank : int, default=16, 20, 2
        Gaussians C, functions K and rows r of each conditional density, as in
        :class:`qaffde.nn.ConditionalBorn`.
    dropout : float, default=0.1
    columns : "auto", kind, list of d kinds, dict of {column: kind} or None, default="auto"
        Kinds of the columns, as in :class:`QAFFDE`.
    training : TrainingConfig, optional
        Steps, batches and learning rate of Adam; by default more steps for more rows.
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
    n_features_in_ : int
    history_ : qaffde.training.History
    feature_names_in_ : ndarray of str, where X had names

    References
    ----------
    Germain et al., "MADE: masked autoencoder for distribution estimation", 2015. Nash and Durkan,
    "Autoregressive energy machines", 2019.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2)) @ [[1, 0.8], [0, 0.6]]
    >>> model = QAFFDEAutoregressive(random_state=0).fit(X)
    >>> model.condition({0: 1.0}).mean().round(1)  # the true mean is 0.8
    array([0.8])
    """

    order: Iterable[Column] | None = None
    width: int | str = "auto"
    n_blocks: int = 2
    n_components: int = 16
    n_functions: int = 20
    rank: int = 2
    dropout: float = 0.1
    columns: Any = "auto"
    _: KW_ONLY
    training: TrainingConfig | None = None
    time_limit: float | None = None
    verbose: bool = False
    policy: SelectionPolicy | None = None
    random_state: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        return tags

    @all_or_nothing
    def fit(self, X: RowsLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to the rows of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d), or a source of chunks
            Without gaps. A source of chunks, as in :meth:`QAFFDE.fit`, or a Dask collection as a
            :class:`qaffde.distributed.DaskSource`, is fitted by a sample of a million rows.
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Chunks bring their own weights.
        """
        check_count("width", self.width, auto=True)
        for name in ("n_blocks", "n_components", "n_functions", "rank"):
            check_count(name, getattr(self, name))
        if self.dropout != 0:
            check_share("dropout", self.dropout)
        training = training_of(self)
        run = Run(self.time_limit, training.checkpoint, verbose=bool(self.verbose))
        generator = generator_from(self.random_state)
        seed = generator.initial_seed()
        source = self._source(X, sample_weight)
        columns, rows, parts, weight = normal_scores(source, self.policy or DEFAULT_POLICY, seed)
        if rows.isnan().any():
            raise ValueError(
                "X contains NaN; a chain needs complete rows: impute them first, or fit QAFFDE, "
                "QAFFDESGD or QAFFDETensorTrain, which take gaps"
            )
        names = ("width", "n_components", "n_functions", "rank", "n_blocks", "dropout")
        sizes = ChainSizes.for_rows(len(rows), **{name: getattr(self, name) for name in names})
        chain = make_chain(columns, parts, self._order(len(columns)), sizes, generator)
        self.history_ = fit_chain(chain, parts, weight, self.training, generator, run)
        self.density_ = TableDensity(chain.requires_grad_(False).eval(), columns)
        return self

    def _order(self, d: int) -> list[int]:
        """Numbers of all columns in the order of the chain."""
        if self.order is None:
            return list(range(d))
        order = resolve_columns(self.order, d, self._names())
        if len(order) < d:
            raise ValueError(f"order={self.order!r} must have all {d} columns")
        return order
