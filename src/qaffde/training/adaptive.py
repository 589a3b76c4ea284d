r"""Adaptive Fourier features by a siamese network (paper, Algorithm 1).

Two points go through one map, and the inner product of their features is fitted to the Gaussian
kernel. A set of pairs is one tensor of shape (n, 2, d): a row holds x' and x''.
"""

import math

import torch
from torch import Generator, Tensor, nn

from qaffde.functional import gamma_from_bandwidth
from qaffde.nn import FourierFeatures
from qaffde.training.config import LoopConfig
from qaffde.training.loop import adam


def fit_adaptive_features(
    features: FourierFeatures,
    X: Tensor,
    bandwidth: Tensor,
    *,
    squared: bool = True,
    n_pairs: int = 10_000,
    n_epochs: int = 30,
    batch_size: int = 500,
    learning_rate: float = 0.01,
    near_share: float = 0.25,
    generator: Generator | None = None,
) -> FourierFeatures:
    r"""Learn frequencies (and phases) for the kernel on the data: paper, Algorithm 1.

    .. math:: \min_{W, b} \frac1m \sum_i \bigl( k_\gamma(x_i', x_i'')
              - \langle \phi(x_i'), \phi(x_i'') \rangle^2 \bigr)^2

    by Adam with a linear decay, on new pairs in every epoch: a fixed set, as in the paper, is
    learned by heart. Features in cosine–sine pairs stay in pairs and learn W only, which measured
    better and four times faster than setting them free; others ("random": the paper's) learn W and
    b. Lengths are in bandwidths, so the defaults do not depend on the units of the data.

    Parameters
    ----------
    features : FourierFeatures
        The start, drawn for this bandwidth (for ``squared=False``, for ``bandwidth / √2``).
    X, bandwidth : Tensors of shapes (n, d), (d,)
        The data, and the bandwidth of the kernel k_γ.
    squared : bool, default=True
        Fit the squared inner product, for density matrices, or the inner product itself.
    n_pairs, n_epochs, batch_size : int, default=10_000, 30, 500
        Pairs in an epoch, as many as in the paper, and in a step; n_pairs more are held out.
    learning_rate, near_share : float, default=0.01, 0.25
        Rate of the first step, which falls linearly to zero, and share of near pairs.
    generator : torch.Generator, optional

    Returns
    -------
    FourierFeatures
        Frozen: the start, if training did not lower the loss of the pairs that are held out.
    """
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    location, one = X.mean(0), torch.ones(())
    Z = (X - location) / bandwidth
    network = Siamese(features, location, bandwidth).float()

    def draw() -> Tensor:
        return sample_pairs(Z, n_pairs, near_share, generator).float()

    def loss(pairs: Tensor) -> Tensor:
        return kernel_loss(network(pairs), pair_kernel(pairs, one), squared=squared)

    @torch.no_grad()
    def mean_loss(pairs: Tensor) -> float:
        return float(sum(len(part) * loss(part) for part in pairs.split(batch_size)))

    held_out = draw()
    before = mean_loss(held_out)
    steps = LoopConfig(
        max_steps=n_epochs * -(-n_pairs // batch_size),
        learning_rate=learning_rate,
        final_learning_rate=0.0,
    )
    optimizer = adam(network.parameters(), steps)
    batches = (pairs for _ in range(n_epochs) for pairs in draw().split(batch_size))
    for step, pairs in enumerate(batches):
        optimizer.param_groups[0]["lr"] = steps.learning_rate_at(step)
        optimizer.zero_grad()
        loss(pairs).backward()
        optimizer.step()
    if mean_loss(held_out) < before:
        return network.to(features.W.dtype).features()
    return FourierFeatures(features.W.detach(), features.b.detach(), features.a)


class Siamese(nn.Module):
    r"""Inner products of the features of pairs.

    .. math:: \langle \phi(x'), \phi(x'') \rangle = \sum_i \tfrac12 a_i^2 \bigl[
              \cos(w_i \cdot (x' - x'')) + \cos(w_i \cdot (x' + x'') + 2 b_i) \bigr]

    In pairs of a cosine and a sine the second terms cancel, and only the frequencies of the pairs
    are learned: a quarter of the cosines, a kernel of exactly one at zero, and far fewer ways to
    learn pairs by heart. It learns in units z = (x − c)/h, so that one learning rate serves all
    data: w·x + b = (w h)·z + (b + w·c).
    """

    a: Tensor
    location: Tensor
    scale: Tensor

    def __init__(self, features: FourierFeatures, location: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.paired, W, b = is_paired(features), features.W, features.b
        turned = torch.remainder(b + W @ location, 2 * math.pi)
        self.W = nn.Parameter((_thirds(W)[1] if self.paired else W) * scale)
        self.b = nn.Parameter(b if self.paired else turned, requires_grad=not self.paired)
        self.register_buffer("a", features.a)
        self.register_buffer("location", location)
        self.register_buffer("scale", scale)

    def forward(self, pairs: Tensor) -> Tensor:
        """Inner products of shape (n,)."""
        cosines = ((pairs[:, 0] - pairs[:, 1]) @ self.W.T).cos()
        weight = self.a.square()
        if self.paired:
            constant, weight, _ = _thirds(weight)
            return cosines @ weight + constant.sum()
        total = torch.addmm(2 * self.b, pairs.sum(1), self.W.T)
        return 0.5 * (cosines @ weight + total.cos() @ weight)

    def features(self) -> FourierFeatures:
        """The learned map, frozen, in the units of the data and the layout of the start."""
        W, b = self.W.detach() / self.scale, self.b.detach()
        if not self.paired:
            return FourierFeatures(W, b - W @ self.location, self.a)
        zero = W.new_zeros(len(self.a) % 2, W.shape[1])
        return FourierFeatures(torch.cat([zero, W, W]), b, self.a)


def is_paired(features: FourierFeatures) -> bool:
    """Whether the features are cosines, then their sines, after a constant if D is odd.

    Examples
    --------
    >>> [is_paired(FourierFeatures.draw(k, 8, torch.ones(2))) for k in ("random", "lattice")]
    [False, True]
    """
    W_0, W, sine_W = _thirds(features.W)
    b_0, b, sine_b = _thirds(features.b)
    _, a, sine_a = _thirds(features.a)
    return (
        not W_0.any()
        and not b_0.any()
        and torch.equal(W, sine_W)
        and torch.equal(a, sine_a)
        and torch.allclose(b - math.pi / 2, sine_b)
    )


def _thirds(tensor: Tensor) -> tuple[Tensor, ...]:
    """Split D rows into a constant (one if D is odd), cosines and sines."""
    n = len(tensor) // 2
    return tensor.split([len(tensor) % 2, n, n])


def kernel_loss(inner: Tensor, kernel: Tensor, *, squared: bool = True) -> Tensor:
    """Mean (k_γ − ⟨φ, φ⟩²)² (paper, Section 3.1) or, plain, (k_γ − ⟨φ, φ⟩)² (its listing).

    A density matrix squares inner products, so its features need the former, with a spectrum that
    is narrower by √2; the latter is for linear models.

    Examples
    --------
    >>> kernel_loss(torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.25]))
    tensor(0.)
    """
    return ((inner.square() if squared else inner) - kernel).square().mean()


def pair_kernel(pairs: Tensor, bandwidth: Tensor) -> Tensor:
    """Gaussian kernel k_γ(x', x'') of every pair, of shape (n,).

    Examples
    --------
    >>> pair_kernel(torch.tensor([[[0.0], [1.0]]]), torch.tensor(1.0))
    tensor([0.6065])
    """
    difference = pairs[:, 0] - pairs[:, 1]
    return (-gamma_from_bandwidth(bandwidth) * difference.square()).sum(1).exp()


def random_pairs(X: Tensor, n_pairs: int, generator: Generator) -> Tensor:
    """Both points drawn from the rows of `X`, with replacement: the paper's pairs."""
    return X[torch.randint(len(X), (n_pairs, 2), generator=generator)]


def near_pairs(Z: Tensor, n_pairs: int, generator: Generator) -> Tensor:
    """One row of `Z`, in bandwidths, and a point beside it, such that k_γ is uniform on (0, 1).

    Random pairs are almost all many bandwidths apart, the more so in many dimensions, and show the
    kernel only where it is zero. Here z'' = z' + r·u, with a random direction u and a Rayleigh
    length r in any dimension.
    """
    left = Z[torch.randint(len(Z), (n_pairs,), generator=generator)]
    noise = torch.randn(left.shape, generator=generator, dtype=Z.dtype)
    uniform = torch.rand(n_pairs, 1, generator=generator, dtype=Z.dtype)
    length = (-2 * torch.log1p(-uniform)).sqrt()
    return torch.stack([left, left + length * (noise / noise.norm(dim=1, keepdim=True))], dim=1)


def sample_pairs(Z: Tensor, n_pairs: int, near_share: float, generator: Generator) -> Tensor:
    """Mix of near and random pairs, in random order; `near_share`, in [0, 1], are near."""
    n_near = round(near_share * n_pairs)
    near = near_pairs(Z, n_near, generator)
    pairs = torch.cat([near, random_pairs(Z, n_pairs - n_near, generator)])
    return pairs[torch.randperm(n_pairs, generator=generator)]
