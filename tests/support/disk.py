"""Disks that fail on demand, on top of the real one."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from random import Random

import pytest

from pyjs.base.disk import OsDisk


class Crash(BaseException):
    """The process ends here; the code under test must not catch this."""


# For tests in which a Crash ends a function that cannot raise, such as a seal: then Python prints it.
crash_is_printed = pytest.mark.filterwarnings(
    r"ignore:(?s)Exception ignored in.*\.Crash\s:pytest.PytestUnraisableExceptionWarning"
)


class Same(Random):
    """Random numbers that are all the same."""

    def __init__(self, number: float) -> None:
        super().__init__(1)
        self._number = number

    def random(self) -> float:
        return self._number


class FaultyDisk(OsDisk):
    """A disk that fails at call number `at`, counting calls that change something; a write then writes only half.

    If `error` is None, the process ends there. Otherwise the call raises OSError, and with `forever` all later ones.
    """

    def __init__(self, at: int = -1, error: int | None = None, forever: bool = False) -> None:
        self.at = at
        self.error = error
        self.forever = forever
        self.calls = 0

    def _due(self) -> bool:
        self.calls += 1
        return self.calls - 1 == self.at or (self.forever and 0 <= self.at < self.calls)

    def _fail(self, path: str = "") -> None:
        if self.error is None:
            raise Crash
        raise OSError(self.error, errno.errorcode[self.error], path)

    def open_file(self, path: str, *, create: bool = False) -> int:
        if self._due():
            self._fail(path)
        return super().open_file(path, create=create)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self._due():
            super().write_at(fd, data[: len(data) // 2], offset)
            self._fail()
        super().write_at(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        if self._due():
            self._fail()
        super().truncate(fd, size)

    def sync_file(self, fd: int) -> None:
        if self._due():
            self._fail()
        super().sync_file(fd)

    def sync_dir(self, path: str) -> None:
        if self._due():
            self._fail(path)
        super().sync_dir(path)

    def sync_filesystem(self, fd: int) -> None:
        if self._due():
            self._fail()
        super().sync_filesystem(fd)

    def rename(self, old: str, new: str) -> None:
        if self._due():
            self._fail(old)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        if self._due():
            self._fail(path)
        super().unlink(path)

    def make_dirs(self, path: str) -> None:
        if self._due():
            self._fail(path)
        super().make_dirs(path)

    def remove_some(self, path: str, files_max: int) -> int:
        if self._due():
            self._fail(path)
        return super().remove_some(path, files_max)

    def remove_tree(self, path: str) -> None:
        if self._due():
            self._fail(path)
        super().remove_tree(path)


class LossyDisk(OsDisk):
    """Loses unsynced data at `lose_power`: bytes of files, and files whose directory entries were not synced.

    Renames and removals are treated as durable at once, which makes a loss of bytes visible.
    """

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}  # paths of open descriptors
        self._synced: dict[str, bytes] = {}  # path -> contents on the medium
        self._named: set[str] = set()  # paths whose directory entries are on the medium

    def open_file(self, path: str, *, create: bool = False) -> int:
        fd = super().open_file(path, create=create)
        self._paths[fd] = path
        self._synced.setdefault(path, b"")
        return fd

    def sync_file(self, fd: int) -> None:
        super().sync_file(fd)
        self._synced[self._paths[fd]] = self.read_at(fd, self.size_of(fd), 0)

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self._named.update(f"{path}/{name}" for name in self.list_dir(path))

    def sync_filesystem(self, fd: int) -> None:
        super().sync_filesystem(fd)
        for path in [path for path in self._synced if self.exists(path)]:
            self._synced[path] = self.read_file(path)
            self._named.add(path)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if old in self._synced:
            self._synced[new] = self._synced.pop(old)
        below = f"{old}/"
        for path in [path for path in self._synced if path.startswith(below)]:
            self._synced[new + path[len(old) :]] = self._synced.pop(path)
        for path in [path for path in self._named if path.startswith(below)]:
            self._named.add(new + path[len(old) :])

    def lose_power(self) -> None:
        """Leave in the directories what a machine would find that lost power now."""
        for path, data in self._synced.items():
            if not self.exists(path):
                continue
            if path in self._named:
                with open(path, "wb") as file:
                    file.write(data)
            else:
                self.unlink(path)


class UnreadableDisk(OsDisk):
    """Raises errors for reads of files whose path ends with one of `endings`."""

    def __init__(self, *endings: str) -> None:
        self.endings = endings

    def read_file(self, path: str) -> bytes:
        if path.endswith(self.endings):
            raise OSError(errno.EIO, "EIO", path)
        return super().read_file(path)


def damaged(data: bytes, stride: int = 1) -> Iterator[tuple[str, bytes]]:
    """Yield (description, result) for a bit flipped in every `stride`-th byte, and for cuts at the same places."""
    for at in range(0, len(data), stride):
        yield f"bit {at % 8} of byte {at}", data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        yield f"cut at {at}", data[:at]
    yield "garbage behind", data + b"garbage"
    yield "zeros behind", data + bytes(16)
    yield "all zeros", bytes(len(data))
