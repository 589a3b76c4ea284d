"""The shape of the public API: few parameters, one default for one name, shallow classes."""

from inspect import signature
from itertools import combinations
from pathlib import Path

import pytest

import qaffde
from benchmarks import architecture
from qaffde import baselines

OURS = [
    qaffde.QAFFDE,
    qaffde.QAFFDESGD,
    qaffde.QAFFDEClassifier,
    qaffde.QAFFDEOutlierDetector,
    qaffde.FourierFeatures,
]
RIVALS = [getattr(baselines, name) for name in ("GMM", "KDE", "MAF", "NSF")]
FILES = architecture.sources(qaffde)
SOURCES = Path(qaffde.__file__).parent
FEATURES = {"n_features", "bandwidth", "features"}
"""Of the transformer, whose features are not for a density: it has defaults of its own."""


def parameters(estimator):
    found = dict(signature(estimator).parameters)
    return {name: p.default for name, p in found.items()}


def depth(kind):
    """Classes of ours in the longest chain of bases."""
    bases = [base for base in kind.__bases__ if base.__module__.startswith("qaffde")]
    return 1 + max(map(depth, bases), default=0)


@pytest.mark.parametrize("estimator", OURS + RIVALS)
def test_constructors_have_at_most_fifteen_parameters(estimator):
    assert len(parameters(estimator)) <= 15


@pytest.mark.parametrize(("first", "second"), list(combinations(OURS, 2)))
def test_one_name_has_one_default(first, second):
    one, two = parameters(first), parameters(second)
    shared = one.keys() & two.keys()
    if qaffde.FourierFeatures in (first, second):
        shared -= FEATURES
    assert {name: one[name] for name in shared} == {name: two[name] for name in shared}


@pytest.mark.parametrize("estimator", OURS)
def test_classes_are_at_most_three_deep(estimator):
    assert depth(estimator) <= 3


def test_constants_of_the_search_are_fields_of_its_policy():
    paths = architecture.search_files()
    assert {"search.py", "columns.py", "choice.py"} <= {path.name for path in paths}
    assert architecture.numeric_constants(paths) == 0
    with_policy = [*paths, paths[0].with_name("policy.py")]
    assert architecture.numeric_constants(with_policy) > 0  # its limits of memory and rounding


def test_files_of_later_features_exist():
    names = {path.relative_to(SOURCES).with_suffix("").as_posix() for path in FILES}
    assert {*architecture.LATER} <= names
