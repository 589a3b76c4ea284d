"""Data → plan → model: summarize rows, select a plan, solve for a density."""

from qaffde.selection.plan import ModelSpec, Plan, Trial
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.select import select
from qaffde.selection.solve import solve, sum_rows
from qaffde.selection.summary import Moments, Source, Summary, summarize

__all__ = [
    "ModelSpec",
    "Moments",
    "Plan",
    "SelectionPolicy",
    "Source",
    "Summary",
    "Trial",
    "select",
    "solve",
    "sum_rows",
    "summarize",
]
