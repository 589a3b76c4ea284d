"""Normalizing flows of zuko, configured as scikit-learn estimators."""

import math
from abc import abstractmethod
from types import ModuleType
from typing import Any

import torch
from torch import Generator, Tensor, nn

from qaffde.baselines.base import FlowDensity, TrainedEstimator
from qaffde.parameters import check_count

LOG_SCALE_BOUND = math.log(1e3)


def import_zuko() -> ModuleType:
    """The package zuko, or an error that says how to install it."""
    try:
        import zuko
    except ImportError as error:
        raise ImportError(
            "this flow needs zuko, which is not installed; run: pip install 'qaffde[flows]'"
        ) from error
    return zuko


class ZukoDensity(FlowDensity):
    r"""Density of a zuko flow with a standard normal base.

    .. math:: \log p(x \mid c) = \log n(f_c(x)) + \log \lvert \det \partial f_c(x) / \partial x
              \rvert

    Parameters
    ----------
    flow : zuko.lazy.Flow
        Its transform maps data to base.
    n_dims : int
    """

    def __init__(self, flow: nn.Module, n_dims: int) -> None:
        super().__init__()
        self.flow = flow
        self.n_dims = n_dims

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Log-density of shape (n,)."""
        return self.flow(context).log_prob(x)

    def sample(self, n: int, generator: Generator, context: Tensor | None = None) -> Tensor:
        """Draws of shape (n, d): base draws through the inverse."""
        z = torch.randn(n, self.n_dims, generator=generator, dtype=self.dtype)
        return self.flow(context).transform.inv(z)


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


class MADE(TrainedEstimator):
    r"""Masked autoencoder with Gaussian-mixture conditionals (Germain et al., 2015).

    The masked network of MADE, with the real-valued conditionals that Papamakarios et al. (2017)
    gave it as "MADE MoG". One block in the order of the columns; ``n_components=1`` is the
    Gaussian MADE, a single layer of :class:`MAF`.

    Parameters
    ----------
    n_components : int, default=16
        Gaussians in each conditional.
    hidden_size : int, default=128
        Width of the hidden layers.
    n_hidden : int, default=2
        Number of hidden layers.
    batch_size : int or None, default=2048
        Rows in a step. A step is cheap, and with 512 of them fits of one set differed more.
    **training
        Parameters of :class:`qaffde.baselines.base.TrainedEstimator`: ``max_steps``,
        ``learning_rate``, ``random_state`` and so on.

    References
    ----------
    Germain et al., "MADE: Masked Autoencoder for Distribution Estimation", ICML 2015.
    """

    def __init__(
        self,
        n_components: int = 16,
        hidden_size: int = 128,
        n_hidden: int = 2,
        *,
        batch_size: int | None = 2048,
        **training: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, **training)
        self.n_components = n_components
        self.hidden_size = hidden_size
        self.n_hidden = n_hidden

    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        for name in ("n_components", "hidden_size", "n_hidden"):
            check_count(name, getattr(self, name))
        hidden = [self.hidden_size] * self.n_hidden
        return MaskedMixture(n_dims, n_context, self.n_components, hidden)


class LayeredFlow(TrainedEstimator):
    """Flow of several layers, each with a network of its own.

    Parameters
    ----------
    n_layers : int, default=8
        Number of transformations.
    hidden_size : int, default=64
        Width of the hidden layers.
    n_hidden : int, default=2
        Number of hidden layers in each network. Their units are ReLUs: with SiLU the held-out
        likelihood was .01 (NSF, potential_4) and .18 nats (RealNVP, star_eight) lower, in one
        run each.
    learning_rate : float, default=5e-3
    **training
        Parameters of :class:`qaffde.baselines.base.TrainedEstimator`: ``max_steps``,
        ``learning_rate``, ``random_state`` and so on.
    """

    def __init__(
        self,
        n_layers: int = 8,
        hidden_size: int = 64,
        n_hidden: int = 2,
        *,
        learning_rate: float = 5e-3,
        **training: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **training)
        self.n_layers = n_layers
        self.hidden_size = hidden_size
        self.n_hidden = n_hidden

    @abstractmethod
    def _flow(self, n_dims: int, n_context: int, **network: Any) -> nn.Module:
        """The zuko flow, its networks as in ``network``."""

    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        for name in ("n_layers", "hidden_size", "n_hidden"):
            check_count(name, getattr(self, name))
        flow = self._flow(
            n_dims,
            n_context,
            transforms=self.n_layers,
            hidden_features=[self.hidden_size] * self.n_hidden,
        )
        return ZukoDensity(flow, n_dims)


class MAF(LayeredFlow):
    """Masked autoregressive flow (Papamakarios et al., 2017).

    Scores in one pass, draws in one for each column. Parameters are those of
    :class:`~qaffde.baselines.flows.LayeredFlow`.

    References
    ----------
    Papamakarios et al., "Masked Autoregressive Flow for Density Estimation", NeurIPS 2017.
    """

    def _flow(self, n_dims: int, n_context: int, **network: Any) -> nn.Module:
        return import_zuko().flows.MAF(n_dims, n_context, **network)


class IAF(LayeredFlow):
    """Inverse autoregressive flow (Kingma et al., 2016): a MAF run backwards.

    Draws in one pass, scores (and so trains) in one for each column. Parameters are those of
    :class:`~qaffde.baselines.flows.LayeredFlow`.

    References
    ----------
    Kingma et al., "Improved Variational Inference with Inverse Autoregressive Flow", NeurIPS 2016.
    """

    def _flow(self, n_dims: int, n_context: int, **network: Any) -> nn.Module:
        zuko = import_zuko()
        forward = zuko.flows.MAF(n_dims, n_context, **network)
        return zuko.lazy.Flow(zuko.lazy.LazyInverse(forward.transform), forward.base)


class RealNVP(LayeredFlow):
    """Real-valued non-volume-preserving flow: affine couplings (Dinh et al., 2017).

    Scores and draws in one pass. Parameters are those of
    :class:`~qaffde.baselines.flows.LayeredFlow`.

    References
    ----------
    Dinh et al., "Density estimation using Real NVP", ICLR 2017.
    """

    def _flow(self, n_dims: int, n_context: int, **network: Any) -> nn.Module:
        return import_zuko().flows.RealNVP(n_dims, n_context, **network)


class NSF(LayeredFlow):
    """Neural spline flow: monotone rational-quadratic splines (Durkan et al., 2019).

    The splines act on five standard deviations around the mean; beyond, the flow is the identity.

    Parameters
    ----------
    n_layers : int, default=3
    hidden_size : int, default=64
    n_hidden : int, default=2
    n_bins : int, default=16
        Pieces of a spline.
    **training
        Parameters of :class:`qaffde.baselines.base.TrainedEstimator`.

    References
    ----------
    Durkan et al., "Neural Spline Flows", NeurIPS 2019.
    """

    def __init__(
        self,
        n_layers: int = 3,
        hidden_size: int = 64,
        n_hidden: int = 2,
        n_bins: int = 16,
        **training: Any,
    ) -> None:
        super().__init__(n_layers, hidden_size, n_hidden, **training)
        self.n_bins = n_bins

    def _flow(self, n_dims: int, n_context: int, **network: Any) -> nn.Module:
        check_count("n_bins", self.n_bins, minimum=2)
        return import_zuko().flows.NSF(n_dims, n_context, bins=self.n_bins, **network)
