"""QAFFDERegressor: the distribution of y given the columns of a table."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor, nn

from qaffde.estimators.base import (
    Array,
    FileMixin,
    all_or_nothing,
    check_configs,
    read_numbers,
    read_weight,
)
from qaffde.frames import as_frame
from qaffde.kinds import Category, Integer, Kind, Periodic, Real, as_kind
from qaffde.nn.conditional import BornConditional, BornHead, Target, mean_and_deviation
from qaffde.parameters import Seed, check_count, check_share, generator_from
from qaffde.schema import Schema
from qaffde.selection.policy import DEFAULT_POLICY, MIN_DIGITS
from qaffde.selection.summary import moved_nearer
from qaffde.training import TrainingConfig
from qaffde.training.noise import Noise
from qaffde.training.regression import ConditionalDensity, fit_conditional, make_network
from qaffde.training.run import Run

FAR = DEFAULT_POLICY.far_spread
BLOCK = 64
"""Rows whose densities are computed at once."""
WIDEST = 1e4
"""Standard deviations of y that its density may reach out to."""
N_LEVELS = 100
"""Quantiles that the continuous ranked probability score is a mean over."""
N_DRAWS = 64
"""Draws of earlier outputs that the mean and quantiles of a later one are averages over."""


@dataclass(eq=False, repr=False)
class QAFFDERegressor(RegressorMixin, FileMixin, BaseEstimator):
    r"""Regression that predicts a whole distribution, by an ensemble of conditional densities.

    Each member is a network whose last layer is a :class:`~qaffde.nn.ConditionalBorn`,

    .. math:: p(y \mid x) = m_x(y)\, \frac{\lVert A(x)\, e(F_x(y)) \rVert^2}{\lVert A(x) \rVert^2}

    trained by maximum likelihood; the distribution is the mean over the members. It integrates
    to one exactly, and its distribution function is closed. Several outputs are a chain: each is
    given the columns of X and the outputs before it.

    Parameters
    ----------
    n_members : int, default=5
        Networks. Each holds out another part of the rows to decide when training stops.
    n_hidden, n_layers : int, default=64, 2
        Size of the networks.
    n_components : int, default=5
        Gaussians of the base :math:`m_x`.
    n_functions, rank : int, default=12, 2
        Waves e, and rows of the factor A. One wave is a mixture density network.
    target : "auto", kind or list of kinds, default="auto"
        Kind of y: "real" or :class:`~qaffde.Real` with known ends, "integer", or
        :class:`~qaffde.Periodic`. "auto" is real.
    columns : "auto", kind, list of kinds, dict of {column: kind} or None, default="auto"
        Kinds of the columns of X, found in a data frame. Categories become indicators, periods
        sines and cosines, and gaps (NaN) the mean with an indicator.
    encoder : torch.nn.Module, optional
        Network from standardized columns to codes (n, k), in place of ours; each member trains a
        copy.
    training : TrainingConfig, optional
        Settings of Adam; 3000 steps by default, more for many rows.
    time_limit : float or None, default=None
        Seconds before training stops.
    verbose : bool, default=False
        Print progress: a line for each evaluation.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    densities_ : list of torch modules
        The conditional density of each output.
    history_ : list of qaffde.training.History
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X had names

    References
    ----------
    Bishop, "Mixture density networks", 1994. Lakshminarayanan et al., "Simple and scalable
    predictive uncertainty estimation using deep ensembles", 2017.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (500, 1))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=500)
    >>> model = QAFFDERegressor(random_state=0, n_members=2).fit(X, y)
    >>> model.predict([[0.5]]).round(1)
    array([0.5])
    """

    n_members: int = 5
    n_hidden: int = 64
    n_layers: int = 2
    n_components: int = 5
    n_functions: int = 12
    rank: int = 2
    _: KW_ONLY
    target: Any = "auto"
    columns: Any = "auto"
    encoder: nn.Module | None = None
    training: TrainingConfig | None = None
    time_limit: float | None = None
    verbose: bool = False
    random_state: Any = None
    schema_ = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags

    @all_or_nothing
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the distribution of `y` given the rows of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d), or a data frame
            Gaps (NaN) may be.
        y : array-like of shape (n,) or (n, t)
        sample_weight : array-like of shape (n,), optional
        """
        check_configs(self)
        for name in ("n_members", "n_hidden", "n_layers", "n_components", "n_functions", "rank"):
            check_count(name, getattr(self, name))
        if not isinstance(self.encoder, nn.Module | None):
            raise ValueError(f"encoder={self.encoder!r} must be a torch module")
        checkpoint = getattr(self.training, "checkpoint", None)
        run = Run(self.time_limit, checkpoint, verbose=self.verbose)
        rows, outputs, weight = self._rows(X, y, sample_weight)
        self.inputs_ = Inputs.of(rows, weight, self.schema_)
        generator = generator_from(self.random_state)
        x, self.densities_, self.history_ = self.inputs_(rows), [], []
        for t, kind in enumerate(self._targets(outputs)):
            target, y = _near_target(kind, outputs[:, t], weight)
            head = BornHead(self.n_components, self.n_functions, self.rank, target)
            size = self.n_hidden, self.n_layers
            sizes = x.shape[1], head.n_inputs, self.n_members, size
            network = make_network(*sizes, self.encoder, generator)
            module, share = ConditionalDensity(network, head), 1 / (outputs.shape[1] - t)
            data = x, y, weight
            history = fit_conditional(module, *data, self.training, generator, run, share)
            self.densities_.append(module.double().requires_grad_(False).eval())
            self.history_.append(history)
            x = torch.cat([x, seen(target, y)], 1)
        return self

    def predict(self, X: ArrayLike, *, return_std: bool = False) -> Any:
        """Mean of y of shape (n,) or (n, t), the mean direction of a periodic one.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_std : bool, default=False
            Whether to return standard deviations too.
        """
        if not return_std:
            return self._each(X, lambda density: density.mean)
        both = self._each(X, lambda d: torch.stack([d.mean, d.stddev], -1))
        return both[..., 0], both[..., 1]

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R² of the means, in a unit in which squares of y neither overflow nor underflow."""
        from sklearn.metrics import r2_score  # on first use, as in scikit-learn's own mixin

        outputs = _outputs(y).numpy()
        unit = np.abs(outputs).max(0)
        unit[unit == 0] = 1.0
        found = self.predict(X).reshape(outputs.shape)
        return float(r2_score(outputs / unit, found / unit, sample_weight=sample_weight))

    def predict_quantile(self, X: ArrayLike, q: ArrayLike) -> Array:
        """Quantiles of y: of shape (n,) for one level q, (n, k) for k levels.

        Several outputs have a further dimension before that of the levels.
        """
        levels = torch.as_tensor(np.asarray(q, dtype=np.float64))
        if levels.ndim > 1 or not bool(((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"q={q!r} must be a number between 0 and 1, or a list of them")
        found = self._each(X, lambda density: density.icdf(levels.reshape(-1, 1)).T)
        return found if levels.ndim else found[..., 0]

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> Array:
        """Central intervals of y that hold a share of it, of shape (n, 2) or (n, t, 2)."""
        check_share("coverage", coverage)
        return self.predict_quantile(X, [(1 - coverage) / 2, (1 + coverage) / 2])

    def predict_distribution(self, X: ArrayLike) -> Any:
        """Distribution of y at each row, as those of :mod:`torch.distributions`.

        Of several outputs it is a list of their marginals; those after the first are averages
        over draws of the outputs before.
        """
        found = self._marginals(self._inputs(X))
        return found[0] if len(found) == 1 else found

    def log_likelihood(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Log-density of y (n,) or (n, t) at each row, of shape (n,); exact."""
        x, outputs = self._inputs(X), _outputs(y)
        if outputs.shape != (len(x), len(self.densities_)):
            fit = f"X has {len(x)} rows and the fit {len(self.densities_)} outputs"
            raise ValueError(f"y has shape {np.shape(y)}, but {fit}")
        total = torch.zeros(len(x), dtype=torch.float64)
        for density, value in zip(self.densities_, outputs.T, strict=True):
            total += density(x).double().log_prob(value)
            x = torch.cat([x, seen(density.head.target, value)], 1)
        return total.numpy()

    def sample(self, X: ArrayLike, n_samples: int = 1, random_state: Seed = None) -> Array:
        """Draws of y at each row, of shape (n, n_samples) or (n, n_samples, t)."""
        check_count("n_samples", n_samples)
        x, drawn = self._inputs(X).repeat_interleave(int(n_samples), 0), []
        generator = generator_from(random_state)
        for density in self.densities_:
            with Noise(generator):
                drawn.append(density(x).sample())
            x = torch.cat([x, seen(density.head.target, drawn[-1])], 1)
        values = torch.stack(drawn, -1).reshape(-1, int(n_samples), len(drawn)).numpy()
        return values[..., 0] if len(drawn) == 1 else values

    def calibration(self, X: ArrayLike, y: ArrayLike) -> dict[str, Any]:
        """How well the distributions of one output fit what was seen.

        Returns
        -------
        dict
            "pit": the distribution function at y (n,), uniform if all is well (of an integer, at
            a random point of its step). "levels", "coverage": shares, and how many y lie in the
            central intervals that should hold them. "crps", "log_likelihood": means over rows.
        """
        check_is_fitted(self)
        if len(self.densities_) > 1:
            raise ValueError("calibration is that of one output; fit the outputs one by one")
        value = _outputs(y)[:, 0]
        density = self.predict_distribution(X)
        pit = density.cdf(value)
        if isinstance(density.target.kind, Integer):
            below, generator = density.cdf(value - 1), torch.Generator().manual_seed(0)
            pit = below + (pit - below) * torch.rand(len(pit), generator=generator)
        levels = np.linspace(0.05, 0.95, 19)
        inside = np.abs(pit.numpy()[:, None] - 0.5) <= levels / 2
        q = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
        away = value.numpy()[:, None] - self.predict_quantile(X, q)
        pinball = np.maximum(q * away, (q - 1) * away)
        crps, likelihood = float(2 * pinball.mean()), float(self.log_likelihood(X, y).mean())
        found = {"pit": pit.numpy(), "levels": levels, "coverage": inside.mean(0), "crps": crps}
        return {**found, "log_likelihood": likelihood}

    def _rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Rows with NaN for gaps, outputs (n, t) and weights, those of no weight left out."""
        asked = as_frame(X) is not None or self.columns not in ("auto", None)
        self.schema_ = Schema.infer(X, self.columns) if asked else None
        rows, outputs = self._numbers(X, reset=True, minimum=2), _outputs(y)
        self.is_single_ = np.ndim(np.asarray(y)) == 1
        if len(rows) != len(outputs):
            raise ValueError(f"X has {len(rows)} rows, but y {len(outputs)}")
        weight = torch.tensor(read_weight(sample_weight, rows))
        kept = weight > 0
        if kept.sum() < 2:
            raise ValueError("fewer than two rows have a positive sample_weight")
        return rows[kept], outputs[kept], weight[kept]

    def _numbers(self, X: Any, **how: Any) -> Tensor:
        return torch.tensor(
            read_numbers(self, X, self.schema_, ensure_all_finite="allow-nan", **how)
        )

    def _inputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self.inputs_(self._numbers(X))

    def _targets(self, outputs: Tensor) -> list[Kind]:
        """Kinds of the outputs, once these are known to have them."""
        d = outputs.shape[1]
        if d > 1 and self.encoder is not None:
            raise ValueError("an encoder sees X only, and so one output; fit outputs one by one")
        asked = [self.target] * d if isinstance(self.target, str | Kind) else list(self.target)
        if len(asked) != d:
            raise ValueError(f"target has {len(asked)} kinds for {d} outputs")
        kinds = [Real() if kind == "auto" else as_kind(kind, "y") for kind in asked]
        for kind, y in zip(kinds, outputs.T, strict=True):
            if not isinstance(kind, Real | Integer | Periodic):
                raise ValueError(f"y is {kind}; use QAFFDEClassifier for categories")
            broken = isinstance(kind, Integer) and bool((y != y.round()).any())
            if broken or not Target(kind).encode(y)[1].isfinite().all():
                raise ValueError(f"y has values that are not {kind}; values on an end are none")
        return kinds

    def _marginals(self, x: Tensor) -> list[BornConditional]:
        """Densities of each output at inputs (n, q)."""
        n, found, generator = len(x), [], torch.Generator().manual_seed(0)
        for density in self.densities_:
            numbers = density.network(x)
            found.append(density.head.average(numbers.reshape(n, -1, numbers.shape[-1])))
            if density is self.densities_[-1]:
                break
            if len(found) == 1:
                x, numbers = (part.repeat_interleave(N_DRAWS, 0) for part in (x, numbers))
            with Noise(generator):
                y = density.head.average(numbers).sample()
            x = torch.cat([x, seen(density.head.target, y)], 1)
        return found

    def _each(self, X: Any, value: Any) -> Array:
        """A value of each output's density, in blocks of rows."""
        x = self._inputs(X)
        size = BLOCK if len(self.densities_) == 1 else BLOCK // 8
        blocks = [
            torch.stack([value(density) for density in self._marginals(part)], 1)
            for part in x.split(size)
        ]
        values: Array = torch.cat(blocks).numpy()
        return values[:, 0] if self.is_single_ else values


@dataclass(frozen=True, eq=False)
class Inputs:
    """Columns as the inputs of a network, of mean zero and variance one.

    A few rows far from all others do not set the units. No input is beyond ±20: a network would
    see nothing else.
    """

    kinds: tuple[Kind, ...]
    location: Tensor  # (d,)
    scale: Tensor
    gaps: tuple[bool, ...]  # whether a column has an indicator of gaps

    @classmethod
    def of(cls, rows: Tensor, weight: Tensor, schema: Schema | None) -> "Inputs":
        """Inputs of rows (n, d) with weights (n,)."""
        kinds = (Real(),) * rows.shape[1] if schema is None else schema.kinds
        columns = moved_nearer(rows, weight).T
        units = [mean_and_deviation(x[~x.isnan()]) for x in columns]
        location, scale = torch.tensor(units, dtype=torch.float64).T
        overflows = ~(location + scale).isfinite()
        if overflows.any():
            raise ValueError(
                f"column {int(overflows.nonzero()[0])} of X is so large that its variance "
                "overflows; divide it first"
            )
        scale = torch.where(scale > 1e-12 * location.abs(), scale, 1.0)
        return cls(kinds, location, scale, tuple(rows.isnan().any(0).tolist()))

    def __call__(self, rows: Tensor) -> Tensor:
        """Inputs (n, q) of rows (n, d)."""
        found = []
        for x, kind, location, scale, gap in zip(
            rows.T, self.kinds, self.location, self.scale, self.gaps, strict=True
        ):
            known = ~x.isnan()
            if isinstance(kind, Category):
                codes = torch.arange(len(kind.values or ()), dtype=x.dtype)
                found.append((x[:, None] == codes).to(x))
            elif isinstance(kind, Periodic):
                angle = 2 * math.pi * (x.nan_to_num(0.0) - kind.start) / kind.period
                found.append(torch.stack([angle.sin(), angle.cos()], 1) * known[:, None])
            else:
                z = ((x - location) / scale).clamp(-FAR, FAR)
                found.append(z.nan_to_num(0.0)[:, None])
            if gap:
                found.append((~known).to(x)[:, None])
        return torch.cat(found, 1)


def _outputs(y: Any) -> Tensor:
    """Outputs (n, t) as doubles."""
    if y is None:
        raise ValueError("QAFFDERegressor requires y to be passed, but the target y is None")
    given = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    return torch.tensor(given).reshape(len(given), -1)


def _near_target(kind: Kind, y: Tensor, weight: Tensor) -> tuple[Target, Tensor]:
    """Target of an output (n,), and the output, values that few rows have far off moved nearer."""
    if isinstance(kind, Periodic):
        return Target.of(kind, y), y
    plain = Target(kind)
    z = plain.encode(y)[0]
    near = moved_nearer(z[:, None], weight)[:, 0]
    moved = plain.decode(near)
    moved = moved.round() if isinstance(kind, Integer) else moved
    y = torch.where(near == z, y, moved)
    target = Target.of(kind, y)
    if not math.isfinite(target.location + WIDEST * target.scale):
        raise ValueError("y is so large that its distribution overflows; divide it first")
    if abs(target.location) * torch.finfo(torch.float64).eps > MIN_DIGITS * target.scale:
        raise ValueError(
            f"y lies around {target.location:.3g} and differs by {target.scale:.3g} only: float64 "
            "keeps too few digits; subtract a constant"
        )
    return target, y


def seen(target: Target, y: Tensor) -> Tensor:
    """An earlier output as inputs (n, ·) of a later one."""
    z = target.encode(y)[0]
    if not isinstance(target.kind, Periodic):
        return z[:, None].clamp(-FAR, FAR)
    return torch.stack([(2 * math.pi * z).sin(), (2 * math.pi * z).cos()], 1)
