"""Selection among many long test cases: some run at each commit, so that over time each of them runs."""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def is_chosen(name: str, commit: str, every: int) -> bool:
    """Return whether `name` is selected at `commit`; about one name in `every` is."""
    digest = hashlib.sha256(f"{commit} {name}".encode()).digest()
    return digest[0] * 256 + digest[1] < 65536 // every


@cache
def commit_of_tree() -> str:
    """Return the commit for the selection: PYJS_COMMIT, or the commit that is checked out, or "" if there is none."""
    given = os.environ.get("PYJS_COMMIT")
    if given is not None:
        return given
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() if asked.returncode == 0 else ""
