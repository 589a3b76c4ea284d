"""The browser that tests of pages use, where there is one."""

import os
import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = os.environ.get("QAFFDE_CHROMIUM") or next(
    filter(None, map(shutil.which, BROWSERS)), None
)
needs_browser = pytest.mark.skipif(
    BROWSER is None,
    reason=f"needs a browser: none of {', '.join(BROWSERS)} is installed, QAFFDE_CHROMIUM unset",
)
