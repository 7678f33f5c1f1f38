"""Pages of maps that cannot be read: they read as zeros in guarded maps, and end the process elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyjs.base.bad_pages import bad_page_count
from pyjs.base.disk import OsDisk, read_around

PAGE = 4096
CUT = """
import mmap, os, sys
from pyjs.base.disk import OsDisk
def cut_map(make):
    fd = os.open(sys.argv[1], os.O_RDWR)
    seen = make(fd)
    os.ftruncate(fd, 0)
    return seen[5000]
def guarded(): return cut_map(lambda fd: OsDisk().map_file(fd, 8192))
def plain(): return cut_map(lambda fd: mmap.mmap(fd, 8192, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))
def refill(): os.truncate(sys.argv[1], 8192)
"""


def mapped(path: Path, pages: int) -> tuple[int, memoryview]:
    """Return a descriptor and a map of a file of `pages` pages of "x"."""
    path.write_bytes(b"x" * PAGE * pages)
    fd = os.open(path, os.O_RDWR)
    return fd, memoryview(OsDisk().map_file(fd, PAGE * pages))


def run(path: Path, script: str) -> subprocess.CompletedProcess[str]:
    path.write_bytes(b"x" * 2 * PAGE)
    return subprocess.run(
        [sys.executable, "-c", CUT + script, path], capture_output=True, text=True, check=False
    )


def test_what_was_cut_off_reads_as_zeros_and_is_counted(tmp_path: Path) -> None:
    fd, seen = mapped(tmp_path / "f", 4)
    before = bad_page_count()

    os.ftruncate(fd, PAGE + 10)

    assert bytes(seen[: PAGE + 10]) == b"x" * (PAGE + 10)
    assert bytes(seen[PAGE + 10 :]) == bytes(3 * PAGE - 10)
    assert bad_page_count() == before + 2
    os.close(fd)


def test_a_map_that_took_the_place_of_another_is_guarded(tmp_path: Path) -> None:
    for pages in (2, 3, 2, 5):
        fd, seen = mapped(tmp_path / "f", pages)
        os.ftruncate(fd, 0)
        assert bytes(seen) == bytes(pages * PAGE)
        os.close(fd)


def test_a_map_can_be_closed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"hello")
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    with OsDisk().map_file(fd, 5) as seen:
        assert seen[:] == b"hello"
    with pytest.raises(ValueError, match="closed"):
        seen[0]
    os.close(fd)


def test_more_maps_than_one_block_of_the_table_are_guarded(tmp_path: Path) -> None:
    pairs = [mapped(tmp_path / f"{number}", 1) for number in range(1100)]
    for fd, seen in pairs[::100] + pairs[-1:]:
        os.ftruncate(fd, 0)
        assert seen[7] == 0
    for fd, _ in pairs:
        os.close(fd)


@pytest.mark.parametrize(
    ("script", "code", "error"),
    [
        ("print(guarded())", 0, ""),
        ("plain()", -signal.SIGBUS, ""),
        ("guarded(); refill(); plain()", -signal.SIGBUS, ""),
        ("import faulthandler; faulthandler.enable(); guarded(); refill(); plain()", -signal.SIGBUS, "Bus error"),
        ("guarded(); import faulthandler; faulthandler.enable(); refill(); guarded()", 0, ""),
        ("guarded(); import faulthandler; faulthandler.enable(); refill(); plain()", -signal.SIGBUS, "Bus error"),
        (
            "guarded(); import faulthandler; faulthandler.enable(); refill(); guarded(); refill(); plain()",
            -signal.SIGBUS,
            "Bus error",
        ),
        ("import signal; guarded(); os.kill(os.getpid(), signal.SIGBUS)", -signal.SIGBUS, ""),
        ("import signal; signal.signal(signal.SIGBUS, signal.SIG_IGN); guarded(); refill(); plain()",
         -signal.SIGBUS, ""),
        ("import signal; print(signal.getsignal(signal.SIGBUS).name)", 0, "SIG_DFL"),
    ],
)  # fmt: skip
def test_the_signal_means_elsewhere_what_it_meant_before(
    tmp_path: Path, script: str, code: int, error: str
) -> None:
    done = run(tmp_path / "f", script)
    assert done.returncode == code, done.stderr
    assert error in done.stderr + done.stdout


class BadSector(OsDisk):
    """Cannot read the second page."""

    def read_file(self, path: str) -> bytes:
        raise OSError(5, "EIO", path)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        if offset < 2 * PAGE and offset + size > PAGE:
            raise OSError(5, "EIO")
        return super().read_at(fd, size, offset)


def test_a_file_is_read_around_a_bad_sector(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * (2 * PAGE + 10))
    assert read_around(OsDisk(), str(path)) == b"x" * (2 * PAGE + 10)
    assert read_around(BadSector(), str(path)) == b"x" * PAGE + bytes(PAGE) + b"x" * 10


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_around(OsDisk(), f"{tmp_path}/none")
