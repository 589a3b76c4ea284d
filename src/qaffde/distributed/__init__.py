"""More than one process: Dask collections for QAFFDE, ``torch.distributed`` for QAFFDE-SGD."""

from qaffde.distributed.partitions import DaskSource
from qaffde.distributed.processes import fit_shard, process_group, shard
from qaffde.distributed.scores import score_samples

__all__ = ["DaskSource", "fit_shard", "process_group", "score_samples", "shard"]
