"""Estimators by flat parameters: search spaces and recipes name the settings of Adam too."""

from dataclasses import replace
from typing import Any

from qaffde.baselines import TrainedEstimator

ADAM = (
    "max_steps",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "clip_norm",
    "validation_fraction",
    "patience",
    "checkpoint",
)
"""Settings of :class:`qaffde.training.TrainingConfig` that a flow takes."""


def from_flat(cls: type[TrainedEstimator], **parameters: Any) -> TrainedEstimator:
    """Estimator of flat parameters; settings of Adam replace those of its class.

    Examples
    --------
    >>> from qaffde.baselines import MAF
    >>> from_flat(MAF, n_layers=2, max_steps=10).training.max_steps
    10
    """
    settings = {name: parameters.pop(name) for name in ADAM if name in parameters}
    training = replace(cls.default_training, **settings) if settings else None
    return cls(**parameters, training=training)


def flat_parameters(model: TrainedEstimator) -> dict[str, Any]:
    """Parameters with the settings of Adam among them."""
    parameters = model.get_params()
    training = parameters.pop("training") or model.default_training
    return parameters | {name: getattr(training, name) for name in ADAM}
