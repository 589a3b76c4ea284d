"""Flows given the class: one for all classes, or one for each."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from qaffde.baselines.base import FlowDensity, TrainedEstimator


class ClassFlows(FlowDensity):
    """A flow for each class, which share nothing.

    Parameters
    ----------
    flows : FlowDensity modules
        Without a context; one for each column of the one-hot context that this density has.
    """

    def __init__(self, flows: Iterable[FlowDensity]) -> None:
        super().__init__()
        self.flows = nn.ModuleList(flows)

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Log-density of shape (n,) of rows of one-hot classes (n, C)."""
        return each_class(self.flows, context, lambda flow, rows: flow.log_prob(x[rows]))

    def sample(self, n: int, generator: Generator, context: Tensor | None = None) -> Tensor:
        """Draws of shape (n, d) of one-hot classes (n, C)."""
        return each_class(
            self.flows, context, lambda flow, rows: flow.sample(len(rows), generator)
        )


def each_class(
    modules: nn.ModuleList, context: Tensor | None, give: Callable[[Any, Tensor], Tensor]
) -> Tensor:
    """What the module of each class gives for its rows, in the order of the rows.

    Parameters
    ----------
    modules : ModuleList of length C
    context : Tensor of shape (n, C)
        One-hot classes of the rows.
    give : callable
        Of a module and the numbers of its rows.

    Examples
    --------
    >>> x = torch.tensor([[1.0], [2.0], [3.0]])
    >>> kept_or_zero = nn.ModuleList([nn.Identity(), nn.Threshold(9, 0)])
    >>> each_class(kept_or_zero, torch.eye(2)[[1, 0, 1]], lambda f, rows: f(x[rows])).flatten()
    tensor([0., 2., 0.])
    """
    if context is None:
        raise ValueError("one module for each class needs the classes as its context")
    order = context.argmax(1).argsort(stable=True)
    rows = order.split(context.count_nonzero(0).tolist())
    given = [give(module, r) for module, r in zip(modules, rows, strict=True) if len(r)]
    return torch.cat(given)[order.argsort()]


def class_flow(
    flow: TrainedEstimator, n_dims: int, n_classes: int, *, shared: bool
) -> FlowDensity:
    """Untrained density given one-hot classes: one flow for all, or one for each."""
    if shared:
        return flow._build(n_dims, n_classes)
    return ClassFlows(flow._build(n_dims) for _ in range(n_classes))
