"""Experiments as data: TOML files beside this module, read into frozen dataclasses.

A key that no dataclass knows is an error that names it and those that are known, so that a slip
of the pen does not run for hours as something else.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

CONFIGS = Path(__file__).parent / "configs"
BUDGETS = ("quick", "standard", "paper")

KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}

T = TypeVar("T")


class ConfigError(ValueError):
    """Something in a configuration that is not known or not of its kind."""


@dataclass(frozen=True)
class MethodBudget:
    """What one method has of its own.

    Parameters
    ----------
    seeds, n_valid : tuple of int, int; optional
        In place of the budget's.
    search, final : dict
        Parameters of the estimator in the trials, and in the training that follows.
    """

    seeds: tuple[int, ...] | None = None
    n_valid: int | None = None
    search: Mapping[str, Any] = field(default_factory=dict)
    final: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DensityBudget:
    """How much a comparison of densities may cost. The number of trials is one for all methods.

    Parameters
    ----------
    trials : int
        Settings that are tried, the defaults being the first.
    n_search, n_valid : int
        Rows that a trial trains on, and rows that judge it.
    n_train, n_test : int
        Rows that the best setting then trains on, and rows that it is measured on.
    search_steps, final_steps : int
        Steps of gradient descent, for what is trained in steps.
    seeds : tuple of int
        Of the final trainings; trials are made with the first of them.
    sets : tuple of str, optional
        In place of the experiment's.
    sampler : {"random", "tpe"}
    pruner : {"median", "none"}
        Whether a trial ends early that is worse than the median of those before it.
    startup_trials, warmup_evaluations : int
        Trials, and evaluations of a trial, before that begins.
    least_lead : float
        Nats by which a setting must beat the defaults on the validation rows to be chosen.
    methods : dict of {str: MethodBudget}
    """

    trials: int
    n_search: int
    n_valid: int
    n_train: int
    n_test: int
    search_steps: int
    final_steps: int
    seeds: tuple[int, ...]
    sets: tuple[str, ...] | None = None
    sampler: Literal["random", "tpe"] = "random"
    pruner: Literal["median", "none"] = "median"
    startup_trials: int = 2
    warmup_evaluations: int = 10
    least_lead: float = 0.0
    methods: Mapping[str, MethodBudget] = field(default_factory=dict)


@dataclass(frozen=True)
class DensityConfig:
    """A comparison of densities: every set by every method.

    Parameters
    ----------
    title : str
    sets, methods : tuple of str
    budgets : dict of {str: DensityBudget}
    optional_methods : tuple of str
        Run only when asked for by name.
    """

    title: str
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    budgets: Mapping[str, DensityBudget]
    optional_methods: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelBudget:
    """How much the approximation of the kernel may cost."""

    seeds: tuple[int, ...]
    n_features: tuple[int, ...]
    n_epochs: int
    n_pairs: int
    batch_size: int
    learning_rate: float


@dataclass(frozen=True)
class KernelConfig:
    """The approximation of the kernel by few features."""

    title: str
    budgets: Mapping[str, KernelBudget]


@dataclass(frozen=True)
class TablesBudget:
    """How much the comparison on real tables may cost.

    Parameters
    ----------
    seeds : tuple of int
        Of the splits and of the methods.
    max_train : int
        Most rows to train on.
    seconds : tuple of int
        Processor time that flows may take, rising.
    """

    seeds: tuple[int, ...]
    max_train: int
    seconds: tuple[int, ...]


@dataclass(frozen=True)
class TablesConfig:
    """The comparison on real tables; what is optional runs only when asked for by name."""

    title: str
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    budgets: Mapping[str, TablesBudget]
    optional_sets: tuple[str, ...] = ()


@dataclass(frozen=True)
class RegressionBudget:
    """How many of the standard splits are measured."""

    n_splits: int


@dataclass(frozen=True)
class RegressionConfig:
    """The comparison of regressions.

    Parameters
    ----------
    title : str
    sets, methods : tuple of str
        Whose y is a real number.
    integer_sets, integer_methods : tuple of str
        Whose y is a whole number.
    published : dict of {str: list of float}
        Figures of others, in the order of `sets`.
    budgets : dict of {str: RegressionBudget}
    """

    title: str
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    integer_sets: tuple[str, ...]
    integer_methods: tuple[str, ...]
    published: Mapping[str, Any]
    budgets: Mapping[str, RegressionBudget]


@dataclass(frozen=True)
class OutliersBudget:
    """How much the comparison of outlier detectors may cost.

    Parameters
    ----------
    seeds : tuple of int
        Of the splits and of the methods.
    max_rows : int
        Most rows of a set.
    growth : tuple of int
        Numbers of training rows for which the cost of a score is measured.
    """

    seeds: tuple[int, ...]
    max_rows: int
    growth: tuple[int, ...]


@dataclass(frozen=True)
class OutliersConfig:
    """The comparison of outlier detectors.

    Parameters
    ----------
    title : str
    sets, methods : tuple of str
    growth_set, growth_methods : str, tuple of str
        What the cost of a score is measured on, and of.
    honesty : str
        What the choice of the detector's rules saw of the sets.
    published : dict of {str: dict of {str: list of float}}
        Figures of others by protocol and method, in the order of `sets`.
    budgets : dict of {str: OutliersBudget}
    """

    title: str
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    growth_set: str
    growth_methods: tuple[str, ...]
    honesty: str
    published: Mapping[str, Any]
    budgets: Mapping[str, OutliersBudget]


def load_config(name: str, cls: type[T]) -> T:
    """The configuration that ships under a name."""
    return parse_config((CONFIGS / f"{name}.toml").read_text(encoding="utf-8"), cls, name)


def parse_config(text: str, cls: type[T], name: str = "config") -> T:
    """Read TOML into a dataclass.

    Examples
    --------
    >>> parse_config("seeds = [1, 2]", MethodBudget, "maf").seeds
    (1, 2)
    >>> parse_config("seed = 1", MethodBudget, "maf")
    Traceback (most recent call last):
        ...
    experiments.config.ConfigError: maf has no key 'seed'; it knows seeds, n_valid, ...
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not TOML: {error}") from None
    return _build(cls, table, name)


def _build(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    _check(table, dict, where)
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError(f"{where} has no key {key!r}; it knows {', '.join(known)}")
    for name, f in known.items():
        required = f.default is MISSING and f.default_factory is MISSING
        if required and name not in table:
            raise ConfigError(f"{where} lacks the key {name!r}")
    hints = get_type_hints(cls)
    return cls(**{k: _convert(hints[k], value, f"{where}.{k}") for k, value in table.items()})


def _convert(hint: Any, value: Any, where: str) -> Any:
    """The value as its annotation wants it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:  # optional: TOML has no null, so a value that is there is not None
        [hint] = [part for part in arguments if part is not NoneType]
        return _convert(hint, value, where)
    if origin is Literal:
        if value not in arguments:
            choices = ", ".join(map(repr, arguments))
            raise ConfigError(f"{where} is {value!r}; it must be one of {choices}")
        return value
    if origin is tuple:
        _check(value, list, where)
        return tuple(_convert(arguments[0], part, where) for part in value)
    if origin is Mapping:
        _check(value, dict, where)
        if arguments[1] is Any:
            return dict(value)
        return {k: _build(arguments[1], part, f"{where}.{k}") for k, part in value.items()}
    if hint is float:
        _check(value, float, where)
        return float(value)
    _check(value, hint, where)
    if hint is int and (isinstance(value, bool) or value < 0):
        raise ConfigError(f"{where} is {value!r}; it must be {KINDS[int]} of at least 0")
    return value


def _check(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, (int, float) if kind is float else kind):
        raise ConfigError(f"{where} is {value!r}; it must be {KINDS[kind]}")
