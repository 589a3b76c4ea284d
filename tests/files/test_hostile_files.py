"""Whatever a file holds, loading gives a model or one line that says what to do."""

import json
import os
import pickle
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qaffde
from benchmarks import fuzz_files
from qaffde import QAFFDE, FileError
from tests.file_models import MODELS, fitted

safetensors = pytest.importorskip("safetensors.numpy", reason="files need the extra 'files'")

from qaffde.files.format import MAX_HEADER_BYTES, pack, unpack  # noqa: E402
from qaffde.files.model import dumps, loads  # noqa: E402

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
    "huge number": (with_metadata('{"format":1' + "0" * 4000 + "}"), "too large"),
    "huge float": (with_metadata('{"format":1e999}'), "not finite"),
    "NaN": (with_metadata('{"format":NaN}'), "not finite"),
    "no version": (with_metadata("{}"), "which format"),
    "negative version": (with_metadata('{"format":-1}'), "which format"),
    "newer version": (
        with_metadata('{"format":99,"version":"9.9"}'),
        r"format 99, written by qaffde 9.9; this version reads up to format 2: update qaffde",
    ),
    "no digest": (with_metadata('{"format":1}'), "digest is wrong"),
    "no objects": (pack({"format": 1}, {}), "list of objects"),
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
        arrays[key] = make(arrays[key])

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
        header["objects"][-1]["fields"]["density"] = None
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


PLAIN = {"class": "NormalLaw", "fields": {}}
FORGED = {
    "class of another module": ("features", class_name("os.system"), "holds a os.system, a class"),
    "class of another kind": ("features", class_name("Plan"), "is missing"),
    "class of a baseline": ("features", class_name("KDE"), "holds a KDE, a class not known"),
    "no estimator": ("outliers", lambda h, _: h["objects"].append(PLAIN), "holds no estimator"),
    "parameter": (
        "features",
        parameter("FourierFeatures", n_jobs=3),
        "parameter n_jobs is not known to this version: upd",
    ),
    "field": ("features", field("FourierFeatures", "__class__", 1), "__class__ is not known"),
    "later object": ("QAFFDE box", field("QAFFDE", "density", {"object": 10**6}), "no known kind"),
    "object itself": ("QAFFDE box", field("QAFFDE", "density", {"object": -1}), "no known kind"),
    "deep value": (
        "QAFFDE box",
        parameter("QAFFDE", bounds=json.loads("[" * 20 + "]" * 20)),
        "too deep",
    ),
    "missing tensor": ("QAFFDE box", lambda h, a: a.clear(), "missing, or is used twice"),
    "columns": ("QAFFDE box", field("QAFFDE", "n_features_in_", 3), "plan is not of 3 columns"),
    "many columns": (
        "classifier stream",
        field("QAFFDEClassifier", "n_features_in_", 2**40),
        "plan is not of 1099511627776 columns",
    ),
    "columns of a trained model": (
        "QAFFDESGD box",
        field("QAFFDESGD", "n_features_in_", 1),
        "plan is not of 1 columns",
    ),
    "columns of an outlier detector": (
        "outliers",
        fields(
            "QAFFDEOutlierDetector",
            n_features_in_=1,
            feature_names_in_={"texts": ["a"], "object": True},
        ),
        "estimator is not of 1 columns",
    ),
    "columns of a classifier": (
        "classifier stream",
        field("QAFFDEClassifier", "n_features_in_", 3),
        "plan is not of 3 columns",
    ),
    "columns of a density": (
        "marginal of box",
        field("DerivedDensity", "feature_names", {"texts": ["a", "b"], "object": True}),
        "feature_names are wrong",
    ),
    "unfitted within": ("outliers", unfitted("QAFFDE"), "estimator is not fitted"),
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
    "names": (
        "QAFFDE gaussian",
        field("QAFFDE", "feature_names_in_", {"texts": ["a"], "object": True}),
        "feature_names_in_ are wrong",
    ),
    "no sums": ("QAFFDE box", field("QAFFDE", "sums", None), "sums is not of type Sums"),
    "small sums": ("QAFFDE box", tensor("Sums.rho", lambda r: r[1:, 1:]), "have other sizes"),
    "sums that are not square": ("QAFFDE box", tensor("Sums.rho", lambda r: r[1:]), "has shape"),
    "sums of nothing": ("QAFFDE box", tensor("Sums.rho", np.zeros_like), "rho is zero or beyond"),
    "few rows": ("QAFFDE box", field("Sums", "count", 1e-300), "count = 1e-300 is out of range"),
    "sums of no class": ("classifier", tensor("ClassSums.rho", np.zeros_like), "rho is zero or"),
    **{
        f"{what} of an unread {name}": (
            name,
            unread(tensor(f"FourierLayer.{what}", lambda a: a * 1e300)),
            "plan has features beyond measure",
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
        field("QAFFDEClassifier", "classes", {"texts": ["a"], "object": True}),
        "classes have other sizes",
    ),
    "plan of nothing": (
        "QAFFDE box",
        field("QAFFDE", "plan", {"object": 0}),
        "plan is not of type Plan",
    ),
    "plan of another method": (
        "QAFFDE box",
        fields("Plan", method="likelihood", measurement="likelihood"),
        "plan is one of another method",
    ),
    "plan of no method": ("QAFFDE box", field("Plan", "method", "eval"), "method = 'eval' is not"),
    "plan of a classifier": (
        "QAFFDESGD box",
        fields("Plan", method="classifier", measurement="direct"),
        "plan is one of another method",
    ),
    "location of a plan": ("QAFFDE box", tensor("Plan.location", spoil(np.nan)), "holds NaN"),
    "columns of a plan": ("QAFFDE box", tensor("Plan.location", lambda a: a[:1]), "has shape"),
    "scale of a plan": ("QAFFDE box", tensor("Plan.scale", spoil(0)), "scale must be positive"),
    "bandwidth": ("QAFFDE box", tensor("Plan.bandwidth", spoil(-1)), "must be positive"),
    "bandwidths": ("QAFFDE box", tensor("Plan.bandwidth", lambda h: h[:1]), "has shape"),
    "reach": ("QAFFDE box", tensor("Plan.reach", spoil(np.nan)), "reach holds NaN"),
    "measure": (
        "QAFFDE box",
        field("Plan", "measure", "box"),
        "measure is not of type BaseMeasure",
    ),
    "measurement": ("QAFFDE box", field("Plan", "measurement", "x"), "measurement = 'x' is not"),
    "measurement of another method": (
        "QAFFDE box",
        field("Plan", "measurement", "gradient"),
        "measurement = 'gradient' is not",
    ),
    "rank": ("QAFFDE stream", field("Plan", "rank", "all"), "rank='all' must be"),
    "background": ("QAFFDE box", field("Plan", "background", 2), "background=2 must be"),
    "tolerance": (
        "QAFFDE box",
        field("Plan", "tolerance", "auto"),
        "tolerance is not of type number",
    ),
    "min_trace": ("QAFFDE box", field("Plan", "min_trace", 1.5), "out of range"),
    "rows": ("QAFFDE box", field("Plan", "n_rows", 0), "n_rows = 0 is out of range"),
    "noise": (
        "QAFFDE box",
        lambda h, a: (
            objects_of(h, "Plan")[-1].update(noise={"tensor": "n"}),
            a.update(n=np.array(1.0)),
        ),
        "noise is of no direction",
    ),
    "no trials": ("QAFFDESGD box", field("Plan", "trials", {"tuple": [1]}), "hold no trials"),
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
        "compute that is not of type Comp",
    ),
    "no policy": (
        "configs",
        parameter("QAFFDE", policy={"object": 0}),
        "policy that is not of type Sel",
    ),
    "no plan": ("configs", parameter("QAFFDE", plan=3), "plan that is not of type Plan"),
    "no training": (
        "QAFFDESGD box",
        parameter("QAFFDESGD", training=[]),
        "not of type TrainingConfig",
    ),
    "device": ("configs", field("ComputeConfig", "device", "moon"), "device='moon' cannot be"),
    "precision": ("configs", field("ComputeConfig", "dtype", "eval"), "dtype='eval' is not known"),
    "rows at once": ("configs", field("ComputeConfig", "batch_size", -1), "batch_size=-1 must"),
    "solver": ("QAFFDESGD box", field("TrainingConfig", "solver", "rm"), "solver='rm' is not"),
    "steps": ("QAFFDESGD box", field("TrainingConfig", "max_steps", 1e300), "max_steps=1e"),
    "augment": ("QAFFDESGD box", field("TrainingConfig", "augment", "os.system"), "be callable"),
    "integrals without end": ("marginal", chain, "integrated too often"),
    "frequency": ("conditional", tensor("TrigonometricForm.W", spoil(1e12)), "beyond measure"),
    "order": ("QAFFDESGD shear", tensor("PolynomialShear.order", spoil(7)), "not an order"),
    "degree": ("QAFFDESGD shear", tensor("PolynomialShear.powers", spoil(10**9)), "are wrong"),
    "negative power": ("QAFFDESGD shear", tensor("PolynomialShear.powers", spoil(-1)), "wrong"),
    "no triangle": (
        "QAFFDESGD shear",
        tensor("PolynomialShear.coefficients", lambda c: c + 1),
        "columns that come later",
    ),
    "powers of numbers": (
        "QAFFDESGD shear",
        tensor("PolynomialShear.powers", np.float64),
        "float64, not torch.int64",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_files(case):
    name, change, message = FORGED[case]
    assert_refused(forged(name, change), message)


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
        assert fuzz_files.outcome(bytes(damaged)) == "refused", place


def test_every_file_that_was_cut_is_found(contents):
    content = min(contents, key=len)
    for end in range(0, len(content), 7):
        assert fuzz_files.outcome(content[:end]) == "refused"


def test_mutated_files(contents):
    found = {
        number: fuzz_files.outcome(fuzz_files.mutate(contents, number)[1])
        for number in range(N_INPUTS)
    }
    assert {n: what for n, what in found.items() if what not in fuzz_files.FINE} == {}
    assert {"refused", "loaded, used"} <= set(found.values())


def test_the_fuzzer_counts_and_would_tell(contents, monkeypatch):
    result = fuzz_files.run(contents[:2], 10)
    assert sum(result["outcomes"].values()) == 10

    def fail(content):
        raise KeyError(3)

    monkeypatch.setattr(fuzz_files, "loads", fail)
    assert fuzz_files.outcome(b"") == "KeyError: 3"
    assert fuzz_files.outcome(b"") not in fuzz_files.FINE


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | plain.map(lambda value: raw(json.dumps(value).encode())))
def test_anything_at_all_is_refused(content):
    assert fuzz_files.outcome(content) == "refused"


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
        assert fuzz_files.outcome(pack(header, arrays)) in fuzz_files.FINE


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
