"""Tables in files: read batch by batch, picked by column, and written in one piece."""

from qaffde.cli.data.formats import open_table
from qaffde.cli.data.selection import Selection, pick_columns, pick_for_model
from qaffde.cli.data.sinks import check_output, open_sink
from qaffde.cli.data.table import DataError, Table

__all__ = [
    "DataError",
    "Selection",
    "Table",
    "check_output",
    "open_sink",
    "open_table",
    "pick_columns",
    "pick_for_model",
]
