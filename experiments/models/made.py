"""Masked autoencoder with mixtures of Gaussians (MADE MoG)."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from qaffde.baselines.base import FlowDensity, TrainedEstimator
from qaffde.baselines.flows import import_zuko
from qaffde.parameters import check_count
from qaffde.training import TrainingConfig

LOG_SCALE_BOUND = math.log(1e3)


class MaskedMixture(FlowDensity):
    r"""Autoregressive density, each conditional a mixture of K Gaussians (MADE MoG).

    .. math:: p(x \mid c) = \prod_i \sum_k \pi_{ik}(x_{<i}, c)\,
              n\bigl(x_i;\, \mu_{ik}(x_{<i}, c),\, \sigma_{ik}(x_{<i}, c)\bigr)

    One masked network computes all π, μ and σ at once. Its input has a column of ones, so that a
    first column without a context has something to depend on.

    Parameters
    ----------
    n_dims, n_context, n_components : int
        d, k and K.
    hidden : list of int
        Widths of the hidden layers.
    """

    def __init__(self, n_dims: int, n_context: int, n_components: int, hidden: list[int]) -> None:
        super().__init__()
        self.n_dims, self.n_components = n_dims, n_components
        before = torch.ones(n_dims, n_dims, dtype=torch.bool).tril(-1)
        always = torch.ones(n_dims, n_context + 1, dtype=torch.bool)
        adjacency = torch.cat([before, always], 1).repeat_interleave(3 * n_components, 0)
        self.network = import_zuko().nn.MaskedMLP(adjacency, hidden, activation=nn.SiLU)
        self._spread_means()

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Log-density of shape (n,)."""
        logits, mean, log_scale = self._conditionals(x, context)  # (n, d, K)
        standard = (x[..., None] - mean) * torch.exp(-log_scale)
        log_normal = -0.5 * (standard.square() + math.log(2 * math.pi)) - log_scale
        return (logits.log_softmax(-1) + log_normal).logsumexp(-1).sum(-1)

    def sample(self, n: int, generator: Generator, context: Tensor | None = None) -> Tensor:
        """Draws of shape (n, d), column by column."""
        x = torch.zeros(n, self.n_dims, dtype=self.dtype)
        for i in range(self.n_dims):
            logits, mean, log_scale = (part[:, i] for part in self._conditionals(x, context))
            k = torch.multinomial(logits.softmax(-1), 1, generator=generator)  # (n, 1)
            noise = torch.randn(n, 1, generator=generator, dtype=self.dtype)
            x[:, i : i + 1] = mean.gather(1, k) + log_scale.gather(1, k).exp() * noise
        return x

    def _conditionals(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, means and bounded log-scales of shape (n, d, K)."""
        given = [] if context is None else [context]
        parameters = self.network(torch.cat([x, *given, torch.ones_like(x[:, :1])], 1))
        shape = (len(x), self.n_dims, 3, self.n_components)
        logits, mean, log_scale = parameters.reshape(shape).unbind(2)
        return logits, mean, log_scale / (1 + (log_scale / LOG_SCALE_BOUND).abs())

    @torch.no_grad()
    def _spread_means(self) -> None:
        """Start with different components: equal ones would stay equal."""
        bias = self.network[-1].bias.view(self.n_dims, 3, self.n_components)
        bias[:, 1] += 4 * (torch.arange(self.n_components) + 0.5) / self.n_components - 2


@dataclass(eq=False, repr=False)
class MADE(TrainedEstimator):
    r"""Masked autoencoder with Gaussian-mixture conditionals (Germain et al., 2015).

    The masked network of MADE, with the real-valued conditionals that Papamakarios et al. (2017)
    gave it as "MADE MoG". One block in the order of the columns; ``n_components=1`` is the
    Gaussian MADE, a single layer of :class:`~qaffde.baselines.MAF`.

    Parameters
    ----------
    n_components : int, default=16
        Gaussians in each conditional.
    hidden_size : int, default=128
        Width of the hidden layers.
    n_hidden : int, default=2
        Number of hidden layers.
    training, time_limit, verbose, random_state
        As in :class:`qaffde.baselines.TrainedEstimator`. Batches are of 2048 rows: a step is
        cheap, and with 512 of them fits of one set differed more.

    References
    ----------
    Germain et al., "MADE: Masked Autoencoder for Distribution Estimation", ICML 2015.
    """

    n_components: int = 16
    hidden_size: int = 128
    n_hidden: int = 2
    default_training = TrainingConfig(
        max_steps=8000, batch_size=2048, learning_rate=2e-3, clip_norm=5.0, patience=20
    )

    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        for name in ("n_components", "hidden_size", "n_hidden"):
            check_count(name, getattr(self, name))
        hidden = [self.hidden_size] * self.n_hidden
        return MaskedMixture(n_dims, n_context, self.n_components, hidden)
