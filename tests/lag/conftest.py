"""These tests use a real disk, because its speed counts."""

from pathlib import Path

import pytest
from tests.support.scratch import disk_path

__all__ = ["disk_path", "tmp_path"]


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    """Return a directory on the disk."""
    return disk_path
