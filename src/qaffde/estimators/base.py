"""Base classes of the estimators: files, validation and scoring, plans."""

import copyreg
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import wraps
from typing import Any, Self, SupportsIndex, TypeVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)
from torch import Generator, Tensor

from qaffde.files import FileError, load, save
from qaffde.files.format import write_atomically
from qaffde.files.model import dumps, loads
from qaffde.frames import as_frame
from qaffde.nn import Density
from qaffde.nn.onnx import recorded
from qaffde.nn.scoring import FEW_ROWS, compiled_score
from qaffde.parameters import (
    DOUBLE,
    LARGE_FIT,
    LARGE_SCORE,
    THREADS,
    ComputeConfig,
    Seed,
    check_count,
    check_kind,
    check_positive,
    check_sum,
    generator_from,
    guard,
)
from qaffde.schema import Schema
from qaffde.selection import ModelSpec, Plan, SelectionPolicy, Summary, select
from qaffde.selection.sources import ChunkSource
from qaffde.selection.summary import MemorySource, Source
from qaffde.streams import LARGE, Chunks, as_chunks
from qaffde.streams.names import framed
from qaffde.training import TrainingConfig
from qaffde.training.run import Run

Array = NDArray[np.float64]
RowsLike = ArrayLike | Chunks | Source
WIDTH = 1000
"""Numbers that a density of unknown build is taken to compute for a row."""
Method = TypeVar("Method", bound=Callable[..., Any])


def all_or_nothing(method: Method) -> Method:
    """Fit that leaves its object as it was if it fails, on as many threads as are worth it."""

    @wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = vars(self).copy()
        try:
            X = args[0] if args else kwargs.get("X")
            with THREADS.chosen(small=isinstance(X, np.ndarray) and X.size < LARGE_FIT):
                return method(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return guarded  # type: ignore[return-value]


def declare_columns(estimator: BaseEstimator, n: int, names: Any, *, reset: bool) -> None:
    """Let the columns be those of the fit from now on or, unless `reset`, check that they are."""
    validate_data(estimator, framed(np.zeros((1, n)), names), reset=reset)


SPECIFIED = [field.name for field in fields(ModelSpec)]


def check_configs(model: Any) -> dict[str, Any]:
    """Parameters of an estimator, once its configurations and time limit are checked."""
    given = model.get_params(deep=False)
    usual = getattr(model, "default_training", None)
    training = TrainingConfig if usual is None else type(usual)
    kinds = {"training": training, "policy": SelectionPolicy, "compute": ComputeConfig}
    for name in kinds.keys() & given.keys():
        check_kind(name, given[name], kinds[name])
    check_positive("time_limit", given["time_limit"], optional=True)
    return dict(given)


def spec_of(model: Any, **fixed: Any) -> ModelSpec:
    """Specification of an estimator's parameters and of those that it fixes, checked."""
    given = check_configs(model)
    own = {name: given[name] for name in SPECIFIED if name in given}
    return ModelSpec(**{**own, **fixed})


def training_of(model: Any) -> TrainingConfig:
    """Training settings of an estimator, once its configurations are checked."""
    check_configs(model)
    usual = getattr(model, "default_training", TrainingConfig())
    config: TrainingConfig = usual if model.training is None else model.training
    if config.checkpoint is not None and model.random_state is None:
        raise ValueError(
            "checkpoint needs a random_state, or a fit that is called again is another one; "
            "set random_state to a number"
        )
    return config


def wishes_of(model: "DensityEstimator") -> tuple[Any, bool]:
    """Kinds of columns that a model asks for, and whether it takes gaps."""
    tags: Any = model.__sklearn_tags__()
    return model._kinds(), bool(tags.input_tags.allow_nan)


def read_numbers(
    model: Any,
    X: Any,
    schema: Schema | None,
    *,
    reset: bool = False,
    check: bool = False,
    ensure_all_finite: bool | str = True,
    minimum: int = 1,
) -> Array:
    """Rows of shape (n, d) as numbers, at least `minimum`; a `schema` encodes those of a table.

    Their columns must be those of the fit or, to `reset`, are from now on. To `check` is to reject
    values that the schema does not have.
    """
    how: Any = {"dtype": np.float64, "order": "C", "ensure_min_samples": minimum}
    how["ensure_all_finite"] = ensure_all_finite
    if schema is None:
        return validate_data(model, X, reset=reset, **how)
    validate_data(model, X, reset=reset, skip_check_array=True)
    rows = schema.encode(X)
    if check:
        schema.check(rows)
    return check_array(rows, input_name="X", **how)


def read_weight(sample_weight: ArrayLike | None, rows: ArrayLike) -> Array:
    """Weights of shape (n,), ones by default."""
    how: Any = {"dtype": np.float64, "ensure_non_negative": True}
    weight = _check_sample_weight(sample_weight, rows, **how)
    check_sum(weight)
    return weight


def log_density(density: Density, rows: Array, compute: ComputeConfig) -> Array:
    """Log-density of rows of shape (n, d), compiled where the density has a closed formula."""
    compiled = compiled_score(density, compute.torch_dtype, compute.device)
    if compiled is not None and len(rows) <= FEW_ROWS:
        return compiled.of_few(rows)
    compute = DOUBLE if compiled is None else compute
    score = compiled or density.log_prob
    width = WIDTH if compiled is None else compiled.width
    size, small = compute.rows(width), len(rows) * width < LARGE_SCORE
    with torch.no_grad(), THREADS.chosen(small=small, blas=False):
        blocks = (compute.exact(rows[k : k + size]) for k in range(0, len(rows), size))
        log_p = torch.cat([score(x) for x in blocks])
    return log_p.double().cpu().numpy()


@guard
class FileMixin:
    """Estimator that one file can hold, as :mod:`qaffde.files` writes and reads it.

    Pickle and copies take the attributes, as of any estimator. skops cannot take tensors; it asks
    for ``__getstate__``, which pickle does not, and is given the content of a file.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        guard(cls)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator, fitted or not, to one file; see :func:`qaffde.save`."""
        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator of this class from a file; see :func:`qaffde.load`."""
        return load(path, cls)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write `score_samples` as an ONNX model.

        Its input "X" are rows of doubles of shape (n, d), any n of at least 1; its output
        "log_density" is of shape (n,).

        Parameters
        ----------
        path : str or path
        """
        check_is_fitted(self)
        inner: Any = getattr(self, "estimator_", self)
        density = getattr(inner, "density_", None) if hasattr(inner, "score_samples") else None
        if not isinstance(density, Density):
            raise FileError(
                f"{type(self).__name__} has no log-density to export; export a density estimator"
            )
        write_atomically(path, recorded(density, inner.n_features_in_))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), vars(self).copy()  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        return {"file": dumps(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.keys() == {"file"}:
            state = vars(loads(state["file"], type(self)))
        vars(self).update(state)


@guard
class DensityEstimator(DensityMixin, BaseEstimator, ABC):
    """Density estimator whose ``fit`` sets ``density_``, a torch density in the data's units."""

    density_: Density
    ensure_all_finite: bool | str = True
    """Whether rows to score must be finite; "allow-nan" where gaps are integrated out."""
    schema_: Schema | None = None
    """Kinds, dtypes and names of the columns, where the fit was to a data frame."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        guard(cls)

    @abstractmethod
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to the rows of `X`."""

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of each row, of shape (n,).

        It is against the product of Lebesgue measure, for real and periodic columns, and
        counting measure, for integers, categories and atoms.

        Parameters
        ----------
        X : array-like of shape (n, d), or a data frame with the columns of the fit
            A row with gaps (NaN) has the marginal density of what it has, where there is one.
        """
        if "density_" not in vars(self):
            check_is_fitted(self)
        if not self._is_ready(X):
            X = self._numbers(X, ensure_all_finite=self.ensure_all_finite)
        return self._log_density(cast("Array", X))

    def _numbers(self, X: Any, *, ensure_all_finite: bool | str = True) -> Array:
        """Rows of shape (n, d) as numbers, once their columns are known to be those of the fit."""
        return read_numbers(self, X, self.schema_, ensure_all_finite=ensure_all_finite)

    def _table(self, rows: Array) -> Any:
        """Numbers of shape (n, d) as a table like that of the fit."""
        return rows if self.schema_ is None else self.schema_.decode(rows)

    def _is_ready(self, X: Any) -> bool:
        """Whether rows need no validation, which takes longer than scoring one row."""
        if type(X) is not np.ndarray or self.schema_ or hasattr(self, "feature_names_in_"):
            return False
        is_matrix = X.dtype == np.float64 and X.ndim == 2 and X.flags.c_contiguous
        fits = is_matrix and len(X) and X.shape[1] == getattr(self, "n_features_in_", None)
        return bool(fits and np.isfinite(X).all())

    def _log_density(self, rows: Array) -> Array:
        """Log-density of rows that need no check: those of a caller, checked, or drawn here."""
        return log_density(self.density_, rows, self._compute())

    def _compute(self) -> ComputeConfig:
        """Precision, device and rows at a time."""
        return getattr(self, "compute", None) or DOUBLE

    def score(self, X: ArrayLike, y: None = None) -> float:
        """Mean log-likelihood of the rows, as in :class:`sklearn.mixture.GaussianMixture`.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : ignored
        """
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> Any:
        """Independent draws from the density, exact for our own densities.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, d), or a data frame like that of the fit
        """
        check_is_fitted(self)
        check_count("n_samples", n_samples)
        return self._table(self._draws(n_samples, random_state))

    def _draws(self, n: int, random_state: Seed) -> Array:
        """Draws as numbers."""
        with torch.no_grad():
            return self._draw(int(n), generator_from(random_state)).numpy()

    def _draw(self, n: int, generator: Generator) -> Tensor:
        """Draws of shape (n, d), in the units of the data."""
        outer: Any = self.density_
        return outer.location + outer.scale * outer.density.sample(n, generator)

    def _validated(
        self, X: Any, sample_weight: ArrayLike | None, *, minimum: int = 2, reset: bool = True
    ) -> tuple[Tensor, Tensor, Schema | None]:
        """Rows and weights as float64 tensors, and the schema of their columns.

        Rows without weight, or without any value, are dropped; at least `minimum` must be left.
        Their columns must be those of the fit so far or, to `reset`, are from now on.
        """
        gaps_fit = reset or self.plan_.schema is not None
        how: Any = {"ensure_all_finite": self.ensure_all_finite if gaps_fit else True}
        schema = self._schema(X) if reset else self.schema_
        rows = read_numbers(self, X, schema, reset=reset, check=True, minimum=minimum, **how)
        weight = read_weight(sample_weight, rows)
        gaps = np.isnan(rows)
        kept = (weight > 0) & ~gaps.all(1)
        if gaps.any() and schema is None:
            schema = Schema.infer(rows, None)
        if kept.sum() < minimum:
            what = "a value and a positive" if gaps.any() else "a positive"
            raise ValueError(
                f"fewer than two rows have {what} sample_weight; a density needs at least two"
            )
        if reset:
            self.schema_ = schema if schema is not None and schema.is_table else None
        if not kept.all():
            rows, weight = rows[kept], weight[kept]
        return torch.tensor(rows), torch.tensor(weight), schema

    def _schema(self, X: Any) -> Schema | None:
        """Schema of a table; None of an array of numbers of whose columns nothing is asked."""
        plan = getattr(self, "plan", None)
        if isinstance(plan, Plan) and plan.schema is not None:
            return plan.schema
        columns = self._kinds()
        asked = not isinstance(columns, str | None) or columns not in ("auto", None)
        is_frame = not isinstance(X, np.ndarray) and as_frame(X) is not None
        return Schema.infer(X, columns) if asked or is_frame else None

    def _kinds(self) -> Any:
        """Kinds of columns that were asked for."""
        return getattr(self, "columns", None)

    def _names(self, columns: list[int] | None = None) -> Any:
        names = getattr(self, "feature_names_in_", None)
        return names if names is None or columns is None else names[columns]

    def _source(
        self, X: Any, sample_weight: ArrayLike | None, *, minimum: int = 2, reset: bool = True
    ) -> Source:
        """Rows in memory, checked, or a source of them, which is checked as it is read."""
        is_small = isinstance(X, np.ndarray) and X.size <= LARGE
        chunks = None if is_small or isinstance(X, Source) else as_chunks(X, sample_weight)
        if chunks is not None:
            X = ChunkSource(chunks, minimum)
        if not isinstance(X, Source):
            rows, weight, schema = self._validated(X, sample_weight, minimum=minimum, reset=reset)
            return MemorySource(rows, weight, schema=schema)
        declare_columns(self, X.n_columns, X.names, reset=reset)
        if not reset:
            return X.settled(self.schema_, gaps=self.plan_.schema is not None)
        plan = getattr(self, "plan", None)
        schema = plan.schema if isinstance(plan, Plan) else None
        schema = X.infer(wishes_of(self)[0]) if schema is None else schema
        X = X.settled(schema, gaps=wishes_of(self)[1])
        self.schema_ = schema if schema is not None and schema.is_table else None
        return X


@dataclass(eq=False, repr=False)
class PlanMixin:
    """Parameters of the density estimators that select a plan, and what the plan says."""

    n_features: int | str = "auto"
    bandwidth: Any = "auto"
    rank: int | float | str = "auto"
    features: str = "auto"
    base_measure: int | str = "auto"
    columns: Any = "auto"
    _: KW_ONLY
    transformation: Any = "auto"
    plan: Plan | None = None
    time_limit: float | None = None
    verbose: bool = False
    policy: SelectionPolicy | None = None
    compute: ComputeConfig | None = None
    random_state: Any = None
    plan_: Plan = field(init=False)

    @property
    def bandwidth_(self) -> Array:
        """Bandwidth of shape (d,), in the units of the data, of mapped columns or of the code."""
        return cast("Array", (self.plan_.bandwidth * self.plan_.scale).numpy())

    @property
    def base_measure_(self) -> str:
        """Name of the base measure."""
        return self.plan_.base_measure

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = self._takes_tables()
        return tags

    def _takes_tables(self) -> bool:
        """Whether the parameters leave kinds of columns, and gaps, to a mixture."""
        try:
            spec_of(self).check_mixture()
        except ValueError:
            return False
        return True

    def _kinds(self) -> Any:
        """Kinds that were asked for; all are real where the parameters ask for features."""
        is_auto = isinstance(self.columns, str) and self.columns == "auto"
        return None if is_auto and not self._takes_tables() else self.columns

    def _select(self, summary: Summary, spec: ModelSpec, seed: int, run: Run | None) -> Plan:
        names: Any = getattr(self, "feature_names_in_", None)
        settings: Any = {"policy": self.policy, "compute": self.compute or DOUBLE}
        return select(summary, spec, **settings, seed=seed, names=names, run=run)
