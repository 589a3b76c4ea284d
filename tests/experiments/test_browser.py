"""The page in headless Chromium: it sorts, tells and opens."""

import re
import subprocess

import pytest

pytest.importorskip("matplotlib", reason="reports need the extra 'plot'")

from experiments.report import report
from tests.browser import BROWSER, needs_browser

pytestmark = needs_browser
PROBE = """
<script type="module">
const log = [];
addEventListener("error", (event) => log.push(`error: ${event.message}`));
const table = document.querySelector("#planar table");
const [, button] = table.querySelectorAll("thead button");
const column = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[1].dataset.value));
button.click(); const up = column(); button.click(); const down = column();
log.push(`sorted: ${up[0] <= up[1]} ${down[0] >= down[1]} ${button.closest("th").ariaSort}`);
const link = table.querySelector("td a[data-tip]");
link.focus();
const tip = document.getElementById("tip");
log.push(`tip: ${!tip.hidden && tip.textContent === link.dataset.tip}`);
location.hash = link.hash;
setTimeout(() => {
  const row = document.querySelector("details.found");
  const focused = row.contains(document.activeElement);
  log.push(`row: ${row.open && "#" + row.id === link.hash && focused}`);
  log.push(`images: ${[...document.images].every((image) => image.alt)}`);
  document.title = log.join("; ");
}, 50);
</script>
</body>
"""


def dump(page, *options):
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=3000",
        *options,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_the_page_sorts_tells_and_opens_rows(measured, tmp_path):
    report(("planar",), "quick", measured.folder, tmp_path)
    page = tmp_path / "results.html"
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
    found = re.search("<title>(.*)</title>", dump(page, "--dump-dom"))[1]
    assert found == "sorted: true true descending; tip: true; row: true; images: true"


def test_the_page_is_drawn(measured, tmp_path):
    report(("planar",), "quick", measured.folder, tmp_path)
    picture = tmp_path / "page.png"
    dump(tmp_path / "results.html", "--window-size=1280,2000", f"--screenshot={picture}")
    from PIL import Image

    with Image.open(picture) as image:
        assert image.size == (1280, 2000)
        assert len(image.convert("RGB").getcolors(1280 * 2000)) > 200  # text and densities
