"""Precision, device and block size of computations over rows."""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.nn import FourierFeatures
from qaffde.parameters import check_choice, check_count

DTYPES = {"float64": torch.float64, "float32": torch.float32}
BLOCK_BYTES = 2**23
"""Of the largest array of a block of rows: about what the caches of a core hold."""
MIN_ROWS, MAX_ROWS = 16, 8192
MEMORY_SHARE = 16
"""A block's largest array takes at most one part in so many of the memory that is left."""


@dataclass(frozen=True, kw_only=True)
class ComputeConfig:
    """Precision, device and number of rows that are computed at once.

    Parameters
    ----------
    dtype : {"float64", "float32"}, default="float64"
        Precision of features and of `score_samples`. Single precision is about twice as fast and
        takes digits from small densities. Sums over rows and Gram matrices are in float64 anyway,
        and likelihoods are maximized in float32, which is all that they need.
    device : str, default="cpu"
        Where rows are summed, likelihoods maximized and rows scored; fitted tensors stay on the
        CPU.
    batch_size : int or "auto", default="auto"
        Rows whose features are computed at once. "auto" keeps them in the cache of a core and
        within the memory that is left.

    Examples
    --------
    >>> ComputeConfig(dtype="float32", batch_size=500).rows(width=1000)
    500
    """

    dtype: str = "float64"
    device: str = "cpu"
    batch_size: int | str = "auto"

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        check_count("batch_size", self.batch_size, auto=True)
        check_device(self.device)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The precision as torch calls it."""
        return DTYPES[self.dtype]

    def features(self, features: FourierFeatures) -> FourierFeatures:
        """Features in this precision, on this device."""
        W = features.W
        if W.dtype == self.torch_dtype and W.device == torch.device(self.device):
            return features
        return deepcopy(features).to(self.device, self.torch_dtype)

    def rows(self, width: int) -> int:
        """Number of rows of a block whose largest array has `width` numbers a row."""
        if not isinstance(self.batch_size, str):
            return int(self.batch_size)
        row = width * self.torch_dtype.itemsize
        available = available_memory(torch.device(self.device))
        most = min(BLOCK_BYTES, available // MEMORY_SHARE) // row
        return max(MIN_ROWS, min(MAX_ROWS, most))

    def tensor(self, rows: Tensor) -> Tensor:
        """Rows in this precision, on this device; not copied if they need not be."""
        return rows.to(self.device, self.torch_dtype)

    def exact(self, rows: NDArray[np.float64]) -> Tensor:
        """Rows as they are, on this device; not copied if they need not be."""
        tensor = torch.from_numpy(rows) if rows.flags.writeable else torch.tensor(rows)
        return tensor.to(self.device)


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


DOUBLE = ComputeConfig()
