"""Maximum likelihood of conditional densities by an ensemble of networks.

All members are trained at once, as one module with a further dimension. Each holds out another
part of the rows, so that together they are judged by all rows, and none by rows it has seen.
"""

import math
from collections.abc import Iterable
from copy import deepcopy

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from qaffde.nn.conditional import BornConditional, BornHead
from qaffde.training.config import TrainingConfig
from qaffde.training.loop import train
from qaffde.training.noise import Noise
from qaffde.training.run import History, Run, hold_out


class MemberLinear(nn.Module):
    """Linear layers of M members, with weights (M, i, o) and biases (M, 1, o)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (M, n, o) of all members at inputs (M, n, i)."""
        return torch.baddbmm(self.bias, x, self.weight)


class MemberNetwork(nn.Module):
    """Residual networks of M members: the first layer, those of the blocks, and the last one."""

    def __init__(self, layers: Iterable[MemberLinear]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, M, n_out) of rows (n, n_in)."""
        first, *blocks, last = self.layers
        n_members = len(first.get_parameter("bias"))
        h = F.silu(first(x.expand(n_members, *x.shape)))
        for block in blocks:
            h = h + F.silu(block(h))
        return last(h).movedim(0, 1)


class EncodedMembers(nn.Module):
    """Encoders of M members, from rows to codes, each with a linear layer on top."""

    def __init__(self, encoders: Iterable[nn.Module], last: MemberLinear) -> None:
        super().__init__()
        self.encoders, self.last = nn.ModuleList(encoders), last

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, M, n_outputs) of rows (n, n_inputs)."""
        codes = torch.stack([encoder(x) for encoder in self.encoders])
        return self.last(codes).movedim(0, 1)


class ConditionalDensity(nn.Module):
    """Density of y given rows: a network, to numbers (n, M, q), and the head that reads them."""

    def __init__(self, network: nn.Module, head: BornHead) -> None:
        super().__init__()
        self.network, self.head = network, head

    def forward(self, x: Tensor) -> BornConditional:
        """The mean of the members' densities of y at rows (n, d)."""
        return self.head.average(self.network(x))


def fit_conditional(
    module: ConditionalDensity,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    training: TrainingConfig | None,
    generator: Generator,
    run: Run,
    share: float = 1.0,
) -> History:
    """Train all members at once, in place, on rows (n, d) with y (n,) and weights (n,).

    The default are 3000 steps of Adam, and more by the root of thousands of rows. Training may
    take a `share` of the time that is left.
    """
    n, n_members = len(x), module(x[:1].float()).factor.shape[-3]
    usual = round(3000 * max(1.0, n / 1000) ** 0.5)
    config = training or TrainingConfig(max_steps=usual, weight_decay=0.01)
    held = torch.zeros(n, n_members, dtype=torch.float32)
    if n_members == 1:
        held[hold_out(n, config.validation_fraction, generator)[1]] = 1.0
    else:
        fold = torch.randperm(n, generator=generator) % n_members
        held[torch.arange(n), fold] = 1.0
    relative = (weight / weight.mean()).float()[:, None]
    parts = [relative * own / own.mean(0).clamp(min=1 / n) for own in (1 - held, held)]
    rows, valid = ((x.float(), y.double(), own) for own in parts)  # y may be far from zero
    left = None if run.left is None else share * run.left
    loop = config.loop(min(512, max(32, n // 16)), left)
    return train(
        module,
        lambda module, x, y, w: -(w * module(x).log_prob_of_members(y)).mean(),
        rows,
        valid if held.any() else None,
        loop,
        generator,
        **run.loop_arguments(f"members-{x.shape[1]}", loop.max_steps),
    )


def make_network(
    n_inputs: int,
    n_outputs: int,
    n_members: int,
    hidden: tuple[int, int],
    encoder: nn.Module | None,
    generator: Generator,
) -> nn.Module:
    """Members with weights from a generator: residual networks, or copies of an encoder."""
    width, n_layers = hidden

    def linear(n_in: int, n_out: int, gain: float = 1.0) -> MemberLinear:
        weight = torch.randn(n_members, n_in, n_out, dtype=torch.float32) * gain / math.sqrt(n_in)
        return MemberLinear(weight, weight.new_zeros(n_members, 1, n_out))

    with Noise(generator):
        if encoder is None:
            first = linear(n_inputs, width)
            blocks = [linear(width, width, 1.4) for _ in range(n_layers - 1)]
            return MemberNetwork([first, *blocks, linear(width, n_outputs, 0.1)])
        with torch.no_grad():
            n_codes = encoder(torch.zeros(2, n_inputs)).shape[1]
        copies = (deepcopy(encoder) for _ in range(n_members))
        return EncodedMembers(copies, linear(n_codes, n_outputs, 0.1))
