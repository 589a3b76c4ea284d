"""Export of `score_samples` to ONNX, in double precision and for any number of rows.

The log-density is not written a second time: it runs once on an array that records the operations
of torch as nodes of an ONNX graph.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.files.format import FileError
from qaffde.nn import BornMixture, Density, PolynomialShear, TransformedDensity
from qaffde.nn.scoring import LogDensity, is_scored

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
    if isinstance(density, TransformedDensity) and isinstance(density.encoder, PolynomialShear):
        inner, shear = log_density_of(density.density), density.encoder
        return lambda x: inner(shear(x))
    if isinstance(density, BornMixture):
        terms, log_mass = density.terms, density.log_mass
        return lambda x: reduce(torch.logaddexp, [t.log_density(x) for t in terms]) - log_mass
    if is_scored(density):
        return LogDensity.of(density, lattice=False)
    raise FileError(
        f"{type(density).__name__} has no ONNX form; QAFFDE and QAFFDESGD have one (encoders, but "
        "for the shear, and baselines have none); keep the model with save"
    )


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
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        shape = torch.empty(N_ROWS, n_columns, dtype=torch.float64, device="meta")
        self.input = Recorded(self, INPUT, shape)

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
        self.nodes.append(helper.make_node("Identity", [output.name], [OUTPUT]))
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


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: function(self, *args)


class Recorded:
    """A value of a graph that functions of torch take for a tensor.

    Parameters
    ----------
    graph : Graph
    name : str
    meta : Tensor
        Without numbers: of its shape and type.
    """

    def __init__(self, graph: Graph, name: str, meta: Tensor) -> None:
        self.graph, self.name, self.meta = graph, name, meta

    @property
    def shape(self) -> torch.Size:
        """Shape, with many rows."""
        return self.meta.shape

    @property
    def dtype(self) -> torch.dtype:
        """Type of its numbers."""
        return self.meta.dtype

    def __len__(self) -> int:
        return len(self.meta)

    def __getattr__(self, name: str) -> Any:
        """Methods are functions of torch; those in place change the name of the value."""
        if name.startswith("_") or not hasattr(torch, name.removesuffix("_")):
            raise AttributeError(f"no recorded operation {name}")
        function = getattr(torch, name.removesuffix("_"))
        if name.endswith("_"):
            return partial(function, self, out=self)
        return partial(function, self)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Add the node of a function, and let torch find the shape of its result."""
        options = dict(kwargs or {})
        out = options.pop("out", None)
        graph = next(v for v in _flat(args) if isinstance(v, Recorded)).graph
        meta = function(*_mapped(args, _meta), **options)
        name = NODES[function.__name__](graph, meta, *_mapped(args, _name), **options)
        if out is None:
            return cls(graph, name, meta)
        out.name, out.meta = name, meta
        return out

    __add__ = __radd__ = _method(torch.add)
    __sub__ = _method(torch.sub)
    __mul__ = __rmul__ = _method(torch.mul)
    __truediv__ = _method(torch.div)
    __matmul__ = _method(torch.matmul)
    __pow__ = _method(torch.pow)
    __ge__ = _method(torch.ge)
    __le__ = _method(torch.le)
    __and__ = _method(torch.bitwise_and)
    T = property(_method(torch.t))

    def reshape(self, *shape: int) -> Any:
        """The same numbers in another shape of rows."""
        return _method(torch.reshape)(self, shape)

    def __getitem__(self, index: Any) -> "Recorded":
        """One column, some columns, or a new axis after the first."""
        g, last = self.graph, index[-1]
        meta = self.meta[tuple(_meta(part) for part in index)]
        if last is None:
            name = g("Unsqueeze", self.name, g.whole([len(index) - 1]))
        elif isinstance(last, slice):
            name = g("Slice", self.name, *(g.whole([v]) for v in (last.start or 0, last.stop, -1)))
        else:
            name = g("Gather", self.name, g.whole(last), axis=-1)
        return Recorded(g, name, meta)

    def unbind(self, dim: int) -> list["Recorded"]:
        """The columns."""
        return [self[..., k] for k in range(self.shape[dim])]


def _flat(args: Any) -> Any:
    for value in args:
        yield from _flat(value) if isinstance(value, list | tuple) else (value,)


def _mapped(args: Any, change: Callable[[Any], Any]) -> list[Any]:
    return [
        _mapped(value, change) if isinstance(value, list | tuple) else change(value)
        for value in args
    ]


def _meta(value: Any) -> Any:
    if isinstance(value, Recorded):
        return value.meta
    return value.to("meta") if isinstance(value, Tensor) else value


def _name(value: Any) -> Any:
    return value.name if isinstance(value, Recorded) else value


Node = Callable[..., str]
"""Adds nodes to a graph, given the result's shape and the arguments; the name of the result."""


def _same(operation: str) -> Node:
    """The operation of ONNX with the same arguments."""
    return lambda g, meta, *args: g(operation, *args)


def _scaled(operation: str) -> Node:
    """A sum or difference, its second argument times alpha."""

    def node(g: Graph, meta: Tensor, x: Any, y: Any, alpha: float = 1) -> str:
        return g(operation, x, y if alpha == 1 else g("Mul", y, alpha))

    return node


def _reduced(operation: str) -> Node:
    return lambda g, meta, x, dim: g(operation, x, g.whole([dim]), keepdims=0)


def _all(g: Graph, meta: Tensor, x: str, dim: int) -> str:
    numbers = g("Cast", x, to=g.onnx.TensorProto.DOUBLE)
    return g("Greater", g("ReduceMin", numbers, g.whole([dim]), keepdims=0), 0.5)


def _clip(g: Graph, meta: Tensor, x: str, min: float = -math.inf, max: float = math.inf) -> str:
    return g("Clip", x, min, max)


def _addmm(g: Graph, meta: Tensor, start: Any, x: Any, y: Any, alpha: float = 1) -> str:
    return NODES["add"](g, meta, start, g("MatMul", x, y), alpha=alpha)


def _logaddexp(g: Graph, meta: Tensor, x: Any, y: Any) -> str:
    most = g("Max", x, y, np.finfo(np.float64).min)
    total = g("Add", g("Exp", g("Sub", x, most)), g("Exp", g("Sub", y, most)))
    return g("Add", g("Log", total), most)


def _reshape(g: Graph, meta: Tensor, x: str, shape: Sequence[int]) -> str:
    return g("Reshape", x, g.whole([-1 if size == N_ROWS else size for size in meta.shape]))


def _stack(g: Graph, meta: Tensor, parts: Sequence[str], dim: int) -> str:
    return g("Concat", *(g("Unsqueeze", part, g.whole([dim])) for part in parts), axis=dim)


def _solve(g: Graph, meta: Tensor, A: Tensor, b: str, *, upper: bool) -> str:
    return g("MatMul", torch.linalg.inv(A), b)


NODES: dict[str, Node] = {
    **{name: _same(name.capitalize()) for name in ("mul", "div", "pow", "cos", "sin", "exp")},
    **{name: _same(name.capitalize()) for name in ("log", "abs", "where")},
    "matmul": _same("MatMul"),
    "ge": _same("GreaterOrEqual"),
    "le": _same("LessOrEqual"),
    "bitwise_and": _same("And"),
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
    "stack": _stack,
    "t": lambda g, meta, x: g("Transpose", x, perm=[1, 0]),
    "linalg_solve_triangular": _solve,
    "linalg_vecdot": lambda g, meta, x, y: g(
        "ReduceSum", g("Mul", x, y), g.whole([-1]), keepdims=0
    ),
}
"""Nodes of the functions of torch that log-densities are made of."""
