"""Judges whose best candidate is known, and searches with them."""

import math

import torch

from qaffde.parameters import DOUBLE
from qaffde.selection import ModelSpec
from qaffde.selection.base_measure import BaseSpec
from qaffde.selection.likelihood import Likelihood
from qaffde.selection.policy import DEFAULT_POLICY
from qaffde.selection.search import Search

GENERATOR = torch.Generator().manual_seed(0)
Z = torch.randn(200, 2, generator=GENERATOR, dtype=torch.float64)
BOX, GAUSSIAN = BaseSpec("box", roomy=True), BaseSpec("gaussian")
SUMMIT = torch.tensor([0.3, 0.9], dtype=torch.float64)
BEST_RIDGE = 900.0


class Judge:
    """Concave in the logarithms of bandwidths and ridge; some measures are better than others."""

    def __init__(self, bonus=None):
        self.bonus = {"box": 0.0, "gaussian": 0.0, "mixture": 0.0} | (bonus or {})
        self.seen = []

    def __call__(self, measure, choice, split):
        self.seen.append(str(choice))
        away = (choice.bandwidth / SUMMIT).log().square().sum()
        away = away + 0.1 * math.log(choice.ridge / BEST_RIDGE) ** 2
        value = self.bonus[choice.base.name] - away
        return value.expand(len(split.valid))


def search_with(judge, known=None, deadline=math.inf, report=None, rows=Z, policy=DEFAULT_POLICY):
    weight = torch.ones(len(rows), dtype=torch.float64)
    return Search(
        rows,
        weight,
        judge,
        policy=policy,
        seed=0,
        deadline=deadline,
        known=known,
        report=report,
    )


def run(search, bases, h=None, ridge="auto", *, free=False):
    """Choice of maximum likelihood; a given ridge is one times the number of rows."""
    share = ridge if ridge == "auto" else ridge / len(search.Z)
    n_features = "auto" if free else 100
    spec = ModelSpec(method="likelihood", n_features=n_features, ridge=share)
    return Likelihood(spec, search.policy, DOUBLE, seed=0).choose(search, bases, h)
