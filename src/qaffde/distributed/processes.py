"""QAFFDE-SGD over several processes with ``torch.distributed``, each with a shard of the rows."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group, which it would keep beyond its end
from numpy.typing import ArrayLike
from torch import Tensor

from qaffde.estimators.qaffde_sgd import QAFFDESGD
from qaffde.selection.summary import MemorySource, as_source
from qaffde.training.run import ALONE, Peers

Value = TypeVar("Value")
Model = TypeVar("Model", bound=QAFFDESGD)


class ProcessPeers(Peers):
    """The processes of the default group of ``torch.distributed``."""

    def __init__(self) -> None:
        self.size, self.rank = dist.get_world_size(), dist.get_rank()

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means over the processes, summed in float64."""
        flat = torch.cat([tensor.detach().reshape(-1).double() for tensor in tensors])
        dist.all_reduce(flat)
        means = (flat / self.size).split([tensor.numel() for tensor in tensors])
        for tensor, mean in zip(tensors, means, strict=True):
            tensor.detach().copy_(mean.reshape(tensor.shape))

    def share_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process."""
        for tensor in tensors:
            dist.broadcast(tensor.detach(), src=0)

    def largest(self, number: int) -> int:
        """Largest number that any process gives."""
        numbers = torch.tensor(number)
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
        return int(numbers)

    def first(self, make: Callable[[], Value]) -> Value:
        """Result of the first process, or its error, in all of them."""
        told = [_attempt(make) if self.rank == 0 else None]
        dist.broadcast_object_list(told, src=0)
        value, error = told[0]  # type: ignore[misc]
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def gather(self, make: Callable[[], Value]) -> list[Value]:
        """Results of all processes in their order; an error of one is raised in all."""
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, _attempt(make))
        for rank, (_, error) in enumerate(told):
            if error is not None:
                raise type(error)(f"process {rank}: {error}")
        return [value for value, _ in told]


def _attempt(make: Callable[[], Value]) -> tuple[Value | None, ValueError | TypeError | None]:
    """A value, or the error of whoever gave bad input."""
    try:
        return make(), None
    except (ValueError, TypeError) as error:
        return None, error


@contextmanager
def process_group(backend: str = "gloo") -> Iterator[Peers]:
    """The processes that ``torchrun`` started; one alone where it did not.

    Parameters
    ----------
    backend : str, default="gloo"
        Of ``torch.distributed``, where no group was made before.

    Yields
    ------
    Peers
        With their number, `size`, and the `rank` of this one.
    """
    if dist.is_initialized():
        yield ProcessPeers()
    elif "RANK" not in os.environ:
        yield ALONE
    else:
        dist.init_process_group(backend)
        try:
            yield ProcessPeers()
        finally:
            dist.destroy_process_group()


def current_peers() -> Peers:
    """The processes of the current group."""
    if dist.is_initialized():
        return ProcessPeers()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RuntimeError(
            "torchrun started several processes, which do not know each other yet; wrap the work "
            "in: with qaffde.distributed.process_group():"
        )
    return ALONE


def shard(X: Any) -> Any:
    """Rows of an array that fall to this process: a slice of about n/size of them.

    Parameters
    ----------
    X : array of shape (n, ...)
        Memory-mapped, it is read in that part alone.

    Examples
    --------
    >>> shard([1, 2, 3])  # all of them where there is one process
    [1, 2, 3]
    """
    peers = current_peers()
    start, stop = (len(X) * rank // peers.size for rank in (peers.rank, peers.rank + 1))
    return X[start:stop]


def fit_shard(model: Model, X: ArrayLike, sample_weight: ArrayLike | None = None) -> Model:
    """Fit a QAFFDESGD to the rows of all processes, of which each has a shard.

    Every process calls this with its own rows and has the same fit afterwards. The first one
    chooses base measure, bandwidth and features by a sample of all rows; the likelihood and its
    gradient are then means over the rows of all. With one process it is ``model.fit``.

    Parameters
    ----------
    model : QAFFDESGD
        Is fitted and returned; with the same parameters in every process.
    X : array-like of shape (n, d)
        The rows of this process.
    sample_weight : array-like of shape (n,), optional
    """
    if not isinstance(model, QAFFDESGD):
        raise TypeError(
            f"fit_shard is for QAFFDESGD, got {type(model).__name__}; a QAFFDE of all shards is "
            "the merge of one of each, or qaffde.distributed.fit on Dask"
        )
    peers = current_peers()
    if peers.size == 1:
        return model.fit(X, sample_weight=sample_weight)
    if model.training is not None and model.training.checkpoint is not None:
        raise ValueError("several processes keep no checkpoint; leave it out of training")

    def shard() -> MemorySource:
        source = as_source(X, sample_weight, minimum=2)
        assert isinstance(source, MemorySource)
        return source

    source = peers.together(shard)
    source.peers = peers
    return model.fit(source)
