"""Stores that a server filled before it stopped, one for each encoding; each test gets a copy."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.fsck.store_files import fill

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the store of an encoding; tests copy it."""

    @cache
    def store(encoding: str) -> Path:
        root = tmp_path_factory.mktemp("template") / "store"
        fill(root, encoding)
        return root

    return store


@pytest.fixture
def root(filled: Callable[[str], Path], request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with the test's `encoding`; without one, a plain store."""
    encoding = request.getfixturevalue("encoding") if "encoding" in request.fixturenames else "plain"
    return shutil.copytree(filled(encoding), tmp_path / "store")
