"""One torch generator from scikit-learn's ``random_state``."""

import torch
from numpy.random import RandomState
from sklearn.utils import check_random_state

Seed = int | RandomState | None


def generator_from(random_state: Seed) -> torch.Generator:
    """New generator for one fit; no global state is read or changed.

    Parameters
    ----------
    random_state : int, RandomState or None
        The same integer gives the same generator; a RandomState is advanced, so that two calls
        differ; None takes its seed from the operating system (not from NumPy's global state).

    Examples
    --------
    >>> torch.rand(2, generator=generator_from(0)).equal(
    ...     torch.rand(2, generator=generator_from(0))
    ... )
    True
    """
    generator = torch.Generator()
    if random_state is None:
        generator.seed()
        return generator
    return generator.manual_seed(int(check_random_state(random_state).randint(2**31 - 1)))
