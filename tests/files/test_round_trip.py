"""Every estimator comes back from a file as it was, and goes on from there."""

import copy
from functools import cached_property

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from torch.distributions import ExpTransform

import qaffde
from qaffde import QAFFDE, QAFFDESGD, FileError, SelectionPolicy, TrainingConfig
from qaffde.estimators import recipes
from qaffde.files.fields import Fields
from qaffde.files.values import RECIPES
from qaffde.nn import BornDensity, FourierFeatures, GaussianMeasure, find_born
from qaffde.training import History
from tests.file_models import BRIEF, CLOSED, FRAME, MODELS, X, answers, fitted


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def saved(model, path):
    model.save(path)
    return qaffde.load(path)


def held(value):
    """Attributes but those that are computed from others when they are first asked for."""
    kind = type(value)
    return {
        k: v
        for k, v in vars(value).items()
        if not isinstance(getattr(kind, k, None), cached_property)
    }


def assert_same(first, second):
    """Attributes of the same kinds and values; modules by their state."""
    assert type(first) is type(second)
    if isinstance(first, torch.nn.Module):
        assert_same(dict(first.state_dict()), dict(second.state_dict()))
    elif isinstance(first, torch.Tensor):
        assert first.dtype == second.dtype
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
    elif isinstance(first, np.ndarray):
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            assert_same(first[key], second[key])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    elif isinstance(first, np.random.RandomState):
        assert_same(first.get_state(), second.get_state())
    elif hasattr(first, "__dict__"):
        assert_same(held(first), held(second))
    else:
        assert first == second or (first != first and second != second)


@pytest.mark.parametrize("name", MODELS)
def test_fitted_estimators_come_back(name, path):
    model = fitted(name)
    loaded = saved(model, path)
    np.testing.assert_array_equal(answers(loaded), answers(model))
    kept = {key: value for key, value in vars(model).items() if "density" not in key}
    assert_same(kept, {key: vars(loaded)[key] for key in kept})
    assert vars(loaded).keys() == vars(model).keys()


BORN_FITTED = ("marginal", "conditional")


@pytest.mark.parametrize("name", [n for n in MODELS if not n.startswith(BORN_FITTED)])
def test_unfitted_estimators_come_back(name, path):
    model = clone(fitted(name))
    loaded = saved(model, path)
    assert_same(vars(loaded), vars(model))
    assert not recipes.fitted(loaded)


def test_a_fit_that_failed_is_no_fit(path):
    model = QAFFDE()
    with pytest.raises(ValueError, match="constant column"):
        model.fit(np.ones((9, 2)))
    assert not recipes.fitted(saved(model, path))
    model.sums_ = None
    with pytest.raises(FileError, match="only partially fitted"):
        model.save(path)


def test_every_estimator_of_the_library_is_known():
    public = {
        item
        for name in qaffde.__all__
        if isinstance(item := getattr(qaffde, name), type) and issubclass(item, BaseEstimator)
    }
    known = {recipe.kind for recipe in recipes.ESTIMATORS.values()}
    assert public <= known
    assert {type(fitted(name)) for name in MODELS} == known


@pytest.mark.parametrize("name", ["QAFFDE gaussian", "QAFFDE stream"])
def test_updates_go_on_exactly(name, path):
    model, loaded = copy.deepcopy(fitted(name)), saved(fitted(name), path)
    for one in (model, loaded):
        one.partial_fit(FRAME[:20]).merge(fitted(name)).forget(FRAME[:10])
    assert torch.equal(loaded.sums_.rho, model.sums_.rho)
    assert (loaded.sums_.weight, loaded.sums_.count) == (model.sums_.weight, model.sums_.count)
    np.testing.assert_array_equal(answers(loaded), answers(model))


def test_an_unread_density_stays_unread(path):
    model = QAFFDE(**CLOSED).partial_fit(X)
    loaded = saved(model, path)
    assert loaded._density is None
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))


@pytest.mark.parametrize("name", ["QAFFDE mixture", "QAFFDESGD box", "marginal"])
def test_draws_are_the_same(name, path):
    model = fitted(name)
    np.testing.assert_array_equal(
        saved(model, path).sample(5, random_state=1), model.sample(5, random_state=1)
    )


def test_the_calculus_goes_on(path):
    loaded = saved(fitted("QAFFDE gaussian"), path)
    there = loaded.condition({"weight": 1.0}).score_samples(FRAME[["height"]])
    here = fitted("QAFFDE gaussian").condition({"weight": 1.0}).score_samples(FRAME[["height"]])
    np.testing.assert_array_equal(there, here)


def test_a_drift_detector_goes_on(path):
    model, loaded = copy.deepcopy(fitted("drift")), saved(fitted("drift"), path)
    assert len(loaded._waiting) == 1
    for one in (model, loaded):
        one.update(X[31:60])
    assert loaded.n_new_ == 60
    assert loaded.p_value_ == model.p_value_


def test_parts_that_were_shared_are_shared(path):
    loaded = saved(fitted("QAFFDE mixture"), path)
    assert loaded.density_.density.density.features is loaded.plan_.features


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([0.5, 0.7], [0.5, 0.7]),
        (np.array([0.5, 0.7], dtype=np.float32), np.array([0.5, 0.7], dtype=np.float32)),
        (((None, 3.0), (-1, 2)), ((None, 3.0), (-1, 2))),
        (np.array(["a", "bc"]), np.array(["a", "bc"])),
        ({"a": [True, "auto"]}, {"a": [True, "auto"]}),
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (np.True_, True),
        (float("-inf"), float("-inf")),
    ],
)
def test_parameters_of_every_kind(given, expected, path):
    assert_same(saved(QAFFDE(bandwidth=given), path).bandwidth, expected)


def test_a_random_state_goes_on_where_it_was(path):
    state = np.random.RandomState(3)
    state.normal(size=3)
    loaded = saved(QAFFDE(random_state=state), path).random_state
    np.testing.assert_array_equal(loaded.normal(size=5), state.normal(size=5))


def test_histories_keep_what_is_no_number(path):
    model = copy.deepcopy(fitted("QAFFDESGD gaussian"))
    model.history_ = [History(steps=[1], train_loss=[float("inf")], valid_loss=[float("nan")])]
    assert_same(saved(model, path).history_, model.history_)


def test_a_path_becomes_text(path, tmp_path):
    training = TrainingConfig(checkpoint=tmp_path / "fit")
    assert saved(QAFFDESGD(training=training), path).training.checkpoint == str(tmp_path / "fit")


def test_loading_changes_no_global_randomness(path):
    fitted("classifier gradient").save(path)
    state = torch.random.get_rng_state()
    qaffde.load(path)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_class_may_read_its_own_files(path):
    fitted("QAFFDE box").save(str(path))
    assert isinstance(QAFFDE.load(str(path)), QAFFDE)
    with pytest.raises(FileError, match=r"holds a QAFFDE, not a QAFFDESGD; read it with qaffde"):
        QAFFDESGD.load(path)


class Mine(QAFFDE):
    """An estimator that files do not know."""


def refused():
    spoilt = copy.deepcopy(fitted("QAFFDE box"))
    find_born(spoilt.density_).factor.data.fill_(np.nan)
    return {
        "transform of torch": (
            QAFFDESGD(transformation=ExpTransform()),
            r"ExpTransform, which is not among the classes that files may hold; keep such a model",
        ),
        "subclass": (Mine(), r"files cannot hold a Mine; choose one of QAFFDE, "),
        "object": (QAFFDE(columns=object()), r"columns is a builtins.object"),
        "spoilt": (spoilt, r"would not load again \(BornDensity.factor holds NaN\); fit it again"),
        "type": (QAFFDE(bandwidth=np.array([1j])), r"complex128, which files do not hold"),
        "texts": (
            QAFFDE(bandwidth=np.array([object()])),
            r"other than text; keep such models by pickle",
        ),
    }


@pytest.mark.parametrize("case", refused())
def test_what_files_do_not_hold_is_an_error_and_no_file(case, path):
    model, message = refused()[case]
    with pytest.raises(FileError, match=message):
        model.save(path)
    assert not path.exists()


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        QAFFDE().save(tmp_path / "nowhere" / "model")


def test_projections_keep_the_variance_of_what_they_leave_out():
    location, scale = torch.zeros(3).double(), torch.tensor([2.0]).double()
    axes, noise = torch.eye(3).double()[:, :1], torch.tensor(0.5).double()
    one = torch.ones(1).double()
    standard = GaussianMeasure(one, 0 * one[:, None], one[:, None, None])
    born = BornDensity(FourierFeatures(0 * one[:, None], 0 * one, one), one[:, None], standard)
    make = RECIPES["StandardizedDensity"].read
    parts = {"density": born, "location": location, "scale": scale, "axes": axes}
    plain = make(Fields("StandardizedDensity", parts | {"noise": None}))
    noisy = make(Fields("StandardizedDensity", parts | {"noise": noise}))
    rows = torch.tensor([[1.0, 0.0, 0.0], [1.0, 2.0, 0.0]]).double()
    expected = standard.log_density(0.5 * rows[:, :1]) - np.log(2)
    assert plain(rows).tolist() == pytest.approx(expected.tolist())
    near, far = noisy(rows).tolist()
    assert near - far == pytest.approx(4 / (2 * 0.5))
    columns = parts | {"scale": torch.ones(3).double(), "axes": None}
    with pytest.raises(FileError, match="noise is of no direction"):
        make(Fields("StandardizedDensity", columns | {"noise": noise}))


def test_a_configuration_of_fewer_constants_has_the_others_as_usual():
    """Files stay readable when a policy gets one more constant."""
    make = RECIPES["SelectionPolicy"].read
    assert make(Fields("SelectionPolicy", {"few_rows": 5})) == SelectionPolicy(few_rows=5)


def tensors_of(item):
    """Tensors of a density, those of its terms too."""
    found = dict(item.state_dict())
    lines = getattr(getattr(item, "density", None), "lines", None)
    for k, term in enumerate(lines.terms if lines else ()):
        found |= {f"{k}.{name}": t for name, t in vars(term).items() if torch.is_tensor(t)}
    return found


@pytest.mark.parametrize("is_table", [False, True])
def test_tensors_lie_in_memory_as_those_of_the_fit(is_table, tmp_path):
    """Else sums go in another order, and scores differ in the last bit."""
    rows = np.random.default_rng(0).normal(size=(37, 6))
    rows = np.where(rows > 1.5, np.nan, rows) if is_table else rows
    model = QAFFDE(6, 0.7, base_measure="mixture", random_state=0)
    if is_table:
        model.set_params(n_features="auto", bandwidth="auto", policy=BRIEF)
    model.fit(rows).save(tmp_path / "model")
    kept, found = map(tensors_of, (model.density_, qaffde.load(tmp_path / "model").density_))
    assert kept.keys() == found.keys()
    assert any(tensor.mT.is_contiguous() for tensor in kept.values() if tensor.ndim > 1)
    for name, tensor in kept.items():
        assert tensor.stride() == found[name].stride(), name
