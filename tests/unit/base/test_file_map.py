"""Maps of files: their contents, and the resources that they hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyjs.base.disk import OsDisk
from pyjs.base.file_map import FileMap, open_maps


def mapped(path: Path, content: bytes = b"abcdefg") -> FileMap:
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    try:
        return OsDisk().map_file(fd, len(content))
    finally:
        os.close(fd)


def test_a_map_holds_no_descriptor(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    seen = mapped(tmp_path / "f")
    assert os.listdir("/proc/self/fd") == before
    assert seen[:] == b"abcdefg"
    assert (seen[1], seen[-1], seen[2:4], len(seen), seen.size) == (98, 103, b"cd", 7, 7)


def test_it_shows_what_is_written_later_and_what_was_removed(tmp_path: Path) -> None:
    seen = mapped(tmp_path / "f")
    with open(tmp_path / "f", "r+b") as file:
        file.write(b"XY")
    (tmp_path / "f").unlink()
    assert seen[:3] == b"XYc"


def test_a_file_is_unmapped_when_nobody_has_a_view(tmp_path: Path) -> None:
    before = open_maps()
    seen = mapped(tmp_path / "f")
    view = memoryview(seen)[2:]
    del seen
    assert open_maps() == before + 1
    assert bytes(view) == b"cdefg"
    del view
    assert open_maps() == before


def test_a_map_with_views_is_not_closed(tmp_path: Path) -> None:
    seen = mapped(tmp_path / "f")
    view = memoryview(seen)
    with pytest.raises(BufferError, match="1 views"):
        seen.close()
    view.release()
    seen.close()
    seen.close()
    with pytest.raises(ValueError, match="closed"):
        memoryview(seen)


@pytest.mark.parametrize("size", [0, -1, 8])
def test_what_the_file_does_not_have_is_not_mapped(tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(b"abcdefg")
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    with pytest.raises(ValueError, match="of a file of 7"):
        FileMap(fd, size)
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        FileMap(fd, 1)
