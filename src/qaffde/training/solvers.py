r"""Solvers for the convex problem of maximum-likelihood tomography.

.. math:: \min_{\sigma \succeq 0,\ \operatorname{tr} \sigma = 1}
          -\sum_i w_i \log e_i^\top \sigma e_i

over the factor A of :math:`\sigma = A^\top A / \lVert A \rVert^2`. Each is an optimizer of torch
and runs in the loop of :mod:`qaffde.training.loop`. `python -m benchmarks.solvers` compares them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from qaffde.training.config import LoopConfig
from qaffde.training.loop import MakeOptimizer, adam

LBFGS_ITERATIONS = 10
"""Iterations in a step of the loop, which evaluates the loss once more than they need."""


class FixedPoint(torch.optim.Optimizer):
    r"""The iteration RσR of maximum-likelihood tomography, diluted, on the factor.

    .. math:: \sigma \leftarrow
              \frac{R_\eta \sigma R_\eta}{\operatorname{tr} R_\eta \sigma R_\eta}, \quad
              R_\eta = (1 - \eta) I + \eta R, \quad
              R = \sum_i w_i \frac{e_i e_i^\top}{e_i^\top \sigma e_i}

    (Hradil, 1997; Lvovsky, 2004). On the factor it reads A ← AR_η, and since the gradient of the
    loss is 2A/‖A‖² − 2AR, that is a step of length η‖A‖²/2 down the gradient, rescaled. Whole
    steps, η = 1, swing to and fro about the optimum; diluted ones (Řeháček et al., 2007) are
    monotone, and half steps are those of expectation–maximisation near a diagonal state.

    Parameters
    ----------
    params : iterable of Parameters of shape (r, n)
    lr : float, default=0.5
        η.
    accelerated : bool, default=False
        With Nesterov's momentum, which starts anew whenever the loss rises (O'Donoghue and
        Candès, 2015).
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float = 0.5, *, accelerated: bool = False
    ) -> None:
        super().__init__(params, {"lr": lr, "accelerated": accelerated})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor]) -> Tensor:  # type: ignore[override]
        """Take one step; `closure` computes the loss and its gradient."""
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            for A in group["params"]:
                if group["accelerated"] and self._overshot(A, loss):
                    A.copy_(self.state[A]["last"])
                    continue
                moved = A - 0.5 * group["lr"] * A.square().sum() * A.grad
                moved /= torch.linalg.norm(moved)
                A.copy_(self._ahead(A, moved, loss) if group["accelerated"] else moved)
        return loss

    def _overshot(self, A: Tensor, loss: Tensor) -> bool:
        """Whether momentum made the loss rise; it is then lost, and so is the step."""
        state = self.state[A]
        if not state.get("count") or loss <= state["loss"]:
            return False
        state["count"] = 0
        return True

    def _ahead(self, A: Tensor, moved: Tensor, loss: Tensor) -> Tensor:
        """Point ahead of the moved one, in the direction of the last moves."""
        state = self.state[A]
        count, last = state.get("count", 0), state.get("last", moved)
        state.update(count=count + 1, last=moved.clone(), loss=loss.clone())
        return moved + count / (count + 3) * (moved - last)


def lbfgs(parameters: Iterable[nn.Parameter], config: LoopConfig) -> torch.optim.Optimizer:
    """L-BFGS with a strong Wolfe line search, some iterations in each step."""
    return torch.optim.LBFGS(
        parameters,
        lr=config.learning_rate,
        max_iter=LBFGS_ITERATIONS,
        history_size=20,
        line_search_fn="strong_wolfe",
    )


def fixed_point(
    parameters: Iterable[nn.Parameter], config: LoopConfig, *, accelerated: bool = False
) -> torch.optim.Optimizer:
    """The fixed-point iteration."""
    return FixedPoint(parameters, config.learning_rate, accelerated=accelerated)


@dataclass(frozen=True)
class Solver:
    """An optimizer and how the loop runs it.

    Parameters
    ----------
    make_optimizer : callable
    settings : dict
        Of :class:`LoopConfig`.
    iterations : int
        Iterations in a step.
    """

    make_optimizer: MakeOptimizer
    settings: dict[str, object]
    iterations: int = 1

    def config(self, max_iter: int, **settings: object) -> LoopConfig:
        """Settings of the loop for `max_iter` iterations."""
        steps = {"max_steps": -(-max_iter // self.iterations)}
        return LoopConfig(**{**steps, **self.settings, **settings})  # type: ignore[arg-type]


FULL_BATCH: dict[str, object] = {
    "batch_size": None,
    "learning_rate": 1.0,
    "final_learning_rate": 1.0,
    "eval_every": 1,
}
DILUTED = {**FULL_BATCH, "learning_rate": 0.5, "final_learning_rate": 0.5}

SOLVERS: dict[str, Solver] = {
    "lbfgs": Solver(lbfgs, FULL_BATCH, LBFGS_ITERATIONS),
    "fixed_point": Solver(fixed_point, DILUTED),
    "accelerated_fixed_point": Solver(partial(fixed_point, accelerated=True), DILUTED),
    "adam": Solver(adam, {"batch_size": 2048, "learning_rate": 0.01, "eval_every": 100}),
}
