"""Whatever a file holds, loading gives a model or one line that says what to do."""

import json
import os
import pickle
import tracemalloc
from copy import deepcopy

import numpy as np
import pytest
import safetensors.numpy as safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import qaffde
from benchmarks.faults import files as damaged_files
from benchmarks.faults.__main__ import USED
from qaffde import QAFFDE, FileError
from qaffde.files.fields import Fields
from qaffde.files.format import MAX_HEADER_BYTES, _digest, _split, pack, unpack
from qaffde.files.model import dumps, loads
from qaffde.files.values import MAX_USE, RECIPES
from qaffde.nn import FourierFeatures, GaussianMeasure
from tests.file_models import MODELS, fitted

N_INPUTS = int(os.environ.get("QAFFDE_FUZZ_INPUTS", "400"))


@pytest.fixture(scope="module")
def contents():
    return [dumps(fitted(name)) for name in MODELS]


def raw(header, data=b""):
    """A safetensors file of a header as it is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def with_metadata(text):
    return raw({"__metadata__": {"qaffde": text}})


NESTED = "[" * 100_000
FILES = {
    "empty": (b"", "cut short"),
    "short": (b"\0" * 7, "cut short"),
    "text": (b"a,b\n1,2\n3,4\n", "cut short"),
    "pickle": (pickle.dumps(QAFFDE), "cut short|not a model file"),
    "numpy": (safetensors.save({"x": np.ones(3)}), "not a model file of qaffde"),
    "a list": (raw([]), "not a JSON object"),
    "no JSON": (raw(b"\xff" * 9), "header cannot be read"),
    "header beyond the file": (b"\xff" * 8 + b"{}", "cut short"),
    "header too large": (raw(b" " * (MAX_HEADER_BYTES + 1)), "larger than"),
    "nested table": (raw(b'{"a":' + NESTED.encode()), "header cannot be read"),
    "nested header": (with_metadata('{"a":' + NESTED), "header cannot be read"),
    "metadata": (raw({"__metadata__": {"qaffde": 3}}), "not a model file"),
    "twice": (with_metadata('{"format":1,"format":1}'), "stands twice"),
    "huge number": (with_metadata('{"format":1' + "0" * 4000 + "}"), "which format"),
    "endless number": (with_metadata('{"format":1' + "0" * 5000 + "}"), "header cannot be read"),
    "huge float": (with_metadata('{"format":1e999}'), "which format"),
    "NaN": (with_metadata('{"format":NaN}'), "not finite"),
    "no version": (with_metadata("{}"), "which format"),
    "negative version": (with_metadata('{"format":-1}'), "which format"),
    "newer version": (
        with_metadata('{"format":99,"version":"9.9"}'),
        r"format 99, written by qaffde 9.9; this version reads format 2: update qaffde",
    ),
    "older version": (
        with_metadata('{"format":1,"version":"0.1.0"}'),
        r"format 1, written by qaffde 0.1.0; .*: run python tools/convert_model.py OLD NEW in the",
    ),
    "tensors that are not there": (
        raw(
            {
                "__metadata__": {"qaffde": '{"format":2}'},
                "x": {"dtype": "F64", "shape": [99], "data_offsets": [0, 792]},
            }
        ),
        "tensors have 792 bytes, not 0",
    ),
    "tensors of nothing": (
        raw({"__metadata__": {"qaffde": '{"format":2}'}, "x": {"data_offsets": ["a", {}]}}),
        "table of tensors is wrong",
    ),
    "no digest": (with_metadata('{"format":2}'), "digest is wrong"),
    "no objects": (pack({"format": 2}, {}), "list of objects"),
    "type of tensors": (
        raw({"x": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, b"\0"),
        "not a model file",
    ),
}


def assert_refused(content, message):
    with pytest.raises(FileError, match=message) as refusal:
        loads(content)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_no_models(case):
    assert_refused(*FILES[case])


def objects_of(header, kind):
    return [entry["fields"] for entry in header["objects"] if entry["class"] == kind]


def forged(name, change):
    """The file of a model after a change of its header and tensors, its digest right."""
    header, arrays = unpack(dumps(fitted(name)))
    change(header, arrays)
    return pack(header, arrays)


def parameter(kind, **values):
    def change(header, arrays):
        objects_of(header, kind)[-1]["parameters"]["dict"].update(values)

    return change


def tensor(name, make):
    def change(header, arrays):
        key = next(key for key in arrays if key.startswith(f"{name}."))
        arrays[key] = np.ascontiguousarray(make(arrays[key]))

    return change


def fields(kind, **values):
    def change(header, arrays):
        objects_of(header, kind)[-1].update(values)

    return change


def field(kind, name, value):
    return fields(kind, **{name: value})


def unread(also):
    """Without the density, which is read from the sums then; and with another change."""

    def change(header, arrays):
        header["objects"][-1]["fields"]["_density"] = None
        also(header, arrays)

    return change


def unfitted(kind):
    def change(header, arrays):
        found = objects_of(header, kind)[-1]
        for name in found.keys() - {"parameters"}:
            del found[name]

    return change


def class_name(name):
    def change(header, arrays):
        header["objects"][-1]["class"] = name

    return change


def chain(header, arrays):
    """Integrals of integrals, so many that reading one would not end."""
    number = next(
        i for i, o in enumerate(header["objects"]) if o["class"] == "IntegratedCoefficients"
    )
    entry = header["objects"][number]
    W = arrays.pop(entry["fields"]["W"]["tensor"])
    links = []
    for k in range(300):
        link = deepcopy(entry)
        link["fields"]["W"] = {"tensor": f"W{k}"}
        link["fields"]["source"] = {"object": number + k - 1}
        arrays[f"W{k}"] = W
        links.append(link)
    header["objects"][number : number + 1] = links


def spoil(value):
    def make(array):
        array.flat[0] = value
        return array

    return make


def trace_of(rho):
    """Mean of the diagonals."""
    return np.diagonal(rho, axis1=-2, axis2=-1).mean()


PLAIN = {"class": "NormalLaw", "fields": {}}
FORGED = {
    "class of another module": ("features", class_name("os.system"), "holds a os.system, a class"),
    "class of another kind": ("features", class_name("Plan"), "Plan.* is not known"),
    "class of a baseline": ("features", class_name("KDE"), "holds a KDE, a class not known"),
    "no estimator": ("outliers", lambda h, _: h["objects"].append(PLAIN), "holds no estimator"),
    "parameter": (
        "features",
        parameter("FourierFeatures", n_jobs=3),
        "parameter n_jobs is not known to this version: upd",
    ),
    "field": ("features", field("FourierFeatures", "__class__", 1), "__class__ is not known"),
    "later object": (
        "QAFFDE box",
        field("QAFFDE", "_density", {"object": 10**6}),
        "no known kind",
    ),
    "object itself": ("QAFFDE box", field("QAFFDE", "_density", {"object": -1}), "no known kind"),
    "deep value": (
        "QAFFDE box",
        parameter("QAFFDE", bounds=json.loads("[" * 20 + "]" * 20)),
        "too deep",
    ),
    "missing tensor": ("QAFFDE box", lambda h, a: a.clear(), "missing, or is used twice"),
    "columns": ("QAFFDE box", field("QAFFDE", "n_features_in_", 3), "plan_ has d = 2, not 3"),
    "many columns": (
        "classifier stream",
        field("QAFFDEClassifier", "n_features_in_", 2**40),
        "plan_ has d = 2, not 1099511627776",
    ),
    "columns of a trained model": (
        "QAFFDESGD box",
        field("QAFFDESGD", "n_features_in_", 1),
        "plan_ has d = 2, not 1",
    ),
    "columns of an outlier detector": (
        "outliers",
        fields(
            "QAFFDEOutlierDetector",
            n_features_in_=1,
            feature_names_in_={"texts": ["a"], "object": True},
        ),
        "estimator_ has d = 2, not 1",
    ),
    "columns of a classifier": (
        "classifier stream",
        field("QAFFDEClassifier", "n_features_in_", 3),
        "plan_ has d = 2, not 3",
    ),
    "columns of a density": (
        "marginal of box",
        field("DerivedDensity", "feature_names", {"texts": ["a", "b"], "object": True}),
        r"feature_names has shape \(2,\), not \(1,\)",
    ),
    "unfitted within": ("outliers", unfitted("QAFFDE"), "estimator_ is not fitted"),
    "NaN": ("QAFFDE box", tensor("Sums.rho", spoil(np.nan)), "rho holds NaN"),
    "infinite": ("QAFFDE box", tensor("BornDensity.factor", spoil(np.inf)), "infinite numbers"),
    "scale": ("QAFFDE box", tensor("StandardizedDensity.scale", spoil(-1)), "must be positive"),
    "box": ("QAFFDE box", tensor("BoxMeasure.lower", spoil(100)), "must lie below upper"),
    "type": ("QAFFDE box", tensor("Sums.rho", np.float32), "float32, not torch.float64"),
    "shape": ("QAFFDE box", tensor("FourierLayer.b", lambda b: b[1:]), r"has shape \(.*, not"),
    "empty": ("QAFFDE box", tensor("FourierLayer.W", lambda W: W[:, :0]), "has shape"),
    "covariance": (
        "QAFFDE gaussian",
        tensor("GaussianMeasure.covariances", np.negative),
        "covariances must be positive definite",
    ),
    "asymmetric covariance": (
        "QAFFDE gaussian",
        tensor("GaussianMeasure.covariances", lambda C: C + np.triu(np.full_like(C, 1e300), 1)),
        "covariances must be symmetric",
    ),
    "names": (
        "QAFFDE gaussian",
        field("QAFFDE", "feature_names_in_", {"texts": ["a"], "object": True}),
        r"feature_names_in_ has shape \(1,\), not \(2,\)",
    ),
    "no sums": ("QAFFDE box", field("QAFFDE", "sums_", None), "sums_ is missing"),
    "small sums": (
        "QAFFDE box",
        tensor("Sums.rho", lambda r: r[1:, 1:]),
        "sums_ has D = 10, not 11",
    ),
    "sums that are not square": ("QAFFDE box", tensor("Sums.rho", lambda r: r[1:]), "rho has D"),
    "sums that are not symmetric": (
        "QAFFDE box",
        tensor("Sums.rho", lambda rho: np.triu(rho + 1)),
        "rho is not symmetric",
    ),
    "sums that are not positive": (
        "QAFFDE stream",
        tensor("Sums.rho", lambda rho: rho - 0.9 * trace_of(rho) * np.eye(len(rho))),
        "rho is not positive semidefinite",
    ),
    "sums of classes that are not positive": (
        "classifier",
        tensor("ClassSums.rho", lambda rho: rho - 0.9 * trace_of(rho) * np.eye(rho.shape[1])),
        "rho is not positive semidefinite",
    ),
    "huge number": (
        "QAFFDE box",
        parameter("QAFFDE", n_features=10**400),
        r"the number 10{59}\.\.\. is too large",
    ),
    "huge factor": ("QAFFDESGD box", tensor("BornDensity.factor", spoil(1e300)), "beyond measure"),
    "huge amplitude": ("QAFFDESGD kernel", tensor("FourierLayer.a", spoil(-1e300)), "beyond mea"),
    "huge mean": ("classifier", tensor("ClassSums.psi", spoil(1e300)), "psi is beyond measure"),
    "huge weight": ("regressor", tensor("MemberLinear.weight", spoil(1e300)), "beyond measure"),
    "statistics of classes": (
        "classifier",
        tensor("ClassSums.rho", np.ravel),
        r"rho has shape \(.*, not \('C', 'D', 'D'\)",
    ),
    "prior": (
        "classifier",
        tensor("QAFFDEClassifier.class_prior_", spoil(-1)),
        "class_prior_ must not be negative",
    ),
    "sums of nothing": ("QAFFDE box", tensor("Sums.rho", np.zeros_like), "rho is zero or beyond"),
    "few rows": ("QAFFDE box", field("Sums", "count", 1e-300), "count = 1e-300 is out of range"),
    "sums of no class": ("classifier", tensor("ClassSums.rho", np.zeros_like), "rho is zero or"),
    **{
        f"{what} of an unread {name}": (
            name,
            unread(tensor(f"FourierLayer.{what}", lambda a: a * 1e300)),
            "beyond measure",
        )
        for name, what in [("QAFFDE box", "a"), ("QAFFDE mixture", "W"), ("classifier", "a")]
    },
    "weight": ("QAFFDE box", field("Sums", "weight", -1.0), "weight = -1.0 is out of range"),
    "count": ("QAFFDE box", field("Sums", "count", {"float": "nan"}), "count = nan is out of"),
    "classes": (
        "classifier",
        tensor("ClassSums.psi", lambda psi: psi[1:]),
        r"psi has shape \(1, .*, not \(2,",
    ),
    "weights of classes": (
        "classifier",
        tensor("ClassSums.weight", np.negative),
        "weight must not be negative",
    ),
    "names of classes": (
        "classifier",
        field("QAFFDEClassifier", "classes_", {"texts": ["a"], "object": True}),
        r"class_prior_ has shape \(2,\), not \(1,\)",
    ),
    "plan of nothing": (
        "QAFFDE box",
        field("QAFFDE", "plan_", {"object": 0}),
        "plan_ is not of type Plan",
    ),
    "plan of another method": (
        "QAFFDE box",
        fields("Plan", method="likelihood", measurement="likelihood"),
        "plan_ is one of another method",
    ),
    "plan of no method": ("QAFFDE box", field("Plan", "method", "eval"), "method='eval' is not"),
    "plan of a classifier": (
        "QAFFDESGD box",
        fields("Plan", method="classifier", measurement="direct"),
        "plan_ is one of another method",
    ),
    "location of a plan": ("QAFFDE box", tensor("Plan.location", spoil(np.nan)), "holds NaN"),
    "columns of a plan": (
        "QAFFDE box",
        tensor("Plan.location", lambda a: a[:1]),
        "has d = 2, not 1",
    ),
    "scale of a plan": ("QAFFDE box", tensor("Plan.scale", spoil(0)), "scale must be positive"),
    "bandwidth": ("QAFFDE box", tensor("Plan.bandwidth", spoil(-1)), "must be positive"),
    "bandwidths": ("QAFFDE box", tensor("Plan.bandwidth", lambda h: h[:1]), "has shape"),
    "reach": ("QAFFDE box", tensor("Plan.reach", spoil(np.nan)), "reach holds NaN"),
    "measure": (
        "QAFFDE box",
        field("Plan", "measure", "box"),
        "measure is not of type BaseMeasure",
    ),
    "measurement": ("QAFFDE box", field("Plan", "measurement", "x"), "measurement='x' is not"),
    "measurement of another method": (
        "QAFFDE box",
        field("Plan", "measurement", "gradient"),
        "measurement='gradient' is not",
    ),
    "rank": ("QAFFDE stream", field("Plan", "rank", "all"), "rank='all' must be"),
    "background": ("QAFFDE box", field("Plan", "background", 2), "background=2 must be"),
    "tolerance": (
        "QAFFDE box",
        field("Plan", "tolerance", "auto"),
        "tolerance='auto' must be a number",
    ),
    "min_trace": ("QAFFDE box", field("Plan", "min_trace", 1.5), "min_trace=1.5 must be"),
    "rows": ("QAFFDE box", field("Plan", "n_rows", 0), "n_rows = 0 is out of range"),
    "noise": (
        "QAFFDE box",
        lambda h, a: (
            objects_of(h, "Plan")[-1].update(noise={"tensor": "n"}),
            a.update(n=np.array(1.0)),
        ),
        "noise is of no direction",
    ),
    "no trials": (
        "QAFFDESGD box",
        field("Plan", "trials", {"tuple": [1]}),
        "trials is not of type Trial",
    ),
    "trials that are a list": (
        "QAFFDESGD box",
        field("Plan", "trials", []),
        "is not of type tuple",
    ),
    "trial": ("trials", field("Trial", "log_likelihood", {"float": "nan"}), "out of range"),
    "name of a trial": ("trials", field("Trial", "name", 3), "name is not of type str"),
    "choice of a trial": ("trials", field("Trial", "chosen", 1), "chosen is not of type bool"),
    "policy": ("configs", field("SelectionPolicy", "few_rows", "x"), "few_rows='x' must be a who"),
    "share": ("configs", field("SelectionPolicy", "min_trace", 7), "min_trace=7 must be a number"),
    "sizes": (
        "configs",
        field("SelectionPolicy", "mixture_sizes", {"tuple": [1, "x"]}),
        "mixture_sizes='x' must be",
    ),
    "constant of no policy": ("configs", field("SelectionPolicy", "pace", 1), "pace is not known"),
    "no configuration": (
        "configs",
        parameter("QAFFDE", compute="x"),
        "QAFFDE.compute is not of type ComputeConfig",
    ),
    "no policy": (
        "configs",
        parameter("QAFFDE", policy={"object": 0}),
        "QAFFDE.policy is not of type SelectionPolicy",
    ),
    "no plan": ("configs", parameter("QAFFDE", plan=3), "QAFFDE.plan is not of type Plan"),
    "no training": (
        "QAFFDESGD box",
        parameter("QAFFDESGD", training=[]),
        r"not of type .*TrainingConfig",
    ),
    "device": ("configs", field("ComputeConfig", "device", "moon"), "device='moon' cannot be"),
    "dtype of a frame": ("table", field("Column", "dtype", "eval"), "a dtype that no frame has"),
    "names of other columns": ("table", field("Column", "name", "other"), "has other columns"),
    "precision": ("configs", field("ComputeConfig", "dtype", "eval"), "dtype='eval' is not known"),
    "rows at once": ("configs", field("ComputeConfig", "batch_size", -1), "batch_size=-1 must"),
    "solver": ("QAFFDESGD box", field("TrainingConfig", "solver", "rm"), "solver='rm' is not"),
    "steps": ("QAFFDESGD box", field("TrainingConfig", "max_steps", 1e300), "max_steps=1e"),
    "augment": ("QAFFDESGD box", field("TrainingConfig", "augment", "os.system"), "be callable"),
    "no terms": ("marginal", field("BornMixture", "terms", []), "terms has fewer than 1"),
    "integrals without end": ("marginal", chain, "too long a chain"),
    "frequency": ("conditional", tensor("TrigonometricForm.W", spoil(1e12)), "beyond measure"),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_files(case):
    name, change, message = FORGED[case]
    assert_refused(forged(name, change), message)


def grown(n):
    """A density of n features and rank one."""

    def change(header, arrays):
        for key, value in arrays.items():
            if key.startswith("FourierLayer."):
                arrays[key] = np.resize(value, (n, *value.shape[1:]))
            elif key.startswith("BornDensity.factor"):
                arrays[key] = np.ones((*value.shape[:-2], 1, n))

    return change


def many_components(header, arrays):
    grown(3000)(header, arrays)
    for key, value in arrays.items():
        if key.startswith("GaussianMeasure."):
            arrays[key] = np.concatenate([value] * 500)


COSTLY = {
    "features": ("QAFFDESGD box", grown(20_000)),
    "features of classes": ("classifier gradient", grown(20_000)),
    "components": ("QAFFDESGD mixture", many_components),
}


@pytest.mark.parametrize("case", COSTLY)
def test_small_files_do_not_make_large_models(case):
    name, change = COSTLY[case]
    content = forged(name, change)
    assert len(content) < 2e6
    assert_refused(content, "using the model would take more than 4 GiB")


def test_small_files_do_not_hold_many_integrals():
    H = 3000
    law = {"class": "NormalLaw", "fields": {}}
    squared = {"class": "SquaredCoefficients", "fields": {"F": {"tensor": "F"}}}
    links = [
        {
            "class": "IntegratedCoefficients",
            "fields": {"source": {"object": k}, "law": {"object": 0}, "W": {"tensor": f"W{k}"}},
        }
        for k in range(1, 20)
    ]
    arrays = {"F": np.ones((1, H)), **{f"W{k}": np.zeros((H, 1)) for k in range(1, 20)}}
    content = pack({"format": 2, "objects": [law, squared, *links]}, arrays)
    assert len(content) < 1e6
    assert_refused(content, "using the model would take more than 4 GiB")


def test_models_of_several_thousand_features_are_not_refused():
    features = FourierFeatures.draw("paired", 8000, torch.ones(1).double())
    measure = GaussianMeasure(*(torch.ones(8, 1, 1).double()[(..., *[0] * k)] for k in (2, 1, 0)))
    spent = []
    for kind, values in [
        ("FourierLayer", {"W": features.W, "b": features.b, "a": features.a}),
        ("GaussianMeasure", RECIPES["GaussianMeasure"].take(measure)),
    ]:
        RECIPES[kind].read(Fields(kind, values))
    sizes = {id(features): {"d": 1, "D": 8000}, id(measure): {"d": 1, "K": 8}}
    factor = torch.ones(1, 8000).double()
    fields = Fields(
        "BornDensity",
        {"features": features, "measure": measure, "factor": factor},
        sizes,
        spent.append,
    )
    RECIPES["BornDensity"].read(fields)
    assert 2 * sum(spent) < MAX_USE  # of the density, and of the plan


def test_headers_of_millions_of_parts_come_to_an_end():
    ones = "[" + "1," * (MAX_HEADER_BYTES // 2 - 500) + "1]"
    model = '{"class":"QAFFDE","fields":{"parameters":{"dict":{"bounds":' + ones + "}}}}"
    parts = {
        "numbers": '{"format":2,"objects":[' + model + "]}",
        "objects": '{"format":2,"objects":[' + "{}," * (MAX_HEADER_BYTES // 3 - 99) + "{}]}",
    }
    for header in parts.values():
        assert damaged_files.outcome(pack_text(header)) in USED


def pack_text(header):
    """Content of a file whose header is a text as it is; its digest is right."""
    content = with_metadata(header)
    table, data = _split(content, len(content))
    return raw({"__metadata__": {"qaffde": header, "digest": _digest(table, data)}})


@pytest.mark.parametrize("shape", [[1] * 70, [0, 2**40, 2**40]])
def test_odd_shapes(shape):
    size = 8 if 0 not in shape else 0
    text = json.dumps({"format": 2})
    table = {
        "__metadata__": {"qaffde": text},
        "x": {"dtype": "F64", "shape": shape, "data_offsets": [0, size]},
    }
    table["__metadata__"]["digest"] = _digest(table, memoryview(bytes(size)))
    assert_refused(raw(table, bytes(size)), "a tensor has shape|tensors cannot be read")


def test_a_sparse_file_is_not_read_before_its_header(tmp_path):
    path = tmp_path / "model"
    starts = {
        "not a model file": raw({}),
        "cut short": (2**60).to_bytes(8, "little"),
        "tensors have 8 bytes, not": with_offsets(8),
        "update qaffde": with_metadata('{"format":99}'),
        "header of .* bytes is larger": (2**29).to_bytes(8, "little"),
    }
    for message, start in starts.items():
        path.write_bytes(start)
        os.truncate(path, 1 << 30)
        tracemalloc.start()
        with pytest.raises(FileError, match=message):
            qaffde.load(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3 * MAX_HEADER_BYTES


def with_offsets(end):
    entry = {"dtype": "U8", "shape": [end], "data_offsets": [0, end]}
    return raw({"__metadata__": {"qaffde": '{"format":2}'}, "x": entry})


def test_a_tensor_is_used_only_once():
    def change(header, arrays):
        measure = objects_of(header, "GaussianMeasure")[0]
        measure["cholesky"] = measure["covariances"]

    assert_refused(forged("QAFFDE gaussian", change), "used twice")


def test_every_flipped_byte_is_found(contents):
    content = min(contents, key=len)
    rng = np.random.default_rng(0)
    for place in rng.choice(len(content), 200, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        assert damaged_files.outcome(bytes(damaged)) == "refused", place


def test_every_file_that_was_cut_is_found(contents):
    content = min(contents, key=len)
    for end in range(0, len(content), 7):
        assert damaged_files.outcome(content[:end]) == "refused"


def test_mutated_files(contents):
    found = {
        number: damaged_files.outcome(
            damaged_files.mutate(contents, np.random.default_rng(number))
        )
        for number in range(N_INPUTS)
    }
    assert {n: what for n, what in found.items() if what not in USED} == {}
    assert {"refused", "loaded, used"} <= set(found.values())


def test_other_errors_would_be_told(monkeypatch):
    def fail(content):
        raise KeyError(3)

    monkeypatch.setattr(damaged_files, "loads", fail)
    assert damaged_files.outcome(b"") == "KeyError: 3"
    assert damaged_files.outcome(b"") not in USED


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | plain.map(lambda value: raw(json.dumps(value).encode())))
def test_anything_at_all_is_refused(content):
    assert damaged_files.outcome(content) == "refused"


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)).map(lambda name: unpack(dumps(fitted(name)))),
    st.data(),
)
def test_any_value_anywhere(parts, data):
    header, arrays = deepcopy(parts)
    entry = data.draw(st.sampled_from(header["objects"]))
    if entry["fields"]:
        name = data.draw(st.sampled_from(sorted(entry["fields"])))
        entry["fields"][name] = data.draw(plain.filter(_is_strict))
        assert damaged_files.outcome(pack(header, arrays)) in USED


def _is_strict(value):
    """Whether JSON proper can say it."""
    try:
        return json.dumps(value, allow_nan=False) is not None
    except ValueError:
        return False


def test_sizes_are_limited(tmp_path):
    path = tmp_path / "model"
    fitted("QAFFDE gaussian").save(path)
    size = path.stat().st_size
    with pytest.raises(FileError, match=rf"has {size} bytes, more than max_bytes=1000; if you"):
        qaffde.load(path, max_bytes=1000)
    assert qaffde.load(path, max_bytes=size)


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(FileError, match="is not a regular file"):
            qaffde.load(path)
    with pytest.raises(FileNotFoundError):
        qaffde.load(tmp_path / "nothing")


def test_messages_name_the_file(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"nothing")
    with pytest.raises(FileError, match=rf"^'{path}' cannot be loaded: .*save the model again$"):
        qaffde.load(path)


def test_names_in_messages_are_short_and_plain():
    assert_refused(
        forged("features", class_name("\ud800\n" * 99)), r"holds a (\\ud800 )+.*\.\.\., a"
    )
