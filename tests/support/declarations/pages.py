"""Pages of docs/ with generated parts between markers; the text around them is not generated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"


def filled(page: Path, parts: Mapping[str, str]) -> str:
    """Return the text of a page with each part between `<!-- name -->` and `<!-- end -->`."""
    text = page.read_text("utf-8")
    for name, part in parts.items():
        marked = re.compile(f"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = marked.subn(lambda found, part=part: found[1] + part + found[2], text)  # type: ignore[misc]
        assert count == 1, f"{page} has {count} places for {name}"
    return text
