"""The seam for files: the few calls that the store makes, each once per batch or file, never per message.

OsDisk is the only place of the house that touches the file system below the shell; a test's subclass fails at the
k-th call, forgets what was not synced, or counts. Every call raises OSError as the system gives it.

Order of effects on a crash is the caller's business: a file's bytes are safe after `sync_file`, its name after
`sync_dir` of its directory.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    from pyjs.base.file_map import FileMap

    Image: TypeAlias = FileMap | bytes  # a file as bytes: mapped, or an empty one
    Part: TypeAlias = bytes | bytearray | memoryview  # of a file that is written

PAGE_SIZE = 4096
STATFS_SIZE = 256  # more than any struct statfs takes; it begins with the type, a long
# Types of file systems (statfs(2)) on which syncfs leaves everything on the medium and reports what failed. On
# others, as those in user space, it may return before the medium has anything.
# ext4, xfs, btrfs, f2fs, bcachefs, tmpfs, overlayfs.
SYNCFS_TYPES = frozenset((0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0xCA451A4E, 0x01021994, 0x794C7630))
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
SHORTAGES = (*NO_DESCRIPTOR, errno.ENOMEM)


class Disk(Protocol):
    """Files by path and descriptor; subclasses say where they are."""

    open_files_max: int = 512  # descriptors for the files of streams and consumers

    def open_file(self, path: str, *, create: bool = False) -> int:
        """Return a descriptor for reading and writing; with `create` the file is made if it is absent."""

    def open_read_only(self, path: str) -> int:
        """Return a descriptor for reading."""

    def close_file(self, fd: int) -> None:
        """Give a descriptor back."""

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`."""

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only at the end of the file."""

    def read_file(self, path: str) -> bytes:
        """Return the whole of a small file."""

    def size_of(self, fd: int) -> int:
        """Return the length of an open file."""

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file, or lengthen it with zeros."""

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """Reserve space for offset .. offset + size, so that a later write there cannot find the disk full."""

    def sync_file(self, fd: int) -> None:
        """Return when the file's bytes are on the medium (fdatasync)."""

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are on the medium."""

    def open_directory(self, path: str) -> int:
        """Return a descriptor of a directory, for `sync_filesystem`; errors since then are what that reports."""

    def sync_filesystem(self, fd: int) -> None:
        """Return when everything on the file system of a directory is on the medium (syncfs), of other programs too.

        Raises:
            OSError: ENOSYS or EOPNOTSUPP where that cannot be had or trusted; else something could not be written.
        """

    def check_file(self, fd: int) -> None:
        """Return when an open file has no write under way, and none that failed unless that was told before.

        After `sync_filesystem` the file's bytes are on the medium then, as after `sync_file`.
        """

    def shares_filesystem(self, fd: int, path: str | int) -> bool:
        """Return whether a path or open file is on the file system that `sync_filesystem(fd)` syncs."""

    def map_file(self, fd: int, size: int) -> FileMap:
        """Return a read-only map of the first `size` bytes; it holds no descriptor."""

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, in one step; a file of that name is replaced."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def make_dirs(self, path: str) -> None:
        """Make a directory, and those above it, unless it is there."""

    def remove_some(self, path: str, files_max: int) -> int:
        """Remove up to `files_max` files below a directory, and then itself; return how many files were removed.

        Fewer than `files_max`: nothing is left.
        """

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it."""

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; an absent one has none."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of that name."""

    def lock(self, path: str) -> int:
        """Take an exclusive lock on a file, made if absent; returns its descriptor, which holds the lock.

        Raises:
            BlockingIOError: another process has it.
        """

    def lock_shared(self, path: str) -> int:
        """Take a lock on a file that is there, beside others who only read; returns its descriptor.

        Raises:
            BlockingIOError: another process has it for itself.
        """

    def lock_directory(self, path: str, *, shared: bool = False) -> int:
        """Take a lock on a directory, for oneself or beside others who only read; returns its descriptor.

        Raises:
            BlockingIOError: another process has it.
            OSError: the file system does not lock directories.
        """

    def unlock(self, fd: int) -> None:
        """Give back a lock of `lock`, `lock_shared` or `lock_directory`, and close its descriptor."""
        self.close_file(fd)

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory of that name."""


def is_shortage(error: BaseException) -> bool:
    """Return whether descriptors or memory were short: a call that may work later, and says nothing of the file."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORTAGES)


@contextmanager
def closing(disk: Disk, fd: int) -> Iterator[int]:
    """Give a descriptor that was just opened, and close it at the end of the `with`."""
    try:
        yield fd
    finally:
        disk.close_file(fd)


def write_file(disk: Disk, path: str, parts: Iterable[Part], *, sync: bool = True) -> None:
    """Write a new file, or a new content of one, and bring it to the medium; its name is the caller's to sync.

    Raises:
        OSError: a part of it may be there.
    """
    with closing(disk, disk.open_file(path, create=True)) as fd:
        disk.truncate(fd, 0)
        at = 0
        for part in parts:
            disk.write_at(fd, memoryview(part), at)
            at += len(part)
        if sync:
            disk.sync_file(fd)


def read_around(disk: Disk, path: str) -> bytes:
    """Return the bytes of a file, zeros for pages that cannot be read.

    Raises:
        OSError: not because of a page.
    """
    try:
        return disk.read_file(path)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    with closing(disk, disk.open_read_only(path)) as fd:
        size = disk.size_of(fd)
        return b"".join(_page(disk, fd, min(PAGE_SIZE, size - at), at) for at in range(0, size, PAGE_SIZE))


def _page(disk: Disk, fd: int, size: int, offset: int) -> bytes:
    """Return a page of a file, zeros if it cannot be read."""
    try:
        return disk.read_at(fd, size, offset).ljust(size, b"\0")
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return bytes(size)


_libc = ctypes.CDLL(None, use_errno=True)  # its calls release the GIL
_syncfs = getattr(_libc, "syncfs", None)  # None: the platform has none
_sync_file_range = getattr(_libc, "sync_file_range", None)
_WHOLE = ctypes.c_int64(0)
_Statfs = ctypes.c_char * STATFS_SIZE  # made once: a type is a cycle
# SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE, _WAIT_AFTER: reports errors as fdatasync does.
WRITE_AND_WAIT = 1 | 2 | 4


def _type_of_filesystem(fd: int) -> int:
    """Return the type of the file system of a descriptor, 0: it is not known."""
    found = _Statfs()
    if _libc.fstatfs(fd, found) != 0:
        return 0
    return ctypes.c_ulong.from_buffer(found).value


class OsDisk(Disk):
    """The file system of this machine. Files are made 0600, directories 0700."""

    def open_file(self, path: str, *, create: bool = False) -> int:
        """Return a descriptor for reading and writing; with `create` the file is made if it is absent."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)

    def open_read_only(self, path: str) -> int:
        """Return a descriptor for reading."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close_file(self, fd: int) -> None:
        """Give a descriptor back."""
        os.close(fd)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`."""
        written = os.pwrite(fd, data, offset)
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], offset + written)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only at the end of the file."""
        data = os.pread(fd, size, offset)
        while len(data) < size and (more := os.pread(fd, size - len(data), offset + len(data))):
            data += more
        return data

    def read_file(self, path: str) -> bytes:
        """Return the whole of a small file."""
        with open(path, "rb") as file:
            return file.read()

    def size_of(self, fd: int) -> int:
        """Return the length of an open file."""
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file, or lengthen it with zeros."""
        os.ftruncate(fd, size)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """Reserve space for offset .. offset + size, so that a later write there cannot find the disk full."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, offset, size)
        else:
            os.ftruncate(fd, offset + size)

    def sync_file(self, fd: int) -> None:
        """Return when the file's bytes are on the medium (fdatasync)."""
        getattr(os, "fdatasync", os.fsync)(fd)

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are on the medium."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def open_directory(self, path: str) -> int:
        """Return a descriptor of a directory, for `sync_filesystem`; errors since then are what that reports."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync_filesystem(self, fd: int) -> None:
        """Return when everything on the file system of a directory is on the medium (syncfs)."""
        if _syncfs is None or _type_of_filesystem(fd) not in SYNCFS_TYPES:
            raise OSError(errno.EOPNOTSUPP, "syncfs is not to be relied on here")
        if _syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def check_file(self, fd: int) -> None:
        """Return when an open file has no write under way, and none that failed unless that was told before."""
        if _sync_file_range is None or _sync_file_range(fd, _WHOLE, _WHOLE, WRITE_AND_WAIT) != 0:
            self.sync_file(fd)

    def shares_filesystem(self, fd: int, path: str | int) -> bool:
        """Return whether a path or open file is on the file system that `sync_filesystem(fd)` syncs."""
        return os.fstat(fd).st_dev == os.stat(path).st_dev

    def map_file(self, fd: int, size: int) -> FileMap:
        """Return a read-only map of the first `size` bytes."""
        from pyjs.base.file_map import FileMap  # with the first map: a start without streams needs none

        return FileMap(fd, size)

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, in one step; a file of that name is replaced."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def make_dirs(self, path: str) -> None:
        """Make a directory, and those above it, unless it is there."""
        parent = path.rpartition("/")[0]
        if parent and not os.path.isdir(parent):  # os.makedirs would give the parents the mode of the umask
            self.make_dirs(parent)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def remove_some(self, path: str, files_max: int) -> int:
        """Remove up to `files_max` files below a directory, and then itself; return how many files were removed.

        Fewer than `files_max`: nothing is left.
        """
        removed = 0
        with os.scandir(path) as entries:
            for entry in entries:
                if removed >= files_max:
                    return removed
                if entry.is_dir(follow_symlinks=False):
                    removed += self.remove_some(entry.path, files_max - removed)
                else:
                    os.unlink(entry.path)
                    removed += 1
        if removed < files_max:
            os.rmdir(path)
        return removed

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it."""
        for name in os.listdir(path):
            inside = f"{path}/{name}"
            if os.path.isdir(inside) and not os.path.islink(inside):
                self.remove_tree(inside)
            else:
                os.unlink(inside)
        os.rmdir(path)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; an absent one has none."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of that name."""
        return os.path.exists(path)

    def lock(self, path: str) -> int:
        """Take an exclusive lock on a file, made if absent; returns its descriptor, which holds the lock."""
        return self._locked(self.open_file(path, create=True), fcntl.LOCK_EX)

    def lock_shared(self, path: str) -> int:
        """Take a lock on a file that is there, beside others who only read; returns its descriptor."""
        return self._locked(self.open_read_only(path), fcntl.LOCK_SH)

    def lock_directory(self, path: str, *, shared: bool = False) -> int:
        """Take a lock on a directory, for oneself or beside others who only read; returns its descriptor."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._locked(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def _locked(self, fd: int, how: int) -> int:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd

    def unlock(self, fd: int) -> None:
        """Give back a lock, and close its descriptor."""
        # Closing alone would leave it with a forked child, which has the file as well.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory of that name."""
        return os.path.isdir(path)
