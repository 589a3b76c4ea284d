"""The frame of a fit: everything that is settled before the density matrix is summed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qaffde.nn import BaseMeasure, FourierFeatures


@dataclass(frozen=True, eq=False)
class Frame:
    """Units, bandwidth, base measure and features: what two fits must share to be added.

    Parameters
    ----------
    location, scale : Tensors of shape (d,)
        The features see z = (x − location) / scale.
    bandwidth : Tensor of shape (d,)
        Kernel bandwidth in the units of z.
    base_measure : str
        Name of the measure.
    measure : BaseMeasure
        Of z.
    features : FourierFeatures
        Of z.
    measurement : str
        How ρ is read, a key of :data:`qaffde.training.closed_form.READINGS`.
    reach : Tensor of shape (2, d)
        Ends, in the units of z, of what rows may be: those of the box, or those beyond which a
        lattice of frequencies repeats itself; infinite where there are none.
    """

    location: Tensor
    scale: Tensor
    bandwidth: Tensor
    base_measure: str
    measure: BaseMeasure
    features: FourierFeatures
    measurement: str
    reach: Tensor

    def standardize(self, X: Tensor, number: Sequence[int] | None = None) -> Tensor:
        """Rows of shape (n, d) in the units of the frame.

        Parameters
        ----------
        X : Tensor of shape (n, d)
        number : sequence of int, optional
            What messages call the rows; from 0 by default.

        Raises
        ------
        ValueError
            If a row lies beyond the reach: the density could not show it where it is.
        """
        Z = (X - self.location) / self.scale
        outside = ((Z < self.reach[0]) | (Z > self.reach[1])).any(1)
        if outside.any():
            row = int(outside.nonzero()[0, 0])
            lower, upper = (self.location + self.scale * self.reach).tolist()
            raise ValueError(
                f"{int(outside.sum())} rows lie outside what the first rows settled, {lower} to "
                f"{upper}; the first is row {row if number is None else number[row]}: "
                f"{X[row].tolist()}. Drop them, give bounds that "
                "hold all rows to come, or begin with partial_fit and base_measure='auto' or "
                "'mixture', which have no ends"
            )
        return Z

    def matches(self, other: "Frame") -> bool:
        """Whether density matrices of both frames may be added: all numbers are the same."""
        return (
            (self.base_measure, self.measurement) == (other.base_measure, other.measurement)
            and torch.equal(self.location, other.location)
            and torch.equal(self.scale, other.scale)
            and torch.equal(self.bandwidth, other.bandwidth)
            and _same_state(self.measure, other.measure)
            and _same_state(self.features, other.features)
        )


def _same_state(first: nn.Module, second: nn.Module) -> bool:
    states = first.state_dict(), second.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(value, states[1][name]) for name, value in states[0].items()
    )
