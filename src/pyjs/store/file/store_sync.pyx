"""Group commit of a file store (`StoreSync`), and the removal of files that are not needed any more (`RetiredFiles`).

`StoreSync.begin` returns a job that any thread may run; `end` and `done` handle its result. Invariant: every commit
up to `synced_mark` is durable, and synced_mark <= written_mark. The store handles a failed sync.

Retired files are those of segments that are not needed any more. A file is removed when the first commit after its
retirement is durable. The next write is not enough: it may contain only records staged earlier, and not those
that make the file superfluous. A job removes some files, oldest first, and syncs their directory before the
next job begins, since a file may record removals of messages in older files. The entries of a removed segment are
freed after the running job, which may read them.

This module knows nothing of messages. Compiled: every write of a batch is counted here, and it holds plain pointers
(benchmarks/, JetStream async publish, JetStream rows with limits).
"""
from libc.stdlib cimport free

from pyjs.base.grow cimport grow
from pyjs.store.index.sequences cimport segment_free

from pyjs.store.segment.index_file import SegmentSync
from pyjs.store.segment.recorded_ids import kept_path
from pyjs.store.segment.removal import SegmentRemoval
from pyjs.store.store import SyncJob

cdef enum:
    REMOVED_AT_ONCE = 64        # maximum number of files that one job removes


cdef class StoreSync:
    def __init__(self, SegmentFiles files not None) -> None:
        self.files = files
        self.unindexed = []

    cdef bint is_due(self):
        """Return whether there are writes or renames that no job covers yet."""
        return bool(self.files.unsynced or self.files.found or self.files.names_unsynced)

    cdef void forget_index(self, uint32_t number) except *:
        """Drop the queued index file of a segment, because the segment changes or is removed."""
        self.unindexed = [full for full in self.unindexed if full.number != number]

    def begin(self):
        """Return a job for all unsynced writes, or None if there are none or a job is running."""
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
        """Return a second job, which also covers the writes of the running job, and the files to give back after it.

        With the second job, the caller need not wait until the thread of the running job is done.
        """
        cdef SegmentFiles files = self.files
        taken, failure = files.handles.take(files.unsynced)
        job = SyncJob(files.disk, self.in_flight.files + taken, files.directory, self.written_mark)
        job.found, job.failure = self.in_flight.found + files.found, self.in_flight.failure or failure
        return job, taken

    def end(self, growing_path):
        """Take back the files of the running job; the file at `growing_path` stays open for more writes."""
        job, self.in_flight = self.in_flight, None
        self.files.handles.give_back(job.files, growing_path)

    def done(self, job) -> None:
        """Count the commits covered by a successful job as durable."""
        for problem in job.problems:
            self.files.log.debug(problem)
        assert job.mark <= self.written_mark
        self.synced_mark = job.mark

    def forget_all(self) -> None:
        """Close the unsynced files, except those of the running job, which are closed when it ends."""
        cdef SegmentFiles files = self.files
        for path in files.unsynced:
            files.handles.close(path)
        if self.in_flight is not None:
            for file in self.in_flight.files:
                files.handles.close(file.path)
        for old in files.replaced:
            old.close()
        files.unsynced, files.found, files.replaced = [], [], []
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
        """Queue a file for removal after the next commit is durable."""
        self.paths.append((0, path))
        self.undated = True

    cdef void date(self) noexcept:
        """Let the files that were retired since the last commit be removed after the current one is durable."""
        self.undated = False
        self.paths = [(mark or self.syncs.written_mark, path) for mark, path in self.paths]

    cdef bint is_due(self):
        """Return whether a removal can begin.

        It can if no removal is running, and if the commit after the retirement of a file is durable.
        """
        return self.removing is None and bool(self.paths) and 0 < self.paths[0][0] <= self.syncs.synced_mark

    def begin_removal(self):
        """Return a job that removes some retired files, or None if no removal can begin."""
        if not self.is_due():
            return None
        due = [path for mark, path in self.paths[:REMOVED_AT_ONCE] if 0 < mark <= self.syncs.synced_mark]
        self.paths = self.paths[len(due):]
        for path in due:
            self.files.handles.close(path)
        self.removing = SegmentRemoval(self.files.disk, self.files.log, self.files.directory, due, self._to_keep(due))
        return self.removing

    def _to_keep(self, due) -> dict:
        """Return the new paths for the files in `due` whose ids are still needed.

        Add to `due` the files that were kept for their ids, if the ids are no longer needed.
        """
        files, keep = self.files, {}
        for path in due:
            last_ts = files.last_times.pop(path, None)
            if last_ts is not None and files.keeps_ids(last_ts):
                keep[path] = kept_path(path)
                files.kept[keep[path]] = last_ts
        for path in [path for path, last_ts in files.kept.items() if not files.keeps_ids(last_ts)]:
            del files.kept[path]
            due.append(path)
        return keep

    def finish_removal(self, error, closed) -> None:
        """Handle the result of the removal job, an error or None; another removal may then begin."""
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

    cdef void hand_over(self, Segment* s, Remains remains) noexcept nogil:
        cdef bint busy
        with gil:
            busy = self.syncs.in_flight is not None
        if busy:
            self.keep(s)
        else:
            remains.take_segment(s)

    cdef void keep(self, Segment* s) noexcept nogil:
        # Without memory, the segment leaks: a running sync could otherwise read freed memory.
        if grow(<void**> &self.segments, &self.room, self.n + 1, sizeof(Segment*)) == 0:
            self.segments[self.n] = s
            self.n += 1

    cdef void free_segments(self) noexcept nogil:
        """Free the kept segments with their entries; no sync may be running."""
        cdef size_t i
        for i in range(self.n):
            segment_free(self.segments[i])
        free(self.segments)
        self.segments = NULL
        self.n = self.room = 0
