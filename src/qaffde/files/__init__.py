"""Model files: save and load every estimator, safely, and export scoring to ONNX."""

from qaffde.files.format import FileError
from qaffde.files.model import load, save
from qaffde.files.onnx import export_onnx

__all__ = ["FileError", "export_onnx", "load", "save"]
