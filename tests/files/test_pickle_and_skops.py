"""Pickle, copies and skops, as scikit-learn's users know them."""

import copy
import pickle

import numpy as np
import pytest
import skops.io as skops
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.distributions import ExpTransform

from qaffde import QAFFDE, QAFFDESGD, FileError
from tests.file_models import CLOSED, MODELS, X, answers, fitted


def through_skops(model):
    content = skops.dumps(model)
    return skops.loads(content, trusted=skops.get_untrusted_types(data=content))


def through_pickle(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("through", [through_pickle, through_skops, copy.deepcopy, copy.copy])
def test_models_come_back(name, through):
    model = fitted(name)
    np.testing.assert_array_equal(answers(through(model)), answers(model))


@pytest.mark.parametrize("name", MODELS)
def test_skops_asks_to_trust_the_estimator_alone(name):
    kind = type(fitted(name))
    content = skops.dumps(fitted(name))
    assert skops.get_untrusted_types(data=content) == [f"{kind.__module__}.{kind.__qualname__}"]


def test_skops_loads_nothing_that_is_not_trusted():
    with pytest.raises(Exception, match="Untrusted types found"):
        skops.loads(skops.dumps(QAFFDE()))


def test_skops_takes_pipelines():
    model = make_pipeline(StandardScaler(), QAFFDE(**CLOSED)).fit(X)
    np.testing.assert_array_equal(through_skops(model).score_samples(X), model.score_samples(X))


def test_a_transform_of_ones_own_is_for_pickle():
    model = QAFFDESGD(transformation=ExpTransform())
    assert isinstance(through_pickle(model).transformation, ExpTransform)
    with pytest.raises(FileError, match="keep such a model by pickle"):
        skops.dumps(model)
