"""The seam for files: calls that the store makes once per batch or file, never once per message.

Below `server/`, only OsDisk touches the file system. Subclasses for tests fail at the k-th call, forget unsynced
bytes, or count calls. Every method raises the system's OSError.

The caller is responsible for the order of effects: `sync_file` makes the bytes of a file durable, and `sync_dir`
makes the names of the files in a directory durable.
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

    Image: TypeAlias = FileMap | bytes  # the bytes of a file: a map, or b"" for an empty file
    Part: TypeAlias = bytes | bytearray | memoryview  # a part of the contents of a file that is being written

PAGE_SIZE = 4096
STATFS_SIZE = 256  # bytes; larger than every struct statfs, which begins with the type, a long
# Types of file systems (statfs(2)) whose syncfs makes everything durable and reports errors. On other types, such as
# file systems in user space, syncfs may return too early.
# ext4, xfs, btrfs, f2fs, bcachefs, tmpfs, overlayfs.
SYNCFS_TYPES = frozenset((0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0xCA451A4E, 0x01021994, 0x794C7630))
# errors of a system call that is not available for a file; any other error of it is that of a write
UNCHECKED = (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE)
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
SHORTAGES = (*NO_DESCRIPTOR, errno.ENOMEM)
# Errors that only mean that a file could not be opened: out of file descriptors, or permissions wrong. Nothing is
# lost.
UNOPENED = (*SHORTAGES, errno.EACCES)


class Disk(Protocol):
    """The interface to files and directories; subclasses implement its methods."""

    open_files_max: int = 512  # maximum number of open descriptors for the files of streams and consumers

    def open_file(self, path: str, *, create: bool = False) -> int:
        """Return a descriptor for reading and writing; `create` creates a missing file."""

    def open_read_only(self, path: str) -> int:
        """Return a descriptor for reading."""

    def close_file(self, fd: int) -> None:
        """Close a descriptor."""

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`."""

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only at the end of the file."""

    def read_file(self, path: str) -> bytes:
        """Return the bytes of a small file."""

    def size_of(self, fd: int) -> int:
        """Return the size of an open file in bytes."""

    def truncate(self, fd: int, size: int) -> None:
        """Truncate a file, or extend it with zeros."""

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """Reserve `size` bytes from `offset`, so that a later write to them cannot fail for lack of space."""

    def sync_file(self, fd: int) -> None:
        """Make the file's bytes durable (fdatasync)."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable (fsync)."""

    def open_directory(self, path: str) -> int:
        """Return a descriptor of a directory; `sync_filesystem` will report errors that occur after this call."""

    def sync_filesystem(self, fd: int) -> None:
        """Make everything on a directory's file system durable (syncfs), including the writes of other programs.

        Raises:
            OSError: ENOSYS or EOPNOTSUPP if syncfs is not supported or not trusted here; otherwise a write failed.
        """

    def check_file(self, fd: int) -> None:
        """Wait until no write to an open file is in progress.

        After a call of `sync_filesystem` and this call, the file's bytes are durable, as after `sync_file`.

        Raises:
            OSError: a write of the file failed, and the error was not reported before.
        """

    def shares_filesystem(self, fd: int, path: str | int) -> bool:
        """Return whether a path or an open file is on the file system that `sync_filesystem(fd)` syncs."""

    def map_file(self, fd: int, size: int) -> FileMap:
        """Return a read-only map of the first `size` bytes of an open file; the file may then be closed."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory atomically; an existing file with the new name is replaced."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents, if missing."""

    def remove_some(self, path: str, files_max: int) -> int:
        """Remove up to `files_max` files below a directory; return the number of removed files.

        If this number is less than `files_max`, the directory itself was removed too.
        """

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it."""

    def list_dir(self, path: str) -> list[str]:
        """Return the sorted names in a directory, or [] if there is no directory."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory at `path`."""

    def lock(self, path: str) -> int:
        """Take an exclusive lock on a file, and return the descriptor that holds the lock.

        The file is created if it is missing.

        Raises:
            BlockingIOError: another process holds the lock.
        """

    def lock_shared(self, path: str) -> int:
        """Take a shared lock on an existing file, and return the descriptor that holds the lock.

        Raises:
            BlockingIOError: another process has an exclusive lock.
        """

    def lock_directory(self, path: str, *, shared: bool = False) -> int:
        """Take an exclusive or shared lock on a directory, and return the descriptor that holds the lock.

        Raises:
            BlockingIOError: another process holds the lock.
            OSError: the file system does not lock directories.
        """

    def unlock(self, fd: int) -> None:
        """Release a lock from `lock`, `lock_shared` or `lock_directory`, and close its descriptor."""
        self.close_file(fd)

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory at `path`."""

    def is_file(self, path: str) -> bool:
        """Return whether there is a regular file at `path`."""

    def real_path(self, path: str) -> str:
        """Return the absolute path with symbolic links resolved."""


def is_shortage(error: BaseException) -> bool:
    """Return whether an error is a lack of descriptors or memory, so that the call may succeed later."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORTAGES)


def failed_sync(error: OSError) -> OSError:
    """Return the error to raise for a sync that began and failed with `error`.

    A write may fail on a device for lack of memory, or on a network file system for lack of permission. Such an error
    becomes EIO. Otherwise it would look as if only a file could not be opened, and nothing was lost.
    """
    if error.errno in UNOPENED:
        return OSError(errno.EIO, f"{os.strerror(errno.EIO)} ({error.strerror})")
    return error


@contextmanager
def closing(disk: Disk, fd: int) -> Iterator[int]:
    """Yield a descriptor, and close it at the end of the `with` block."""
    try:
        yield fd
    finally:
        disk.close_file(fd)


def write_file(disk: Disk, path: str, parts: Iterable[Part], *, sync: bool = True) -> None:
    """Write a file or replace its contents, and sync the file unless `sync` is False.

    The caller must sync the directory.

    Raises:
        OSError: a write failed; the file may have a part of the contents.
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
    """Return the bytes of a file, with zeros for unreadable pages.

    Raises:
        OSError: an error other than an unreadable page.
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
    """Return a page of a file, or zeros if it is unreadable."""
    try:
        return disk.read_at(fd, size, offset).ljust(size, b"\0")
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return bytes(size)


_libc = ctypes.CDLL(None, use_errno=True)  # calls of its functions release the GIL
_syncfs = getattr(_libc, "syncfs", None)  # None: not available on this platform
_sync_file_range = getattr(_libc, "sync_file_range", None)
_WHOLE = ctypes.c_int64(0)
_Statfs = ctypes.c_char * STATFS_SIZE  # created once, since each type is a reference cycle
# Flags of sync_file_range: WAIT_BEFORE, WRITE, WAIT_AFTER; with them it reports errors as fdatasync does.
WRITE_AND_WAIT = 1 | 2 | 4


def _type_of_filesystem(fd: int) -> int:
    """Return the type of the file system of a descriptor, or 0 if unknown."""
    found = _Statfs()
    if _libc.fstatfs(fd, found) != 0:
        return 0
    return ctypes.c_ulong.from_buffer(found).value


class OsDisk(Disk):
    """The file system of this machine. New files have mode 0600, new directories 0700."""

    def open_file(self, path: str, *, create: bool = False) -> int:
        """Return a descriptor for reading and writing; `create` creates a missing file."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)

    def open_read_only(self, path: str) -> int:
        """Return a descriptor for reading."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close_file(self, fd: int) -> None:
        """Close a descriptor."""
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
        """Return the bytes of a small file."""
        with open(path, "rb") as file:
            return file.read()

    def size_of(self, fd: int) -> int:
        """Return the size of an open file in bytes."""
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        """Truncate a file, or extend it with zeros."""
        os.ftruncate(fd, size)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """Reserve `size` bytes from `offset`, so that a later write to them cannot fail for lack of space.

        On a system that cannot reserve space, a shorter file is extended to the end of the bytes instead.
        """
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, offset, size)
        else:
            os.ftruncate(fd, max(offset + size, self.size_of(fd)))

    def sync_file(self, fd: int) -> None:
        """Make the file's bytes durable (fdatasync).

        Raises:
            OSError: the sync failed; `failed_sync` made the error.
        """
        try:
            getattr(os, "fdatasync", os.fsync)(fd)
        except OSError as error:
            raise failed_sync(error) from error

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable (fsync)."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise failed_sync(error) from error
        finally:
            os.close(fd)

    def open_directory(self, path: str) -> int:
        """Return a descriptor of a directory; `sync_filesystem` will report errors that occur after this call."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync_filesystem(self, fd: int) -> None:
        """Make everything on a directory's file system durable (syncfs).

        Raises:
            OSError: syncfs is not supported or not trusted here, or a write failed.
        """
        if _syncfs is None or _type_of_filesystem(fd) not in SYNCFS_TYPES:
            raise OSError(errno.EOPNOTSUPP, "syncfs is not to be relied on here")
        if _syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def check_file(self, fd: int) -> None:
        """Wait until no write to an open file is in progress.

        Raises:
            OSError: a write of the file failed, and the error was not reported before.
        """
        if _sync_file_range is None:
            self.sync_file(fd)
        elif _sync_file_range(fd, _WHOLE, _WHOLE, WRITE_AND_WAIT) != 0:
            number = ctypes.get_errno()
            if number not in UNCHECKED:  # the kernel reports a failed write once: a later sync would succeed
                raise failed_sync(OSError(number, os.strerror(number)))
            self.sync_file(fd)

    def shares_filesystem(self, fd: int, path: str | int) -> bool:
        """Return whether a path or an open file is on the file system that `sync_filesystem(fd)` syncs."""
        return os.fstat(fd).st_dev == os.stat(path).st_dev

    def map_file(self, fd: int, size: int) -> FileMap:
        """Return a read-only map of the first `size` bytes of an open file; the file may then be closed."""
        from pyjs.base.file_map import FileMap  # imported lazily: a server without streams needs no map

        return FileMap(fd, size)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory atomically; an existing file with the new name is replaced."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents, if missing."""
        parent = path.rpartition("/")[0]
        # os.makedirs would give the parents a mode that depends on the umask
        if parent and not os.path.isdir(parent):
            self.make_dirs(parent)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def remove_some(self, path: str, files_max: int) -> int:
        """Remove up to `files_max` files below a directory; return the number of removed files.

        If this number is less than `files_max`, the directory itself was removed too.
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
        """Return the sorted names in a directory, or [] if there is no directory."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory at `path`."""
        return os.path.exists(path)

    def lock(self, path: str) -> int:
        """Take an exclusive lock on a file, created if missing, and return the descriptor that holds the lock."""
        return self._locked(self.open_file(path, create=True), fcntl.LOCK_EX)

    def lock_shared(self, path: str) -> int:
        """Take a shared lock on an existing file, and return the descriptor that holds the lock."""
        return self._locked(self.open_read_only(path), fcntl.LOCK_SH)

    def lock_directory(self, path: str, *, shared: bool = False) -> int:
        """Take an exclusive or shared lock on a directory, and return the descriptor that holds the lock."""
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
        """Release a lock, and close its descriptor."""
        # Closing alone would leave the lock in place if a forked child also has the file open.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory at `path`."""
        return os.path.isdir(path)

    def is_file(self, path: str) -> bool:
        """Return whether there is a regular file at `path`."""
        return os.path.isfile(path)

    def real_path(self, path: str) -> str:
        """Return the absolute path with symbolic links resolved."""
        return os.path.realpath(path)
