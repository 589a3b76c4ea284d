r"""Conditional Born densities: from the context of any network to a density of y.

.. math:: p(y \mid c) = m_c(y)\, \frac{\lVert A_c\, e(F_c(y)) \rVert^2}{\lVert A_c \rVert^2}

A network gives the base :math:`m_c`, a mixture of Gaussians with distribution function
:math:`F_c`, and the factor :math:`A_c` of r × K numbers. Under the base, :math:`u = F_c(y)` is
uniform on [0, 1], where the waves e are orthonormal: the density integrates to one exactly. The
integral of the square is closed too, and with it distribution function, quantiles and draws. With
a constant factor it is a mixture density network (Bishop, 1994).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Size, Tensor, nn
from torch.distributions import Categorical, Distribution
from torch.nn import functional as F

from qaffde.kinds import Category, Integer, Kind, Periodic, Real
from qaffde.nn.calculus.integrals import panels
from qaffde.nn.column_basis import wave_amplitude, wave_products

PANELS = (-9.0, -6.0, -4.5, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.5, 6.0, 9.0)
"""Edges of the panels of a quadrature, in deviations of each Gaussian; no mass lies beyond."""


@dataclass(frozen=True)
class Target:
    """Values y of one kind as numbers z, in which bases are mixtures of Gaussians.

    Real numbers with one end are logarithms in z, those with two ends logits, and periodic ones
    are turns, less a location and divided by a scale.
    """

    kind: Kind
    location: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, kind: Kind, y: Tensor) -> "Target":
        """Target whose z have mean zero and deviation one over values y (n,)."""
        if isinstance(kind, Periodic):
            return cls(kind, kind.start, kind.period)
        z = cls(kind).encode(y.double())[0]
        location, scale = mean_and_deviation(z)
        return cls(kind, location, scale if scale > 0 else 1.0)

    @property
    def ends(self) -> tuple[float, float]:
        """Least and largest y."""
        if isinstance(self.kind, Real):
            return self.kind.ends
        if isinstance(self.kind, Periodic):
            return self.kind.start, self.kind.start + self.kind.period
        return -math.inf, math.inf

    @property
    def _walls(self) -> list[tuple[int, float]]:
        """Finite ends of a real y, each with the sign of y − end."""
        ends = zip((1, -1), self.ends, strict=True) if isinstance(self.kind, Real) else ()
        return [(side, end) for side, end in ends if math.isfinite(end)]

    def encode(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers z, and the logarithms of their slopes: −∞ where y is impossible."""
        value, inside = y, torch.ones_like(y, dtype=torch.bool)
        if self._walls:
            inside = (y > self.ends[0]) & (y < self.ends[1])
            value = torch.zeros_like(y)
            for side, end in self._walls:
                value = value + side * torch.where(inside, side * (y - end), 1.0).log()
        z = (value - self.location) / self.scale
        z = z % 1 if isinstance(self.kind, Periodic) else z
        return z, torch.where(inside, self.log_slope(z), -torch.inf)

    def decode(self, z: Tensor) -> Tensor:
        """Values y of numbers z."""
        value = self.location + self.scale * z
        match self._walls:
            case [(_, low), (_, high)]:
                return low + (high - low) * value.sigmoid()
            case [(side, end)]:
                return end + side * (side * value).exp()
        return value

    def log_slope(self, z: Tensor) -> Tensor:
        """Logarithm of dz/dy at numbers z."""
        value = self.location + self.scale * z
        match self._walls:
            case [(_, low), (_, high)]:
                log_value = -F.logsigmoid(value) - F.logsigmoid(-value) - math.log(high - low)
            case [(side, _)]:
                log_value = -side * value
            case _:
                log_value = torch.zeros_like(z)
        return log_value - math.log(self.scale)

    def edge(self, y: Tensor) -> Tensor:
        """Number z of an end of an interval: infinite where nothing lies beyond it."""
        low, high = self.ends
        if isinstance(self.kind, Periodic):
            return ((y - low) / self.scale).clamp(0, 1)
        z = torch.where(y >= high, torch.inf, self.encode(y)[0])
        return torch.where(y <= low, -torch.inf, z)


class BornHead(nn.Module):
    """From `n_inputs` numbers that a network gives to a density of y.

    It has no parameters of its own; its arguments are those of :class:`ConditionalBorn`.
    """

    start: Tensor
    damping: Tensor
    frequency: Tensor
    phase: Tensor
    products: Tensor

    def __init__(
        self,
        n_components: int = 5,
        n_functions: int = 12,
        rank: int = 2,
        target: Target | Kind | None = None,
    ) -> None:
        super().__init__()
        given = Real() if target is None else target
        self.target = Target.of(given, torch.arange(2.0)) if isinstance(given, Kind) else given
        self.shape = C, r, K = n_components, rank, n_functions
        kind, k = self.target.kind, torch.arange(K)
        circular = isinstance(kind, Periodic)
        self.n_inputs = len(kind.values or ()) if isinstance(kind, Category) else 3 * C + r * K
        start = torch.zeros(self.n_inputs)
        if not isinstance(kind, Category):
            spread = torch.linspace(0, 1, 2 * C + 1)[1::2]
            start[C : 2 * C] = spread if circular else 4 * spread - 2
            start[2 * C : 3 * C] = math.log(0.2) if circular else math.log(0.75)
            start[3 * C] = 1.0
        frequency, phase = (2 * ((k + 1) // 2), (k > 0) * (k + 1) % 2) if circular else (k, 0 * k)
        self.register_buffer("start", start.double())
        self.register_buffer("damping", 1 / (1 + 0.3 * k.double()))
        self.register_buffer("frequency", math.pi * frequency.double())
        self.register_buffer("phase", math.pi / 2 * phase.double())
        self.register_buffer("products", wave_products(frequency, phase))

    def forward(self, numbers: Tensor) -> Distribution:
        """Density of y from numbers of shape (..., n_inputs)."""
        if isinstance(self.target.kind, Category):
            return Categorical(logits=numbers)
        return self.average(numbers[..., None, :])

    def average(self, numbers: Tensor) -> "BornConditional":
        """Mean of the densities of M members, from numbers of shape (..., M, n_inputs)."""
        C, r, K = self.shape
        parts = (numbers + self.start.to(numbers)).split([C, C, C, r * K], -1)
        log_weight, mean = parts[0].log_softmax(-1), parts[1]
        circular = isinstance(self.target.kind, Periodic)
        most = math.log(0.35) if circular else 6.0  # turns, deviations
        deviation = parts[2].clamp(-6.0, most).exp()
        if circular:
            turns = torch.arange(-2, 3).to(mean)
            mean = ((mean % 1)[..., None] + turns).flatten(-2)
            log_weight = log_weight.repeat_interleave(len(turns), -1)
            deviation = deviation.repeat_interleave(len(turns), -1)
        factor = parts[3].unflatten(-1, (r, K)) * self.damping.to(numbers)
        return BornConditional(log_weight, mean, deviation, factor, self)

    def waves(self, level: Tensor) -> Tensor:
        """Orthonormal waves (..., K) at levels."""
        angle = level[..., None] * self.frequency.to(level) - self.phase.to(level)
        return angle.cos() * wave_amplitude(self.frequency).to(level)

    def wave_means(self, middle: Tensor, width: Tensor) -> Tensor:
        """Means (..., M) of the products' waves over levels of a given middle and width."""
        m = torch.arange((self.products.shape[2] + 1) // 2).to(middle)
        angle, damping = middle[..., None] * m * math.pi, torch.sinc(width[..., None] * m / 2)
        return torch.cat([angle.cos() * damping, (angle.sin() * damping)[..., 1:]], -1)


class ConditionalBorn(nn.Module):
    r"""Layer from a context to a density of one y.

    As the last layer of a network, ``layer(network(x)).log_prob(y)`` is differentiable.

    Parameters
    ----------
    n_inputs : int
        Size of the context.
    n_components : int, default=5
        Gaussians of the base.
    n_functions, rank : int, default=12, 2
        K and r. With ``n_functions=1`` the layer is a mixture density network.
    target : Target or Kind, default=Real()
        Values of y: real with or without ends, integer, periodic, or a category, for which the
        layer returns a :class:`torch.distributions.Categorical` of the codes.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> density = ConditionalBorn(3)(torch.randn(4, 3))
    >>> y = density.icdf(torch.tensor(0.9))
    >>> density.cdf(y).detach().round(decimals=6)
    tensor([0.9000, 0.9000, 0.9000, 0.9000], dtype=torch.float64)
    """

    def __init__(
        self,
        n_inputs: int,
        n_components: int = 5,
        n_functions: int = 12,
        rank: int = 2,
        target: Target | Kind | None = None,
    ) -> None:
        super().__init__()
        self.head = BornHead(n_components, n_functions, rank, target)
        self.linear = nn.Linear(n_inputs, self.head.n_inputs)

    def forward(self, context: Tensor) -> Distribution:
        """Density of y for contexts of shape (..., n_inputs)."""
        return self.head(self.linear(context))


class BornConditional(Distribution):
    """Density of y: the mean of M Born densities, each on a base of C Gaussians.

    Parameters
    ----------
    log_weight, center, deviation : Tensors of shape (..., M, C)
        Of the bases, in the units of z; on a circle, all windings of the Gaussians.
    factor : Tensor of shape (..., M, r, K)
    head : BornHead
    """

    arg_constraints = {}  # noqa: RUF012 (as torch has it)

    def __init__(
        self, log_weight: Tensor, center: Tensor, deviation: Tensor, factor: Tensor, head: BornHead
    ) -> None:
        self.log_weight, self.center, self.deviation = log_weight, center, deviation
        self.factor, self.head, self.target = factor, head, head.target
        self._found: Tensor | None = None
        super().__init__(Size(center.shape[:-2]), validate_args=False)

    def double(self) -> "BornConditional":
        """The same density in double precision."""
        return self._changed(Tensor.double)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "BornConditional":
        base = change(self.log_weight), change(self.center), change(self.deviation)
        return BornConditional(*base, change(self.factor), self.head)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at values of the batch's shape; of an integer its log-probability."""
        return _log_mean(self.log_prob_of_members(value))

    def log_prob_of_members(self, value: Tensor) -> Tensor:
        """The same (..., M) of each member."""
        if isinstance(self.target.kind, Integer):
            log_mass = self._log_interval(value - 0.5, value + 0.5)
            return torch.where((value == value.round())[..., None], log_mass, -torch.inf)
        z, log_slope = (part.to(self.center) for part in self.target.encode(value))
        return self._log_densities(z[..., None]) + log_slope[..., None]

    def log_probability(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Log-probability of intervals, exact, in double precision; of integers, ends included."""
        lower, upper = lower.double(), upper.double()
        if isinstance(self.target.kind, Integer):
            lower, upper = lower.ceil() - 0.5, upper.floor() + 0.5
        return _log_mean(self.double()._log_interval(lower, upper)).clamp(max=0)

    def cdf(self, value: Tensor) -> Tensor:
        """Distribution function; of a periodic y from the start of the circle."""
        return self.log_probability(torch.full_like(value, self.target.ends[0]), value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        """Quantiles of levels in (0, 1), by Newton's steps inside a bracket."""
        own, level = self.double(), torch.as_tensor(value, dtype=torch.float64)
        shape = torch.broadcast_shapes(self.batch_shape, level.shape)
        low, high = (end.expand(shape) for end in own._reach())
        least = torch.full_like(low, 0.0 if isinstance(self.target.kind, Periodic) else -torch.inf)
        z = (low + high) / 2
        for _ in range(60):
            excess = _log_mean(own._log_masses(least, z)).exp() - level
            low, high = torch.where(excess < 0, z, low), torch.where(excess < 0, high, z)
            new = z - excess / _log_mean(own._log_densities(z[..., None])).exp()
            new = torch.where((new > low) & (new < high), new, (low + high) / 2)
            moved, z = ((new - z).abs() / (1 + z.abs())).max(), new
            if moved < 1e-13:
                break
        y = self.target.decode(z)
        return (y - 0.5).ceil() if isinstance(self.target.kind, Integer) else y

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Independent draws, in a shape before that of the batch: quantiles of uniform levels."""
        with torch.no_grad():
            return self.icdf(torch.rand(self._extended_shape(Size(sample_shape))).double())

    @property
    def mean(self) -> Tensor:
        """Mean; the mean direction of a periodic y. By quadrature, see `quadrature_error`."""
        if isinstance(self.target.kind, Periodic):
            low, period = self.target.ends[0], self.target.scale
            turn = 2 * math.pi / period
            sine = self.expectation(lambda y: ((y - low) * turn).sin())
            cosine = self.expectation(lambda y: ((y - low) * turn).cos())
            return low + torch.atan2(sine, cosine) / turn % period
        return self.expectation(lambda y: y)

    @property
    def variance(self) -> Tensor:
        """Variance, by quadrature."""
        return self.stddev.square()

    @property
    def stddev(self) -> Tensor:
        """Standard deviation, whose square may be more or less than float64 holds."""
        if isinstance(self.target.kind, Periodic):
            raise ValueError("a periodic y has no variance; ask for quantiles or draws")
        z, mass = self._nodes()
        away = self.target.decode(z) - self.mean[..., None, None]
        size = away.abs().amax((-1, -2), keepdim=True).clamp(min=torch.finfo(away.dtype).tiny)
        square = ((away / size).square() * mass).sum(-1) / mass.sum(-1)
        return size[..., 0, 0] * square.mean(-1).sqrt()

    def entropy(self) -> Tensor:
        """Differential entropy, by quadrature; of integers that of their probabilities."""
        z, mass = self._nodes()
        at = (slice(None),) * len(self.batch_shape) + (None, None)
        own = self.double()._changed(lambda part: part[at])
        if isinstance(self.target.kind, Integer):
            log_p = own.log_prob(self.target.decode(z))
        else:
            log_p = _log_mean(own._log_densities(z[..., None])) + self.target.log_slope(z)
        return -(torch.where(mass > 0, log_p, 0.0) * mass).sum(-1).mean(-1)

    def expectation(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Mean of a function of y, which it takes as a tensor (..., M, m).

        By quadrature, or a sum over integers. The function must be smooth.
        """
        z, mass = self._nodes()
        return ((function(self.target.decode(z)) * mass).sum(-1) / mass.sum(-1)).mean(-1)

    @property
    def quadrature_error(self) -> Tensor:
        """How much the mass of the density misses one in the quadrature of `expectation`."""
        return (self._nodes()[1].sum(-1) - 1).abs().amax(-1)

    def _nodes(self) -> tuple[Tensor, Tensor]:
        """Numbers z (..., M, m) and their masses, for each member."""
        own = self.double()
        if isinstance(self.target.kind, Integer):
            least, most = own._reach()
            low, high = (float(self.target.decode(end)) for end in (least.min(), most.max()))
            if high - low > 100_000:
                raise ValueError(
                    f"the density of integers goes from {low:.0f} to {high:.0f}: too many values "
                    "for a sum; ask for quantiles or draws"
                )
            y = torch.arange(math.floor(low), math.ceil(high) + 1).double()
            at = y.reshape(-1, *[1] * len(self.batch_shape)).expand(-1, *self.batch_shape)
            mass = own._log_interval(at - 0.5, at + 0.5).exp().movedim(0, -1)
            return self.target.encode(y)[0].expand_as(mass), mass
        steps = torch.tensor(PANELS, dtype=torch.float64)
        edges = (own.center[..., None] + own.deviation[..., None] * steps).flatten(-2)
        if isinstance(self.target.kind, Periodic):
            edges = torch.cat([edges, torch.tensor([0.0, 1.0]).expand(*edges.shape[:-1], 2)], -1)
            edges = edges.clamp(0, 1)
        edges = edges.sort(-1)[0]
        z, weights = panels(edges, 5)
        log_p = own._log_densities(z.movedim(-1, 0)).movedim(0, -1)
        return z, log_p.exp() * weights

    def _reach(self) -> tuple[Tensor, Tensor]:
        """Least and largest z (...) that have mass."""
        if isinstance(self.target.kind, Periodic):
            zero = torch.zeros_like(self.center[..., 0, 0])
            return zero, zero + 1
        low, high = (self.center + side * self.deviation for side in (PANELS[0], PANELS[-1]))
        return low.amin((-1, -2)), high.amax((-1, -2))

    def _away(self, z: Tensor) -> Tensor:
        """Distances (..., M, C) of z (..., M) or (..., 1) from the centers, in deviations."""
        return (z[..., None] - self.center) / self.deviation

    def _level(self, away: Tensor) -> Tensor:
        """Share (..., M) of the base that lies below; on a circle, since its start."""
        weight = self.log_weight.exp()
        level = (weight * _normal_level(away)).sum(-1)
        if isinstance(self.target.kind, Periodic):
            start = self._away(torch.zeros_like(self.center[..., 0]))
            level = level - (weight * _normal_level(start)).sum(-1)
        return level

    def _log_densities(self, z: Tensor) -> Tensor:
        """Log-densities (..., M) of the members at z (..., M) or (..., 1)."""
        away = self._away(z)
        log_term = self.log_weight - self.deviation.log() - 0.5 * math.log(2 * math.pi)
        log_base = (log_term - 0.5 * away.square()).logsumexp(-1)
        waves = self.head.waves(self._level(away))
        born = (self.factor @ waves[..., None]).square().sum((-1, -2))
        return log_base + born.log() - self.factor.square().sum((-1, -2)).log()

    def _log_interval(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Log-probabilities (..., M) between values y."""
        lower, upper = (self.target.edge(y).to(self.center) for y in (lower, upper))
        return self._log_masses(lower, upper)

    def _log_masses(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Log-probabilities (..., M) between numbers z, which keep their digits in the tails.

        The mean of a wave over the levels between the ends is the wave at their middle, damped.
        """
        low, high = (self._away(end[..., None]) for end in (lower, upper))
        log_width = (self.log_weight + _log_normal_mass(low, high)).logsumexp(-1)
        middle = (self._level(low) + self._level(high)) / 2
        means = (self._coefficients() * self.head.wave_means(middle, log_width.exp())).sum(-1)
        return log_width + means.clamp(min=0).log()

    def _coefficients(self) -> Tensor:
        """Coefficients (..., M, m) of the square of the amplitude in waves, computed once."""
        if self._found is None:
            norm = self.factor.square().sum((-1, -2))[..., None, None]
            state = self.factor.mT @ self.factor / norm
            self._found = torch.einsum("...kl,klm->...m", state, self.head.products.to(state))
        return self._found


def mean_and_deviation(x: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of values (n,), whose squares may overflow or underflow."""
    if not len(x):
        return 0.0, 0.0
    mean = x.mean()
    size = (x - mean).abs().max()
    relative = torch.where(size > 0, (x - mean) / size, 0.0)
    return float(mean), float(size * relative.square().mean().sqrt())


def _log_mean(log_p: Tensor) -> Tensor:
    """Logarithm (...) of the mean over the members (..., M)."""
    return log_p.logsumexp(-1) - math.log(log_p.shape[-1])


def _normal_level(x: Tensor) -> Tensor:
    """The normal distribution function, to rounding of one, by a function that ONNX has."""
    return 0.5 + 0.5 * torch.erf(x * math.sqrt(0.5))


def _log_normal_mass(low: Tensor, high: Tensor) -> Tensor:
    """Logarithm of a normal law's mass between two ends, from the side where both are small."""
    swap = low + high > 0
    low, high = torch.where(swap, -high, low), torch.where(swap, -low, high)
    log_high = torch.special.log_ndtr(high)
    least = torch.finfo(log_high.dtype).min  # far away both are −∞
    ratio = (torch.special.log_ndtr(low) - log_high.clamp(min=least)).clamp(max=0)
    return log_high + torch.log1p(-ratio.exp())
