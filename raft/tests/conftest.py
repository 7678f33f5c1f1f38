"""The tests of the consensus engine run only if it is compiled; otherwise one skipped test says how to build it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from tests.support import groups

REASON = "the consensus engine is not here (make cluster)"
STALE = "the sources of raft/ changed since the consensus engine was compiled (make cluster)"
RAFT = Path(__file__).resolve().parent.parent
IN_PLACE = RAFT / "python" / "pyjs_raft" / "_engine.abi3.so"


def is_here() -> bool:
    """Return whether the compiled engine can be imported."""
    try:
        return importlib.util.find_spec("pyjs_raft._engine") is not None
    except ImportError:  # the package itself is missing, or only its compiled part
        return False


def is_stale() -> bool:
    """Return whether the engine in this tree was compiled before its sources changed."""
    sources = [RAFT / "Cargo.lock", RAFT / "Cargo.toml", *(RAFT / "src").glob("*.rs")]
    return IN_PLACE.exists() and any(path.stat().st_mtime > IN_PLACE.stat().st_mtime for path in sources)


def pytest_configure(config: pytest.Config) -> None:
    """Report the seconds of this group of tests."""
    groups.register(config)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skip modules that import the engine if it is missing; `test_missing.py` reports this."""
    if (
        collection_path.name.startswith("test_")
        and collection_path.name != "test_missing.py"
        and not is_here()
    ):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests of an engine that was compiled from other sources; `test_missing.py` reports this."""
    if not is_stale():
        return
    gone = [item for item in items if RAFT in item.path.parents and item.path.name != "test_missing.py"]
    if gone:
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=gone)


def required() -> bool:
    """Return whether tests fail, and are not skipped, if the engine is missing."""
    return "raft" in os.environ.get("PYJS_REQUIRE", "").split(",")
