"""Model files: save and load estimators, without running code.

``qaffde.nn.recipes`` and ``qaffde.estimators.recipes`` say how classes are written and read.
"""

from qaffde.files.format import FileError
from qaffde.files.model import load, save

__all__ = ["FileError", "load", "save"]
