"""Abstract densities, the formula of a log-density, and the cache of what is computed from one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from qaffde.nn.features import Formula

T = TypeVar("T")


class Derived:
    """Values computed from a density, and the state of the density that they belong to.

    Its tensors and submodules are held, so that nothing new can take their place in memory, but
    not the density: it is freed as soon as its user drops it.
    """

    def __init__(self, density: nn.Module) -> None:
        modules = list(density.modules())
        self.values: dict[Hashable, Any] = {}
        self._tensors = [*density.parameters(), *density.buffers()]
        self._held = [*modules[1:], *(tensor.detach() for tensor in self._tensors)]
        self._parts: list[dict[str, Any]] = [
            part
            for module in modules
            for part in (module._parameters, module._buffers, module._modules)
        ]
        self._numbers = [(vars(part), name) for part in modules[1:] for name in _numbers(part)]
        self._own_numbers = _numbers(density)
        self.state = self.state_of(density)

    def state_of(self, density: nn.Module) -> list[float]:
        """The same list as long as tensors, modules and numbers of the density are unchanged."""
        own, tensors = vars(density), self._tensors
        return [
            *map(id, chain.from_iterable(part.values() for part in self._parts)),
            *(tensor._version for tensor in tensors),
            *(tensor.data_ptr() for tensor in tensors),
            *(numbers[name] for numbers, name in self._numbers),
            *(own[name] for name in self._own_numbers),
        ]


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
        """Compute the value of a name once, and again after the density has changed.

        Changes are those of tensors, in place too, of submodules and numbers. Values carry no
        gradients, and are neither copied nor pickled.
        """
        kept = self._derived
        if kept is None or kept.state_of(self) != kept.state:
            kept = self._derived = Derived(self)
        if name not in kept.values:
            with torch.no_grad():
                kept.values[name] = make()
        return kept.values[name]

    def formula(self, dtype: torch.dtype | None = None, *, shortcuts: bool = True) -> Formula:
        """The log-density as a formula that is not closed; see ``FormulaDensity``."""
        return Formula(lambda x, density: density.log_prob(x), self)

    def expansion(self) -> Any:
        """The density as a sum of trigonometric terms, computed anew by every call."""
        raise TypeError(f"{type(self).__name__} is not a sum of trigonometric terms")

    def learns(self) -> bool:
        """Whether gradients with respect to a parameter are asked for."""
        parts = chain(self.parameters(), self.buffers())
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in parts)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_derived"}


class FormulaDensity(Density):
    """Density whose log-density is one formula.

    :meth:`log_prob` evaluates it, :mod:`qaffde.nn.scoring` keeps it with its tensors frozen, and
    ONNX models record it.
    """

    @abstractmethod
    def formula(self, dtype: torch.dtype | None = None, *, shortcuts: bool = True) -> Formula:
        """The log-density, of shape (n,), as a function of points of shape (n, d).

        Parameters
        ----------
        dtype : torch.dtype, optional
            Of the Fourier features, for scoring; all else has the precision of the density.
        shortcuts : bool, default=True
            Whether quicker forms that branch on values are taken: series of features on a
            lattice, mixtures in one product.
        """

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of shape (...), of C classes (..., C), at points of shape (..., d)."""
        if torch.compiler.is_compiling() or self.learns():
            formula = self.formula()
        else:
            formula = self.derived("formula", self.formula)
        log_p = formula(x.reshape(-1, x.shape[-1]))
        return log_p.reshape(x.shape[:-1] + log_p.shape[1:])


def _numbers(module: nn.Module) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, float)]
