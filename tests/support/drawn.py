"""Fifty docstrings and five pages of docs/, drawn by the commit, for a reader: python -m tests.support.drawn.

The same commit draws the same; PYJS_COMMIT names another.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.turns import ROOT, commit_of_tree

DOCSTRINGS = 50
PAGES = 5
COMPILED = re.compile(r'"""(.*?)"""', re.DOTALL)


def docstrings(src: Path) -> Iterator[tuple[str, str]]:
    """Yield place and text of every docstring below `src`."""
    for path in sorted(src.rglob("*.py*")):
        name = path.relative_to(src).as_posix()
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    text = ast.get_docstring(node)
                    if text:
                        yield f"{name}:{getattr(node, 'lineno', 1)}", text
        elif path.suffix in (".pyx", ".pxd"):
            source = path.read_text("utf-8")
            for found in COMPILED.finditer(source):
                yield f"{name}:{source.count(chr(10), 0, found.start()) + 1}", found[1]


def drawn(names: list[str], commit: str, count: int) -> list[str]:
    """Return the `count` names whose digests with `commit` are smallest."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{commit} {name}".encode()).digest())[:count]


def main() -> None:
    """Print what was drawn."""
    commit = commit_of_tree()
    texts = dict(docstrings(ROOT / "src" / "pyjs"))
    for place in drawn(list(texts), commit, DOCSTRINGS):
        print(f"== {place}\n{texts[place]}\n")
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")]
    print("pages:", *drawn(sorted(pages), commit, PAGES))


if __name__ == "__main__":
    main()
