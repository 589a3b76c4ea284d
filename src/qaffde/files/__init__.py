"""Model files: save and load estimators, without running code.

:mod:`qaffde.nn.recipes` and :mod:`qaffde.estimators.recipes` say how classes are written and read.
"""

from qaffde.files.format import FileError
from qaffde.files.model import load, save

__all__ = ["FileError", "load", "save"]
