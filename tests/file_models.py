"""One small estimator of every class that files may hold, fitted."""

import functools
from dataclasses import replace

import numpy as np
import pandas as pd

from qaffde import (
    QAFFDE,
    QAFFDESGD,
    Atom,
    ComputeConfig,
    FourierFeatures,
    Periodic,
    QAFFDEAutoregressive,
    QAFFDEClassifier,
    QAFFDEDriftDetector,
    QAFFDEOutlierDetector,
    QAFFDERegressor,
    QAFFDETensorTrain,
    Real,
    SelectionPolicy,
    TensorTrainConfig,
    TrainingConfig,
)
from qaffde.estimators import KernelMixture

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(60, 2)), [4, 3] + 0.7 * RNG.normal(size=(60, 2))])
FRAME = pd.DataFrame(X, columns=["height", "weight"])
CLOSED = {"n_features": 12, "bandwidth": 0.8, "random_state": 0}
CONVEX = {**CLOSED, "ridge": 0.01, "training": TrainingConfig(max_iter=5)}

SHORT = TensorTrainConfig(max_steps=5, bond=4, n_functions=5)
BRIEF = SelectionPolicy(table_iterations=5, mixture_sizes=(2,))
TABLE = pd.DataFrame(
    {
        "hour": 10 + X[:, 0],
        "spend": np.maximum(X[:, 1], 0),
        "rooms": np.rint(X[:, 1]),
        "city": np.where(X[:, 0] > 2, "Cali", None),
    }
)


def _hours():
    """Hours, and a wave over the day that a mixture of few components cannot follow."""
    rng = np.random.default_rng(0)
    turn = rng.random(800)
    return np.column_stack([24 * turn, 2 * np.sin(4 * np.pi * turn) + 0.2 * rng.normal(size=800)])


def _labels():
    return np.where(X[:, 0] > 2, "large", "small")


MODELS = {
    "QAFFDE box": lambda: QAFFDE(**CLOSED, base_measure="box", columns=Real(-9, 9)).fit(X),
    "QAFFDE gaussian": lambda: QAFFDE(**CLOSED, base_measure="gaussian").fit(FRAME),
    "QAFFDE mixture": lambda: QAFFDE(**CLOSED, base_measure=2, features="random").fit(X),
    "QAFFDE stream": lambda: QAFFDE(**CLOSED).partial_fit(FRAME[:70]).partial_fit(FRAME[70:]),
    "trials": lambda: QAFFDE(n_features=12, random_state=0).fit(X),
    "configs": lambda: QAFFDE(
        plan=fitted("trials").plan_,
        policy=SelectionPolicy(mixture_sizes=(1, 2)),
        compute=ComputeConfig(dtype="float32", batch_size=50),
    ).fit(X),
    "QAFFDESGD box": lambda: QAFFDESGD(**CONVEX, base_measure="box").fit(X),
    "QAFFDESGD mixture": lambda: QAFFDESGD(**CONVEX, base_measure=2).fit(FRAME),
    "QAFFDESGD gaussian": lambda: QAFFDESGD(**CONVEX, base_measure="gaussian").fit(X),
    "QAFFDESGD kernel": lambda: QAFFDESGD(**CONVEX, base_measure="kernel").fit(X),
    "tensor train": lambda: QAFFDETensorTrain(training=SHORT, random_state=0).fit(FRAME),
    "table": lambda: QAFFDE(
        columns={"hour": Periodic(24), "spend": Atom(0)}, policy=BRIEF, random_state=0
    ).fit(TABLE),
    "waves of a table": lambda: QAFFDESGD(
        columns=[Periodic(24), Real()],
        policy=replace(BRIEF, few_wave_rows=500),
        random_state=0,
    ).fit(_hours()),
    "train of a table": lambda: QAFFDETensorTrain(training=SHORT, random_state=0).fit(TABLE),
    "chain of a table": lambda: QAFFDEAutoregressive(
        width=8, training=TrainingConfig(max_steps=4), random_state=0
    ).fit(TABLE.assign(city=np.where(X[:, 0] > 2, "Cali", "Bern"))),
    "conditional of chain": lambda: fitted("chain of a table").condition({"hour": 10.0}),
    "marginal of train": lambda: fitted("tensor train").marginal(["weight"]),
    "outliers": lambda: QAFFDEOutlierDetector(
        QAFFDE(**CLOSED, base_measure="gaussian"), random_state=0
    ).fit(FRAME),
    "classifier": lambda: QAFFDEClassifier(**CLOSED).fit(FRAME, _labels()),
    "classifier stream": lambda: QAFFDEClassifier(**CLOSED, n_components=1).partial_fit(
        X, _labels(), classes=["large", "small"]
    ),
    "classifier gradient": lambda: QAFFDEClassifier(
        **CLOSED, method="gradient", training=TrainingConfig(max_steps=4)
    ).fit(X, _labels()),
    "regressor": lambda: QAFFDERegressor(
        n_members=2, n_hidden=4, training=TrainingConfig(max_steps=4), random_state=0
    ).fit(FRAME, X),
    "drift of a table": lambda: QAFFDEDriftDetector(n_permutations=49, random_state=0).fit(TABLE),
    "drift": lambda: (
        QAFFDEDriftDetector(n_permutations=49, random_state=0)
        .fit(np.tile(X, (20, 1)))
        .update(X[:31])
    ),
    "kernels": lambda: KernelMixture(8, random_state=0).fit(X),
    "features": lambda: FourierFeatures(8, random_state=np.random.RandomState(0)).fit(FRAME),
    "marginal": lambda: fitted("QAFFDE gaussian").marginal(["weight"]),
    "marginal of box": lambda: fitted("QAFFDESGD box").marginal([1]),
    "conditional": lambda: fitted("QAFFDE mixture").condition({0: 1.0}),
    "QAFFDE kernel": lambda: QAFFDE(
        **CLOSED, features="random", base_measure="kernel", measurement="direct"
    ).fit(X),
}
"""Names of models, and how each is fitted."""


@functools.cache
def fitted(name):
    return MODELS[name]()


def rows_for(model):
    """Rows that the model can score."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return X[:, : model.n_features_in_]
    return (TABLE if "city" in names else FRAME)[list(names)]


def answers(model):
    """What the model says of the rows: log-densities, probabilities, features, or a distance."""
    for method in ("score_samples", "predict_log_proba", "transform", "predict", "score"):
        if hasattr(model, method):
            rows = rows_for(model)[:10] if method == "predict" else rows_for(model)
            return getattr(model, method)(rows)
    raise TypeError(model)
