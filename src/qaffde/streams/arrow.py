"""What is needed of pyarrow: numbers of record batches, and data sets that do not pile up."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH_ROWS = 32_768
BUFFER_BYTES = 1 << 20
"""Of each column; without a limit pyarrow keeps all that it has read of a Parquet file."""


def import_pyarrow() -> Any:
    """The package pyarrow, or an error that says how to install it."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "reading and writing data needs pyarrow, which is not installed; run: pip install "
            "'qaffde[data]'"
        ) from error
    return pyarrow


def holds_numbers(kind: Any) -> bool:
    """Whether a type of Arrow is one of numbers, or of gaps alone."""
    types = import_pyarrow().types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_null(kind)
    )


def matrix(batch: Any) -> NDArray[np.float64]:
    """Numbers (n, d) of a batch, NaN where they are missing."""
    pa = import_pyarrow()
    columns = [column.cast(pa.float64(), safe=False) for column in batch.columns]
    arrays = [column.to_numpy(zero_copy_only=False) for column in columns]
    return np.stack(arrays, axis=1) if arrays else np.empty((batch.num_rows, 0))


def open_dataset(source: Any) -> Any:
    """Data set of a Parquet file or of a folder of them; data sets stay as they are."""
    import_pyarrow()
    import pyarrow.dataset as ds

    if isinstance(source, ds.Dataset):
        return source
    path = os.fspath(source)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} does not exist; name a Parquet file or a folder of them")
    return ds.dataset(path, format="parquet", partitioning="hive")


def numeric_columns(dataset: Any, columns: Sequence[str] | None, weights: str | None) -> list[str]:
    """Columns of a data set that are read: those picked, or all but the weights."""
    schema = dataset.schema
    picked = [name for name in schema.names if name != weights] if columns is None else columns
    wanted = [*picked, *([] if weights is None else [weights])]
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        raise ValueError(
            f"the data set has no column {', '.join(missing)}; its columns are "
            f"{', '.join(schema.names)}"
        )
    words = [name for name in wanted if not holds_numbers(schema.field(name).type)]
    if words:
        raise ValueError(f"columns are not numeric: {', '.join(words)}; pick others with columns=")
    if not picked:
        raise ValueError("the data set has no column but that of the weights")
    return list(picked)


def read_dataset(dataset: Any, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    """Numbers (n, d) of some columns, batch by batch, in the order of the files."""
    import pyarrow.dataset as ds

    options = {"batch_size": BATCH_ROWS, "use_threads": False}
    if isinstance(dataset, ds.FileSystemDataset) and dataset.format.default_extname == "parquet":
        options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(
            use_buffered_stream=True, buffer_size=BUFFER_BYTES, pre_buffer=False
        )
    readahead = {"batch_readahead": 1, "fragment_readahead": 1}
    for batch in dataset.to_batches(columns=list(columns), **options, **readahead):
        if batch.num_rows:
            yield matrix(batch)
