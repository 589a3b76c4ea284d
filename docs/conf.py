"""How sphinx builds these pages: `make docs`."""

import importlib
import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sphinx.application import Sphinx

import qaffde

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

MODULES = re.findall(r"^   (qaffde\S*)$", (HERE / "api/index.md").read_text(), re.MULTILINE)


def tables(module: str) -> dict[str, str]:
    """Public names of a module that are neither classes nor functions, and what they hold."""
    found = importlib.import_module(module)
    names = getattr(found, "__all__", [name for name in vars(found) if name.isupper()])
    values = {name: getattr(found, name) for name in names}
    return {
        name: content(value)
        for name, value in values.items()
        if not inspect.isroutine(value) and not inspect.isclass(value)
    }


def shared(module: str) -> list[str]:
    """Public names of a module that :mod:`qaffde` has too."""
    found = vars(importlib.import_module(module))
    return [name for name in qaffde.__all__ if found.get(name) is getattr(qaffde, name)]


def is_estimator(value: Any) -> bool:
    """Whether a public name is an estimator, which has a page of its own."""
    return inspect.isclass(value) and issubclass(value, BaseEstimator)


def content(value: Any) -> str:
    """Keys of a table, items of a list, or the value itself."""
    items = value if isinstance(value, (dict, tuple, list)) else [value]
    return ", ".join(f"``{item}``" for item in items)


project = "qaffde"
author = "The qaffde authors"
project_copyright = author
version = release = qaffde.__version__
language = "en"
smartquotes = False

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "mathml",
]
templates_path = ["_templates"]
INCLUDED = ("tables_*", "tensor_train", "baselines", "speed", "notation", "equations")
"""Pages that stand on another one, by an include."""
exclude_patterns = ["_build", "auto_examples/**/*.ipynb", "auto_examples/**/*.py"]
exclude_patterns += [f"{name}.md" for name in (*INCLUDED, "corrections", "explorer")]
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(sklearn|torch)\..*"),  # their pages are elsewhere
    ("py:obj", "[a-z_]+"),  # parameters with a default, which look like attributes of a dataclass
]
default_role = "autolink"
highlight_language = "none"

autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_context = {
    "elsewhere": {name: shared(name) for name in MODULES if name != "qaffde"},
    "pages": [name for name in qaffde.__all__ if is_estimator(getattr(qaffde, name))],
    "tables": {name: tables(name) for name in MODULES},
}
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["qaffde.css"]
html_title = f"qaffde {version}"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_sidebars = {"getting_started": [], "changelog": []}
html_theme_options = {
    "logo": {"text": "qaffde"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": "gallery.order",
    "reset_modules": ("matplotlib", "gallery.set_style"),
    "image_srcset": ["2x"],
    "backreferences_dir": "api/backreferences",
    "doc_module": ("qaffde",),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,  # its page loads scripts from elsewhere
}


def skip_foreign(
    app: Sphinx, what: str, name: str, obj: Any, skip: Any, options: Any
) -> bool | None:
    """Leave out what a class inherits from scikit-learn, torch and Python."""
    function = inspect.unwrap(obj.fget if isinstance(obj, property) else obj)
    module = getattr(getattr(function, "__func__", function), "__module__", None)
    if what == "class" and isinstance(module, str) and not module.startswith("qaffde"):
        return True
    return None


def add_results(app: Sphinx, error: Exception | None) -> None:
    """Build the page of all experiments from their rows, beside the other pages."""
    from experiments.report import PAGE, read_parts, write_page

    if error is None and app.builder.format == "html":
        write_page(read_parts(), "standard", Path(app.outdir) / PAGE)


def draw_rooms(app: Sphinx) -> None:
    """Draw the picture of the imports before it is read."""
    from rooms import draw

    draw()


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("builder-inited", draw_rooms)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("build-finished", add_results)
