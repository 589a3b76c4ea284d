"""Files of estimators, and ONNX models of their log-density."""

import copyreg
import os
from typing import Any, Self, SupportsIndex

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from qaffde.files import FileError, load, save
from qaffde.files.model import dumps, loads, write
from qaffde.nn import Density
from qaffde.nn.onnx import recorded


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
        export_onnx(self, path)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), vars(self).copy()  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        return {"file": dumps(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.keys() == {"file"}:
            state = vars(loads(state["file"], type(self)))
        vars(self).update(state)


def export_onnx(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Write `score_samples` of a fitted estimator as an ONNX model.

    Its input "X" are rows of doubles of shape (n, d), any n of at least 1; its output
    "log_density" is of shape (n,).

    Parameters
    ----------
    model : QAFFDE, QAFFDESGD, one of their marginals or conditionals, or QAFFDEOutlierDetector
    path : str or path

    Raises
    ------
    FileError
        If its density has no ONNX form.
    """
    check_is_fitted(model)
    inner = getattr(model, "estimator_", model)
    density = getattr(inner, "density_", None)
    if not isinstance(density, Density):
        raise FileError(
            f"{type(model).__name__} has no log-density to export; export a density estimator"
        )
    write(path, recorded(density, inner.n_features_in_))
