"""Training: what is minimised, on what, and how."""

from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.config import AdaptiveConfig
from qaffde.training.losses import plain_loss, squared_loss
from qaffde.training.pairs import near_pairs, pair_kernel, random_pairs, sample_pairs

__all__ = [
    "AdaptiveConfig",
    "fit_adaptive_features",
    "near_pairs",
    "pair_kernel",
    "plain_loss",
    "random_pairs",
    "sample_pairs",
    "squared_loss",
]
