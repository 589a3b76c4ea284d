"""QAFFDE-SGD over several processes with ``torch.distributed``, each with a shard of the rows."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch.distributed as dist
import torch.distributed.nn  # noqa: F401 (before there is a group, which it would keep)
from numpy.typing import ArrayLike

from qaffde.estimators.qaffde_sgd import QAFFDESGD
from qaffde.selection.sources import as_source
from qaffde.selection.summary import MemorySource
from qaffde.training.run import ALONE, Peers

Model = TypeVar("Model", bound=QAFFDESGD)


@contextmanager
def process_group(backend: str = "gloo") -> Iterator[Peers]:
    """The processes that ``torchrun`` started, of a `size` and `rank`; one alone where it did not.

    `backend` is that of ``torch.distributed``, where no group was made before.
    """
    if dist.is_initialized():
        yield Peers(grouped=True)
    elif "RANK" not in os.environ:
        yield ALONE
    else:
        dist.init_process_group(backend)
        try:
            yield Peers(grouped=True)
        finally:
            dist.destroy_process_group()


def current_peers() -> Peers:
    """The processes of the current group."""
    if dist.is_initialized():
        return Peers(grouped=True)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RuntimeError(
            "torchrun started several processes, which do not know each other yet; wrap the work "
            "in: with qaffde.distributed.process_group():"
        )
    return ALONE


def shard(X: Any) -> Any:
    """Rows of an array (n, ...) that fall to this process: a slice of about n/size of them.

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
