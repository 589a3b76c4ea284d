"""Encoders in front of the classifier: LeNet, codes, augmentation."""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits

from experiments.images.lenet import LeNet
from qaffde import QAFFDEClassifier, TrainingConfig
from qaffde.nn import find_born

X, y = load_digits(return_X_y=True)
X = X / 16
SMALL = {"n_codes": 12, "n_filters": (4, 6)}
OPTIONS = {"n_features": 100, "rank": 4, "method": "gradient", "random_state": 0}
SETTINGS = {"batch_size": 128, "learning_rate": 1e-2}


def model(encoder=None, options=(), **settings):
    return QAFFDEClassifier(
        encoder=LeNet((1, 8, 8), **SMALL) if encoder is None else encoder,
        training=TrainingConfig(**SETTINGS, **settings),
        **{**OPTIONS, **dict(options)},
    )


def frequencies(model):
    return find_born(model.density_).features.W


@pytest.fixture(scope="module")
def fitted():
    return model(max_steps=600).fit(X[:1200], y[:1200])


def test_digits(fitted):
    assert fitted.score(X[1200:], y[1200:]) > 0.9
    assert fitted.density_(torch.tensor(X[:3])).shape == (3, 10)


def test_probabilities_are_bayes_rule(fitted):
    joint = np.exp(fitted.log_density(X[:50])) * fitted.class_prior_
    expected = joint / joint.sum(1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(X[:50]), expected, atol=1e-12)


def test_the_encoder_that_is_given_stays_as_it_is(fitted):
    start = LeNet((1, 8, 8), **SMALL).state_dict()
    trained = fitted.density_.coder.encoder.state_dict()
    for name, value in fitted.encoder.state_dict().items():
        assert torch.equal(value, start[name])
        assert not torch.equal(value, trained[name])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_say_the_same(fitted, copied):
    np.testing.assert_array_equal(copied(fitted).log_density(X[:9]), fitted.log_density(X[:9]))


def test_no_file_holds_an_encoder(fitted, tmp_path):
    pytest.importorskip("safetensors", reason="model files need the extra 'files'")
    with pytest.raises(ValueError, match="LeNet, which is not among the classes"):
        fitted.save(tmp_path / "model")


def test_a_clone_fits_the_same():
    first = model(max_steps=4).fit(X[:300], y[:300])
    second = clone(first).fit(X[:300], y[:300])
    np.testing.assert_array_equal(first.log_density(X[:9]), second.log_density(X[:9]))


def test_the_plan_is_one_of_codes(fitted):
    plan = fitted.plan_
    assert (plan.measurement, plan.n_dims, plan.trials) == ("gradient", 12, ())
    first = model(max_steps=20).fit(X[:1200], y[:1200])
    again = model(options={"plan": plan, "n_features": "auto", "rank": "auto"}, max_steps=20)
    again.fit(X[:1200], y[:1200])
    np.testing.assert_array_equal(again.log_density(X[:9]), first.log_density(X[:9]))
    with pytest.raises(ValueError, match="the plan is one of 12 columns, but X has 64"):
        QAFFDEClassifier(plan=plan).fit(X, y)


def test_features_learn_only_if_asked():
    frozen, learned = (
        model(max_steps=4, learn_features=choice).fit(X[:300], y[:300]) for choice in (False, True)
    )
    drawn = frequencies(model(max_steps=1).fit(X[:300], y[:300]))
    assert torch.allclose(frequencies(frozen), drawn, atol=1e-6)
    assert not torch.allclose(frequencies(learned), drawn, atol=1e-4)


def test_adaptive_features_come_before():
    few = {"n_features": 20}
    adapted = model(options=few | {"features": "adaptive"}, max_steps=2).fit(X[:100], y[:100])
    plain = model(options=few, max_steps=2).fit(X[:100], y[:100])
    assert adapted.predict(X[:5]).shape == (5,)
    assert frequencies(adapted).shape == frequencies(plain).shape


def test_an_encoder_of_plain_columns():
    """Without image_shape an encoder sees rows as they are, whatever it is."""
    layers = torch.nn.Sequential(torch.nn.Linear(64, 20), torch.nn.ReLU(), torch.nn.Linear(20, 5))
    plain = model(layers, max_steps=150)
    assert plain.fit(X[:1200], y[:1200]).score(X[1200:], y[1200:]) > 0.8
    assert plain.n_components_ == 5


def test_images_are_augmented_in_training_only():
    seen = []

    def augment(images, generator):
        assert isinstance(generator, torch.Generator)
        seen.append(images.shape)
        return images

    trained = model(max_steps=3, augment=augment).fit(X[:300], y[:300])
    assert seen == [(128, 1, 8, 8), (128, 1, 8, 8), (14, 1, 8, 8)]
    trained.predict(X)
    assert len(seen) == 3


def test_augmentation_has_its_randomness_from_the_seed():
    def augment(images, generator):
        mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
        return torch.where(mirrored, images.flip(3), images)

    first, second = (
        model(max_steps=4, augment=augment).fit(X[:300], y[:300]).log_density(X[:9])
        for _ in range(2)
    )
    plain = model(max_steps=4).fit(X[:300], y[:300]).log_density(X[:9])
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - plain).max() > 1e-6


def test_dropout_follows_random_state():
    first, second, other = (
        model(LeNet((1, 8, 8), **SMALL, dropout=0.4), {"random_state": seed}, max_steps=4).fit(
            X[:300], y[:300]
        )
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.log_density(X[:9]), second.log_density(X[:9]))
    assert np.abs(first.log_density(X[:9]) - other.log_density(X[:9])).max() > 1e-6
