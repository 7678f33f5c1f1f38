"""The parts of a document that tests compare with the code: examples and tables."""

from __future__ import annotations

import re

from tests.style.tree import ROOT

NOTEBOOKS = ROOT / "spark" / "docs"
SPARK = NOTEBOOKS / "guide.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    pyjs-pipeline (.+)$", re.MULTILINE)


def examples(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of each example, in their order."""
    return BLOCK.findall(text)


def table(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose first line begins with `head`, without its head."""
    lines = text[text.index(f"\n| {head} |") + 1 :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def quoted(cell: str) -> str:
    """Return the text between the first backticks of a cell, or "" if it does not begin with one."""
    match = re.match(r"`([^`]+)`", cell)
    return match[1] if match else ""
