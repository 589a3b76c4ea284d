"""Training: losses, closed forms, the training loop, checkpoints and configuration."""

from qaffde.parameters import ComputeConfig
from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.checkpoint import Checkpoint, CheckpointError
from qaffde.training.config import LoopConfig, TrainingConfig
from qaffde.training.likelihood import negative_log_likelihood
from qaffde.training.loop import TrainingDiverged, adam, train
from qaffde.training.run import History, hold_out, print_progress
from qaffde.training.tensor_train import TensorTrainConfig

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "ComputeConfig",
    "History",
    "LoopConfig",
    "TensorTrainConfig",
    "TrainingConfig",
    "TrainingDiverged",
    "adam",
    "fit_adaptive_features",
    "hold_out",
    "negative_log_likelihood",
    "print_progress",
    "train",
]
