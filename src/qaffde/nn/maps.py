r"""Maps of columns: one smooth monotone function for each column of a table.

.. math:: z_t = g_t(x_t), \qquad p(x) = p_z(g(x)) \prod_t g_t'(x_t)

A density of z is one of x, and because every column has a map of its own, so are its marginals,
conditionals, boxes, quantiles and draws.

A map is a rational-quadratic spline (Gregory and Delbourgo, 1982), continuously differentiable and
with an inverse in closed form. Beyond the last knot :math:`x_K`, where it has slope m, it goes on
as

.. math:: z = z_K + \tfrac{1}{\lambda} \log(1 + \lambda m (x - x_K))

which for λ = 0 is straight, the tail of a Gaussian, and for λ > 0 the tail of a log-normal. Where
the column has a known end b, λ is negative so that z is infinite there:
:math:`z = z_K - m (b - x_K) \log \frac{b - x}{b - x_K}`. No mass lies beyond. The derivative is
positive and finite at all values between the ends.

The formula is written in operations that NumPy, torch and the ONNX export share.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from qaffde.functional.fourier import Array, namespace_of

LEAST_INSET = 1e-9
"""Of a value on an end, as a share of the distance of the next knot."""


@dataclass(frozen=True, eq=False)
class Tail:
    """The maps of d columns beyond their first or last knot.

    Parameters
    ----------
    sign : float
        −1 below the first, 1 above the last knot.
    knot, value, slope : Arrays of shape (d,)
        x, z and dz/dx there.
    rate, safe_rate : Arrays of shape (d,)
        λ, negative where there is an end, and the same with one in place of zero.
    end, room, inner : Arrays of shape (d,)
        End, or zero, its distance from the knot, or one, and the value that stands for it.
    ended, heavy : Arrays of bool of shape (d,)
        Whether there is an end, and whether λ is not zero.
    """

    sign: float
    knot: Array
    value: Array
    slope: Array
    rate: Array
    safe_rate: Array
    end: Array
    room: Array
    inner: Array
    ended: Array
    heavy: Array

    @classmethod
    def of(cls, columns: Sequence[Any], k: int) -> "Tail":
        """The tails below the first knot (k = 0) or above the last one (k = −1)."""
        line = columns[0].ends.new_tensor([0.0, 1.0])
        knot, value, slope = (
            torch.stack([(line if c.is_identity else getattr(c, name))[k] for c in columns])
            for name in ("knots", "values", "slopes")
        )
        slope = torch.where(slope == 0, 1.0, slope)  # of the identity
        end, tail, inset = (
            torch.stack([getattr(c, name)[k] for c in columns])
            for name in ("ends", "tails", "inset")
        )
        sign, ended = -1.0 if k == 0 else 1.0, end.isfinite()
        room = torch.where(ended, (end - knot).abs(), 1.0)
        rate = torch.where(ended, -1 / (slope * room), tail)
        heavy = rate != 0
        safe = torch.where(heavy, rate, 1.0)
        end, inset = torch.where(ended, end, 0.0), inset.maximum(LEAST_INSET * room)
        return cls(
            sign, knot, value, slope, rate, safe, end, room, end - sign * inset, ended, heavy
        )

    def inside(self, x: Array) -> Array:
        """Values with those on an end, or beyond it, moved inside."""
        return namespace_of(x).where(self.ended_by(x), self.inner, x)

    def impossible(self, x: Array) -> Array:
        """Whether values lie beyond the end."""
        return self.ended & ((x < self.end) if self.sign < 0 else (x > self.end))

    def ended_by(self, x: Array) -> Array:
        """Whether values lie on the end or beyond it."""
        return self.ended & ((x <= self.end) if self.sign < 0 else (x >= self.end))

    def __call__(self, x: Array) -> tuple[Array, Array]:
        """What the tail adds to z and takes from log dz/dx, of shape (n, d)."""
        xp = namespace_of(x)
        beyond = (xp.maximum if self.sign > 0 else xp.minimum)(x, self.knot)
        distance = xp.abs(beyond - self.knot) * self.slope
        rest = xp.abs(self.end - beyond)  # divided by the room, it would underflow near the end
        growth = xp.where(self.ended, rest, 1 + self.rate * distance)
        log_growth = xp.log(growth) - xp.log(self.room)
        step = xp.where(self.heavy, log_growth / self.safe_rate, distance)
        return self.sign * step, log_growth

    def inverse(self, z: Tensor, x: Tensor) -> Tensor:
        """Values x at z beyond the knot's; the given `x` at other z."""
        step = (self.sign * (z - self.value)).clamp(min=0)
        grown = torch.where(self.heavy, torch.expm1(self.rate * step) / self.safe_rate, step)
        rest = self.room * torch.exp(torch.where(self.ended, self.rate * step, 0.0))
        beyond = torch.where(
            self.ended, self.end - self.sign * rest, self.knot + self.sign * grown / self.slope
        )
        return torch.where(step > 0, beyond, x)


@dataclass(frozen=True, eq=False)
class MapTable:
    """The maps of d columns as arrays.

    Parameters
    ----------
    curved : Array of bool of shape (d,)
        Whether a map is not the identity.
    ended : bool
        Whether any has an end.
    knots, values : Arrays of shape (d, K)
        Padded with infinity.
    start, last : Arrays of int of shape (d,)
        Number of the first piece of each column, and of its last one, counted from there.
    pieces : Array of shape (P, 6)
        Of all pieces of all splines: first x, width, first z, height, slopes at both ends.
    lower, upper : Tail
    """

    curved: Array
    ended: bool
    knots: Array
    values: Array
    start: Array
    last: Array
    pieces: Array
    lower: Tail
    upper: Tail

    @classmethod
    def of(cls, columns: Sequence[Any]) -> "MapTable":
        """The maps of real columns (:class:`~qaffde.nn.RealColumn`)."""
        ends = torch.stack([c.ends for c in columns])
        line, one = ends.new_tensor([0.0, 1.0]), ends.new_ones(2)
        splines = [
            (line, line, one) if c.is_identity else (c.knots, c.values, c.slopes) for c in columns
        ]
        x, z, _ = zip(*splines, strict=True)
        sizes = torch.tensor([len(knots) - 1 for knots in x], device=ends.device)
        return cls(
            torch.tensor([not c.is_identity for c in columns], device=ends.device),
            bool(ends.isfinite().any()),
            _padded(x),
            _padded(z),
            sizes.cumsum(0) - sizes,
            sizes - 1,
            torch.cat(
                [
                    torch.stack([a[:-1], a.diff(), b[:-1], b.diff(), c[:-1], c[1:]], 1)
                    for a, b, c in splines
                ]
            ),
            Tail.of(columns, 0),
            Tail.of(columns, -1),
        )

    def converted(self, convert: Callable[[Tensor], Array]) -> "MapTable":
        """The same maps with converted tensors."""

        def of(table: Tail | MapTable) -> dict[str, Array]:
            tensors = {k: v for k, v in vars(table).items() if isinstance(v, Tensor)}
            return {k: convert(v.detach()) for k, v in tensors.items()}

        lower, upper = (replace(tail, **of(tail)) for tail in (self.lower, self.upper))
        return replace(self, **of(self), lower=lower, upper=upper)

    def __call__(self, x: Array) -> tuple[Array, Array]:
        """Values z of shape (n, d), and log Π g′ of shape (n,), at x of shape (n, d).

        The latter is −∞ for rows with an impossible value; their z is finite.
        """
        xp = namespace_of(x)
        y = self.upper.inside(self.lower.inside(x)) if self.ended else x
        inner = xp.clip(y, self.lower.knot, self.upper.knot)
        x0, width, z0, height, d0, d1 = self._pieces(self.knots, inner)
        t = (inner - x0) / width
        mixed, mean = t * (1 - t), height / width
        weight = mean + (d1 + d0 - 2 * mean) * mixed
        z = z0 + height * (mean * t * t + d0 * mixed) / weight
        slope = d1 * t * t + 2 * mean * mixed + d0 * (1 - t) * (1 - t)
        log_slope = 2 * xp.log(mean / weight) + xp.log(slope)
        if xp is torch or (y != inner).any():  # NumPy has a few rows, mostly without tails
            below, log_below = self.lower(y)
            above, log_above = self.upper(y)
            z, log_slope = z + below + above, log_slope - log_below - log_above
        log_slope = xp.where(self.curved, log_slope, 0.0)
        if self.ended:
            impossible = self.lower.impossible(x) | self.upper.impossible(x)
            log_slope = xp.where(impossible, -math.inf, log_slope)
        return xp.where(self.curved, z, x), log_slope.sum(-1)

    def edges(self, x: Tensor) -> Tensor:
        """Ends of boxes in z, of shape (n, d), infinite where no value lies beyond."""
        z = self(x)[0]
        z = torch.where(self.lower.ended_by(x) | (x == -torch.inf), -torch.inf, z)
        return torch.where(self.upper.ended_by(x) | (x == torch.inf), torch.inf, z)

    def inverse(self, z: Tensor) -> Tensor:
        """Values x at z of the same shape (n, d), which may be infinite."""
        inner = z.clip(self.lower.value, self.upper.value)
        x0, width, z0, height, d0, d1 = self._pieces(self.values, inner)
        mean, y = height / width, inner - z0
        bend = d1 + d0 - 2 * mean
        a, b, c = height * (mean - d0) + y * bend, height * d0 - y * bend, -mean * y
        t = 2 * c / (-b - (b * b - 4 * a * c).clamp(min=0).sqrt())
        x = self.upper.inverse(z, self.lower.inverse(z, x0 + t * width))
        return torch.where(self.curved, x, z)

    def _pieces(self, edges: Array, at: Array) -> list[Array]:
        """Numbers, each of shape (n, d), of the pieces that values between edges lie on."""
        xp = namespace_of(at)
        if xp is torch:
            place = torch.searchsorted(edges, at.T.contiguous(), right=True).T
        else:
            place = (at[..., None] >= edges).sum(-1)
        found = self.pieces[xp.minimum(place - 1, self.last) + self.start]
        return [found[..., k] for k in range(6)]


def _padded(parts: Sequence[Tensor]) -> Tensor:
    """Tensors of shape (k,) as one of shape (d, K), with infinity where they are shorter."""
    return nn.utils.rnn.pad_sequence(
        list(parts), batch_first=True, padding_value=float("inf")
    ).contiguous()
