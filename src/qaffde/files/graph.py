"""ONNX graphs, one operation a call."""

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

OPSET = 18
"""Reductions take their axes as inputs from here on."""
IR_VERSION = 9
"""Of the files; older runtimes read no newer ones."""
LAST = (-1,)


def import_onnx() -> ModuleType:
    """The package onnx, or an error that says how to install it."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "the export needs onnx, which is not installed; run: pip install 'qaffde[onnx]'"
        ) from error
    return onnx


class Graph:
    """An ONNX graph in double precision that grows by an operation at a time.

    Values are known by their names.

    Parameters
    ----------
    n_columns : int
        d, of the input "X" of shape (n, d).
    """

    def __init__(self, n_columns: int) -> None:
        self.onnx = import_onnx()
        self.n_columns = n_columns
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, operation: str, *inputs: str | ArrayLike, **attributes: Any) -> str:
        """Name of what an operation of ONNX makes of values and constants.

        Constants of whole numbers are axes, indices and shapes; all else is double.
        """
        name = f"{operation}_{len(self.nodes)}"
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        node = self.onnx.helper.make_node(operation, names, [name], name, **attributes)
        self.nodes.append(node)
        return name

    def constant(self, value: ArrayLike) -> str:
        """Name of a constant."""
        array = np.asarray(value)
        array = array if array.dtype == np.int64 else array.astype(np.float64)
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def row_sum(self, x: str, operation: str = "ReduceSum") -> str:
        """Sum, or another reduction, over the last axis."""
        return self(operation, x, LAST, keepdims=0)

    def log_row_sum(self, x: str) -> str:
        """Logarithm of the sum of exponentials over the last axis.

        ReduceLogSumExp is not it: that of onnxruntime loses rows whose first entry is −∞.
        """
        largest = self("Max", self("ReduceMax", x, LAST, keepdims=1), np.finfo(np.float64).min)
        total = self.row_sum(self("Exp", self("Sub", x, largest)))
        return self("Add", self("Log", total), self("Squeeze", largest, LAST))

    def log_sum(self, *parts: str) -> str:
        """Logarithm of the sum of exponentials of values of one shape."""
        stacked = [self("Unsqueeze", part, LAST) for part in parts]
        return self.log_row_sum(self("Concat", *stacked, axis=-1))

    def content(self, output: str, name: str) -> bytes:
        """The model as the bytes of a file, checked; `output` is of shape (n,)."""
        helper, double = self.onnx.helper, self.onnx.TensorProto.DOUBLE
        self.nodes.append(helper.make_node("Identity", [output], [name]))
        graph = helper.make_graph(
            self.nodes,
            "score_samples",
            [helper.make_tensor_value_info("X", double, ["n", self.n_columns])],
            [helper.make_tensor_value_info(name, double, ["n"])],
            self.constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="qaffde",
        )
        self.onnx.checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString()
        return content
