"""The classifier against Bayes' rule, naive loops, quadrature and itself."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from qaffde import QAFFDEClassifier, SelectionPolicy, TrainingConfig
from qaffde.selection.solver import projected
from qaffde.training import Checkpoint, CheckpointError
from qaffde.training import run as training_run
from qaffde.training.classes import LabeledRows

RNG = np.random.default_rng(0)
TRUTH = [
    multivariate_normal([-1.0, 0.0], [[1.0, 0.3], [0.3, 0.5]]),
    multivariate_normal([1.0, 0.5], [[0.6, -0.2], [-0.2, 1.0]]),
]
PRIOR = np.array([0.7, 0.3])
LABELS = np.array(["left", "right"])


def gaussians(n, seed):
    rng = np.random.default_rng(seed)
    codes = rng.choice(2, n, p=PRIOR)
    rows = np.stack([law.rvs(n, random_state=rng) for law in TRUTH])[codes, np.arange(n)]
    return rows, LABELS[codes]


def bayes(rows):
    joint = PRIOR * np.stack([law.pdf(rows) for law in TRUTH], 1)
    return joint / joint.sum(1, keepdims=True)


X, y = gaussians(2000, 1)
FRESH, FRESH_Y = gaussians(500, 2)
POLICY = SelectionPolicy(class_ridge=1e-2)
GIVEN = {"n_features": 40, "bandwidth": 1.0, "rank": 10, "policy": POLICY, "random_state": 0}


def gradient(**settings):
    return {"method": "gradient", "training": TrainingConfig(**settings)}


QUICK = {"max_steps": 60, "batch_size": 128}
MODES = {
    "closed, conditional": {},
    "closed, generative": {"method": "generative"},
    "gradient, conditional": gradient(**QUICK),
    "gradient, learned": gradient(learn_features=True, **QUICK),
    "gradient, dropout": gradient(dropout=0.2, **QUICK),
}


@pytest.fixture(scope="module")
def fitted():
    return {
        name: QAFFDEClassifier(200, random_state=0, **options).fit(X, y)
        for name, options in MODES.items()
    }


@pytest.mark.parametrize("name", MODES)
def test_nearly_as_good_as_bayes_rule(name, fitted):
    model, best = fitted[name], bayes(FRESH)
    assert model.score(FRESH, FRESH_Y) > (LABELS[best.argmax(1)] == FRESH_Y).mean() - 0.02
    assert np.abs(model.predict_proba(FRESH) - best).mean() < 0.07


@pytest.mark.parametrize("name", MODES)
def test_each_density_has_mass_one(name, fitted, legendre):
    points, volumes = legendre([-9.0, -9.0], [9.0, 9.0], 120)
    mass = volumes.numpy() @ np.exp(fitted[name].log_density(points.numpy()))
    np.testing.assert_allclose(mass, 1, atol=1e-6)


def test_generative_densities_are_those_of_the_classes(fitted):
    truth = np.stack([law.logpdf(FRESH) for law in TRUTH], 1)
    of_class = np.arange(len(FRESH)), (FRESH_Y == "right").astype(int)
    gap = (truth - fitted["closed, generative"].log_density(FRESH))[of_class]
    assert -0.02 < gap.mean() < 0.1  # no density beats the truth on fresh rows


@pytest.mark.parametrize("name", MODES)
def test_probabilities_are_bayes_rule(name, fitted):
    model = fitted[name]
    joint = np.exp(model.log_density(FRESH)) * model.class_prior_
    np.testing.assert_allclose(
        model.predict_proba(FRESH), joint / joint.sum(1, keepdims=True), atol=1e-12
    )


@pytest.mark.parametrize("measurement", ["direct", "square_root", "pretty_good", "coherent"])
def test_one_product_for_all_classes_is_a_loop_over_them(measurement):
    """From the definition, class by class and row by row, without the library's readings."""
    options = {**GIVEN, "policy": SelectionPolicy(class_ridge=1e-2, tolerance=1e-12)}
    model = QAFFDEClassifier(**options, method=measurement).fit(X, y)
    plan = model.plan_
    G = plan.measure.gram(plan.features).numpy()

    def features(rows):
        Z = (rows - rows_mean) / rows_scale
        return np.cos(Z @ W.T + b) * a

    W, b, a = (getattr(plan.features, name).numpy() for name in "Wba")
    rows_mean, rows_scale = X.mean(0), X.std(0)
    phi, fresh = features(X), features(FRESH[:20])
    pooled = phi.T @ phi / len(X)
    lam, U = np.linalg.eigh(pooled)
    g, UG = np.linalg.eigh(G)
    damped = lam + 1e-2 * lam[-1]
    expected = np.empty((20, 2))
    for c, label in enumerate(LABELS):
        own = phi[y == label]
        rho = own.T @ own / len(own)
        if measurement == "square_root":
            R = (UG * g**-0.5) @ UG.T
        elif measurement == "pretty_good":
            R = (U * damped**-0.5) @ U.T
        else:
            R = np.eye(len(G))
        M = R @ rho @ R
        if measurement == "coherent":
            w = np.linalg.solve((U * damped) @ U.T, own.mean(0))
            M = np.outer(w, w)
        values, vectors = np.linalg.eigh(M)
        M = (vectors[:, -10:] * values[-10:]) @ vectors[:, -10:].T
        for i, row in enumerate(fresh):
            expected[i, c] = row @ M @ row / np.trace(M @ G)
    base = plan.measure.log_density(plan.standardize(torch.tensor(FRESH[:20]))).numpy()
    log_p = np.log((1 - 1e-4) * expected + 1e-4) + base[:, None] - np.log(rows_scale).sum()
    np.testing.assert_allclose(model.log_density(FRESH[:20]), log_p, atol=1e-6)


@pytest.mark.parametrize("measurement", ["pretty_good", "coherent"])
def test_chunks_are_one_fit(measurement):
    options = {**GIVEN, "method": measurement}
    stream = QAFFDEClassifier(**options)
    for rows, labels in zip(np.array_split(X, 4), np.array_split(y, 4), strict=True):
        stream.partial_fit(rows, labels, classes=LABELS)
    whole = QAFFDEClassifier(plan=stream.plan_).fit(X, y)
    np.testing.assert_allclose(stream.log_density(FRESH), whole.log_density(FRESH), atol=1e-10)
    np.testing.assert_allclose(stream.class_prior_, whole.class_prior_, atol=1e-12)


def test_rows_may_be_added_to_a_fit():
    first = QAFFDEClassifier(**GIVEN, method="pretty_good").fit(X[:1000], y[:1000])
    before = first.log_density(FRESH)
    added = copy.deepcopy(first).partial_fit(X[1000:], y[1000:])
    whole = QAFFDEClassifier(plan=first.plan_).fit(X, y)
    np.testing.assert_allclose(added.log_density(FRESH), whole.log_density(FRESH), atol=1e-10)
    assert np.abs(added.log_density(FRESH) - before).max() > 1e-3


def test_a_class_that_is_yet_to_come():
    model = QAFFDEClassifier(**GIVEN).partial_fit(X, y, classes=["later", *LABELS])
    assert model.predict_proba(FRESH)[:, 0].max() == 0
    assert np.isfinite(model.log_density(FRESH)).all()
    assert set(model.predict(FRESH)) == set(LABELS)


@pytest.mark.parametrize("measurement", ["square_root", "pretty_good", "coherent"])
def test_weights_are_repetitions(measurement):
    weight = RNG.integers(0, 4, size=300)
    options = {**GIVEN, "method": measurement}
    weighted = QAFFDEClassifier(**options).fit(X[:300], y[:300], sample_weight=weight)
    repeated = QAFFDEClassifier(**options).fit(
        np.repeat(X[:300], weight, 0), np.repeat(y[:300], weight)
    )
    np.testing.assert_allclose(weighted.log_density(FRESH), repeated.log_density(FRESH), atol=1e-7)
    np.testing.assert_allclose(weighted.class_prior_, repeated.class_prior_)


@pytest.mark.parametrize("more", [{}, gradient(max_steps=5)], ids=["closed form", "gradient"])
def test_priors_shift_log_odds_exactly(more):
    options = {**GIVEN, **more}
    plain = QAFFDEClassifier(**options).fit(X, y)
    even = QAFFDEClassifier(**options, priors=[0.5, 0.5]).fit(X, y)
    np.testing.assert_array_equal(even.log_density(FRESH), plain.log_density(FRESH))

    def log_odds(model):
        return np.subtract(*model.predict_log_proba(FRESH).T)

    shift = np.log(plain.class_prior_[1] / plain.class_prior_[0])
    np.testing.assert_allclose(log_odds(even), log_odds(plain) + shift, atol=1e-9)


def test_class_weight_is_a_weight_of_rows():
    by_class = QAFFDEClassifier(**GIVEN, class_weight={"left": 1, "right": 5}).fit(X, y)
    by_row = QAFFDEClassifier(**GIVEN).fit(X, y, sample_weight=np.where(y == "right", 5, 1))
    np.testing.assert_array_equal(by_class.predict_proba(FRESH), by_row.predict_proba(FRESH))
    balanced = QAFFDEClassifier(**GIVEN, class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(balanced.class_prior_, [0.5, 0.5])


def test_a_row_that_no_class_explains(fitted):
    model = fitted["closed, generative"]
    level = np.quantile(model.log_density(X).max(1), 0.01)
    assert (model.log_density([[8.0, -8.0]]) < level).all()
    assert (model.log_density(FRESH).max(1) < level).mean() < 0.03


def test_far_rows_have_finite_densities(fitted):
    far = np.array([[1e9, -1e9], [1e300, 0.0]])
    assert np.isfinite(fitted["closed, conditional"].log_density(far)).all()
    np.testing.assert_allclose(fitted["closed, conditional"].predict_proba(far).sum(1), 1)


def test_units_change_nothing_but_the_jacobian():
    unit = np.array([10.0, 0.01])
    plain = QAFFDEClassifier(60, random_state=0).fit(X, y)
    scaled = QAFFDEClassifier(60, random_state=0).fit(X * unit, y)
    np.testing.assert_allclose(
        scaled.log_density(FRESH * unit), plain.log_density(FRESH) - np.log(unit).sum(), atol=1e-6
    )


@pytest.mark.parametrize("size", [1e-100, 1e100])
def test_columns_of_any_size(size):
    """In units of the columns nothing overflows, and nothing is called constant."""
    options = {"random_state": 0, "bandwidth": "auto"}
    plain = QAFFDEClassifier(60, **options).fit(X, y)
    sized = QAFFDEClassifier(60, **options).fit(X * size, y)
    assert sized.score(FRESH * size, FRESH_Y) == pytest.approx(plain.score(FRESH, FRESH_Y))
    expected = plain.log_density(FRESH) - 2 * np.log(size)
    np.testing.assert_allclose(sized.log_density(FRESH * size), expected, atol=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_seed_repeats_a_fit(dropout):
    options = {"n_features": 40, **gradient(max_steps=10, dropout=dropout)}
    first, second, other = (
        QAFFDEClassifier(**options, random_state=seed).fit(X, y).log_density(FRESH)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 1e-6


@pytest.mark.parametrize("learn_features", [False, True])
def test_a_killed_fit_goes_on_from_its_checkpoint(learn_features, tmp_path, monkeypatch):
    settings = {"max_steps": 20, "learn_features": learn_features, "dropout": 0.2}
    plain = QAFFDEClassifier(**GIVEN, **gradient(**settings)).fit(X, y)
    kept = gradient(**settings, checkpoint=tmp_path / "fit")
    model = QAFFDEClassifier(**GIVEN, **kept, verbose=True)

    def kill(history):
        if history.steps[-1] == 11:
            raise KeyboardInterrupt

    monkeypatch.setattr(training_run, "print_progress", lambda steps, limit: kill)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert [path.name for path in tmp_path.iterdir()] == ["fit.learning"]
    model.set_params(verbose=False).fit(X, y)
    assert model.history_[0].steps == plain.history_[0].steps
    np.testing.assert_array_equal(model.log_density(FRESH), plain.log_density(FRESH))
    assert not list(tmp_path.iterdir())


class TestFeatureDropout:
    """Features that a step does not see."""

    @pytest.mark.parametrize("learn_features", [False, True])
    def test_is_of_training_alone(self, learn_features):
        settings = {"max_steps": 20, "learn_features": learn_features}
        plain, without = (
            QAFFDEClassifier(**GIVEN, **gradient(**settings, dropout=share)).fit(X, y)
            for share in (0.0, 0.5)
        )
        seen, again = (without.log_density(FRESH) for _ in range(2))
        np.testing.assert_array_equal(seen, again)
        assert np.abs(seen - plain.log_density(FRESH)).max() > 1e-3

    def test_keeps_many_features_from_learning_few_rows_by_heart(self):
        rows, labels = load_digits(return_X_y=True)
        few, rest, few_y, rest_y = train_test_split(
            rows / 16, labels, test_size=0.6, random_state=2
        )
        settings = {"max_steps": 200, "patience": None, "learn_features": True}
        plain, without = (
            log_loss(
                rest_y,
                QAFFDEClassifier(
                    200,
                    1.5,
                    n_components=30,
                    random_state=0,
                    **gradient(**settings, dropout=share),
                )
                .fit(few, few_y)
                .predict_proba(rest),
            )
            for share in (0.0, 0.3)
        )
        assert without < plain - 0.005


class TestProjection:
    digits, labels = load_digits(return_X_y=True)

    def test_density_is_that_of_rows(self):
        """That of orthonormal coordinates, times a normal one of what they leave out, by hand."""
        rows, labels = self.digits[:600], self.labels[:600] % 2
        options = {**GIVEN, "bandwidth": 20.0, "features": "random"}
        model = QAFFDEClassifier(**options, n_components=3).fit(rows, labels)
        axes = model.plan_.axes.numpy()
        np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-10)
        centred = rows - rows.mean(0)
        variance = np.sort(np.linalg.eigvalsh(np.cov(rows.T, bias=True)))[::-1]
        np.testing.assert_allclose((centred @ axes).var(0), variance[:3])
        scale, noise = np.sqrt(variance[:3].mean()), variance[3:].mean()
        projected = model.density_.density(torch.tensor(centred @ axes / scale)).numpy()
        _, _, right = np.linalg.svd(axes.T)
        left_out = norm.logpdf(centred @ right[3:].T, scale=np.sqrt(noise)).sum(1)
        by_hand = projected - 3 * np.log(scale) + left_out[:, None]
        np.testing.assert_allclose(model.log_density(rows), by_hand, atol=1e-7)

    def test_refuses_what_the_projection_leaves_out(self):
        """Rows of one projection, one of them far from the plane: as probable, less dense."""
        model = QAFFDEClassifier(**GIVEN, n_components=10).fit(self.digits, self.labels)
        axes = model.plan_.axes.numpy()
        aside = np.linalg.svd(axes.T)[2][-1]
        near, far = self.digits[:50], self.digits[:50] + 40 * aside
        np.testing.assert_allclose(model.predict_proba(far), model.predict_proba(near), atol=1e-9)
        usual = np.quantile(model.log_density(self.digits).max(1), 0.01)
        assert (model.log_density(near).max(1) > usual).mean() > 0.9
        assert (model.log_density(far).max(1) < usual).all()

    def test_columns_of_any_size(self):
        rows, labels = self.digits[:600], self.labels[:600]
        plain = QAFFDEClassifier(60, n_components=10, random_state=0).fit(rows, labels)
        for size in (1e-100, 1e100):
            sized = QAFFDEClassifier(60, n_components=10, random_state=0).fit(rows * size, labels)
            expected = plain.log_density(rows) - 64 * np.log(size)
            np.testing.assert_allclose(sized.log_density(rows * size), expected, rtol=1e-6)

    @pytest.mark.parametrize("size", [1e-200, 1e200])
    def test_variances_beyond_float64_are_refused(self, size):
        for n_components in (10, None):
            with pytest.raises(ValueError, match="have a spread that float64 cannot hold; mult"):
                QAFFDEClassifier(60, n_components=n_components).fit(
                    self.digits * size, self.labels
                )

    def test_denormal_columns_are_refused(self):
        X = np.column_stack([np.arange(40) % 3 * 5e-324, np.arange(40.0)])
        with pytest.raises(ValueError, match="of the size 1e-323 have a spread that float64"):
            QAFFDEClassifier(12, 0.7).fit(X, np.arange(40) % 2)

    def test_rows_within_a_plane(self):
        """Nothing is left out of training rows: others are still compared, in finite numbers."""
        rng = np.random.default_rng(0)
        plane = rng.normal(size=(2, 20))
        rows = rng.normal(size=(200, 2)) @ plane
        labels = (rows @ plane.T)[:, 0] > 0
        model = QAFFDEClassifier(**GIVEN, n_components=5).fit(rows, labels)
        assert model.n_components_ == 2
        outside = rows + rng.normal(size=rows.shape)
        assert np.isfinite(model.log_density(outside)).all()
        assert model.log_density(outside).max() < model.log_density(rows).min()
        assert model.score(rows, labels) > 0.9

    @pytest.mark.parametrize(
        ("n_components", "columns", "expected"), [("auto", 16, 16), ("auto", 64, 28), (7, 64, 7)]
    )
    def test_how_many_components(self, n_components, columns, expected):
        rows = self.digits[:, :columns]
        model = QAFFDEClassifier(**GIVEN, n_components=n_components).fit(rows, self.labels)
        assert abs(model.n_components_ - expected) <= 1

    def test_rows_are_projected_in_blocks(self, monkeypatch):
        monkeypatch.setattr("qaffde.selection.classes.MAX_ROWS", 100)
        monkeypatch.setattr("qaffde.selection.solver.MAX_ROWS", 100)
        few = QAFFDEClassifier(**GIVEN, n_components=5).fit(self.digits, self.labels).plan_
        monkeypatch.undo()
        plan = QAFFDEClassifier(**GIVEN, n_components=5).fit(self.digits, self.labels).plan_
        rows = torch.tensor(self.digits)
        labeled = LabeledRows(rows, torch.tensor(self.labels), torch.ones(len(rows)), 10)
        Z = projected(few, labeled).X
        np.testing.assert_allclose(Z, projected(plan, labeled).X, atol=1e-9)
        np.testing.assert_allclose(Z, plan.standardize(rows), atol=1e-9)
        np.testing.assert_allclose(Z.var(0, correction=0).mean(), 1)

    @pytest.mark.parametrize(
        ("options", "least"),
        [
            ({}, 0.97),
            (gradient(max_steps=150), 0.96),
            (gradient(learn_features=True, max_steps=100), 0.96),
            ({"method": "generative"}, 0.88),
        ],
        ids=["closed", "gradient", "learned", "closed, generative"],
    )
    def test_digits(self, options, least):
        rows, fresh, labels, fresh_labels = train_test_split(
            self.digits, self.labels, test_size=0.4, random_state=0
        )
        model = QAFFDEClassifier(250, random_state=0, **options).fit(rows, labels)
        assert model.score(fresh, fresh_labels) > least


class TestPlan:
    """What was chosen, and fits without a search."""

    @pytest.mark.parametrize("name", MODES)
    def test_a_plan_fits_without_search(self, name, fitted, monkeypatch):
        model = fitted[name]
        options = {k: v for k, v in MODES[name].items() if k == "training"}
        monkeypatch.setattr("qaffde.estimators.classifier.select", None)
        again = QAFFDEClassifier(plan=model.plan_, random_state=0, **options).fit(X, y)
        np.testing.assert_allclose(again.log_density(FRESH), model.log_density(FRESH), atol=1e-9)
        assert again.plan_ is model.plan_

    def test_it_says_what_was_chosen_from_what(self, fitted):
        plan = fitted["closed, conditional"].plan_
        chosen = [trial for trial in plan.trials if trial.chosen]
        assert len(chosen) == 1
        assert chosen[0].log_likelihood == max(trial.log_likelihood for trial in plan.trials)
        measurements = {"pretty_good", "coherent", "square_root"}
        assert {m for m in measurements if any(m in trial.name for trial in plan.trials)} == (
            measurements
        )
        text = str(plan)
        assert text.startswith("Plan (classifier, selected on 2,000 rows)")
        assert f"measurement   {plan.measurement}" in text
        assert f"{chosen[0].log_likelihood:.5f}  chosen" in text
        best = -log_loss(FRESH_Y, bayes(FRESH))
        assert chosen[0].log_likelihood == pytest.approx(best, abs=0.1)

    def test_nothing_is_tried_where_all_is_given(self):
        assert QAFFDEClassifier(**GIVEN, method="coherent").fit(X, y).plan_.trials == ()

    def test_more_features_are_tried_at_finer_bandwidths_only(self):
        policy = SelectionPolicy(class_features=30, class_bandwidths=(0.2, 0.5, 1.0, 2.0))
        plan = QAFFDEClassifier(60, policy=policy, random_state=0).fit(X, y).plan_
        few = [t.name for t in plan.trials if "30 features" in t.name]
        many = [t.name for t in plan.trials if "60 features" in t.name]
        assert len(few) + len(many) == len(plan.trials)
        assert 0 < len(many) < len(few)
        assert sum(trial.chosen for trial in plan.trials) == 1

    @pytest.mark.parametrize("field", ["background", "tolerance", "class_ridge"])
    def test_the_policy_counts(self, field):
        policy = SelectionPolicy(**{field: 0.2})
        options = {"n_features": 40, "bandwidth": 1.0, "method": "coherent", "random_state": 0}
        plain = QAFFDEClassifier(**options).fit(X, y).log_density(FRESH)
        other = QAFFDEClassifier(**options, policy=policy).fit(X, y).log_density(FRESH)
        assert np.abs(plain - other).max() > 1e-3

    def test_parameters_do_not_change_a_fit(self, fitted):
        model = copy.deepcopy(fitted["closed, conditional"]).partial_fit(X[:5], y[:5])
        expected = copy.deepcopy(model).predict_log_proba(FRESH)
        changed = model.set_params(rank=1, priors=[0.5, 0.5], policy=POLICY)
        np.testing.assert_array_equal(changed.predict_log_proba(FRESH), expected)

    def test_a_failed_fit_changes_nothing(self, fitted):
        model = copy.deepcopy(fitted["closed, conditional"])
        expected = model.log_density(FRESH)
        with pytest.raises(ValueError, match="only the class"):
            model.fit(X[:, :1], np.zeros(len(X)))
        np.testing.assert_array_equal(model.log_density(FRESH), expected)
        assert model.n_features_in_ == 2
        assert list(model.classes_) == list(LABELS)

    def test_labels_keep_equal_rows_apart(self):
        """Copies of a row in both classes: held-out rows must not forget one of them."""
        rows, labels = np.repeat(X, 2, 0), np.tile(LABELS, len(X))
        model = QAFFDEClassifier(30, random_state=0).fit(rows, labels)
        [chosen] = [trial for trial in model.plan_.trials if trial.chosen]
        assert chosen.log_likelihood == pytest.approx(-np.log(2), abs=0.05)
        np.testing.assert_allclose(model.predict_proba(FRESH), 0.5, atol=1e-6)


def test_a_time_limit_takes_the_best_candidate_so_far():
    whole = QAFFDEClassifier(100, random_state=0).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="time_limit has ended the search after 1 cand"):
        short = QAFFDEClassifier(100, time_limit=1e-3, random_state=0).fit(X, y)
    assert len(short.plan_.trials) == 1 < len(whole.plan_.trials)
    assert short.score(FRESH, FRESH_Y) > whole.score(FRESH, FRESH_Y) - 0.05


def test_a_classifier_that_is_late_judges_once_and_keeps_the_features_it_judged():
    """The comparison of all features began when time was over, and took three times the limit."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 3))
    with pytest.warns(ConvergenceWarning, match="time_limit has ended the search after 1 cand"):
        late = QAFFDEClassifier(time_limit=1e-3, random_state=0).fit(rows, rows[:, 0] > 0)
    assert len(late.plan_.trials) == 1
    assert f"{late.plan_.features.n_features} features" in str(late.plan_.trials[0])


def test_a_time_limit_ends_gradient_training():
    model = QAFFDEClassifier(40, 1.0, time_limit=1e-3, **gradient(max_steps=500), random_state=0)
    [history] = model.fit(X, y).history_
    assert history.stopped_by == "time_limit"
    assert history.steps[-1] < 500


@pytest.mark.parametrize("state", [{}, {"known": 3}, {"known": {"a": "b"}}])
def test_a_forged_search_is_refused(state, tmp_path, monkeypatch):
    model = QAFFDEClassifier(
        40, random_state=0, **gradient(max_steps=5, checkpoint=tmp_path / "fit")
    )
    save = Checkpoint.save

    def forge(self, _, of):
        save(self, state, of)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", forge)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    with pytest.raises(CheckpointError, match=r"cannot be read .*remove it to start anew"):
        model.fit(X, y)
