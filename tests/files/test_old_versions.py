"""Files of every format so far are read, converted, or refused with what to do about it.

The files under ``tests/data`` were written when their format was new, with scores of some rows
beside them. They are never written again: a new format gets files of its own.
"""

import json
import runpy
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import qaffde
from benchmarks.faults import files as damaged_files
from benchmarks.faults.__main__ import USED
from qaffde import QAFFDE, QAFFDESGD, ComputeConfig, FileError, SelectionPolicy, TrainingConfig
from qaffde.files.format import FORMAT, pack, unpack
from qaffde.files.model import loads
from tests.file_models import FRAME, X
from tools.convert_model import convert

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
FILES = sorted(DATA.glob("v*/*.safetensors"))
FACTS = {file: json.loads(file.with_suffix(".json").read_text()) for file in FILES}
READ = [file for file in FILES if "scores" in FACTS[file]]
REFUSED = [file for file in FILES if "refused" in FACTS[file]]
OLD = [file for file in FILES if file.parent.name != f"v{FORMAT}"]
FIRST = [file for file in OLD if file.parent.name == "v1"]


def label(file):
    return f"{file.parent.name}/{file.stem}"


def loaded(file):
    """The model of a file, after a conversion unless it is read as it is."""
    content = file.read_bytes()
    return loads(convert(content) if file in OLD else content)


def first_format(name):
    return loaded(DATA / "v1" / f"{name}.safetensors")


def assert_scores(model, file):
    """The model scores the rows of the file as it did; float32 differs between processors."""
    facts, compute = FACTS[file], getattr(model, "compute", None)
    rounding = 2e-6 if compute is not None and compute.dtype == "float32" else 1e-9
    scores = getattr(model, facts.get("method", "score_samples"))(np.array(facts["rows"]))
    np.testing.assert_allclose(scores, facts["scores"], rtol=rounding, atol=rounding)


def test_every_format_has_files():
    assert {file.parent.name for file in FILES} == {"v1", "v2_first", f"v{FORMAT}"}


@pytest.mark.parametrize("file", READ, ids=label)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_models_answer_as_they_did(file):
    expected = FACTS[file]
    model = loaded(file)
    assert type(model).__name__ == expected["class"]
    assert list(getattr(model, "feature_names_in_", [])) == expected["names"]
    assert_scores(model, file)


@pytest.mark.parametrize("file", READ, ids=label)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_models_are_saved_in_the_format_of_today(file, tmp_path):
    loaded(file).save(tmp_path / "model")
    assert unpack((tmp_path / "model").read_bytes())[0]["format"] == FORMAT
    assert_scores(qaffde.load(tmp_path / "model"), file)


@pytest.mark.parametrize("file", REFUSED, ids=label)
def test_what_is_no_longer_read_says_so(file):
    said = f"holds a {FACTS[file]['refused']} of format 1, which .* load it with qaffde 0.1.0, or"
    with pytest.raises(FileError, match=said):
        convert(file.read_bytes())


@pytest.mark.parametrize("file", OLD, ids=label)
def test_old_files_are_refused_until_they_are_converted(file):
    said = "has format 1, " if file in FIRST else "is missing|is not known|a class not known"
    with pytest.raises(FileError, match=rf"({said}).* run python tools/convert_model.py"):
        qaffde.load(file)


def test_files_of_today_are_converted_to_themselves():
    content = (DATA / "v2" / "qaffde_box.safetensors").read_bytes()
    assert unpack(convert(content))[0]["objects"] == unpack(content)[0]["objects"]


def test_the_converter_as_a_command(tmp_path, monkeypatch):
    old, new = DATA / "v1" / "qaffde_box.safetensors", tmp_path / "new"

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["convert_model.py", *map(str, arguments)])
        runpy.run_path(str(ROOT / "tools" / "convert_model.py"), run_name="__main__")

    run(old, new)
    assert isinstance(qaffde.load(new), QAFFDE)
    new.write_bytes(b"nothing")
    with pytest.raises(SystemExit, match="the file is cut short"):
        run(new, tmp_path / "again")
    with pytest.raises(SystemExit, match=r"^usage: "):
        run(old)
    assert not (tmp_path / "again").exists()


def test_parameters_moved_into_configurations():
    model = first_format("qaffde_options")
    policy = SelectionPolicy(background=0.01, min_trace=0.999, tolerance=1e-5)
    assert (model.policy, model.compute) == (policy, ComputeConfig(batch_size=50))
    assert (model.base_measure, model.rank, model.random_state) == (2, 3, 0)
    unfitted = first_format("qaffde_unfitted")
    assert (unfitted.policy, unfitted.base_measure) == (None, 4)
    assert unfitted.compute == ComputeConfig(dtype="float32")
    assert not unfitted.__sklearn_is_fitted__()
    given = {"initialisation": "random", "batch_size": 64, "patience": None}
    box = DATA / "v1" / "qaffdesgd_box.safetensors"
    other = forged(box, lambda o, _: o[-1]["fields"]["parameters"]["dict"].update(given))
    training = {"initialization": "random", "batch_size": 64, "patience": None, "max_iter": 5}
    assert loads(convert(other)).training == TrainingConfig(**training)
    assert first_format("qaffdesgd_kernel").base_measure == "kernel"


@pytest.mark.parametrize("name", ["qaffde_box", "qaffde_options", "qaffde_gaussian"])
def test_frames_become_plans(name):
    model = first_format(name)
    again = QAFFDE(plan=model.plan_, compute=model.compute).fit(X)
    assert model.plan_.n_rows == len(X)
    rows = X if name != "qaffde_gaussian" else FRAME
    np.testing.assert_allclose(again.score_samples(X), model.score_samples(rows), rtol=1e-7)


def test_updates_of_an_old_stream_go_on():
    model = first_format("qaffde_stream")
    again = QAFFDE(plan=model.plan_).fit(FRAME[:70]).partial_fit(FRAME[70:])
    torch.testing.assert_close(again.sums_.rho, model.sums_.rho, rtol=1e-9, atol=1e-9)
    both = model.merge(again).forget(FRAME)
    np.testing.assert_allclose(both.score_samples(FRAME), again.score_samples(FRAME), rtol=1e-6)


@pytest.mark.parametrize("name", ["qaffdesgd_box", "qaffdesgd_kernel"])
def test_plans_of_maximum_likelihood(name):
    model = first_format(name)
    assert model.plan_.ridge == pytest.approx(0.01 if "kernel" not in name else 100 / len(X))
    np.testing.assert_allclose(model.bandwidth_, 0.8)
    training = TrainingConfig(max_iter=5)
    again = QAFFDESGD(plan=model.plan_, training=training, random_state=0).fit(X)
    assert abs(again.score(X) - model.score(X)) < 0.1


OLD_BOX = DATA / "v1" / "qaffde_box.safetensors"


def forged(file, change):
    header, arrays = unpack(file.read_bytes(), versions=(1,))
    change(header["objects"], arrays)
    return pack(header, arrays)


RHO = next(name for name in unpack(OLD_BOX.read_bytes(), versions=(1,))[1] if ".rho." in name)
FORGED = {
    "frame": (
        "qaffde_box",
        lambda o, _: o[-1]["fields"].update(frame=3),
        "cannot be converted",
    ),
    "measure": (
        "qaffde_box",
        lambda o, _: o[2]["fields"].update(measure=1),
        "not of type BaseMeasure",
    ),
    "rank": (
        "qaffde_box",
        lambda o, _: o[-1]["fields"]["parameters"]["dict"].update(rank="x"),
        "rank='x' must be",
    ),
    "density": (
        "qaffdesgd_box",
        lambda o, _: o[-1]["fields"].update(density={"object": 0}),
        "cannot be converted",
    ),
    "rho": ("qaffde_box", lambda _, a: a[RHO].fill(np.nan), "rho holds NaN"),
    "field": (
        "qaffdesgd_box",
        lambda o, _: o[-1]["fields"].update(plan=None),
        "plan is not known in format 1",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_files_of_format_1(case):
    name, change, message = FORGED[case]
    with pytest.raises(FileError, match=message):
        convert(forged(DATA / "v1" / f"{name}.safetensors", change))


def outcome(content):
    """What a content of format 1 gives once it is converted."""
    try:
        return damaged_files.outcome(convert(content))
    except FileError as error:
        return "refused" if str(error).isprintable() else "unclear message"


@pytest.mark.parametrize("format_", ["v1", "v2_first"])
def test_mutated_old_files(format_):
    contents = [file.read_bytes() for file in OLD if file.parent.name == format_]
    found = set()
    for number in range(400):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(damaged_files, "unpack", partial(unpack, versions=(1, FORMAT)))
            content = damaged_files.mutate(contents, np.random.default_rng(number))
        found.add(outcome(content))
    assert found <= USED
    assert {"refused", "loaded, used"} <= found
