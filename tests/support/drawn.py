"""Draws docstrings and pages of docs/ for a reader, chosen by the commit: python -m tests.support.drawn.

The same commit always draws the same ones; PYJS_COMMIT can name another commit.
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
    """Yield the position and text of every docstring below `src`."""
    for path in sorted(src.rglob("*.p*")):
        if path.suffix in READERS:
            for line, text in READERS[path.suffix](path.read_text("utf-8")):
                yield f"{path.relative_to(src).as_posix()}:{line}", text


def of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and docstring of all definitions of a Python module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def of_cython(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each string in triple quotes."""
    for found in COMPILED.finditer(source):
        yield source.count("\n", 0, found.start()) + 1, found[1]


READERS = {".py": of_python, ".pyx": of_cython, ".pxd": of_cython}


def drawn(names: list[str], commit: str, count: int) -> list[str]:
    """Return the `count` names whose digests together with `commit` are smallest."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{commit} {name}".encode()).digest())[:count]


def main() -> None:
    """Print the names that were drawn."""
    commit = commit_of_tree()
    texts = dict(docstrings(ROOT / "src" / "pyjs"))
    for place in drawn(list(texts), commit, DOCSTRINGS):
        print(f"== {place}\n{texts[place]}\n")
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")]
    print("pages:", *drawn(sorted(pages), commit, PAGES))


if __name__ == "__main__":
    main()
