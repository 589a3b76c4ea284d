"""The abstract density, and the one cache of what is computed from a density."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


class Derived:
    """Values computed from a density, and the state of the density that they belong to.

    Its tensors and submodules are held, so that nothing new can take their place in memory and
    pass for them. The density itself is not: it is freed as soon as its user drops it.
    """

    def __init__(self, density: nn.Module) -> None:
        tensors = [*density.parameters(), *density.buffers()]
        self.parts = [*density.children(), *tensors, *(tensor.detach() for tensor in tensors)]
        self.state = state_of(density)
        self.values: dict[Hashable, Any] = {}


class Density(nn.Module, ABC):
    """A module with a log-density; calling it is the same as ``log_prob``."""

    _derived: Derived | None = None

    @abstractmethod
    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,) at points of shape (n, d)."""

    def forward(self, x: Tensor) -> Tensor:
        """Same as :meth:`log_prob`."""
        return self.log_prob(x)

    def derived(self, name: Hashable, make: Callable[[], T]) -> T:
        """Compute a value from the density once, and again after the density has changed.

        A tensor changed in place, a replaced tensor or submodule and a new value of a number are
        changes. Values carry no gradients. They are neither copied nor pickled.

        Parameters
        ----------
        name : hashable
            Of the value.
        make : callable
            Computes it.
        """
        kept = self._derived
        if kept is None or kept.state != state_of(self):
            kept = self._derived = Derived(self)
        if name not in kept.values:
            with torch.no_grad():
                kept.values[name] = make()
        value: T = kept.values[name]
        return value

    def learns(self) -> bool:
        """Whether gradients with respect to a parameter are asked for."""
        parts = chain(self.parameters(), self.buffers())
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in parts)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_derived"}


def state_of(module: nn.Module) -> list[Hashable]:
    """Tensors, modules and numbers of a module, by identity, version and value."""
    found: list[Hashable] = [value for value in vars(module).values() if type(value) is float]
    for tensors in (module._parameters, module._buffers):
        for tensor in tensors.values():
            if tensor is not None:
                found += (id(tensor), tensor._version, tensor.data_ptr())
    for child in module._modules.values():
        if child is not None:
            found.append(id(child))
            found += state_of(child)
    return found
