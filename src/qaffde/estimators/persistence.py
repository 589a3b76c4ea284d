"""Files of estimators, and ONNX models of their log-density."""

import copyreg
import os
from typing import Any, Self, SupportsIndex

from sklearn.utils.validation import check_is_fitted

from qaffde.files import FileError, load, save
from qaffde.files.atomic import write_atomically
from qaffde.files.model import dumps, loads
from qaffde.nn import Density
from qaffde.nn.onnx import recorded
from qaffde.parameters import guard


@guard
class FileMixin:
    """Estimator that one file can hold, as :mod:`qaffde.files` writes and reads it.

    Pickle and copies take the attributes, as of any estimator. skops cannot take tensors; it asks
    for ``__getstate__``, which pickle does not, and is given the content of a file.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        guard(cls)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator, fitted or not, to one file; see :func:`qaffde.save`."""
        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator of this class from a file; see :func:`qaffde.load`."""
        return load(path, cls)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write `score_samples` as an ONNX model.

        Its input "X" are rows of doubles of shape (n, d), any n of at least 1; its output
        "log_density" is of shape (n,).

        Parameters
        ----------
        path : str or path
        """
        check_is_fitted(self)
        inner: Any = getattr(self, "estimator_", self)
        density = getattr(inner, "density_", None)
        if not isinstance(density, Density):
            raise FileError(
                f"{type(self).__name__} has no log-density to export; export a density estimator"
            )
        write_atomically(path, recorded(density, inner.n_features_in_))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), vars(self).copy()  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        return {"file": dumps(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.keys() == {"file"}:
            state = vars(loads(state["file"], type(self)))
        vars(self).update(state)
