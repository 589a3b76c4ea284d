"""Data → plan → model: summarize rows, select a plan, solve for a density."""

from qaffde.selection.classes import summarize_classes
from qaffde.selection.plan import ModelSpec, Plan
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.search import Trial
from qaffde.selection.selector import select
from qaffde.selection.solver import solve
from qaffde.selection.sources import summarize
from qaffde.selection.summary import Moments, Source, Summary
from qaffde.training.classes import LabeledRows

__all__ = [
    "LabeledRows",
    "ModelSpec",
    "Moments",
    "Plan",
    "SelectionPolicy",
    "Source",
    "Summary",
    "Trial",
    "select",
    "solve",
    "summarize",
    "summarize_classes",
]
