"""Maximum likelihood of conditional densities by an ensemble of networks.

All members are trained at once, as one module with a further dimension. Each holds out another
part of the rows, so that together they are judged by all rows, and none by rows it has seen.
"""

import math
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Self

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from qaffde.nn.conditional import BornConditional, BornHead
from qaffde.training.config import TrainingConfig
from qaffde.training.loop import train
from qaffde.training.noise import Noise
from qaffde.training.run import History, Run, hold_out

USUAL = TrainingConfig(max_steps=3000, weight_decay=0.01)
FEW_ROWS = 1000
"""More rows than these get more steps, by the square root of their number, and larger batches."""
BATCHES = 16
"""Least number of batches of an epoch, unless batches are smaller than the least."""
MIN_BATCH, MAX_BATCH = 32, 512


class MemberLinear(nn.Module):
    """Linear layers of M members, from (M, n, i) to (M, n, o).

    Parameters
    ----------
    weight, bias : Tensors of shapes (M, i, o), (M, 1, o)
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    @classmethod
    def draw(cls, n_members: int, n_in: int, n_out: int, gain: float = 1.0) -> "MemberLinear":
        """Layers with random weights."""
        weight = torch.randn(n_members, n_in, n_out, dtype=torch.float32) * gain / math.sqrt(n_in)
        return cls(weight, weight.new_zeros(n_members, 1, n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of all members."""
        return torch.baddbmm(self.bias, x, self.weight)


class MemberNetwork(nn.Module):
    """Residual networks of M members, each with its own weights.

    Parameters
    ----------
    layers : iterable of MemberLinear
        The first one, those of the residual blocks, and the last one.
    """

    def __init__(self, layers: Iterable[MemberLinear]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    @classmethod
    def draw(cls, n_members: int, n_in: int, n_hidden: int, n_layers: int, n_out: int) -> Self:
        """Networks with random weights."""
        blocks = (
            MemberLinear.draw(n_members, n_hidden, n_hidden, 1.4) for _ in range(n_layers - 1)
        )
        first = MemberLinear.draw(n_members, n_in, n_hidden)
        return cls([first, *blocks, MemberLinear.draw(n_members, n_hidden, n_out, 0.1)])

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, M, n_out) of rows (n, n_in)."""
        first, *blocks, last = self.layers
        n_members = len(first.get_parameter("bias"))
        h = F.silu(first(x.expand(n_members, *x.shape)))
        for block in blocks:
            h = h + F.silu(block(h))
        outputs: Tensor = last(h)
        return outputs.movedim(0, 1)


class EncodedMembers(nn.Module):
    """Copies of an encoder, each with a linear layer on top.

    Parameters
    ----------
    encoder : nn.Module
        From rows (n, n_inputs) to codes (n, k).
    n_members, n_codes, n_outputs : int
    """

    def __init__(self, encoder: nn.Module, n_members: int, n_codes: int, n_outputs: int) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(deepcopy(encoder) for _ in range(n_members))
        self.last = MemberLinear.draw(n_members, n_codes, n_outputs, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, M, n_outputs) of rows (n, n_inputs)."""
        codes = torch.stack([encoder(x) for encoder in self.encoders])
        return self.last(codes).movedim(0, 1)


class ConditionalDensity(nn.Module):
    """Density of y given rows: a network of members and the head that reads its numbers.

    Parameters
    ----------
    network : nn.Module
        From rows (n, d) to numbers (n, M, head.n_inputs).
    head : BornHead
    """

    def __init__(self, network: nn.Module, head: BornHead) -> None:
        super().__init__()
        self.network, self.head = network, head

    def forward(self, x: Tensor) -> BornConditional:
        """The mean of the members' densities of y at rows (n, d)."""
        return self.head.average(self.network(x))


def members_loss(module: ConditionalDensity, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Mean of −w log p over rows and members, with weights (n, M)."""
    return -(weight * module(x).log_prob_of_members(y)).mean()


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
    """Train all members at once, in place.

    Parameters
    ----------
    module : ConditionalDensity
    x, y, weight : Tensors of shapes (n, d), (n,), (n,)
    training : TrainingConfig or None
        By default 3000 steps of Adam, more for many rows.
    generator : torch.Generator
    run : Run
    share : float, default=1
        Of the time that is left.
    """
    n, n_members = len(x), module(x[:1].float()).factor.shape[-3]
    config = _for_rows(n) if training is None else training
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
    loop = config.loop(min(MAX_BATCH, max(MIN_BATCH, n // BATCHES)), left)
    return train(
        module,
        members_loss,
        rows,
        valid if held.any() else None,
        loop,
        generator,
        **run.loop_arguments(f"members-{x.shape[1]}", loop.max_steps),
    )


def _for_rows(n: int) -> TrainingConfig:
    return replace(USUAL, max_steps=round(USUAL.max_steps * max(1.0, n / FEW_ROWS) ** 0.5))


def make_network(
    n_inputs: int,
    n_outputs: int,
    n_members: int,
    hidden: tuple[int, int],
    encoder: nn.Module | None,
    generator: Generator,
) -> nn.Module:
    """Members with weights from a generator: residual networks, or copies of an encoder."""
    with Noise(generator):
        if encoder is None:
            return MemberNetwork.draw(n_members, n_inputs, *hidden, n_outputs)
        with torch.no_grad():
            n_codes = encoder(torch.zeros(2, n_inputs)).shape[1]
        return EncodedMembers(encoder, n_members, n_codes, n_outputs)
