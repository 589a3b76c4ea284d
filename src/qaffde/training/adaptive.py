"""Adaptive Fourier features (paper, Algorithm 1)."""

from collections.abc import Callable, Iterator

import torch
from torch import Generator, Tensor

from qaffde.nn import FourierFeatures
from qaffde.training.config import AdaptiveConfig
from qaffde.training.losses import plain_loss, squared_loss
from qaffde.training.pairs import pair_kernel, sample_pairs
from qaffde.training.siamese import Siamese, siamese

Loss = Callable[[Tensor, Tensor], Tensor]
OnStep = Callable[[int, float], None]


def fit_adaptive_features(
    features: FourierFeatures,
    X: Tensor,
    bandwidth: Tensor,
    *,
    squared: bool = True,
    config: AdaptiveConfig | None = None,
    generator: Generator | None = None,
    on_step: OnStep | None = None,
) -> FourierFeatures:
    r"""Learn frequencies (and phases) for the kernel on the data: paper, Algorithm 1.

    .. math:: \min_{W, b} \frac1m \sum_i \bigl( k_\gamma(x_i', x_i'')
              - \langle \phi(x_i'), \phi(x_i'') \rangle^2 \bigr)^2

    by Adam with a polynomial decay. Features in cosine–sine pairs ("paired", "orthogonal",
    "sobol") stay in pairs and learn W only, which measured better and four times faster than
    setting them free; others ("random": the paper's) learn W and b.

    Parameters
    ----------
    features : FourierFeatures
        The start, drawn for this bandwidth (for ``squared=False``, for ``bandwidth / √2``).
    X : Tensor of shape (n, d)
        The data.
    bandwidth : Tensor of shape (d,)
        Of the kernel k_γ.
    squared : bool, default=True
        Fit the squared inner product, for density matrices, or the inner product itself.
    config : AdaptiveConfig, optional
    generator : torch.Generator, optional
        Source of the pairs; a new one with seed 0 by default.
    on_step : callable, optional
        Called as ``on_step(step, loss)`` after every step, from 1 to ``config.n_steps``.

    Returns
    -------
    FourierFeatures
        Frozen, in the dtype of `features`. If training did not lower the loss of pairs held out
        from it, these are the features of the start.

    Examples
    --------
    >>> X = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    >>> h = torch.full((2,), 0.5)
    >>> start = FourierFeatures.draw("sobol", 64, h)
    >>> learned = fit_adaptive_features(start, X, h, config=AdaptiveConfig(n_epochs=10))
    >>> kernel = torch.exp(-0.5 * torch.cdist(X / h, X / h).square())
    >>> def error(features):
    ...     return ((features(X) @ features(X).T).square() - kernel).square().mean()
    >>> bool(error(learned) < 0.2 * error(start))
    True
    """
    config = AdaptiveConfig() if config is None else config
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    loss = squared_loss if squared else plain_loss
    location = X.mean(0)
    Z = (X - location) / bandwidth

    network = siamese(features, location, bandwidth).float()
    held_out = _draw(Z, config, generator)
    before = _mean_loss(network, held_out, loss, config.batch_size)
    _train(network, _batches(Z, config, generator), loss, config, on_step)
    after = _mean_loss(network, held_out, loss, config.batch_size)
    learned = network.to(features.W.dtype).features()
    return learned if after < before else _frozen(features)


def _train(
    network: Siamese,
    batches: Iterator[Tensor],
    loss: Loss,
    config: AdaptiveConfig,
    on_step: OnStep | None,
) -> None:
    adam = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    decay = torch.optim.lr_scheduler.PolynomialLR(adam, config.n_steps, config.decay_power)
    for step, pairs in enumerate(batches, start=1):
        adam.zero_grad()
        value = _pair_loss(network, pairs, loss)
        value.backward()
        adam.step()
        decay.step()
        if on_step is not None:
            on_step(step, value.item())


def _batches(Z: Tensor, config: AdaptiveConfig, generator: Generator) -> Iterator[Tensor]:
    pairs = _draw(Z, config, generator)
    for _ in range(config.n_epochs):
        if config.fresh:
            pairs = _draw(Z, config, generator)
        order = torch.randperm(len(pairs), generator=generator)
        yield from pairs[order].split(config.batch_size)


def _draw(Z: Tensor, config: AdaptiveConfig, generator: Generator) -> Tensor:
    """Pairs in units of the bandwidth, in the precision of training."""
    one = torch.ones((), dtype=Z.dtype)
    return sample_pairs(Z, config.n_pairs, one, generator, near_share=config.near_share).float()


def _pair_loss(network: Siamese, pairs: Tensor, loss: Loss) -> Tensor:
    return loss(network(pairs), pair_kernel(pairs, torch.ones(())))


@torch.no_grad()
def _mean_loss(network: Siamese, pairs: Tensor, loss: Loss, batch_size: int) -> float:
    total = sum(len(batch) * _pair_loss(network, batch, loss) for batch in pairs.split(batch_size))
    return float(total) / len(pairs)


def _frozen(features: FourierFeatures) -> FourierFeatures:
    return FourierFeatures(features.W.detach(), features.b.detach(), features.a)
