"""Measures of the code's shape, beside those of zuko.

    python -m benchmarks.architecture

Lines and files of the package, the longest constructor (of classes that are not plain values),
numeric module constants, the depth of inheritance, and how many modules and functions one fit
enters. The figures show where the complexity is; constants of the search outside of its policy
must be none (``tests/test_architecture.py``).
"""

import ast
import importlib
import inspect
import pkgutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

LATER = (
    *("kinds", "schema", "frames", "streams/schemas", "functional/contraction"),
    *("nn/columns", "nn/maps", "nn/table", "nn/table_cells", "nn/parts", "nn/column_basis"),
    *("nn/tensor_train", "nn/conditional", "nn/chain", "nn/table_recipes"),
    *("nn/calculus/factored", "nn/calculus/parts_measure", "nn/calculus/inner_products"),
    *("nn/comparison", "nn/shape", "functional/two_samples", "functional/table_features"),
    *("selection/columns", "selection/table_columns", "selection/table_mixture"),
    *("selection/tables", "selection/table_waves"),
    *("training/tensor_train", "training/regression", "training/chain"),
    *("estimators/tensor_train", "estimators/regressor", "estimators/autoregressive"),
    *("choice", "pyod", "estimators/drift", "estimators/information"),
    *("estimators/kernel_mixture", "nn/kernel_mixture", "nn/table_onnx"),
    *("plot/calibration", "plot/marks", "cli/drift"),
)
"""Files with features that the package did not have when it moved to data → plan → model
(18 November 2026, 03:35): kinds of columns, maps, tables, tensor trains, chains, regression,
pictures of them, drift, distances and modes, ONNX of tables, kernel mixtures for outliers."""


def sources(package: ModuleType) -> list[Path]:
    """Python files of a package."""
    return sorted(Path(str(package.__file__)).parent.rglob("*.py"))


def size(paths: list[Path]) -> str:
    """Lines and number of files."""
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
    return f"{lines:,} / {len(paths)}"


def numeric_constants(paths: list[Path]) -> int:
    """Assignments of numbers to names in capitals at the top of modules."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    return sum(_n_numbers(node) for tree in trees for node in tree.body)


def search_files() -> list[Path]:
    """Files of the search for a plan, and of the choice of an estimator, without the policy."""
    import qaffde

    found = [path for path in sources(qaffde) if path.parent.name == "selection"]
    choice = Path(str(qaffde.__file__)).parent / "choice.py"
    beside = {"policy.py", "recipes.py"}  # the constants, and how files are read
    return [*(path for path in found if path.name not in beside), choice]


def _n_numbers(node: ast.stmt) -> int:
    if not isinstance(node, ast.Assign):
        return 0
    names = [n for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    if not all(name.id.isupper() for name in names):
        return 0
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    numbers = [value for value in values if _is_number(value)]
    return len(numbers) if len(numbers) == len(values) else 0


def _is_number(node: ast.expr) -> bool:
    kinds = (ast.Constant, ast.BinOp, ast.UnaryOp)
    if not isinstance(node, kinds):
        return False
    leaves = [leaf for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)]
    return bool(leaves) and all(type(leaf.value) in (int, float) for leaf in leaves)


def classes(package: ModuleType) -> Iterator[type]:
    """Public classes that a package defines."""
    found = {}
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == info.name and name[0] != "_":
                found[value] = None
    return iter(found)


def depth(kind: type, package: ModuleType) -> int:
    """Own classes in the longest chain of bases, the class itself included."""
    own = [base for base in kind.__bases__ if base.__module__.startswith(package.__name__)]
    return 1 + max((depth(base, package) for base in own), default=0)


def n_parameters(kind: type) -> int:
    """Parameters of a constructor."""
    return len(inspect.signature(kind.__init__).parameters) - 1  # type: ignore[misc]


def entered(work: Callable[[], Any], package: ModuleType) -> tuple[int, int]:
    """Modules and functions of a package that some work enters."""
    top = str(Path(str(package.__file__)).parent)
    seen: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(top) and code.co_name[0] != "<":
            seen.add((code.co_filename, code.co_qualname))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len({path for path, _ in seen}), len(seen)


def pair(counts: tuple[int, int]) -> str:
    """Two counts as a cell."""
    return f"{counts[0]} / {counts[1]}"


def row(name: str, *values: object) -> None:
    """Print one measure of all packages."""
    print(f"{name:56}" + "".join(f"{value!s:>22}" for value in values))


def main() -> None:
    """Print all measures."""
    import torch
    import zuko

    import qaffde
    from qaffde import QAFFDE, QAFFDESGD, QAFFDEClassifier
    from qaffde.streams import chunks

    packages = (qaffde, zuko)
    row("", *(package.__name__ for package in packages))
    row("lines / files", *(size(sources(p)) for p in packages))
    top = Path(str(qaffde.__file__)).parent
    later = [top / f"{name}.py" for name in LATER]
    row("of these without the files of later features", size([*{*sources(qaffde)} - {*later}]), "")
    row("files of the estimators", len(list((top / "estimators").glob("*.py"))), "")
    row("numeric module constants", *(numeric_constants(sources(p)) for p in packages))
    row("numbers of SelectionPolicy", len(fields(qaffde.SelectionPolicy)), "")
    name = "numeric constants of the search outside SelectionPolicy"
    row(name, numeric_constants(search_files()), "")
    for kind in ("most constructor parameters", "deepest inheritance"):
        measure = n_parameters if kind[0] == "m" else None
        cells = []
        for package in packages:
            found = [
                c for c in classes(package) if issubclass(c, BaseEstimator) or not is_dataclass(c)
            ]
            value = measure or (lambda c, package=package: depth(c, package))
            largest = max(found, key=value)
            cells.append(f"{value(largest)} {largest.__name__}")
        row(kind, *cells)

    X = np.random.default_rng(0).normal(size=(400, 2))
    flow = zuko.flows.MAF(2)

    def step() -> None:
        loss = -flow().log_prob(torch.tensor(X).float()).mean()
        loss.backward()

    fits = {
        "QAFFDE().fit": lambda: QAFFDE(random_state=0).fit(X),
        "QAFFDESGD().fit": lambda: QAFFDESGD(random_state=0).fit(X),
        "QAFFDEClassifier().fit": lambda: QAFFDEClassifier(random_state=0).fit(X, X[:, 0] > 0),
    }
    step()
    for name, work in fits.items():
        beside = f"{pair(entered(step, zuko))} (a step)" if name == "QAFFDE().fit" else ""
        row(f"modules / functions that {name} enters", pair(entered(work, qaffde)), beside)

    def walk() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.safetensors")
            QAFFDE(random_state=0).fit(chunks([X[:200], X[200:]])).save(path)
            qaffde.load(path).score_samples(X)

    row("chunks → fit → file → scores", pair(entered(walk, qaffde)), "")


if __name__ == "__main__":
    main()
