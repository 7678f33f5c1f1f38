"""Descriptors of the files that a node's streams and consumers write; one limit applies to all of them.

A file is opened by its path when it is needed. When the limit is reached, the least recently used file is
closed. A file with unsynced bytes stays open, since the kernel reports a failed write-back only to descriptors
that are open when it fails. If all open files have unsynced bytes, the oldest are synced and closed. If such a sync
fails, the next job that would have synced the file gets the error. An open file is idle or held:

    idle      open, all bytes synced: may be closed at any time
    held      has unsynced bytes, or a job in another thread is syncing it

A descriptor that `open` returns is valid until the next call of `open`. This module knows nothing of segments, logs
and threads. Compiled, because each turn that writes to a stream asks for its descriptor (measured in benchmarks/:
r3-sync-1).
"""

from collections import OrderedDict
from contextlib import suppress

from pyjs.base.disk import NO_DESCRIPTOR

COUNT_MAX = 512
SYNCED_AT_ONCE = 8  # number of files that are synced together to free descriptors; this blocks the event loop


cdef class OpenFile:
    """One open file; a job in another thread may sync it while `syncing` is above 0."""

    def __init__(self, str path not None, fd) -> None:
        self.path, self.fd = path, fd


cdef class OpenFiles:
    """The open files of a node, for use by one thread.

    Jobs in other threads use only the files that `take` returned.
    """

    def __init__(self, disk, Py_ssize_t count_max=COUNT_MAX) -> None:
        assert count_max > 0
        self.disk, self.count_max = disk, count_max
        self.idle, self.held = OrderedDict(), OrderedDict()
        self.failed = {}

    @property
    def count(self) -> int:
        """The number of open files."""
        return self.size()

    cdef Py_ssize_t size(self) except -1:
        return len(self.idle) + len(self.held)

    @property
    def crowded(self) -> bool:
        """Whether so many files are unsynced that the next sync should start at once."""
        return self.is_crowded()

    cdef bint is_crowded(self) noexcept:
        return self.dirty * 2 > self.count_max

    cpdef open(self, str path, bint create=False):
        """Return the descriptor of a file for reading and writing; `create` creates a missing file.

        The descriptor is valid until the next call of `open` or `open_to_read`. It must not be closed.

        Raises:
            OSError: the file cannot be opened.
        """
        cdef OpenFile file = self.newest
        if file is not None and file.path == path:
            return file.fd
        file = self.held.get(path) or self.idle.get(path)
        if file is None:
            while self.size() >= self.count_max and self.close_one():
                pass
            file = self.idle[path] = OpenFile(path, self.open_on_disk(path, create))
        elif not file.dirty and not file.syncing:
            self.idle.move_to_end(path)
        return file.fd

    cpdef wrote(self, str path):
        """Mark an open file as unsynced; it stays open until it is synced."""
        cdef OpenFile file = self.newest
        if file is None or file.path != path:
            file = self.held.get(path)
            if file is None:
                file = self.held[path] = self.idle.pop(path)
            else:
                self.held.move_to_end(path)
            self.newest = file
        if not file.dirty:
            file.dirty = True
            self.dirty += 1

    def open_to_read(self, str path not None) -> int:
        """Return a descriptor for reading, which the caller must close. Raises OSError."""
        while True:
            try:
                return self.disk.open_read_only(path)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self.close_one():
                    raise

    def close(self, str path not None) -> None:
        """Close a file if it is open, even if it is unsynced.

        Call this for a file that was removed or replaced, or whose sync failed. A file that a job is syncing is
        closed after the job.
        """
        cdef OpenFile file
        self.failed.pop(path, None)
        file = self.idle.pop(path, None) or self.held.pop(path, None)
        if file is None:
            return
        if file is self.newest:
            self.newest = None
        self.dirty -= file.dirty
        file.dirty = False
        if file.syncing:
            file.forgotten = True
            return
        with suppress(OSError):  # some file systems report failed writes here
            self.disk.close_file(file.fd)

    def close_below(self, str directory not None) -> None:
        """Close every file below a directory."""
        for path in [path for files in (self.idle, self.held) for path in files]:
            if path.startswith(f"{directory}/"):
                self.close(path)

    # -- syncing -----------------------------------------------------------------------------------------------

    def take(self, list paths not None) -> tuple:
        """Return the unsynced files among `paths`, which a job must sync, and an error to report, or None.

        The error is that of an earlier sync of one of the `paths`, which was done to free a descriptor. The files
        stay open until the caller calls `give_back`.
        """
        cdef OpenFile file
        taken, failure = [], None
        for path in paths:
            failure = self.failed.pop(path, failure) or failure
            file = self.held.get(path)
            if file is not None and file.dirty:
                file.dirty = False
                self.dirty -= 1
                file.syncing += 1
                taken.append(file)
        return taken, failure

    def give_back(self, list files not None, str keep="") -> None:
        """Take back files that `take` returned, after their sync has succeeded or failed.

        Files without unsynced bytes are closed. The file with the path `keep` stays open if the limit allows this.
        """
        cdef OpenFile file
        for file in files:
            file.syncing -= 1
            if file.syncing or file.dirty:
                continue
            if file.forgotten:
                self.disk.close_file(file.fd)
                continue
            self.let_go(file)
            if file.path == keep and self.size() < self.count_max:
                self.idle[file.path] = file
            else:
                self.disk.close_file(file.fd)

    # -- parts -------------------------------------------------------------------------------------------------

    cdef int let_go(self, OpenFile file) except -1:
        """Remove a file from the held ones."""
        del self.held[file.path]
        if file is self.newest:
            self.newest = None
        return 0

    cdef object open_on_disk(self, str path, bint create):
        while True:
            try:
                return self.disk.open_file(path, create=create)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self.close_one():
                    raise

    cdef bint close_one(self) except -1:
        """Close the least recently used idle file, if there is one; return whether a file was closed.

        If no file is idle, sync some files first.
        """
        cdef OpenFile file
        if not self.idle:
            self.sync_oldest()
        if not self.idle:
            return False
        _, file = self.idle.popitem(last=False)
        self.disk.close_file(file.fd)
        return True

    cdef int sync_oldest(self) except -1:
        """Sync the oldest unsynced files that no job uses, so that they can be closed."""
        cdef OpenFile file
        cdef list oldest = []
        for file in self.held.values():
            if not file.syncing:
                oldest.append(file)
            if len(oldest) == SYNCED_AT_ONCE:
                break
        for file in oldest:
            try:
                self.disk.sync_file(file.fd)
            except OSError as error:
                self.failed[file.path] = error
            file.dirty = False
            self.dirty -= 1
            self.let_go(file)
            self.idle[file.path] = file
        return 0


class ReplacedFile:
    """A file that another file is about to replace, kept open so that the rename does not free its blocks.

    The file system frees the blocks of a file when its last name is removed and its last descriptor is closed. This
    takes 3 ms for 8 MB, and longer on a busy disk: too long for the event loop, so a thread closes the file later.
    """

    def __init__(self, disk, path) -> None:
        self._disk = disk
        self._fd = disk.open_read_only(path)

    def close(self) -> None:
        """Close the file, if it is still open."""
        fd, self._fd = self._fd, None
        if fd is not None:
            self._disk.close_file(fd)


class Release:
    """A job that closes replaced files; any thread may run it."""

    def __init__(self, files) -> None:
        self._files = files

    def __call__(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
