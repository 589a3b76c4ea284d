"""Data → plan → model: summarize rows, select a plan, solve for a density."""

from qaffde.selection.classes import ClassSpec, select_classes
from qaffde.selection.plan import Plan, Trial
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.select import select
from qaffde.selection.solve import solve, sum_rows
from qaffde.selection.sources import Source, summarize
from qaffde.selection.spec import ModelSpec
from qaffde.selection.summary import Moments, Summary

__all__ = [
    "ClassSpec",
    "ModelSpec",
    "Moments",
    "Plan",
    "SelectionPolicy",
    "Source",
    "Summary",
    "Trial",
    "select",
    "select_classes",
    "solve",
    "sum_rows",
    "summarize",
]
