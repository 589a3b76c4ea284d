"""Model files: save and load estimators, without running code.

Each layer says in its module ``recipes`` how its classes are written and read.
"""

from qaffde.files.format import FileError
from qaffde.files.model import load, save

__all__ = ["FileError", "load", "save"]
