"""The pictures of the README, in small: they print their tables and draw.

The tutorials run when the pages are built, which CI does (`make docs`).
"""

import pkgutil
import runpy
from importlib import import_module
from pathlib import Path

import pytest

import qaffde

PICTURES = Path(__file__).parents[1] / "examples/pictures"
PNG = b"\x89PNG\r\n\x1a\n"
N_ROWS = "300"
NOT_API = {
    "qaffde.boxes",
    "qaffde.pyod",
    "qaffde.cli",
    "qaffde.explore",
    "qaffde.extras",
    "qaffde.frames",
    "qaffde.parameters",
}  # commands, and checks inside


def run(main, picture, capsys, *arguments):
    """First words of the lines that were printed, and the first bytes of the picture."""
    main(["--n", N_ROWS, "--out", str(picture), *arguments])
    printed = capsys.readouterr().out
    assert str(picture) in printed
    assert picture.read_bytes()[:8] == PNG
    return [line.split() for line in printed.splitlines() if line]


def picture(name):
    path = PICTURES / f"{name}.py"
    if not path.exists():
        pytest.skip("examples live in the repository, not in the package")
    return runpy.run_path(str(path))["main"]


def test_first_density(tmp_path, capsys):
    head, *rows, _ = run(picture("first_density"), tmp_path / "first.png", capsys)
    assert head[0] == "target"
    assert [row[0] for row in rows] == ["star_eight", "swiss_roll", "potential_3"]
    assert all(0.5 < float(row[4]) < 1 for row in rows)  # Spearman


def test_bounded_data(tmp_path, capsys):
    _, *rows, _ = run(picture("bounded_data"), tmp_path / "bounded.png", capsys)
    outside = {(data, method): float(mass) for data, method, _, mass in rows}
    assert list(outside) == [
        (data, method) for data in ("shares", "potential_2") for method in ("QAFFDE", "KDE")
    ]
    for data in ("shares", "potential_2"):
        assert outside[data, "QAFFDE"] < 0.1 * outside[data, "KDE"]


def test_api_pages_have_every_public_module():
    listing = Path(__file__).parents[1] / "docs/api/index.md"
    if not listing.exists():
        pytest.skip("pages live in the repository, not in the package")
    names = [m.name for m in pkgutil.iter_modules(qaffde.__path__) if not m.name.startswith("_")]
    public = {f"qaffde.{name}" for name in names} - NOT_API
    public = {name for name in public if set(import_module(name).__all__) - {*qaffde.__all__}}
    listed = {line.strip() for line in listing.read_text().splitlines() if "qaffde." in line}
    assert public - listed == set()
