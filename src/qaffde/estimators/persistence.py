"""Estimators and files: what every estimator has of :mod:`qaffde.files`.

That layer knows every estimator, so it is imported where it is needed.
"""

import copyreg
import os
from typing import Any, Self, SupportsIndex


class FileMixin:
    """Estimator that one file can hold, as :mod:`qaffde.files` writes and reads it.

    Pickle and copies take the attributes, as of any estimator. skops cannot take tensors; it asks
    for ``__getstate__``, which pickle does not, and is given the content of a file.
    """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator, fitted or not, to one safetensors file.

        The file appears, or replaces another, in one piece.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        qaffde.FileError
            If it holds something that files do not, such as an encoder of your own.
        """
        from qaffde.files import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator of this class from a file; no code in the file is run.

        Parameters
        ----------
        path : str or path
            Of a file that :meth:`save` wrote; :func:`qaffde.load` reads any class.

        Raises
        ------
        qaffde.FileError
            If the file holds another class, is damaged or hostile, or of a newer format.
        """
        from qaffde.files import load

        return load(path, cls)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write `score_samples` as an ONNX model, for any number of rows at a time.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        qaffde.FileError
            If its density has no ONNX form.
        """
        from qaffde.files import export_onnx

        export_onnx(self, path)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), vars(self).copy()  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        from qaffde.files.model import dumps

        return {"file": dumps(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.keys() == {"file"}:
            from qaffde.files.model import loads

            state = vars(loads(state["file"], type(self)))
        vars(self).update(state)
