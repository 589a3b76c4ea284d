"""Maximum likelihood for chains of conditional Born densities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from qaffde.nn import AtomColumn, TableColumn
from qaffde.nn.chain import Chain
from qaffde.training.config import TrainingConfig
from qaffde.training.loop import train
from qaffde.training.noise import Noise
from qaffde.training.run import History, Run, hold_out

MAX_VALID = 20_000
"""Rows that are held out, at most."""
BATCH, PASSES, MOST_STEPS = 512, 12, 40_000
"""Rows of a step; passes over all rows that training takes at least, unless they are too many."""


@dataclass(frozen=True)
class ChainSizes:
    """Sizes of a chain.

    They are those of :class:`MaskedNetwork`, C, K and r of its densities, and the cosines that it
    sees of a line.
    """

    width: int
    n_components: int
    n_functions: int
    rank: int
    n_waves: int
    n_blocks: int = 2
    dropout: float = 0.0

    @classmethod
    def for_rows(cls, n: int, **given: Any) -> "ChainSizes":
        """Wider networks, and more cosines, for more rows; sizes that are given come first."""
        width = 16 * min(16, max(4, round(n**0.5 / 16)))
        n_waves = min(32, max(8, round(n ** (1 / 3) / 4)))
        numbers = {name: size for name, size in given.items() if not isinstance(size, str)}
        return cls(**{"width": width, "n_waves": n_waves} | numbers)


def make_chain(
    columns: Sequence[TableColumn],
    x: Tensor,
    order: Sequence[int],
    sizes: ChainSizes,
    generator: Generator,
) -> Chain:
    """A chain of nearly independent columns, codes with their frequencies in parts (n, q)."""
    starts = [0]
    for column in columns:
        starts.append(starts[-1] + len(column.parts))
    places = [k for c in order for k in range(starts[c], starts[c + 1])]
    parts = [part for c in order for part in columns[c].parts]
    lines = {starts[c] + 1 for c in order if isinstance(columns[c], AtomColumn)}
    optional = [t for t, place in enumerate(places) if place in lines]
    with Noise(generator):
        chain = Chain.of(
            parts,
            (sizes.n_components, sizes.n_functions, sizes.rank),
            width=sizes.width,
            n_blocks=sizes.n_blocks,
            dropout=sizes.dropout,
            n_waves=sizes.n_waves,
            places=places,
            optional=optional,
        )
    last = chain.network.last
    with torch.no_grad():
        last.weight *= 0.1
        last.bias.zero_()
        split = last.bias.split(chain.network.n_outputs)
        for place, part, bias in zip(places, parts, split, strict=True):
            if part.kind == "codes":
                counts = torch.bincount(x[:, place].long(), minlength=part.size).double() + 0.5
                bias.copy_((counts / counts.sum()).log())
    return chain


def usual_steps(n: int) -> int:
    """Steps for n rows: a thousand, more for more rows, and some passes over all of them."""
    passes = PASSES * n // BATCH
    return min(MOST_STEPS, max(round(1000 * max(1.0, n / 1000) ** 0.3), passes))


def fit_chain(
    chain: Chain,
    x: Tensor,
    weight: Tensor,
    training: TrainingConfig | None,
    generator: Generator,
    run: Run,
) -> History:
    """Train a chain in place on parts (n, q) with weights (n,).

    By default Adam takes :func:`usual_steps`.
    """
    steps = usual_steps(len(x))
    config = training or TrainingConfig(max_steps=steps, learning_rate=2e-3, weight_decay=0.01)
    chosen, valid = hold_out(len(x), config.validation_fraction, generator, most=MAX_VALID)
    z, w = x[:, chain.places], (weight / weight.mean()).float()
    loop = config.loop(min(BATCH, max(32, len(chosen) // 16)), run.left)

    def loss(module: nn.Module, z: Tensor, w: Tensor) -> Tensor:
        return -(w * chain.log_terms(z).sum(1)).mean()

    chain.network.float()  # twice as fast
    rows, held = ((z[part], w[part]) for part in (chosen, valid))
    arguments = run.loop_arguments("chain", loop.max_steps)
    try:
        return train(chain, loss, rows, held if len(valid) else None, loop, generator, **arguments)
    finally:
        chain.network.double()
