"""These tests are only collected if the consensus engine is compiled; raft/tests reports its absence."""

from __future__ import annotations

from pathlib import Path

from raft.tests.conftest import is_here


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skip modules that import the consensus engine if it is not installed."""
    return True if collection_path.name.startswith("test_") and not is_here() else None
