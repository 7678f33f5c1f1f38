"""The output of `pyjs-pipeline`: JSON, and errors of one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

PROGRAM = "pyjs-pipeline"


def fail(text: str, code: int) -> int:
    """Print an error as one line on stderr; return the exit code."""
    print(f"{PROGRAM}: {' '.join(text.split())}", file=sys.stderr)
    return code


def print_json(value: Mapping[str, object]) -> int:
    """Print one line of JSON; return the exit code 0."""
    print(json.dumps(value))
    return 0
