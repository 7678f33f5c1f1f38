"""Segments that nothing needs any more: their files wait for a sync, their entries for the job that may read them.

A file goes when the commit after its retirement is on the medium. Not the write after it: what is staged may be
written before, without the records that make the file superfluous. Files are removed some at a time, oldest first,
by a job that ends when their names are gone for good: a file may record removals of those before it.

Knows nothing of messages. Compiled because it holds plain pointers (benchmarks/, JetStream rows with limits).
"""
from libc.stdlib cimport free

from pyjs.base.grow cimport grow
from pyjs.store.index.sequences cimport segment_free

from pyjs.store.segment.removal import SegmentRemoval

cdef enum:
    REMOVED_AT_ONCE = 64        # files, by one job


cdef class RetiredFiles:
    def __init__(self, SegmentFiles files not None, StoreSync syncs not None) -> None:
        self.files = files
        self.syncs = syncs
        self.paths = []

    def __dealloc__(self):
        self.free_segments()

    # -- files -------------------------------------------------------------------------------------------------
    cdef void retire(self, str path) except *:
        """Let a file go once the next commit is on the medium."""
        self.paths.append((0, path))
        self.undated = True

    cdef void date(self) noexcept:
        """Let the files that were retired since the last commit go when this one is on the medium."""
        self.undated = False
        self.paths = [(mark or self.syncs.written_mark, path) for mark, path in self.paths]

    cdef bint is_due(self):
        """Whether a file is superfluous, by what is on the medium."""
        return self.removing is None and bool(self.paths) and 0 < self.paths[0][0] <= self.syncs.synced_mark

    def begin_removal(self):
        """Return the job that removes some of the files that nothing needs any more; None: there are none."""
        if not self.is_due():
            return None
        due = [path for mark, path in self.paths[:REMOVED_AT_ONCE] if 0 < mark <= self.syncs.synced_mark]
        self.paths = self.paths[len(due):]
        for path in due:
            self.files.handles.close(path)
        self.removing = SegmentRemoval(self.files.disk, self.files.log, self.files.directory, due)
        return self.removing

    def finish_removal(self, error, closed) -> None:
        """Take the result of the job: others may go only when these are gone for good."""
        self.removing = None
        if error is not None and not closed:
            self.files.names_unsynced = True
            self.files.log.warn(f"{self.files.directory}: removed files may come back: {error}")

    # -- entries -----------------------------------------------------------------------------------------------
    cdef void free_segment(self, Segment* s) noexcept nogil:
        cdef bint busy
        with gil:
            busy = self.syncs.in_flight is not None
        if not busy:
            segment_free(s)
        else:
            self.keep(s)

    cdef void keep(self, Segment* s) noexcept nogil:
        # Out of memory: rather lost than read when it is not ours.
        if grow(<void**> &self.segments, &self.room, self.n + 1, sizeof(Segment*)) == 0:
            self.segments[self.n] = s
            self.n += 1

    cdef void free_segments(self) noexcept nogil:
        """Free what was kept: no sync is on its way."""
        cdef size_t i
        for i in range(self.n):
            segment_free(self.segments[i])
        free(self.segments)
        self.segments = NULL
        self.n = self.room = 0
