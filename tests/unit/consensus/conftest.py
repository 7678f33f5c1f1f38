"""Tests that need the consensus engine are only collected if it is compiled; raft/tests reports its absence."""

from __future__ import annotations

from pathlib import Path

from raft.tests.conftest import is_here

WITHOUT_ENGINE = ("test_descriptor.py", "test_names.py", "test_missing_engine.py")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skip modules that import the consensus engine if it is not installed."""
    name = collection_path.name
    is_free = name in WITHOUT_ENGINE or (
        collection_path.parent.name == "log" and name != "test_durability.py"
    )
    return True if name.startswith("test_") and not is_free and not is_here() else None
