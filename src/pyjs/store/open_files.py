"""The descriptors of files that a node's streams and consumers write, under one limit.

A file is opened by its path when it is needed, and stays open until others need its place; the least recently used
one is closed first. A file with bytes that are not known to be on the medium stays open: the system reports a failed
write-back to descriptors that were open then, and forgets it with the last of them. When only such files are left,
the oldest of them are synced before they are closed; an error is kept for the job that syncs the file next.

    idle      open, nothing unsynced: may be closed at any time
    held      unsynced bytes, or a job in another thread syncs it

A descriptor that `open` returns is valid until the next call of `open`. Knows nothing of segments, logs and threads.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress

from pyjs.base.disk import NO_DESCRIPTOR, Disk

COUNT_MAX = 512
SYNCED_AT_ONCE = 8  # files that are synced to make room, while everybody waits


class OpenFile:
    """One open file; a job in another thread may sync it while `syncing` is above 0."""

    __slots__ = ("dirty", "fd", "forgotten", "path", "syncing")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.dirty = False  # it has bytes that no job covers
        self.syncing = 0  # jobs that have it
        self.forgotten = False  # to be closed by the last job


class OpenFiles:
    """The open files of a node. One thread uses it; jobs elsewhere touch the descriptors that `take` gave."""

    def __init__(self, disk: Disk, count_max: int = COUNT_MAX) -> None:
        assert count_max > 0
        self._disk = disk
        self._count_max = count_max
        self._idle: OrderedDict[str, OpenFile] = OrderedDict()  # least recently used first
        self._held: OrderedDict[str, OpenFile] = OrderedDict()
        self._failed: dict[str, OSError] = {}  # of files that were synced to make room
        self._dirty = 0  # files of `_held` with unsynced bytes

    @property
    def count(self) -> int:
        """Return how many files are open."""
        return len(self._idle) + len(self._held)

    @property
    def crowded(self) -> bool:
        """Return whether so many files are unsynced that they should be synced soon."""
        return self._dirty * 2 > self._count_max

    def open(self, path: str, *, create: bool = False) -> int:
        """Return the descriptor of a file for reading and writing; with `create` the file is made if it is absent.

        Raises:
            OSError: it cannot be opened.
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
        """Note that an open file has new bytes, which a job has to sync before the file is closed."""
        file = self._held.get(path)
        if file is None:
            file = self._held[path] = self._idle.pop(path)
        if not file.dirty:
            file.dirty = True
            self._dirty += 1
        self._held.move_to_end(path)

    def open_to_read(self, path: str) -> int:
        """Return a descriptor for reading, which is the caller's to close. Raises OSError."""
        while True:
            try:
                return self._disk.open_read_only(path)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._close_one():
                    raise

    def close(self, path: str) -> None:
        """Close a file if it is open, whatever is unsynced: it is gone, or replaced, or nobody believes it."""
        self._failed.pop(path, None)
        file = self._idle.pop(path, None) or self._held.pop(path, None)
        if file is None:
            return
        self._dirty -= file.dirty
        file.dirty = False
        if file.syncing:
            file.forgotten = True
            return
        with suppress(OSError):  # some file systems report here what could not be written
            self._disk.close_file(file.fd)

    def close_below(self, directory: str) -> None:
        """Close every file below a directory."""
        for path in [path for files in (self._idle, self._held) for path in files]:
            if path.startswith(f"{directory}/"):
                self.close(path)

    # -- syncing -----------------------------------------------------------------------------------------------

    def take(self, paths: list[str]) -> tuple[list[OpenFile], OSError | None]:
        """Return those of the files that have unsynced bytes, for a job, and the first error that is known already.

        They stay open until `give_back`, which has to follow.
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
        """Take back what `take` gave, synced or failed for good; of those that are clean only `keep` stays open."""
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
        """Close the file that was used least recently, and return whether there was one that may be closed."""
        if not self._idle:
            self._sync_oldest()
        if not self._idle:
            return False
        _, file = self._idle.popitem(last=False)
        self._disk.close_file(file.fd)
        return True

    def _sync_oldest(self) -> None:
        """Sync some unsynced files that no job has, oldest first, so that they may be closed."""
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
