"""The output of `pyjs-pipeline`: JSON, aligned tables, and errors of one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

PROGRAM = "pyjs-pipeline"


def fail(text: str, code: int) -> int:
    """Print an error as one line on stderr; return the exit code."""
    print(f"{PROGRAM}: {' '.join(text.split())}", file=sys.stderr)
    return code


def print_json(value: Mapping[str, object]) -> int:
    """Print one line of JSON; return the exit code 0."""
    print(json.dumps(value))
    return 0


def print_table(head: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    """Print aligned columns: the first to the left, numbers to the right."""
    cells = [list(head), *([str(cell) for cell in line] for line in lines)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    for line in cells:
        padded = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join([line[0].ljust(widths[0]), *padded[1:]]).rstrip())
