"""Where estimators compute, in which precision, and how many rows at a time."""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.estimators.parameters import check_choice, check_count
from qaffde.nn import FourierFeatures

DTYPES = {"float64": torch.float64, "float32": torch.float32}
BLOCK_BYTES = 2**23
"""Of the largest array of a block of rows: about what the caches of a core hold."""
MIN_ROWS, MAX_ROWS = 16, 8192
MEMORY_SHARE = 16
"""A block's largest array takes at most one part in so many of the memory that is left."""


@dataclass(frozen=True)
class Compute:
    """Precision, device and number of rows that are computed at once.

    Parameters
    ----------
    dtype : torch.dtype
    device : torch.device
    batch_size : int or None
        None leaves it to the width of a row and the memory that is left.
    compile : bool
        Whether blocks are scored by compiled code.
    """

    dtype: torch.dtype
    device: torch.device
    batch_size: int | None
    compile: bool

    @classmethod
    def of(
        cls, dtype: str, device: str, batch_size: int | str = "auto", *, compile: bool = False
    ) -> Self:
        """What an estimator's parameters say."""
        number = None if isinstance(batch_size, str) else int(batch_size)
        return cls(DTYPES[dtype], torch.device(device), number, bool(compile))

    def features(self, features: FourierFeatures) -> FourierFeatures:
        """Features in this precision, on this device."""
        W = features.W
        if W.dtype == self.dtype and W.device == self.device:
            return features
        return deepcopy(features).to(self.device, self.dtype)

    def rows(self, width: int) -> int:
        """Number of rows of a block whose largest array has `width` numbers a row."""
        if self.batch_size is not None:
            return self.batch_size
        row = width * self.dtype.itemsize
        most = min(BLOCK_BYTES, available_memory(self.device) // MEMORY_SHARE) // row
        return max(MIN_ROWS, min(MAX_ROWS, most))

    def tensor(self, rows: Tensor) -> Tensor:
        """Rows in this precision, on this device; not copied if they need not be."""
        return rows.to(self.device, self.dtype)

    def exact(self, rows: NDArray[np.float64]) -> Tensor:
        """Rows as they are, on this device; not copied if they need not be."""
        tensor = torch.from_numpy(rows) if rows.flags.writeable else torch.tensor(rows)
        return tensor.to(self.device)


DOUBLE = Compute(torch.float64, torch.device("cpu"), None, False)


def check_compute(dtype: object, device: object, batch_size: object = "auto") -> None:
    """Reject what no computation can be made of."""
    check_choice("dtype", dtype, DTYPES)
    check_count("batch_size", batch_size, auto=True)
    check_device(device)


def check_device(device: object) -> None:
    """Reject a device that is not there, or that holds no numbers."""
    if not isinstance(device, str):
        raise ValueError(f"device={device!r} must be a name, such as 'cpu' or 'cuda:0'")
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"device={device!r} cannot be used here; take 'cpu' ({reason})"
        ) from error


def available_memory(device: torch.device) -> int:
    """Bytes that are left on a device, roughly; 1 GiB where the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 2**30
    found = dict(line.split(":", 1) for line in lines)
    return 1024 * int(found["MemAvailable"].split()[0]) if "MemAvailable" in found else 2**30
