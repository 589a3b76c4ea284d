"""More than one process: Dask collections for QAFFDE, ``torch.distributed`` for QAFFDE-SGD."""

from qaffde.distributed.partitions import DaskSource, score_samples
from qaffde.distributed.processes import fit_shard, process_group, shard

__all__ = ["DaskSource", "fit_shard", "process_group", "score_samples", "shard"]
