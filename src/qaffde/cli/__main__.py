"""``python -m qaffde.cli`` is ``qaffde``."""

from qaffde.cli import main

main()
