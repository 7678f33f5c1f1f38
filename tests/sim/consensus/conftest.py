"""The simulation runs only if the consensus engine is compiled; otherwise a skipped test of raft/tests says so."""

from __future__ import annotations

from pathlib import Path

from raft.tests.conftest import is_here


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skip modules that import the engine if it is missing."""
    return True if collection_path.name.startswith("test_") and not is_here() else None
