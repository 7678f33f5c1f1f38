"""What of a file store is on the medium, and what may go since it is.

`StoreSync.begin` hands out a job that any thread may run; `end` and `done` take its result, and `synced_mark` says
which commits are safe then. What becomes of a store whose sync failed is the store's business.

Segments that nothing needs any more (`RetiredFiles`): their files wait for a sync, their entries for the job that may
read them. A file goes when the commit after its retirement is on the medium. Not the write after it: what is staged
may be written before, without the records that make the file superfluous. Files are removed some at a time, oldest
first, by a job that ends when their names are gone for good: a file may record removals of those before it.

Knows nothing of messages. Compiled because every write of a batch counts here, and because it holds plain pointers
(benchmarks/, JetStream async publish, JetStream rows with limits).
"""
from libc.stdlib cimport free

from pyjs.base.grow cimport grow
from pyjs.store.index.sequences cimport segment_free

from pyjs.store.segment.index_file import SegmentSync
from pyjs.store.segment.removal import SegmentRemoval
from pyjs.store.store import SyncJob

cdef enum:
    REMOVED_AT_ONCE = 64        # files, by one job


cdef class StoreSync:
    def __init__(self, SegmentFiles files not None) -> None:
        self.files = files
        self.unindexed = []

    cdef bint is_due(self):
        """Whether something was written or renamed that no job covers."""
        return bool(self.files.unsynced or self.files.found or self.files.names_unsynced)

    cdef void forget_index(self, uint32_t number) except *:
        """Leave out the index file of a segment that changed or goes."""
        self.unindexed = [full for full in self.unindexed if full.number != number]

    def begin(self):
        """Return a job for what was written so far; None: nothing was, or a job is on its way."""
        cdef SegmentFiles files = self.files
        if self.in_flight is not None or not self.is_due():
            return None
        taken, failure = files.handles.take(files.unsynced)
        job = SegmentSync(files.disk, taken, files.directory if files.names_unsynced else None,
                          self.written_mark, self.unindexed)
        job.found, job.failure = files.found, failure
        job.above, files.names_above = files.names_above, ()
        self.in_flight = job
        files.unsynced, files.found = [], []
        self.unindexed = []
        files.names_unsynced = False
        return job

    def again(self):
        """Return a job for everything, what the one on its way covers too, and the files to give back after it.

        Nobody waits for the thread that has the one on its way.
        """
        cdef SegmentFiles files = self.files
        taken, failure = files.handles.take(files.unsynced)
        job = SyncJob(files.disk, self.in_flight.files + taken, files.directory, self.written_mark)
        job.found, job.failure = self.in_flight.found + files.found, self.in_flight.failure or failure
        return job, taken

    def end(self, growing_path):
        """Take back the files of the job that was on its way; `growing_path` is still written to."""
        job, self.in_flight = self.in_flight, None
        self.files.handles.give_back(job.files, growing_path)

    def done(self, job) -> None:
        """Believe a job that found no error."""
        for problem in job.problems:
            self.files.log.debug(problem)
        self.synced_mark = job.mark

    def forget_all(self) -> None:
        """Close the files that a sync was due for; the job on its way closes its own when it ends."""
        cdef SegmentFiles files = self.files
        for path in files.unsynced:
            files.handles.close(path)
        if self.in_flight is not None:
            for file in self.in_flight.files:
                files.handles.close(file.path)
        files.unsynced, files.found = [], []
        files.names_unsynced = False
        self.unindexed = []


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
