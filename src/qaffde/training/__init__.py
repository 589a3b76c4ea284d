"""Training: losses, closed forms, the training loop, checkpoints and configuration."""

from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.checkpoint import Checkpoint, CheckpointError
from qaffde.training.config import AdaptiveConfig, ComputeConfig, LoopConfig, TrainingConfig
from qaffde.training.loop import TrainingDiverged, adam, hold_out, train
from qaffde.training.losses import negative_log_likelihood, plain_loss, squared_loss
from qaffde.training.pairs import near_pairs, pair_kernel, random_pairs, sample_pairs
from qaffde.training.run import History, print_progress
from qaffde.training.shear import fit_shear

__all__ = [
    "AdaptiveConfig",
    "Checkpoint",
    "CheckpointError",
    "ComputeConfig",
    "History",
    "LoopConfig",
    "TrainingConfig",
    "TrainingDiverged",
    "adam",
    "fit_adaptive_features",
    "fit_shear",
    "hold_out",
    "near_pairs",
    "negative_log_likelihood",
    "pair_kernel",
    "plain_loss",
    "print_progress",
    "random_pairs",
    "sample_pairs",
    "squared_loss",
    "train",
]
