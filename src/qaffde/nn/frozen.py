"""Fitted densities with everything done that does not depend on the point.

A fitted density is wrapped twice: :class:`StandardizedDensity` around :class:`DefensiveDensity`
around :class:`BornDensity`. Each asks its own modules for their own tensors, which for one row
takes longer than the arithmetic. Here all layers are one :class:`~qaffde.nn.formula.Formula`.

A call of NumPy's takes a microsecond and one of torch's several, so a few rows are left to NumPy,
and blocks of them to torch.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qaffde.nn.density import BornDensity, Density, StandardizedDensity
from qaffde.nn.formula import Formula, converted, inside, units_of
from qaffde.nn.measures import BoxMeasure, GaussianMeasure, KernelMeasure

FEW_ROWS = 4
"""Rows up to which a call costs more than its arithmetic."""
MEASURES = (BoxMeasure, GaussianMeasure, KernelMeasure)


class FrozenDensity:
    """Log-density of the fitted density of an estimator, for as long as it stays as it is.

    Parameters
    ----------
    density : StandardizedDensity
        Of a :class:`DefensiveDensity` or a :class:`BornDensity`.
    dtype : torch.dtype, default=torch.float64
        Of what is computed for blocks of points. Their units and a few points are in float64.
    device : torch.device or str, default="cpu"

    Attributes
    ----------
    width : int
        Numbers that are computed for a row at once.

    Examples
    --------
    >>> from qaffde.nn import BoxMeasure, FourierFeatures
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> born = BornDensity(
    ...     FourierFeatures.draw("paired", 8, one), torch.eye(8).double(), BoxMeasure(-one, one)
    ... )
    >>> density = StandardizedDensity(born, 0 * one, 2 * one)
    >>> FrozenDensity(density)(torch.zeros(1, 1).double()).exp()
    tensor([0.2500], dtype=torch.float64)
    """

    @torch.no_grad()
    def __init__(
        self,
        density: StandardizedDensity,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        self.dtype, self.device = dtype, torch.device(device)
        found = [d for m in density.modules() for d in _tensors_and_modules(m)]
        self._dicts = [values for values in found if values]
        self._tensors = [v for d in self._dicts for v in d.values() if isinstance(v, Tensor)]
        self._inner = density.density
        self._state = self._key()
        formula = Formula.of(density, dtype)
        self.width = formula.width
        self._units = converted(units_of(density, dtype), lambda tensor: tensor.to(self.device))
        self._formula = converted(formula, lambda tensor: tensor.to(self.device, dtype))
        self._few_units = converted(units_of(density, torch.float64), _as_numpy)
        exact = formula if dtype == torch.float64 else Formula.of(density, torch.float64)
        self._few_formula = converted(exact, _as_numpy)

    def serves(self, dtype: torch.dtype, device: torch.device | str) -> bool:
        """Whether this is the current form for a precision and a device."""
        return self.dtype == dtype and self.device == torch.device(device) and self.is_current()

    def is_current(self) -> bool:
        """Whether the density has the parts, and they the values, that it was frozen with."""
        return self._key() == self._state

    def _key(self) -> tuple[list[int], list[int], float | None]:
        """Which tensors and modules there are, how often they were changed, and the background."""
        present = chain.from_iterable(values.values() for values in self._dicts)
        versions = [tensor._version for tensor in self._tensors]
        return list(map(id, present)), versions, getattr(self._inner, "epsilon", None)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,) at points of shape (n, d) in float64, on the device."""
        return self._log_density(x, self._formula)

    @torch.no_grad()
    def compiled(self, x: Tensor) -> Tensor:
        """The same by :func:`torch.compile`, anew for every number of points.

        Raises
        ------
        RuntimeError
            If it cannot be compiled.
        """
        from torch._dynamo.exc import TorchDynamoException  # takes seconds to import

        try:
            return self._log_density(x, self._compiled)
        except TorchDynamoException as error:
            raise RuntimeError(
                "the density could not be compiled, which needs a C++ compiler; "
                f"compile=False does without ({str(error).partition(chr(10))[0]})"
            ) from error

    def _log_density(
        self, x: Tensor, formula: Callable[[Tensor, Tensor | None], Tensor]
    ) -> Tensor:
        z = self._units(x)
        within = None if self._units.box is None else self._units.inside(z)
        return formula(z.to(self.dtype), within)

    @cached_property
    def _compiled(self) -> Callable[[Tensor, Tensor | None], Tensor]:
        return torch.compile(self._formula.__call__, dynamic=False)

    def of_few(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-density of shape (n,) at a few points of shape (n, d), in float64 on the CPU."""
        units = self._few_units
        with np.errstate(divide="ignore", over="ignore"):
            z = units(x)
            log_p: NDArray[np.float64] = self._few_formula(
                z, None if units.box is None else units.inside(z)
            )
        return log_p


_FORMS: "WeakKeyDictionary[Density, FrozenDensity]" = WeakKeyDictionary()


def frozen_form(
    density: Density, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> FrozenDensity | None:
    """The frozen form of a fitted density, made once, or None if it is built in another way."""
    known = _FORMS.get(density)
    if known is not None and known.serves(dtype, device):
        return known
    if not isinstance(density, StandardizedDensity):
        return None
    born = inside(density)
    if not isinstance(born, BornDensity) or not isinstance(born.measure, MEASURES):
        return None
    _FORMS[density] = FrozenDensity(density, dtype, device)
    return _FORMS[density]


def _as_numpy(tensor: Tensor) -> NDArray[np.float64]:
    array: NDArray[np.float64] = tensor.double().cpu().numpy()
    return array


def _tensors_and_modules(module: nn.Module) -> Iterator[dict[str, object]]:
    yield from (module._parameters, module._buffers, module._modules)  # type: ignore[misc]
