"""More than one process: Dask collections for QAFFDE, ``torch.distributed`` for QAFFDE-SGD."""

from qaffde.distributed.collections import fit, partial_fit, sample, score_samples
from qaffde.distributed.partitions import DaskSource
from qaffde.distributed.processes import fit_shard, process_group, shard

__all__ = [
    "DaskSource",
    "fit",
    "fit_shard",
    "partial_fit",
    "process_group",
    "sample",
    "score_samples",
    "shard",
]
