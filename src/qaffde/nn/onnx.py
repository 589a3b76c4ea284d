"""Export of `score_samples` to ONNX, in double precision and for any number of rows.

The log-density is not written a second time: it runs once on an array that records the operations
of torch as nodes of an ONNX graph.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from qaffde.extras import import_extra
from qaffde.nn import BornMixture, Density, TableDensity
from qaffde.nn.table_onnx import of_table, refusal

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
    if isinstance(density, TableDensity):
        return of_table(density)
    formula = density.formula(shortcuts=False)
    if formula.is_closed:
        return formula
    raise refusal(density)


class Graph:
    """An ONNX graph in double precision that grows by an operation at a time.

    Values are known by their names; the input "X" is of shape (n, n_columns).
    """

    def __init__(self, n_columns: int) -> None:
        self.onnx = import_extra("onnx", "onnx", "the export needs")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        shape = torch.empty(N_ROWS, n_columns, dtype=torch.float64, device="meta")
        self.input = Recorded.of(self, "X", shape)

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
        array = self.onnx.numpy_helper.from_array(np.asarray(value, dtype=dtype), name)
        self.constants.append(array)
        return name

    def whole(self, value: Any) -> str:
        """Name of a constant of whole numbers: axes, indices and shapes."""
        return self.constant(value, np.int64)

    def content(self, output: "Recorded") -> bytes:
        """The model as the bytes of a file, checked; the output is of shape (n,)."""
        helper, double = self.onnx.helper, self.onnx.TensorProto.DOUBLE
        self.nodes.append(helper.make_node("Identity", [output.label], ["log_density"]))
        n_columns = self.input.shape[1]
        graph = helper.make_graph(
            self.nodes,
            "score_samples",
            [helper.make_tensor_value_info("X", double, ["n", n_columns])],
            [helper.make_tensor_value_info("log_density", double, ["n"])],
            self.constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 18)],  # from 18 on axes are inputs
            ir_version=9,  # older runtimes read no newer files
            producer_name="qaffde",
        )
        self.onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()


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
        name, out = name.strip("_"), options.pop("out", args[0] if in_place else None)
        if name in REWRITTEN:
            result = REWRITTEN[name](*args, **options)
        else:
            with torch._C.DisableTorchFunctionSubclass():
                meta = function(*tree_map(_meta, args), **options)
            if not isinstance(meta, Tensor):
                return meta  # a shape, a type or a length
            graph = next(value for value in tree_leaves(args) if isinstance(value, Recorded)).graph
            label = NODES[name](graph, meta, *tree_map(_label, args), **options)
            result = cls.of(graph, label, meta)
        if out is None:
            return result
        out.label = result.label
        return out


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
    return g("Greater", _reduced("ReduceMin")(g, meta, numbers, dim), 0.5)


def _clip(g: Graph, meta: Tensor, x: str, min: Any = None, max: Any = None) -> str:
    for operation, end in (("Max", min), ("Min", max)):
        x = x if end is None else _same(operation)(g, meta, x, end)
    return x


def _getitem(g: Graph, meta: Tensor, x: Any, index: Any) -> str:
    """One column, some columns or rows, a new axis after the first, or rows of a constant."""
    if isinstance(x, Tensor):
        return g("Gather", x, index)
    last, axis = (index[-1], -1) if isinstance(index, tuple) else (index, 0)
    if last is None:
        return g("Unsqueeze", x, g.whole([k for k, part in enumerate(index) if part is None]))
    if isinstance(last, slice):
        ends = last.start or 0, 2**62 if last.stop is None else last.stop
        return g("Slice", x, *(g.whole([v]) for v in (*ends, axis)))
    return g("Gather", x, g.whole(last), axis=-1)


def _searchsorted(g: Graph, meta: Tensor, edges: Tensor, x: str, *, right: bool) -> str:
    """Number of edges (..., K) up to values (..., n)."""
    reached = g("GreaterOrEqual", g("Unsqueeze", x, g.whole([-1])), edges[..., None, :])
    whole = g("Cast", reached, to=g.onnx.TensorProto.INT64)
    return _reduced("ReduceSum")(g, meta, whole, -1)


NODES: dict[str, Node] = {
    **{name: _same(name.capitalize()) for name in ("mul", "div", "cos", "sin", "sqrt")},
    **{name: _same(name.capitalize()) for name in ("exp", "log", "abs", "and", "or")},
    "add": _scaled("Add"),
    "sub": _scaled("Sub"),
    "matmul": _same("MatMul"),
    "minimum": _same("Min"),
    "maximum": _same("Max"),
    "rsub": lambda g, meta, x, y: g("Sub", y, x),
    "ge": _compared("GreaterOrEqual"),
    "le": _compared("LessOrEqual"),
    "gt": _compared("Greater"),
    "lt": _compared("Less"),
    "eq": _compared("Equal"),
    "isnan": _compared("IsNaN"),
    "invert": _compared("Not"),
    "floor": _compared("Floor"),
    "round": _compared("Round"),
    "long": lambda g, meta, x: g("Cast", x, to=g.onnx.TensorProto.INT64),
    "double": lambda g, meta, x: g("Cast", x, to=g.onnx.TensorProto.DOUBLE),
    "cat": lambda g, meta, parts, dim=0: g("Concat", *parts, axis=dim),
    "mT": lambda g, meta, x: g(
        "Transpose", x, perm=[*range(meta.ndim - 2), meta.ndim - 1, meta.ndim - 2]
    ),
    "sum": _reduced("ReduceSum"),
    "amax": _reduced("ReduceMax"),
    "all": _all,
    "clip": _clip,
    "clamp": _clip,
    "where": lambda g, meta, condition, x, y: g(
        "Where", condition if isinstance(condition, str) else g.constant(condition, bool), x, y
    ),
    "getitem": _getitem,
    "reshape": lambda g, meta, x, *shape: g(
        "Reshape", x, g.whole([-1 if size == N_ROWS else size for size in meta.shape])
    ),
    "searchsorted": _searchsorted,
    "T": lambda g, meta, x: g("Transpose", x, perm=[1, 0]),
}
"""Nodes of the functions of torch that log-densities are made of."""


def _log_of_sum(x: Recorded, y: Recorded) -> Any:
    most = torch.maximum(x, y).clamp(min=float(np.finfo(np.float64).min))
    return ((x - most).exp() + (y - most).exp()).log() + most


def _log_sum(x: Recorded, dim: int) -> Any:
    most = x.amax(dim)
    return (x - most[:, None]).exp().sum(dim).log() + most


def _ndtr(x: Recorded) -> Any:
    """The normal distribution function: runtimes have no error function in double precision.

    The rational function of Hart et al. (1968), to 1e-15, of values up to 7.07: the mass beyond is
    below 1e-12.
    """
    above = (
        *(0.0352624965998911, 0.700383064443688, 6.37396220353165, 33.912866078383),
        *(112.079291497871, 221.213596169931, 220.206867912376),
    )
    below = (
        *(0.0883883476483184, 1.75566716318264, 16.064177579207, 86.7807322029461),
        *(296.564248779674, 637.333633378831, 793.826512519948, 440.413735824752),
    )
    size = x.abs().clamp(max=7.07)
    p, q = (reduce(lambda total, term: size * total + term, terms) for terms in (above, below))
    tail = (size * size * -0.5).exp() * p / q
    return torch.where(x > 0, 1 - tail, tail)


REWRITTEN: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("contiguous", "detach", "to", "positive"), lambda x, *dtype: x),
    "square": lambda x: x * x,
    "remainder": lambda x, one: x - x.floor(),
    "logsumexp": _log_sum,
    "addmm": lambda start, x, y, alpha=1: torch.add(start, x @ y, alpha=alpha),
    "linalg_vecdot": lambda x, y: (x * y).sum(-1),
    "linalg_solve_triangular": lambda A, b, upper: torch.linalg.inv(A) @ b,
    "logaddexp": _log_of_sum,
    "nan_to_num": lambda x, nan, posinf, neginf: torch.where(x.isnan(), nan, x),
    "special_ndtr": _ndtr,
}
"""Functions of torch that are written in those that have nodes."""
