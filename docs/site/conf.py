"""How Sphinx makes the site of the manual (`make site`). Its pages are the Markdown files of the tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "pyjs-server"
author = "the authors of pyjs-server"
html_theme = "furo"
html_title = "pyjs-server"
html_show_copyright = False
html_copy_source = False
html_extra_path = ["root"]  # its page leads to the first one
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
root_doc = "docs/site/index"
# The source directory is the root of the tree, so that a link works here and on a hosting platform alike.
include_patterns = [
    "CHANGELOG.md",
    "README.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "docs/**.md",
    "raft/README.md",
    "spark/*/README.md",
    "spark/README.md",
    "spark/docs/**.md",
    "tests/conformance/*.md",
]
extensions = ["myst_parser"]
myst_heading_anchors = 4


def setup(app: Sphinx) -> None:
    """Show NATS configurations as they are: no lexer knows their language."""
    app.add_lexer("conf", TextLexer)
