"""Copies of what a repair replaces: beside it, under a name that no start of the server looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.disk import write_file
from pyjs.store.format.layout import DAMAGED

if TYPE_CHECKING:
    from pyjs.base.disk import Disk


def aside_path(disk: Disk, path: str) -> str:
    """Return a name for the copy of a file that is not taken yet."""
    directory, _, name = path.rpartition("/")
    number = 0
    while disk.exists(aside := f"{directory}/{DAMAGED}{number}-{name}"):
        number += 1
    return aside


def copy_aside(disk: Disk, path: str) -> str:
    """Copy a file beside itself; returns the copy's path, which is safe. Raises OSError."""
    aside = aside_path(disk, path)
    write_file(disk, aside, [disk.read_file(path)])
    disk.sync_dir(path.rpartition("/")[0])
    return aside


def move_aside(disk: Disk, path: str) -> str:
    """Give a file or directory another name; returns its new path. Raises OSError."""
    aside = aside_path(disk, path)
    disk.rename(path, aside)
    disk.sync_dir(path.rpartition("/")[0])
    return aside
