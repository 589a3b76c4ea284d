"""Initial weights and dropout, which use torch's global generator, from a generator of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator


@contextmanager
def seeded(generator: Generator) -> Iterator[None]:
    """Let torch's global generator follow another one; afterwards it is as it was.

    Examples
    --------
    >>> with seeded(torch.Generator().manual_seed(0)):
    ...     first = torch.rand(3)
    >>> with seeded(torch.Generator().manual_seed(0)):
    ...     bool((torch.rand(3) == first).all())
    True
    """
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def twin(generator: Generator) -> Generator:
    """Copy of a generator in its present state."""
    other = Generator(generator.device)
    other.set_state(generator.get_state())
    return other
