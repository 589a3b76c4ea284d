r"""The density of RoundTrip: a Gaussian around a generator, integrated over its input.

.. math:: p(x) = \int N\bigl(x;\, G(z), \sigma^2 I\bigr)\, N(z;\, 0, I)\, dz
"""

import math
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from experiments.models.roundtrip_networks import EachClass, Layered
from qaffde.baselines.base import FlowDensity

MEMORY, WARM_UP = 0.999, 9.0
"""Share of the mean networks that a step leaves as it was, once there were many."""
INTEGRATIONS = ("linear", "laplace", "importance")
DAMPING, LESS, MORE, STUCK = 0.1, 0.3, 4.0, 1e6
"""Of steps towards a mode: what the diagonal is raised by at first, what that is multiplied by
after a step that led up and after one that was taken back, and when a row is at its end."""
NOISES = torch.logspace(-2, 0, 9)
"""Values of σ to choose from, in standard deviations of the data."""
MAX_IMAGES = 16_384
"""Values of G that are computed at a time."""
MAX_TANGENTS = 1 << 17
"""Numbers of a Jacobian that are computed at a time: what lies between them stays in a cache."""


@dataclass(frozen=True)
class Linearized:
    r"""The generator as a line in z, seen from n rows.

    With :math:`z_0 = H(x)` and the Jacobian :math:`J = U S V^\top` of G there, the model is
    :math:`x = G(z_0) + J (z - z_0) + \sigma \varepsilon`, so that x is Gaussian and

    .. math:: \log p(x) = -\tfrac12 \Bigl[ \sum_i \frac{a_i^2}{s_i^2 + \sigma^2}
              + \frac{\lVert r - U a \rVert^2}{\sigma^2} + \sum_i \log (s_i^2 + \sigma^2)
              + (d - k) \log \sigma^2 + d \log 2 \pi \Bigr],
              \qquad r = x - G(z_0) + J z_0,\; a = U^\top r .

    The sums run over the k = min(d, m) singular values. No difference of large numbers is
    divided by σ², and another σ costs next to nothing.

    Attributes
    ----------
    along : Tensor of shape (n, k)
        a, the part of r in the range of J.
    across : Tensor of shape (n,)
        Squared norm of the rest.
    scales : Tensor of shape (n, k)
        s.
    axes : Tensor of shape (n, m, k)
        V.
    n_dims : int
        d.
    """

    along: Tensor
    across: Tensor
    scales: Tensor
    axes: Tensor
    n_dims: int

    def log_prob(self, sigma: Tensor) -> Tensor:
        """Log-density of shape (n,) for σ a scalar."""
        variance = self.scales.square() + sigma.square()  # (n, k)
        n_flat = self.n_dims - self.scales.shape[1]
        quadratic = (self.along.square() / variance).sum(1) + self.across / sigma.square()
        log_det = variance.log().sum(1) + 2 * n_flat * sigma.log()
        return -0.5 * (quadratic + log_det + self.n_dims * math.log(2 * math.pi))

    def posterior(self, sigma: Tensor) -> tuple[Tensor, Tensor]:
        r"""Mean (n, m) and root of the covariance (n, m, m) of z given x.

        The covariance :math:`(I + J^\top J / \sigma^2)^{-1}` has the eigenvalue
        :math:`\sigma^2 / (s_i^2 + \sigma^2)` along each column of V, and 1 across them.
        """
        variance = self.scales.square() + sigma.square()
        mean = (self.axes @ (self.scales * self.along / variance)[..., None])[..., 0]
        shrink = sigma / variance.sqrt() - 1  # (n, k)
        eye = torch.eye(self.axes.shape[1], dtype=mean.dtype)
        return mean, eye + (self.axes * shrink[:, None]) @ self.axes.mT


@dataclass(frozen=True)
class AtMode:
    r"""Laplace's approximation for n rows, as if :math:`z_0` were the mode: H(x), or near it.

    .. math:: \log p(x) \approx -\tfrac12 \Bigl[ \frac{\lVert x - G(z_0) \rVert^2}{\sigma^2}
              + \lVert z_0 \rVert^2 + \log \det (I + J^\top J / \sigma^2)
              + d \log 2 \pi \sigma^2 \Bigr]

    Attributes
    ----------
    gap, code : Tensors of shape (n,)
        Squared norms of :math:`x - G(z_0)` and of :math:`z_0`.
    gram : Tensor of shape (n, m, m)
        :math:`J^\top J`, which needs no singular values: of many latent columns they are dear.
    n_dims : int
        d.
    """

    gap: Tensor
    code: Tensor
    gram: Tensor
    n_dims: int

    def log_prob(self, sigma: Tensor) -> Tensor:
        """Log-density of shape (n,) for σ a scalar."""
        eye = torch.eye(self.gram.shape[1], dtype=self.gram.dtype)
        root = torch.linalg.cholesky(eye + self.gram / sigma.square())
        log_det = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
        quadratic = self.gap / sigma.square() + self.code
        return -0.5 * (quadratic + log_det + self.n_dims * (2 * math.pi * sigma.square()).log())


class RoundTripDensity(FlowDensity):
    r"""Density of RoundTrip's model, by one of three ways to integrate over z.

    ``"linear"`` takes G for its tangent at H(x), see :class:`Linearized`. ``"laplace"`` takes H(x)
    for the mode besides: what G makes of another z does not count, unless steps of Levenberg and
    Marquardt lead from there to the mode of z given x. ``"importance"`` is the
    mean of :math:`p(x \mid z_j)\, p(z_j) / q(z_j)` over draws from q, a Student t. Its centre and
    shape are those of the linearised posterior, where the paper has H(x) and a sphere of a size
    that must be tuned. G and H are means over the last steps of training, since adversaries
    circle about what they learn. All rows share the t's standard draws, so that a score depends
    on nothing but its row.

    Parameters
    ----------
    generate : Layered or EachClass
        G, which pushes tangents too.
    encode : nn.Module
        H.
    judge_x, judge_z : nn.Module
        The discriminators; they take part in training alone.
    n_dims, n_latent : int
        d and m.
    cycle_weights : (float, float)
        α and β of the loss; kept with the parameters, since a checkpoint is of one loss.
    integration : {"linear", "laplace", "importance"}
    n_draws : int
        Of importance sampling.
    freedom : float
        Degrees of freedom of the Student t.
    mode_steps : int
        Steps towards the mode, of Laplace's approximation.
    """

    cycle_weights: Tensor
    sigma: Tensor
    n_steps: Tensor
    normals: Tensor
    radii: Tensor

    def __init__(
        self,
        generate: Layered | EachClass,
        encode: nn.Module,
        judge_x: nn.Module,
        judge_z: nn.Module,
        *,
        n_dims: int,
        n_latent: int,
        cycle_weights: tuple[float, float] = (1.0, 1.0),
        integration: str = "importance",
        n_draws: int = 100,
        freedom: float = 5.0,
        mode_steps: int = 0,
    ) -> None:
        super().__init__()
        self.generate, self.encode = generate, encode
        self.mean_generate, self.mean_encode = deepcopy(generate), deepcopy(encode)
        for network in (self.mean_generate, self.mean_encode):
            network.requires_grad_(False)
        self.judge_x, self.judge_z = judge_x, judge_z
        self.n_dims, self.n_latent = n_dims, n_latent
        self.integration, self.freedom, self.mode_steps = integration, freedom, mode_steps
        self.register_buffer("cycle_weights", torch.tensor(cycle_weights))
        self.register_buffer("sigma", torch.tensor(0.1))
        self.register_buffer("n_steps", torch.tensor(0.0, dtype=torch.double))
        if integration == "importance":
            self.register_buffer("normals", torch.randn(n_draws, n_latent))
            gamma = torch.distributions.Gamma(freedom / 2, freedom / 2)
            self.register_buffer("radii", gamma.sample((n_draws,)).rsqrt())

    @torch.no_grad()
    def follow(self) -> None:
        """Let the mean networks follow those that learn, closely at first."""
        self.n_steps += 1
        share = max(1 - MEMORY, WARM_UP / (WARM_UP + float(self.n_steps)))
        pairs = ((self.mean_generate, self.generate), (self.mean_encode, self.encode))
        for mean, network in pairs:
            for average, parameter in zip(mean.parameters(), network.parameters(), strict=True):
                average.lerp_(parameter, share)

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Log-density of shape (n,)."""
        given = self.given(x, context)
        return self._integrate(x, given, self._view(x, given))

    def sample(self, n: int, generator: Generator, context: Tensor | None = None) -> Tensor:
        """Draws of shape (n, d): G of normal draws, and noise."""
        z = torch.randn(n, self.n_latent, generator=generator, dtype=self.dtype)
        noise = torch.randn(n, self.n_dims, generator=generator, dtype=self.dtype)
        return self.mean_generate(z, self.given(z, context)) + self.sigma * noise

    def given(self, rows: Tensor, context: Tensor | None) -> Tensor:
        """The context, of no columns where there is none."""
        return rows.new_empty(len(rows), 0) if context is None else context

    def _view(self, x: Tensor, context: Tensor) -> Linearized | AtMode:
        """What is integrated over z: all that depends on rows x (n, d), but not on σ."""
        see = self.at_mode if self.integration == "laplace" else self.linearize
        return see(x, context)

    def at_mode(self, x: Tensor, context: Tensor) -> AtMode:
        """The generator and its tangents at H(x), or nearer to the mode, for x of shape (n, d)."""
        z = self.mean_encode(x, context)  # (n, m)
        n_rows = max(1, MAX_TANGENTS // (self.n_latent * self.n_dims))
        parts = zip(*(part.split(n_rows) for part in (x, context, z)), strict=True)
        gaps, codes, grams = zip(*(self._near_mode(*part) for part in parts), strict=True)
        return AtMode(torch.cat(gaps), torch.cat(codes), torch.cat(grams), self.n_dims)

    def _near_mode(self, x: Tensor, context: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What Laplace's approximation needs of some rows: two squared norms and JᵀJ."""
        z = self.climb(x, context, z)
        J = self.jacobian(z, context)
        return self._rest(x, context, z).square().sum(1), z.square().sum(1), J.mT @ J

    def climb(self, x: Tensor, context: Tensor, z: Tensor) -> Tensor:
        r"""Codes (n, m) nearer to the mode of :math:`p(z \mid x)` than z, or z itself.

        Steps of Levenberg and Marquardt down :math:`\lVert x - G(z) \rVert^2 / \sigma^2 +
        \lVert z \rVert^2`, each row with a damping of its own.
        """
        misfit, damping = self._misfit(x, context, z), z.new_full((len(z),), DAMPING)
        for _ in range(self.mode_steps):
            if (damping > STUCK).all():
                break
            rest, J = self._rest(x, context, z), self.jacobian(z, context)
            curvature = J.mT @ J / self.sigma.square() + torch.eye(self.n_latent, dtype=z.dtype)
            slope = (J.mT @ rest[..., None])[..., 0] / self.sigma.square() - z
            raised = damping[:, None] * curvature.diagonal(dim1=1, dim2=2)
            ahead = z + torch.linalg.solve(curvature + raised.diag_embed(), slope)
            found = self._misfit(x, context, ahead)
            is_lower = (found < misfit) & (damping <= STUCK)
            z, misfit = torch.where(is_lower[:, None], ahead, z), found.where(is_lower, misfit)
            damping = damping * torch.where(is_lower, LESS, MORE)
        return z

    def _rest(self, x: Tensor, context: Tensor, z: Tensor) -> Tensor:
        return x - self.mean_generate(z, context)

    def _misfit(self, x: Tensor, context: Tensor, z: Tensor) -> Tensor:
        """Twice the negative logarithm of p(z | x), of shape (n,), less a constant."""
        gap = self._rest(x, context, z).square().sum(1)
        return gap / self.sigma.square() + z.square().sum(1)

    def linearize(self, x: Tensor, context: Tensor) -> Linearized:
        """Tangent of the generator at H(x), for x of shape (n, d)."""
        z = self.mean_encode(x, context)  # (n, m)
        J = self.jacobian(z, context)  # (n, d, m)
        r = x - self.mean_generate(z, context) + (J @ z[..., None])[..., 0]
        U, s, Vh = torch.linalg.svd(J, full_matrices=False)
        a = (U.mT @ r[..., None])[..., 0]
        across = (r - (U @ a[..., None])[..., 0]).square().sum(1)
        if self.n_latent >= self.n_dims:
            across = torch.zeros_like(across)  # U is square: nothing but rounding
        return Linearized(a, across, s, Vh.mT, self.n_dims)

    def jacobian(self, z: Tensor, context: Tensor) -> Tensor:
        """Jacobians of G of shape (n, d, m), some rows at a time."""
        axes = torch.eye(self.n_latent, dtype=z.dtype)
        n_rows = max(1, MAX_TANGENTS // (self.n_latent * self.n_dims))
        parts = zip(z.split(n_rows), context.split(n_rows), strict=True)
        pushed = [self.mean_generate.push(z, c, axes.expand(len(z), -1, -1)) for z, c in parts]
        return torch.cat(pushed).mT

    @torch.no_grad()
    def choose_noise(self, x: Tensor, weight: Tensor, context: Tensor | None = None) -> Tensor:
        """Set σ to the best on the list for these rows; mean −w log p with it.

        Modes are those of the σ before, and then of the σ that was found.
        """
        loss = self._choose_noise(x, weight, self.given(x, context))
        if self.integration == "laplace" and self.mode_steps:
            loss = self._choose_noise(x, weight, self.given(x, context))
        return loss

    def _choose_noise(self, x: Tensor, weight: Tensor, context: Tensor) -> Tensor:
        line = self._view(x, context)
        losses = []
        for sigma in NOISES:
            self.sigma.copy_(sigma)
            losses.append(-(weight * self._integrate(x, context, line)).mean())
        best = torch.stack(losses).argmin()
        self.sigma.copy_(NOISES[best])
        return losses[best]

    def _integrate(self, x: Tensor, context: Tensor, line: Linearized | AtMode) -> Tensor:
        """Log-density of shape (n,), given the tangents at its rows."""
        if isinstance(line, AtMode) or self.integration == "linear":
            return line.log_prob(self.sigma)
        n_rows = max(1, MAX_IMAGES // len(self.normals))
        parts = zip(
            *(part.split(n_rows) for part in (x, context, *line.posterior(self.sigma))),
            strict=True,
        )
        return torch.cat([self._importance(*part) for part in parts])

    def _importance(self, x: Tensor, context: Tensor, mean: Tensor, root: Tensor) -> Tensor:
        """Log of the mean of p(x | z) p(z) / q(z), of shape (n,), q around `mean`."""
        t = self.normals * self.radii[:, None]  # (S, m)
        z = mean[:, None] + t @ root  # (n, S, m); root is symmetric
        log_q = self._log_student(t) - torch.linalg.slogdet(root)[1][:, None]  # (n, S)
        c = context[:, None].expand(-1, len(t), -1)
        images = self.mean_generate(z.flatten(0, 1), c.flatten(0, 1)).unflatten(0, z.shape[:2])
        gap = (x[:, None] - images) / self.sigma
        log_joint = _log_normal(gap) - self.n_dims * self.sigma.log() + _log_normal(z)
        return torch.logsumexp(log_joint - log_q, 1) - math.log(len(t))

    def _log_student(self, t: Tensor) -> Tensor:
        """Log-density of the standard Student t of `freedom` degrees, of shape (S,)."""
        v, m = self.freedom, self.n_latent
        constant = math.lgamma((v + m) / 2) - math.lgamma(v / 2) - m / 2 * math.log(v * math.pi)
        return constant - (v + m) / 2 * torch.log1p(t.square().sum(1) / v)


def _log_normal(z: Tensor) -> Tensor:
    """Log-density of the standard normal over the last axis."""
    return -0.5 * (z.square().sum(-1) + z.shape[-1] * math.log(2 * math.pi))
