"""The configuration of the experiment on images: recipes, and what a budget changes in them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ImageMethodBudget:
    """What one method has of its own in a budget.

    Parameters
    ----------
    seeds : tuple of int, optional
        In place of the budget's.
    parameters : dict
        In place of the recipe's.
    """

    seeds: tuple[int, ...] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageBudget:
    """How much the comparison may cost.

    Parameters
    ----------
    seeds : tuple of int
    n_outside : int
        Images of each kind that no class explains, and of those that one does, for the AUC.
    n_train, n_test : int, optional
        Images to train on and to measure with; all of them where it is not said.
    methods : dict of {str: ImageMethodBudget}
    """

    seeds: tuple[int, ...]
    n_outside: int
    n_train: int | None = None
    n_test: int | None = None
    methods: Mapping[str, ImageMethodBudget] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageConfig:
    """Classification of images: every set by every method.

    Parameters
    ----------
    title : str
    sets, methods : tuple of str
    recipes : dict of {str: dict of {str: dict}}
        Parameters by method and set.
    budgets : dict of {str: ImageBudget}
    """

    title: str
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    recipes: Mapping[str, Any]
    budgets: Mapping[str, ImageBudget]

    def parameters(self, method: str, name: str, budget: ImageBudget) -> dict[str, Any]:
        """Recipe of a method on a set, and what the budget changes in it."""
        own = budget.methods.get(method, ImageMethodBudget())
        recipe = self.recipes.get(method, {}).get(name, {})
        return {**recipe, **own.parameters}
