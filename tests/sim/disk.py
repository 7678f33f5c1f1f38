"""A disk in memory that loses unsynced data like a real one: after a power cut, all, a part or nothing of it remains.

The model follows ext4 and similar file systems. A file has a page cache (which processes see, and which survives kill
-9) and a medium. On the medium, each page of 4 KiB has any prefix of the writes to this page since the last sync; the
last of these writes may be torn at a sector of 512 bytes. The size of the file is any size that it had since that
sync, so bytes that were not written may be zeros. If a truncation did not reach the medium, later writes did not
either. A directory has a journal: after a power cut, any prefix of the changes since its last sync remains, each
change as a whole. A directory is reached by its name in its parent directory.

If a sync fails, its data is dropped: each write or page is on the medium or never will be, and the next sync
succeeds. When the process has ended, the pages that were dropped may be read from the medium again.

After `crash_in` calls, the process ends in the middle of a call; a write then ends at a page boundary. After
`fail_in` calls, 1 + `fail_more` calls fail. A failed write leaves any number of pages, a failed allocation a part of
the size, and a failed truncation may have changed the size. Descriptors, locks and maps belong to the process and end
with it.
"""

from __future__ import annotations

import errno
import zlib
from random import Random
from typing import Any

from tests.sim.files import PAGE, Directory, File, directories_below, files_below
from tests.support.disk import Crash

from pyjs.base.disk import Disk

CHANGING = frozenset(
    (
        "open", "write", "truncate", "allocate", "sync", "sync_dir", "syncfs", "rename", "unlink", "mkdir", "rmdir"
    )
)  # fmt: skip


class SimDisk(Disk):
    """The file system of a machine in memory; `rng` decides what remains after a power cut or a failed sync."""

    open_files_max = 3  # so small that files are closed while they are unsynced

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._faults = Random(str(rng.getstate()))  # decides what else a failed call leaves
        self._root = Directory()
        self._fds: dict[int, tuple[File, str, bool]] = {}  # file, path by which it was opened, writable
        self._locked: dict[int, str] = {}
        self._next_fd = 10
        self.dead = False  # the process has ended; later calls have no effect
        self.calls = 0
        self.crash_in: int | None = None  # calls until the process ends
        self.fail_in: int | None = None  # calls until one fails
        self.fail_more = 0  # number of further calls that fail, without one in between that succeeds
        self.failure = errno.EIO
        self.failing = ""  # fail_in counts only calls of this kind; "": all calls that change files
        self.evicted = False  # after the end of the last process, pages that a failed sync lost were evicted
        self.failed_calls: list[tuple[str, str]] = []  # kind and path of the failed calls
        self.digest = 0  # digest of all calls, in order

    # -- for the simulation --------------------------------------------------------------------------------

    @property
    def open_files(self) -> list[str]:
        """Return the paths of the files that the process has open."""
        return [path for _, path, _ in self._fds.values()]

    def files(self) -> list[File]:
        """Return all files."""
        return list(files_below(self._root))

    def end_process(self) -> None:
        """End the process; the page cache remains."""
        self._fds, self._locked = {}, {}
        self.dead = False
        self.crash_in = self.fail_in = None
        self.fail_more = 0
        self.evicted = False
        for file in files_below(self._root):
            if file.lossy and self._faults.random() < 0.5:
                file.evict(self._faults)
                self.evicted = True

    def lose_power(self) -> None:
        """End the process and switch off the machine."""
        self.end_process()
        self._root.lose_power(self._rng)

    # -- faults --------------------------------------------------------------------------------------------

    def _call(self, kind: str, path: str = "", size: int = 0) -> None:
        """Count a call; end the process or raise an error if that is due."""
        if self._due(kind, path, size):
            raise Crash

    def _check_alive(self) -> None:
        """Raise OSError if the process has ended, since compiled code may swallow Crash and continue for a while."""
        if self.dead:
            raise OSError(errno.EIO, "the process has ended")

    def _due(self, kind: str, path: str, size: int = 0) -> bool:
        """Count a call; return whether the process ends in this call."""
        self._check_alive()
        self.calls += 1
        self.digest = zlib.crc32(f"{kind} {path} {size}".encode(), self.digest)
        if self.crash_in is not None and kind in CHANGING:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.dead = True
                return True
        if self.fail_in is not None and (self._counts(kind) if self.failing else kind in CHANGING):
            self.fail_in -= 1
            if self.fail_in < 0:
                self.fail_in, self.fail_more = (0 if self.fail_more else None), max(0, self.fail_more - 1)
                self.failed_calls.append((kind, path))
                self._fail(kind, path)
        return False

    def _counts(self, kind: str) -> bool:
        """Return whether fail_in counts calls of this kind."""
        return kind == self.failing or (kind, self.failing) == ("syncfs", "sync")

    def _fail(self, kind: str, path: str) -> None:
        if kind == "syncfs":
            for file in files_below(self._root):
                if file.changes and self._rng.random() < 0.5:
                    file.lose_sync(self._rng, self._faults)
                    file.failed = True
        if kind == "sync":
            for file, opened, _ in list(self._fds.values()):
                if opened == path:
                    file.lose_sync(self._rng, self._faults)
        raise OSError(self.failure, errno.errorcode[self.failure], path)

    # -- the seam ------------------------------------------------------------------------------------------

    def _node(self, path: str) -> File | Directory:
        node: File | Directory = self._root
        for name in path.split("/"):
            if name:
                found = node.entries.get(name) if isinstance(node, Directory) else None
                if found is None:
                    raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
                node = found
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rpartition("/")
        return self._directory(above), name

    def _regular(self, path: str) -> File:
        node = self._node(path)
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def _give(self, file: File, path: str, writable: bool) -> int:
        self._next_fd += 1
        self._fds[self._next_fd] = (file, path, writable)
        return self._next_fd

    def _file(self, fd: int) -> File:
        self._check_alive()
        found = self._fds.get(fd)
        if found is None:
            raise OSError(errno.EBADF, f"descriptor {fd} is not open")
        return found[0]

    def _path(self, fd: int) -> str:
        return self._fds[fd][1] if fd in self._fds else ""

    def open_file(self, path: str, *, create: bool = False) -> int:
        """Open a file for reading and writing."""
        parent, name = self._parent(path)
        if name not in parent.entries and not create:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
        self._call("open", path)
        if name not in parent.entries:
            parent.put(name, File())
        return self._give(self._regular(path), path, True)

    def open_read_only(self, path: str) -> int:
        """Open a file for reading."""
        file = self._regular(path)
        self._call("open_read_only", path)
        return self._give(file, path, False)

    def close_file(self, fd: int) -> None:
        """Close a descriptor."""
        self._file(fd)
        del self._fds[fd]
        self._locked.pop(fd, None)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write to the page cache; if the process ends in this call, only some of the pages are written."""
        file, data = self._file(fd), bytes(data)
        if not self._fds[fd][2]:
            raise OSError(errno.EBADF, "it is open for reading only")
        try:
            is_end = self._due("write", self._path(fd), len(data))
        except OSError:
            self._write_some(file, data, offset)
            raise
        if is_end:
            part = self._rng.choice((0, len(data), self._rng.randrange(len(data) + 1)))
            if part < len(data):
                part = max(0, (offset + part) // PAGE * PAGE - offset)
            file.write(offset, data[:part])
            raise Crash
        file.write(offset, data)

    def _write_some(self, file: File, data: bytes, offset: int) -> None:
        """Write what a failed write leaves: any number of whole pages, as when the disk becomes full in between."""
        part = self._faults.choice((0, self._faults.randrange(len(data) + 1), len(data)))
        part = (offset + part) // PAGE * PAGE - offset
        if not self.dead and part > 0 and self.failure != errno.EROFS:
            file.write(offset, data[:part])

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        """Read from the page cache."""
        file = self._file(fd)
        self._call("read", self._path(fd), size)
        return bytes(file.cache[offset : min(file.size, offset + size)])

    def read_file(self, path: str) -> bytes:
        """Read a whole file from the page cache."""
        file = self._regular(path)
        self._call("read_file", path)
        return file.content()

    def size_of(self, fd: int) -> int:
        """Return the length of an open file."""
        return self._file(fd).size

    def truncate(self, fd: int, size: int) -> None:
        """Truncate a file, or extend it with zeros."""
        file = self._file(fd)
        try:
            self._call("truncate", self._path(fd), size)
        except OSError:
            if not self.dead and self.failure != errno.EROFS and self._faults.random() < 0.3:
                file.resize(size)  # the size changes before the blocks are freed
            raise
        if size != file.size:
            file.resize(size)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """Extend a file with zeros."""
        file = self._file(fd)
        try:
            self._call("allocate", self._path(fd), size)
        except OSError:
            some = (offset + self._faults.randrange(size + 1)) // PAGE * PAGE
            if not self.dead and self.failure != errno.EROFS and some > file.size:
                file.resize(some)
            raise
        if offset + size > file.size:
            file.resize(offset + size)

    def sync_file(self, fd: int) -> None:
        """Write the contents of a file to the medium."""
        file = self._file(fd)
        self._call("sync", self._path(fd))
        if file.failed:
            file.failed = False
            self.failed_calls.append(("sync", self._path(fd)))
            file.lose_sync(self._rng, self._faults)
            raise OSError(errno.EIO, "it was lost before", self._path(fd))
        file.sync()

    def sync_dir(self, path: str) -> None:
        """Write the names in a directory to the medium."""
        directory = self._directory(path)
        self._call("sync_dir", path)
        directory.sync()

    def open_directory(self, path: str) -> int:
        """Return a descriptor of a directory."""
        self._directory(path)
        self._call("open_read_only", path)
        return self._give(File(), path, False)

    def sync_filesystem(self, fd: int) -> None:
        """Write everything to the medium."""
        self._file(fd)
        self._call("syncfs", self._path(fd))
        for directory in directories_below(self._root):
            directory.sync()
        for file in files_below(self._root):
            file.sync()

    def check_file(self, fd: int) -> None:
        """Report nothing: errors are reported by `sync_filesystem`."""
        self._file(fd)
        self._call("check_file", self._path(fd))

    def shares_filesystem(self, fd: int, path: str | int) -> bool:
        """Return True: there is one file system."""
        return isinstance(path, int) or self._node(path) is not None

    def map_file(self, fd: int, size: int) -> Any:
        """Return a view of the page cache, which shows later writes."""
        file = self._file(fd)
        self._call("map", self._path(fd), size)
        if size == 0 or size > file.size:
            raise ValueError("mmap length is greater than file size, or zero")
        return memoryview(file.cache)[:size].toreadonly()

    def rename(self, old: str, new: str) -> None:
        """Rename a file, in the same directory."""
        parent, name = self._parent(old)
        if name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", old)
        target, new_name = self._parent(new)
        assert target is parent, "the store renames within a directory only"
        self._call("rename", new)
        parent.put(new_name, parent.entries[name], former=name)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        parent, name = self._parent(path)
        self._regular(path)
        self._call("unlink", path)
        parent.remove(name)

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents."""
        self._call("mkdir", path)
        node = self._root
        for name in path.split("/"):
            if name and name not in node.entries:
                node.put(name, Directory())
            if name:
                below = node.entries[name]
                assert isinstance(below, Directory)
                node = below

    def remove_some(self, path: str, files_max: int) -> int:
        """Remove up to `files_max` files below a directory, then the directory; return the number of files."""
        removed = 0
        for name, node in sorted(self._directory(path).entries.items()):
            if removed >= files_max:
                return removed
            if isinstance(node, Directory):
                removed += self.remove_some(f"{path}/{name}", files_max - removed)
            else:
                self.unlink(f"{path}/{name}")
                removed += 1
        if removed < files_max:
            parent, name = self._parent(path)
            self._call("rmdir", path)
            parent.remove(name)
        return removed

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it, name by name."""
        for name, node in sorted(self._directory(path).entries.items()):
            if isinstance(node, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        parent, name = self._parent(path)
        self._call("rmdir", path)
        parent.remove(name)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory."""
        self._call("list", path)
        try:
            return sorted(self._directory(path).entries)
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    def lock(self, path: str) -> int:
        """Take a lock that is released when the process ends."""
        if path in self._locked.values():
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        fd = self.open_file(path, create=True)
        self._locked[fd] = path
        return fd

    def lock_shared(self, path: str) -> int:
        """Refuse: no other process reads the files of a server here."""
        raise OSError(errno.ENOTSUP, "has no shared locks", path)

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        return self.exists(path) and isinstance(self._node(path), Directory)

    def is_file(self, path: str) -> bool:
        """Return whether the path is a file."""
        return self.exists(path) and not self.is_directory(path)

    def real_path(self, path: str) -> str:
        """Return the path, since there are no links here."""
        return path

    def lock_directory(self, path: str, *, shared: bool = False) -> int:
        """Refuse: only files are locked here, since there is one process at a time."""
        raise OSError(errno.ENOTSUP, "locks no directories", path)
