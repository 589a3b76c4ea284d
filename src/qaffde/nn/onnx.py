"""Export of `score_samples` to ONNX, in double precision and for any number of rows.

The log-density is not written a second time: it runs once on an array that records the operations
of torch as nodes of an ONNX graph.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.extras import import_extra
from qaffde.files.format import FileError
from qaffde.nn import BornMixture, Density, RealColumn, TableDensity, TensorTrain
from qaffde.nn.base import formula_of
from qaffde.nn.tensor_train import OUT

INPUT, OUTPUT = "X", "log_density"
OPSET = 18
"""Reductions take their axes as inputs from here on."""
IR_VERSION = 9
"""Of the files; older runtimes read no newer ones."""
N_ROWS = 2**20
"""Number of rows that stands for any number while recording."""


@torch.no_grad()
def recorded(density: Density, n_columns: int) -> bytes:
    """ONNX model of a log-density, as the bytes of a file."""
    score = log_density_of(density)
    graph = Graph(n_columns)
    return graph.content(score(graph.input))


def log_density_of(density: Density) -> Callable[[Any], Any]:
    """The log-density as a function whose operations do not depend on the values of rows."""
    if isinstance(density, BornMixture):
        terms, log_mass = density.terms, density.log_mass
        return lambda x: reduce(torch.logaddexp, [t.log_density(x) for t in terms]) - log_mass
    if isinstance(density, TableDensity) and (inner := _of_lines(density)) is not None:
        maps = density.maps

        def mapped(x: Any) -> Any:
            z, log_slope = maps(x)
            return inner(z) + log_slope

        return mapped
    formula = formula_of(density, None, shortcuts=False)
    if formula.is_closed:
        return formula
    raise FileError(
        f"{type(density).__name__} has no ONNX form; QAFFDE and QAFFDESGD have one (encoders, "
        "baselines and tables with kinds or gaps have none); keep the model with save"
    )


def _of_lines(density: TableDensity) -> Callable[[Any], Any] | None:
    """Log-density of the lines behind real columns, of a sum of terms or a whole train."""
    train: Any = density.density
    if density.lines is not None:
        return log_density_of(density.lines)
    is_whole = isinstance(train, TensorTrain) and OUT not in train.places
    real = all(isinstance(column, RealColumn) for column in density.columns)
    return train.log_prob_complete if is_whole and real else None


END = 2**62
"""End of a slice that goes on to the last column."""


class Graph:
    """An ONNX graph in double precision that grows by an operation at a time.

    Values are known by their names.

    Parameters
    ----------
    n_columns : int
        d, of the input "X" of shape (n, d).
    """

    def __init__(self, n_columns: int) -> None:
        self.onnx = import_extra("onnx", "onnx", "the export needs")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        shape = torch.empty(N_ROWS, n_columns, dtype=torch.float64, device="meta")
        self.input = Recorded.of(self, INPUT, shape)

    def __call__(self, operation: str, *inputs: Any, **attributes: Any) -> str:
        """Name of what an operation of ONNX makes of values and constants."""
        name = f"{operation}_{len(self.nodes)}"
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        node = self.onnx.helper.make_node(operation, names, [name], name, **attributes)
        self.nodes.append(node)
        return name

    def constant(self, value: Any, dtype: type = np.float64) -> str:
        """Name of a constant, double unless it is said otherwise."""
        name = f"constant_{len(self.constants)}"
        array: NDArray[Any] = np.asarray(value, dtype=dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def whole(self, value: Any) -> str:
        """Name of a constant of whole numbers: axes, indices and shapes."""
        return self.constant(value, np.int64)

    def content(self, output: "Recorded") -> bytes:
        """The model as the bytes of a file, checked; the output is of shape (n,)."""
        helper, double = self.onnx.helper, self.onnx.TensorProto.DOUBLE
        self.nodes.append(helper.make_node("Identity", [output.label], [OUTPUT]))
        n_columns = self.input.shape[1]
        graph = helper.make_graph(
            self.nodes,
            "score_samples",
            [helper.make_tensor_value_info(INPUT, double, ["n", n_columns])],
            [helper.make_tensor_value_info(OUTPUT, double, ["n"])],
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


class Recorded(Tensor):
    """A tensor without numbers whose operations become nodes of a graph."""

    graph: Graph
    label: str
    """Name of the value in the graph."""

    @classmethod
    def of(cls, graph: Graph, label: str, meta: Tensor) -> "Recorded":
        """Value of a graph with the shape and type of a tensor."""
        value = meta.as_subclass(cls)
        value.graph, value.label = graph, label
        return value

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Add the node of a function, and let torch find the shape of its result."""
        options, name = dict(kwargs or {}), function.__name__
        if name == "__get__":
            name = function.__self__.__name__  # type: ignore[attr-defined]  # of an attribute
        in_place = name.endswith("_") and not name.endswith("__")
        out = options.pop("out", args[0] if in_place else None)
        with torch._C.DisableTorchFunctionSubclass():
            meta = function(*_mapped(args, _meta), **options)
        if not isinstance(meta, Tensor):
            return meta  # a shape, a type or a length
        graph = next(value for value in _flat(args) if isinstance(value, Recorded)).graph
        label = NODES[name.strip("_")](graph, meta, *_mapped(args, _label), **options)
        if out is None:
            return cls.of(graph, label, meta)
        out.label = label
        return out


def _flat(args: Any) -> Any:
    for value in args:
        yield from _flat(value) if isinstance(value, list | tuple) else (value,)


def _mapped(args: Any, change: Callable[[Any], Any]) -> list[Any]:
    return [
        type(value)(_mapped(value, change)) if isinstance(value, list | tuple) else change(value)
        for value in args
    ]


def _meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, Tensor) else value


def _label(value: Any) -> Any:
    return value.label if isinstance(value, Recorded) else value


Node = Callable[..., str]
"""Adds nodes to a graph, given the result's shape and the arguments; the name of the result."""


def _same(operation: str) -> Node:
    """The operation of ONNX with the same arguments; constants are of the type of the result."""

    def node(g: Graph, meta: Tensor, *args: Any) -> str:
        if meta.dtype.is_floating_point:
            return g(operation, *args)
        kind = bool if meta.dtype == torch.bool else np.int64
        return g(operation, *(v if isinstance(v, str) else g.constant(v, kind) for v in args))

    return node


def _compared(operation: str) -> Node:
    """The comparison of ONNX with the same arguments."""
    return lambda g, meta, *args: g(operation, *args)


def _scaled(operation: str) -> Node:
    """A sum or difference, its second argument times alpha."""

    def node(g: Graph, meta: Tensor, x: Any, y: Any, alpha: float = 1) -> str:
        return _same(operation)(g, meta, x, y if alpha == 1 else g("Mul", y, alpha))

    return node


def _reduced(operation: str) -> Node:
    """A reduction over one axis or several."""
    return lambda g, meta, x, dim: g(operation, x, g.whole(np.atleast_1d(dim)), keepdims=0)


def _all(g: Graph, meta: Tensor, x: str, dim: int) -> str:
    numbers = g("Cast", x, to=g.onnx.TensorProto.DOUBLE)
    return g("Greater", g("ReduceMin", numbers, g.whole([dim]), keepdims=0), 0.5)


def _clip(g: Graph, meta: Tensor, x: str, min: Any = -math.inf, max: Any = math.inf) -> str:
    if isinstance(min, Tensor):
        return g("Min", g("Max", x, min), max)
    if not meta.dtype.is_floating_point:
        return g("Clip", x, g.whole(min), g.whole(max))
    return g("Clip", x, min, max)


def _addmm(g: Graph, meta: Tensor, start: Any, x: Any, y: Any, alpha: float = 1) -> str:
    return NODES["add"](g, meta, start, g("MatMul", x, y), alpha=alpha)


def _logaddexp(g: Graph, meta: Tensor, x: Any, y: Any) -> str:
    most = g("Max", x, y, np.finfo(np.float64).min)
    total = g("Add", g("Exp", g("Sub", x, most)), g("Exp", g("Sub", y, most)))
    return g("Add", g("Log", total), most)


def _reshape(g: Graph, meta: Tensor, x: str, *shape: int) -> str:
    return g("Reshape", x, g.whole([-1 if size == N_ROWS else size for size in meta.shape]))


def _getitem(g: Graph, meta: Tensor, x: Any, index: Any) -> str:
    """One column, some columns, a new axis after the first, or rows of a constant."""
    if isinstance(x, Tensor):
        return g("Gather", x, index)
    last = index[-1]
    if last is None:
        return g("Unsqueeze", x, g.whole([k for k, part in enumerate(index) if part is None]))
    if isinstance(last, slice):
        ends = last.start or 0, END if last.stop is None else last.stop
        return g("Slice", x, *(g.whole([v]) for v in (*ends, -1)))
    return g("Gather", x, g.whole(last), axis=-1)


def _searchsorted(g: Graph, meta: Tensor, edges: Tensor, x: str, *, right: bool) -> str:
    """Number of edges (..., K) up to values (..., n)."""
    reached = g("GreaterOrEqual", g("Unsqueeze", x, g.whole([-1])), edges[..., None, :])
    whole = g.onnx.TensorProto.INT64
    return g("ReduceSum", g("Cast", reached, to=whole), g.whole([-1]), keepdims=0)


def _ndtr(g: Graph, meta: Tensor, x: str) -> str:
    """The normal distribution function: runtimes have no error function in double precision.

    The rational function of Hart et al. (1968), to 1e-15, of values up to 7.07: the mass beyond is
    below 1e-12.
    """
    size: Any = g("Min", g("Abs", x), NORMAL_END)

    def polynomial(terms: Sequence[float]) -> Any:
        total: Any = terms[0]
        for term in terms[1:]:
            total = g("Add", g("Mul", total, size), term)
        return total

    above, below = polynomial(NORMAL_ABOVE), polynomial(NORMAL_BELOW)
    tail = g("Div", g("Mul", g("Exp", g("Mul", g("Mul", size, size), -0.5)), above), below)
    return g("Where", g("Greater", x, 0.0), g("Sub", 1.0, tail), tail)


NORMAL_END = 7.07
NORMAL_ABOVE = (
    *(0.0352624965998911, 0.700383064443688, 6.37396220353165, 33.912866078383),
    *(112.079291497871, 221.213596169931, 220.206867912376),
)
NORMAL_BELOW = (
    *(0.0883883476483184, 1.75566716318264, 16.064177579207, 86.7807322029461),
    *(296.564248779674, 637.333633378831, 793.826512519948, 440.413735824752),
)


def _nan_to_num(g: Graph, meta: Tensor, x: str, nan: float, posinf: float, neginf: float) -> str:
    """With infinite values left as they are."""
    assert (posinf, neginf) == (math.inf, -math.inf)
    return g("Where", g("IsNaN", x), nan, x)


def _where(g: Graph, meta: Tensor, condition: Any, x: Any, y: Any) -> str:
    if not isinstance(condition, str):
        condition = g.constant(condition, bool)
    return g("Where", condition, x, y)


def _solve(g: Graph, meta: Tensor, A: Tensor, b: str, *, upper: bool) -> str:
    return g("MatMul", torch.linalg.inv(A), b)


NODES: dict[str, Node] = {
    **{name: _same(name.capitalize()) for name in ("mul", "div", "cos", "sin", "exp")},
    **{name: _same(name.capitalize()) for name in ("log", "abs", "and", "or", "sqrt")},
    "matmul": _same("MatMul"),
    "ge": _compared("GreaterOrEqual"),
    "le": _compared("LessOrEqual"),
    "gt": _compared("Greater"),
    "lt": _compared("Less"),
    "where": _where,
    "minimum": _same("Min"),
    "maximum": _same("Max"),
    "rsub": lambda g, meta, x, y: g("Sub", y, x),
    "contiguous": lambda g, meta, x: x,
    "searchsorted": _searchsorted,
    "special_ndtr": _ndtr,
    "detach": lambda g, meta, x: x,
    "to": lambda g, meta, x, dtype: x,
    "nan_to_num": _nan_to_num,
    "getitem": _getitem,
    "square": lambda g, meta, x: g("Mul", x, x),
    "add": _scaled("Add"),
    "sub": _scaled("Sub"),
    "sum": _reduced("ReduceSum"),
    "amax": _reduced("ReduceMax"),
    "all": _all,
    "clip": _clip,
    "clamp": _clip,
    "addmm": _addmm,
    "logaddexp": _logaddexp,
    "reshape": _reshape,
    "T": lambda g, meta, x: g("Transpose", x, perm=[1, 0]),
    "linalg_solve_triangular": _solve,
    "linalg_vecdot": lambda g, meta, x, y: g(
        "ReduceSum", g("Mul", x, y), g.whole([-1]), keepdims=0
    ),
}
"""Nodes of the functions of torch that log-densities are made of."""
