"""The experiment on images, on scikit-learn's digits and on made-up sets."""

import json
import math

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, log_loss

pytest.importorskip("zuko", reason="the baselines need the extra 'flows'")

from experiments.config import ConfigError, load_config, parse_config
from experiments.images import cells as images
from experiments.images import sets as images_data
from experiments.images.cells import image_cells, measured
from experiments.images.config import ImageBudget, ImageConfig
from experiments.images.loaders import ImageData
from experiments.images.methods import IMAGE_METHODS, augmentation
from experiments.images.metrics import calibration_error, reliability, separation
from experiments.images.pictures import pack_images, unpack_images
from experiments.images.results import ImageResults
from experiments.images.sets import SHUFFLED, fitted_to, load_images, outsiders
from experiments.images.tables import accuracy_table, images_page
from experiments.results import paper_figures
from experiments.rows import read_rows
from experiments.runner import Files, run_cells
from qaffde.training import loop
from qaffde.training.checkpoint import Checkpoint
from tests.experiments.tiny import without_timings

RNG = np.random.default_rng(0)
TINY = {
    "qaffde": {"n_features": 60, "bandwidth": 1.5},
    "qaffde_sgd": {"n_features": 40, "bandwidth": 1.5, "rank": 2, "max_steps": 5},
    "lenet_augmented": {"n_features": 20, "max_steps": 2, "n_codes": 4, "shift": 1, "rank": 2},
    "made": {"n_components": 1, "hidden_size": 8, "max_steps": 2, "alpha": 0.05},
    "roundtrip": {"n_latent": 2, "n_channels": 2, "max_steps": 1},
}
BUDGET = ImageBudget(seeds=(3, 4), n_outside=20, n_train=400, n_test=100)


def config(recipes=None, **budgets):
    recipes = {name: {"digits": of} for name, of in (recipes or TINY).items()}
    return ImageConfig(
        "Tiny images", ("digits",), tuple(recipes), recipes, {"quick": BUDGET, **budgets}
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    files = Files(tmp_path_factory.mktemp("images"), "images-quick")
    run_cells(image_cells(config(), "quick", methods=("qaffde",)), files)
    rest = tuple(name for name in TINY if name != "qaffde")
    run_cells(image_cells(config(), "quick", methods=rest, seeds=(3,)), files)
    return files


@pytest.fixture
def rows(files):
    return read_rows(files.rows)


@pytest.fixture
def results(files):
    return ImageResults(read_rows(files.rows), read_rows(files.pictures), ("mnist",))


def test_rows_say_everything(rows):
    assert [row["error"] for row in rows] == [None] * 6
    assert len({row["id"] for row in rows}) == 6
    for row in rows:
        assert {"revision", "date", "threads", "versions", "warnings", "seconds"} <= row.keys()
        assert {"fit_seconds", "fit_cpu_seconds", "score_seconds"} <= row.keys()
        assert (row["n_train"], row["n_test"], row["parameters"]) == (
            400,
            100,
            TINY[row["method"]],
        )
        assert np.sum(row["confusion"]) == sum(n for n, _, _ in row["reliability"]) == 100
        assert row["metrics"]["accuracy"] == np.trace(row["confusion"]) / 100
        assert list(row["out_of_distribution"]) == [SHUFFLED]
        json.dumps(row, allow_nan=False)
    assert rows[0]["metrics"]["accuracy"] > 0.9
    assert rows[0]["resolved"]["n_fourier_features"] == 60
    assert rows[2]["training"] == [{"steps": 5, "stopped_by": "max_steps", "n_recoveries": 0}]


def test_what_is_there_is_not_run_again_and_rows_repeat(files, rows, tmp_path):
    again, seen = Files(tmp_path, "images-quick"), []
    run_cells(image_cells(config(), "quick", methods=("qaffde",)), files, on_row=seen.append)
    assert seen == []
    run_cells(image_cells(config(), "quick", methods=("qaffde", "made"), seeds=(3,)), again)
    known = [r for r in rows if r["method"] in ("qaffde", "made") and r["seed"] == 3]
    assert without_timings(read_rows(again.rows)) == without_timings(known)


@pytest.mark.parametrize("method", ["qaffde_sgd", "lenet_augmented", "made", "roundtrip"])
def test_a_row_that_was_interrupted_goes_on_from_its_checkpoint(method, tmp_path, monkeypatch):
    recipe = TINY[method] | {"max_steps": 6}
    steps, again, other = [], Files(tmp_path, "images-quick"), Files(tmp_path, "undisturbed")
    take_step = loop._Run._take_step

    def counted(run):
        if len(steps) == 3:
            raise KeyboardInterrupt
        steps.append(run.step)
        take_step(run)

    def cells(files):
        return image_cells(config({method: recipe}), "quick", seeds=(3,), scratch=files.scratch)

    run_cells(cells(other), other)
    monkeypatch.setattr(loop._Run, "_take_step", counted)
    with pytest.raises(KeyboardInterrupt):
        run_cells(cells(again), again)
    (left,) = again.scratch.iterdir()
    spent = Checkpoint(left).load({})["processor_seconds"]
    monkeypatch.setattr(loop._Run, "_take_step", take_step)
    run_cells(cells(again), again)
    assert without_timings(read_rows(again.rows)) == without_timings(read_rows(other.rows))
    assert read_rows(again.rows)[0]["error"] is None
    assert read_rows(again.rows)[0]["fit_cpu_seconds"] > spent > 0
    assert list(again.scratch.iterdir()) == []


def test_a_row_is_named_by_its_recipe_and_sizes():
    def names(recipe, **changes):
        other = ImageBudget(**({"seeds": (3,), "n_outside": 20} | changes))
        return set(image_cells(config({"qaffde": recipe}, quick=other), "quick")[0].tasks())

    base = names({"n_features": 60})
    assert base == names({"n_features": 60}, seeds=(3, 4)) & base
    assert not base & names({"n_features": 61})
    assert not base & names({"n_features": 60}, n_train=300)


def test_training_does_not_see_test_images(monkeypatch, rows, tmp_path):
    true = load_images("digits")
    scrambled = ImageData(
        true.X_train,
        true.y_train,
        RNG.permutation(true.X_test),
        true.y_test,
        true.image_shape,
        true.class_names,
    )
    monkeypatch.setattr(images, "load_images", lambda name: scrambled)
    other = Files(tmp_path, "images-quick")
    run_cells(image_cells(config(), "quick", methods=("qaffde_sgd",), seeds=(3,)), other)
    [row], [known] = read_rows(other.rows), [r for r in rows if r["method"] == "qaffde_sgd"]
    assert (row["resolved"], row["training"]) == (known["resolved"], known["training"])
    assert row["metrics"]["accuracy"] < 0.3 < known["metrics"]["accuracy"]


def test_a_failure_is_a_row_and_the_next_seed_goes_on(tmp_path):
    broken = config({"made": {"hidden_size": 0}, "qaffde": TINY["qaffde"]})
    files = Files(tmp_path, "images-quick")
    run_cells(image_cells(broken, "quick", seeds=(3,)), files)
    failed, fine = read_rows(files.rows)
    assert (failed["status"], fine["status"]) == ("failed", "complete")
    assert failed["error"]["type"] == "ValueError"
    page = images_page(ImageResults([failed, fine], [], ("digits",)), "t", "quick")
    assert "1 trainings, 1 failures" in page
    assert f"| MADE | digits | 3 | ValueError: {failed['error']['message']} |" in page


class Known:
    """A classifier that was given its densities."""

    classes_ = np.array([2, 5, 7])
    class_prior_ = np.array([0.5, 0.25, 0.25])


def test_metrics_agree_with_scikit_learn():
    log_density = RNG.normal(size=(200, 3)) * 2
    y = RNG.choice(Known.classes_, 200)
    parts = images.Parts(None, None, None, y, np.arange(200) * 10)
    found = measured(Known, parts, log_density)
    joint = np.exp(log_density) * Known.class_prior_
    posterior = joint / joint.sum(1, keepdims=True)
    predicted = Known.classes_[posterior.argmax(1)]
    assert found["metrics"]["accuracy"] == pytest.approx((predicted == y).mean())
    assert found["metrics"]["nll"] == pytest.approx(log_loss(y, posterior), abs=1e-5)
    assert found["confusion"] == confusion_matrix(y, predicted).tolist()
    own = np.flatnonzero(y == 5)
    best = own[log_density[own, 1].argmax()]
    worst = own[log_density[own, 1].argmin()]
    assert (found["most_likely"][1][0], found["least_likely"][1][0]) == (10 * best, 10 * worst)


def test_calibration_error_of_four_images():
    proba = np.array([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.45, 0.55]])
    bins = reliability(np.log(proba), np.array([0, 1, 1, 0]))
    assert bins == [[1, 0.55, 0.0], [1, 0.7, 1.0], [2, 0.9, 0.5]]
    assert calibration_error(bins) == pytest.approx((0.55 + 0.3 + 2 * 0.4) / 4)


def test_foreign_images_are_told_by_either_score():
    inside, outside = np.array([[0.0, -9.0]] * 5), np.array([[-20.0, -20.0]] * 4)
    found = separation(inside, outside, np.log([0.5, 0.5]))
    assert found == {"density": 1.0, "confidence": 1.0}
    assert separation(inside, inside, np.log([0.5, 0.5]))["density"] == 0.5
    sure = separation(inside, outside + np.array([0, -30.0]), np.log([0.5, 0.5]))
    assert sure == {"density": 1.0, "confidence": 0.0}


def made_up(shape, n=6):
    X = RNG.random((n, math.prod(shape))).astype(np.float32)
    return ImageData(X, np.arange(n) % 2, X, np.arange(n) % 2, shape, ("a", "b"))


@pytest.fixture
def sets(monkeypatch):
    def missing():
        raise FileNotFoundError

    monkeypatch.setitem(images_data.IMAGE_SETS, "mnist", lambda: made_up((1, 4, 4)))
    monkeypatch.setitem(images_data.IMAGE_SETS, "cifar10", lambda: made_up((3, 6, 6)))
    load_images.cache_clear()
    yield lambda name: monkeypatch.setitem(images_data.IMAGE_SETS, name, missing)
    load_images.cache_clear()


def test_foreign_images_have_the_shape_of_the_set(sets):
    digits, photos = load_images("mnist"), load_images("cifar10")
    grey = outsiders("mnist", digits.X_test[:4], 0)["cifar10 in grey"]
    red, green, blue = photos.X_test[:4].reshape(4, 3, 6, 6)[:, :, 1:5, 1:5].swapaxes(0, 1)
    expected = 0.299 * red + 0.587 * green + 0.114 * blue
    np.testing.assert_allclose(grey, expected.reshape(4, 16), rtol=1e-5)
    colour = outsiders("cifar10", photos.X_test[:4], 0)["mnist in colour"].reshape(4, 3, 6, 6)
    middle = digits.X_test[:4].reshape(4, 4, 4)
    for channel in range(3):
        np.testing.assert_array_equal(colour[:, channel, 1:5, 1:5], middle)
    assert colour.sum() == pytest.approx(3 * middle.sum(), rel=1e-5)


def test_without_the_other_set_only_shuffled_pixels_are_foreign(sets):
    digits = load_images("mnist")
    sets("cifar10")
    assert list(outsiders("mnist", digits.X_test, 0)) == [SHUFFLED]


def test_shuffled_pixels_keep_their_colours(sets):
    photos = load_images("cifar10")
    found = outsiders("cifar10", photos.X_test, 1)[SHUFFLED].reshape(6, 3, 36)
    true = photos.X_test.reshape(6, 3, 36)
    assert (found != true).mean() > 0.9
    for image, own in zip(found, true, strict=True):
        assert {tuple(pixel) for pixel in image.T} == {tuple(pixel) for pixel in own.T}
    orders = {tuple(np.argsort(np.argsort(image[0]))) for image in found}
    assert len(orders) == 6


def test_a_shape_stays_itself():
    X = RNG.random((2, 75)).astype(np.float32)
    np.testing.assert_array_equal(fitted_to(X, (3, 5, 5), (3, 5, 5)), X)


def test_images_survive_as_text():
    X = RNG.random((2, 3, 12))
    again = unpack_images(pack_images(X, (3, 2, 2)))
    assert again.shape == (2, 3, 3, 2, 2)
    np.testing.assert_allclose(again.reshape(X.shape), X, atol=0.5 / 31 + 1e-9)


def test_pictures_are_the_likeliest_of_the_first_seed(files, rows):
    pictures = {picture["id"]: picture for picture in read_rows(files.pictures)}
    assert set(pictures) == {row["id"] for row in rows if row["seed"] == 3}
    row = rows[0]
    shown = load_images("digits").X_test[np.array([row["most_likely"], row["least_likely"]])]
    again = unpack_images(pictures[row["id"]])
    np.testing.assert_allclose(again.reshape(shown.shape), shown, atol=0.02)


def test_augmentation_only_where_it_is_asked_for():
    assert augmentation(0, flip=False) is None
    assert repr(augmentation(2, flip=True)) == "Augmentation(RandomShift(pixels=2), RandomFlip())"


def complete(name, method, seed, accuracy):
    metrics = {"accuracy": accuracy, "nll": 0.1, "calibration_error": 0.1}
    place = {"id": f"{name}{method}{seed}", "set": name, "method": method, "seed": seed}
    return place | {"status": "complete", "metrics": metrics}


def test_the_table_has_means_the_paper_and_the_target():
    rows = [complete("mnist", "qaffde", k, value) for k, value in enumerate((0.94, 0.96))]
    rows += [complete("mnist", "qaffde_sgd", 0, 0.96), complete("mnist", "maf", 0, 0.926)]
    table = accuracy_table(ImageResults(rows, [], ("mnist",))).splitlines()
    assert table == [
        "| method | MNIST | paper | target |",
        "| --- | --- | --- | --- |",
        "| QAFFDE | **0.9500 ± 0.0141** | 0.811 | 0.930 |",
        "| QAFFDE-SGD | 0.9600 | 0.952 | 0.965 |",
        "| MAF | **0.9260** | 0.926 | 0.926 |",
    ]


def test_a_later_row_takes_the_place_of_an_earlier_one():
    rows = [complete("mnist", "maf", 0, 0.5), complete("mnist", "maf", 0, 0.9) | {"id": "new"}]
    figure = ImageResults(rows, [], ("mnist",)).figure("mnist", "maf", "accuracy")
    assert (figure.value, len(figure.rows)) == (0.9, 1)


def test_the_page_has_all_parts(results):
    page = images_page(results, "Tiny images", "quick")
    for part in ("Accuracy", "Foreign images", "Budgets", "most and least likely images"):
        assert part in page
    assert "| RoundTrip (CNN) | digits | 1 | 1 |" in page
    assert "n_features 60, bandwidth 1.5" in page
    with pytest.raises(ValueError, match="run: python -m experiments run images --budget quick"):
        images_page(ImageResults([], [], ()), "t", "quick")


def test_what_ships_has_a_recipe_for_every_method_on_every_set():
    shipped = load_config("images", ImageConfig)
    assert shipped.methods == tuple(IMAGE_METHODS)
    assert {method: set(of) for method, of in shipped.recipes.items()} == {
        method: set(shipped.sets) for method in shipped.methods
    }
    for name, n_seeds in (("standard", 3), ("paper", 10)):
        budget = shipped.budgets[name]
        assert (budget.n_train, budget.n_test, len(budget.seeds)) == (None, None, n_seeds)
    for cell in image_cells(shipped, "standard"):
        IMAGE_METHODS[cell.method].make(cell.recipe, (1, 8, 8), 0)
        if cell.method == "qaffde":
            assert cell.recipe["n_features"] <= 2000
        assert bool(cell.recipe.get("shift")) == (cell.method == "lenet_augmented")


def test_the_paper_s_table_is_whole():
    figures = paper_figures()
    named = {*figures["images"]["accuracy"], *figures["target"]["images"]["accuracy"]}
    assert named - {"source"} == set(IMAGE_METHODS)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"sets": ("fashion",)}, "unknown set 'fashion'; choose one of mnist, cifar10, digits"),
        ({"methods": ("svm",)}, "unknown method 'svm'; choose one of qaffde, qaffde_sgd"),
    ],
)
def test_a_selection_names_what_is_there(selection, message):
    with pytest.raises(ValueError, match=message):
        image_cells(config(), "quick", **selection)


def test_slips_in_recipes_are_named():
    slip = config({"maf": {"layers": 3}})
    with pytest.raises(ValueError, match=r"recipes\.maf\.digits has no parameter 'layers'; maf k"):
        image_cells(slip, "quick")
    with pytest.raises(ConfigError, match=r"budgets\.quick has no key 'trials'"):
        parse_config(
            "title='t'\nsets=[]\nmethods=[]\nrecipes={}\n[budgets.quick]\nseeds=[0]\n"
            "n_outside=1\ntrials=2",
            ImageConfig,
        )


def test_bins_of_a_few_images_are_not_drawn():
    bins = [[1, 0.2, 1.0], [1000, 0.9, 0.9], [9, 0.5, 0.4], [8990, 0.99, 0.98]]
    row = {"set": "digits", "method": "made", "seed": 0, "status": "complete", "reliability": bins}
    assert ImageResults([row], [], ("digits",)).reliability("digits", "made") == [bins[1], bins[3]]


def test_the_report_comes_from_rows_alone(files, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib", reason="reports need the extra 'plot'")
    from experiments.report import report

    monkeypatch.setattr(images_data, "IMAGE_SETS", {})
    load_images.cache_clear()
    first, second = tmp_path / "first", tmp_path / "second"
    written = report(("images",), "quick", files.folder, first)
    names = {str(path.relative_to(first)) for path in written}
    stems = ("reliability", "confusion_digits", "likely_digits")
    assert names == {
        "tables_images.md",
        "results.html",
        *(f"figures/images_{stem}.png" for stem in stems),
    }
    for path in report(("images",), "quick", files.folder, second):
        assert path.read_bytes() == (first / path.relative_to(second)).read_bytes()
    text = (first / "results.html").read_text(encoding="utf-8")
    for row in read_rows(files.rows):
        assert f'<details id="row-{row["id"]}"' in text
    assert text.count("<img ") == 2 * len(TINY)
    load_images.cache_clear()
