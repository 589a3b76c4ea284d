"""Initial weights, dropout and other draws of torch modules, from a generator of ours."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_NAMES = """
    rand randn randint randperm normal bernoulli binomial multinomial poisson _standard_gamma
    _sample_dirichlet uniform_ normal_ bernoulli_ exponential_ random_ cauchy_ geometric_
    log_normal_
"""
DRAWS = frozenset(_NAMES.split())
"""Functions that take a generator."""
LIKE = {torch.rand_like: torch.rand, torch.randn_like: torch.randn}
DROPOUTS = {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d}


class Noise(TorchFunctionMode):
    """Context in which torch draws from a generator, and not from its global one.

    It holds for the calling thread only; every call of torch takes two microseconds more. What
    draws on another device, alpha dropout and randomized ReLUs still use torch's own generators.
    `used` says whether anything was drawn.

    Examples
    --------
    >>> with Noise(torch.Generator().manual_seed(0)):
    ...     first = torch.rand(3)
    >>> bool((torch.rand(3, generator=torch.Generator().manual_seed(0)) == first).all())
    True
    """

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator, self.used = generator, False

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, with the generator where it draws."""
        given = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if function in DROPOUTS:
            return self._drop(args[0], given["p"] if given["training"] else 0.0, function)
        if function in LIKE:
            x, function, name = args[0], LIKE[function], "rand"
            args, given = (x.shape,), {"dtype": x.dtype, "device": x.device, **given}
        if (name in DRAWS or "generator" in given) and given.get("generator") is None:
            place: Any = given.get("device") or getattr(args[0] if args else 0, "device", "cpu")
            if torch.device(place).type == self.generator.device.type:
                self.used, given["generator"] = True, self.generator
        return function(*args, **given)

    def _drop(self, x: Tensor, p: float, function: Callable[..., Any]) -> Tensor:
        """Inputs of which a share p is zero: numbers, or whole channels of images."""
        if p == 0:
            return x
        self.used = True
        shape = x.shape if function is F.dropout else (*x.shape[:2], *(1 for _ in x.shape[2:]))
        kept = torch.rand(shape, generator=self.generator) >= p
        return x * kept.to(x) / max(1 - p, 1e-9)
