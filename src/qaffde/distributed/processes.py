"""QAFFDE-SGD over several processes with ``torch.distributed``, each with a shard of the rows."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Any, TypeVar

import numpy as np
import torch.distributed as dist
import torch.distributed.nn  # noqa: F401 (before there is a group, which it would keep)
from numpy.typing import ArrayLike
from sklearn.utils.validation import _get_feature_names

from qaffde.estimators.base import wishes_of
from qaffde.estimators.qaffde_sgd import QAFFDESGD
from qaffde.frames import Look, as_frame
from qaffde.schema import Schema
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
    X : array-like of shape (n, d), or a data frame
        The rows of this process.
    sample_weight : array-like of shape (n,), optional
    """
    if not isinstance(model, QAFFDESGD):
        raise TypeError(
            f"fit_shard is for QAFFDESGD, got {type(model).__name__}; a QAFFDE of all shards is "
            "the merge of one of each, or its fit to a qaffde.distributed.DaskSource"
        )
    peers = current_peers()
    if peers.size == 1:
        return model.fit(X, sample_weight=sample_weight)
    if model.training is not None and model.training.checkpoint is not None:
        raise ValueError("several processes keep no checkpoint; leave it out of training")

    columns, gaps = wishes_of(model)
    names = _get_feature_names(X)

    def inferred(columns: Any) -> Schema:
        looks = peers.gather(lambda: Look.at(X))
        return Schema.infer(reduce(add, looks), columns)

    def shard() -> MemorySource:
        source = as_source(X, sample_weight, minimum=2, schema=schema, gaps=gaps)
        assert isinstance(source, MemorySource)
        if schema is not None and not schema.is_real:
            schema.check(source.part[0].numpy())
        return source

    schema = None if model.plan is None else model.plan.schema
    if schema is None:
        found = range(np.shape(X)[1]) if names is None else list(names)
        schema = Schema.of_parts(columns, found, inferred, framed=as_frame(X) is not None)
    source = peers.together(shard)
    source.peers = peers
    return model.fit(source)
