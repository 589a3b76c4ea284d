"""Model files: save and load estimators, without running code.

Modules ``recipes`` of ``nn``, ``selection`` and ``estimators`` say how classes are kept.
"""

from qaffde.files.format import FileError
from qaffde.files.model import load, save

__all__ = ["FileError", "load", "save"]
