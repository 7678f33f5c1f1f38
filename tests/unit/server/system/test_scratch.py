"""A temporary store directory, which is removed with its server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyjs.server.system.scratch import ScratchStore, UnsyncedDisk


def test_a_scratch_store_is_a_directory_until_it_is_removed() -> None:
    scratch = ScratchStore()
    Path(scratch.path, "file").write_text("x")

    scratch.remove()
    scratch.remove()

    assert not Path(scratch.path).exists()


def test_a_forked_child_leaves_the_directory_to_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = ScratchStore()

    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 1)
        scratch.remove()

    assert Path(scratch.path).exists()
    scratch.remove()


def test_an_unsynced_disk_never_asks_the_system_to_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = UnsyncedDisk()
    monkeypatch.setattr(os, "fsync", None)
    monkeypatch.setattr(os, "fdatasync", None)
    fd = disk.open_file(f"{tmp_path}/file", create=True)

    disk.sync_file(fd)
    disk.check_file(fd)
    disk.sync_dir(str(tmp_path))
    disk.sync_filesystem(fd)

    disk.close_file(fd)
