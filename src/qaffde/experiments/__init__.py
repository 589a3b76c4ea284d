"""The paper's tables and figures as experiments: run them, and report from their rows.

>>> from qaffde.experiments import EXPERIMENTS
>>> list(EXPERIMENTS)
['planar', 'dimensions', 'kernel', 'images']
"""

from qaffde.experiments.config import BUDGETS, ConfigError
from qaffde.experiments.registry import EXPERIMENTS, Selection, plan, run

__all__ = ["BUDGETS", "EXPERIMENTS", "ConfigError", "Selection", "plan", "run"]
