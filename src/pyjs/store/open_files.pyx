"""Descriptors of the files that a node's streams and consumers write; one limit applies to all of them.

A file is opened by its path when it is needed. When the limit is reached, the least recently used file is
closed. A file with unsynced bytes stays open, since the kernel reports a failed write-back only to descriptors
that are open when it fails. If all open files have unsynced bytes, the oldest are synced and closed. If such a sync
fails, the next job that would have synced the file gets the error. An open file is idle or held:

    idle      open, all bytes synced: may be closed at any time
    held      has unsynced bytes, or a job in another thread is syncing it

A descriptor that `open` returns is valid until the next call of `open`. This module knows nothing of segments, logs
and threads.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress

from pyjs.base.disk import NO_DESCRIPTOR, Disk

COUNT_MAX = 512
SYNCED_AT_ONCE = 8  # number of files that are synced together to free descriptors; this blocks the event loop


class OpenFile:
    """One open file; a job in another thread may sync it while `syncing` is above 0."""

    __slots__ = ("dirty", "fd", "forgotten", "path", "syncing")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.dirty = False  # it has bytes that no job covers yet
        self.syncing = 0  # number of jobs that are syncing it
        self.forgotten = False  # `close` was called: the last job closes the descriptor


class OpenFiles:
    """The open files of a node, for use by one thread.

    Jobs in other threads use only the files that `take` returned.
    """

    def __init__(self, disk: Disk, count_max: int = COUNT_MAX) -> None:
        assert count_max > 0
        self._disk = disk
        self._count_max = count_max
        self._idle: OrderedDict[str, OpenFile] = OrderedDict()  # least recently used first
        self._held: OrderedDict[str, OpenFile] = OrderedDict()
        # path -> error of a sync that was done only to free a descriptor
        self._failed: dict[str, OSError] = {}
        self._dirty = 0  # number of files in `_held` with unsynced bytes

    @property
    def count(self) -> int:
        """The number of open files."""
        return len(self._idle) + len(self._held)

    @property
    def crowded(self) -> bool:
        """Whether so many files are unsynced that the next sync should start at once."""
        return self._dirty * 2 > self._count_max

    def open(self, path: str, *, create: bool = False) -> int:
        """Return the descriptor of a file for reading and writing; `create` creates a missing file.

        The descriptor is valid until the next call of `open` or `open_to_read`. It must not be closed.

        Raises:
            OSError: the file cannot be opened.
        """
        file = self._held.get(path) or self._idle.get(path)
        if file is None:
            while self.count >= self._count_max and self._close_one():
                pass
            file = self._idle[path] = OpenFile(path, self._open(path, create))
        elif not file.dirty and not file.syncing:
            self._idle.move_to_end(path)
        return file.fd

    def wrote(self, path: str) -> None:
        """Mark an open file as unsynced; it stays open until it is synced."""
        file = self._held.get(path)
        if file is None:
            file = self._held[path] = self._idle.pop(path)
        if not file.dirty:
            file.dirty = True
            self._dirty += 1
        self._held.move_to_end(path)

    def open_to_read(self, path: str) -> int:
        """Return a descriptor for reading, which the caller must close. Raises OSError."""
        while True:
            try:
                return self._disk.open_read_only(path)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._close_one():
                    raise

    def close(self, path: str) -> None:
        """Close a file if it is open, even if it is unsynced.

        Call this for a file that was removed or replaced, or whose sync failed. A file that a job is syncing is
        closed after the job.
        """
        self._failed.pop(path, None)
        file = self._idle.pop(path, None) or self._held.pop(path, None)
        if file is None:
            return
        self._dirty -= file.dirty
        file.dirty = False
        if file.syncing:
            file.forgotten = True
            return
        with suppress(OSError):  # some file systems report failed writes here
            self._disk.close_file(file.fd)

    def close_below(self, directory: str) -> None:
        """Close every file below a directory."""
        for path in [path for files in (self._idle, self._held) for path in files]:
            if path.startswith(f"{directory}/"):
                self.close(path)

    # -- syncing -----------------------------------------------------------------------------------------------

    def take(self, paths: list[str]) -> tuple[list[OpenFile], OSError | None]:
        """Return the unsynced files among `paths`, which a job must sync, and an error to report, or None.

        The error is that of an earlier sync of one of the `paths`, which was done to free a descriptor. The files
        stay open until the caller calls `give_back`.
        """
        taken: list[OpenFile] = []
        failure: OSError | None = None
        for path in paths:
            failure = self._failed.pop(path, failure) or failure
            file = self._held.get(path)
            if file is not None and file.dirty:
                file.dirty = False
                self._dirty -= 1
                file.syncing += 1
                taken.append(file)
        return taken, failure

    def give_back(self, files: list[OpenFile], keep: str = "") -> None:
        """Take back files that `take` returned, after their sync has succeeded or failed.

        Files without unsynced bytes are closed. The file with the path `keep` stays open if the limit allows this.
        """
        for file in files:
            file.syncing -= 1
            if file.syncing or file.dirty:
                continue
            if file.forgotten:
                self._disk.close_file(file.fd)
                continue
            del self._held[file.path]
            if file.path == keep and self.count < self._count_max:
                self._idle[file.path] = file
            else:
                self._disk.close_file(file.fd)

    # -- parts -------------------------------------------------------------------------------------------------

    def _open(self, path: str, create: bool) -> int:
        while True:
            try:
                return self._disk.open_file(path, create=create)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._close_one():
                    raise

    def _close_one(self) -> bool:
        """Close the least recently used idle file, if there is one; return whether a file was closed.

        If no file is idle, sync some files first.
        """
        if not self._idle:
            self._sync_oldest()
        if not self._idle:
            return False
        _, file = self._idle.popitem(last=False)
        self._disk.close_file(file.fd)
        return True

    def _sync_oldest(self) -> None:
        """Sync the oldest unsynced files that no job uses, so that they can be closed."""
        oldest: list[OpenFile] = []
        for file in self._held.values():
            if not file.syncing:
                oldest.append(file)
            if len(oldest) == SYNCED_AT_ONCE:
                break
        for file in oldest:
            try:
                self._disk.sync_file(file.fd)
            except OSError as error:
                self._failed[file.path] = error
            file.dirty = False
            self._dirty -= 1
            self._idle[file.path] = self._held.pop(file.path)


class ReplacedFile:
    """A file that another file is about to replace, kept open so that the rename does not free its blocks.

    The file system frees the blocks of a file when its last name is removed and its last descriptor is closed. This
    takes 3 ms for 8 MB, and longer on a busy disk: too long for the event loop, so a thread closes the file later.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._fd: int | None = disk.open_read_only(path)

    def close(self) -> None:
        """Close the file, if it is still open."""
        fd, self._fd = self._fd, None
        if fd is not None:
            self._disk.close_file(fd)


class Release:
    """A job that closes replaced files; any thread may run it."""

    def __init__(self, files: list[ReplacedFile]) -> None:
        self._files = files

    def __call__(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
