"""The explorer: a page on this machine where a person moves through a fitted density."""

from qaffde.explore.server import ExplorerServer
from qaffde.explore.views import Explorer, Picture

__all__ = ["Explorer", "ExplorerServer", "Picture"]
