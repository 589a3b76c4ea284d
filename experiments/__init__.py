"""Experiments of this repository that are not part of the package: measured here, read in docs."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
