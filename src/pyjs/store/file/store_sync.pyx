"""What of a file store is on the medium: jobs that sync it, and the commits that are safe.

`begin` hands out a job that any thread may run; `end` and `done` take its result, and `synced_mark` says which
commits are safe then. What becomes of a store whose sync failed is the store's business.

Compiled because every write of a batch counts here (benchmarks/, JetStream async publish).
"""
from pyjs.store.segment.index_file import SegmentSync
from pyjs.store.store import SyncJob


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
