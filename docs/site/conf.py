"""The documentation site (`make docs`): the pages of this repository, and the interface from its docstrings."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from poolrt.version import VERSION  # noqa: E402

project = "poolrt"
author = "The poolrt maintainers"
release = version = VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# The sources are the repository, so that the pages' links to each other and to files lead to the same places as there.
root_doc = "docs/site/index"
include_patterns = ["*.md", "benchmarks/*.md", "docs/*.md", "docs/site/*.md", "docs/decisions/*.md"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 3
# A link to a folder has no page here; the tests of the documents hold all links to what exists.
suppress_warnings = ["myst.xref_missing"]
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False

html_theme = "furo"
html_title = f"poolrt {VERSION}"
html_show_sphinx = False


def escape_stars(app: object, what: str, name: str, of: object, options: object, lines: list[str]) -> None:
    """Keep the stars of docstrings: they are in shapes such as (N, C, *spatial), never around emphasised words."""
    lines[:] = [re.sub(r"(``.*?``)|\*", lambda found: found[1] or r"\*", line) for line in lines]


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("autodoc-process-docstring", escape_stars)
