"""Formulas as MathML, which browsers draw by themselves: no script, no image, no network."""

import re
from collections.abc import Callable
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

# Of bars and angles docutils lets the left one stretch and the right one not.
FENCES = re.compile(r"<mo[^>]*>([‖|⟨⟩])</mo>")
PLAIN = r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'


def _visitor(tag: str, *, as_block: bool) -> Callable[[Any, nodes.Element], None]:
    def visit(self: Any, node: nodes.Element) -> None:
        try:
            formula = FENCES.sub(PLAIN, tex2mathml(node.astext(), as_block=as_block))
        except MathError as error:
            logging.getLogger(__name__).warning("no MathML: %s", error, location=node)
            formula = self.encode(node.astext())
        self.body.append(self.starttag(node, tag, "", CLASS="math") + formula + f"</{tag}>")
        raise nodes.SkipNode

    return visit


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    inline, block = _visitor("span", as_block=False), _visitor("div", as_block=True)
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
