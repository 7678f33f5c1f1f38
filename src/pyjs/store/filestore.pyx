"""The store of file streams: when its bytes reach the medium, upkeep of its files, and its end.

Group commit: `begin_sync` hands out a job that any thread may run, `finish_sync` takes its result; `synced_mark`
then says which commits are safe. A store that failed refuses appends: until `try_resume` finds room when the disk was
full or no descriptor left, for good otherwise. A failed sync is never believed.

Upkeep works alike: `begin_upkeep` hands out a segment to be written anew, and what comes of it takes the old file's
place as soon as the removal of what it leaves out is on the medium. Files that are superfluous are removed by such a
job as well, which ends when their names are gone from the medium: a file may record removals of those before it.

Knows nothing of streams and threads. Compiled, as the segments below are (segment_store.pyx; benchmarks/, JetStream
async publish), whose state it shares.
"""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.store.catalogue cimport Catalogue
from pyjs.store.index cimport Segment, index_last, segment_free
from pyjs.store.index_file cimport full_segment
from pyjs.store.rewrite cimport SegmentRewrite, rewrite_of, rewritten_segment
from pyjs.store.segment_store cimport STAGED_MAX, SegmentStore
from pyjs.store.view cimport ViewCache

from pyjs.base.errors import StoreFailed
from pyjs.store.recast import Recast
from pyjs.store.open_files import OpenFiles
from pyjs.store.index_file import SegmentSync, index_path, index_segments, remove_file, small_index
from pyjs.store.removal import SegmentRemoval
from pyjs.store.segment_reader import UNOPENED
from pyjs.store.store import SyncJob

SOURCE_HASH = PYJS_SOURCE_HASH


cdef enum:
    CIPHER_MASK = 0xff          # of a form: it is encrypted
    CODEC_MASK = 0xff00         # it is compressed
    REMOVED_AT_ONCE = 64        # files, by one job


cdef void segment_free_if(Segment* s) noexcept nogil:
    if s != NULL:
        segment_free(s, 0)


cdef class FileStore(SegmentStore):
    def __init__(self, disk, str directory, log, uint64_t segment_size=8388608, uint64_t incarnation=0,
                 key=None, bint recovered=True, files=None, stored_tail=None, views=None) -> None:
        self.disk = disk
        self.files = OpenFiles(disk) if files is None else files
        self.directory = directory
        self.log = log
        self.segment_size = segment_size
        self.incarnation = incarnation
        self.key = key
        self.meta = b""
        self.catalogue = Catalogue(30, 4)
        self.maps = {}
        self.views = {}
        self.view_cache = ViewCache() if views is None else views
        self.index_maps = {}
        self.unsynced = []
        self.found = []
        self.doomed = []
        self.in_flight = None
        self.lost_seqs = []
        self.set_aside = []
        self.unindexed = []
        self.sparse = []
        self.formless = []
        self.next_number = 1
        disk.make_dirs(directory)
        self.names_unsynced = True
        self.names_above = ()
        self.stored_tail = stored_tail
        if recovered:
            for _ in self.recover_steps():
                pass

    def recover_steps(self):
        """Return the recovery as an iterator of steps; until it has ended, only `release` may be called.

        Raises, at any step:
            OSError, UnknownFormat, Locked, MemoryError: what is stored cannot be read.
        """
        from pyjs.store.recovery import recover_steps

        return recover_steps(self)

    # -- syncing -----------------------------------------------------------------------------------------------
    @property
    def dirty(self) -> bool:
        """Whether something was written that is not known to be on the medium."""
        return bool(self.unsynced or self.found or self.names_unsynced or self.doomed or self.in_flight is not None)

    def begin_sync(self):
        """Return a SyncJob for what was written so far; None: nothing was, or a job is on its way.

        Hand the job's result to finish_sync, also when the store was closed meanwhile.
        """
        if self.in_flight is not None or not (self.unsynced or self.found or self.names_unsynced):
            return None
        files, failure = self.files.take(self.unsynced)
        job = SegmentSync(self.disk, files, self.directory if self.names_unsynced else None,
                          self.written_mark, self.unindexed)
        job.found, job.failure = self.found, failure
        job.above, self.names_above = self.names_above, ()
        self.in_flight = job
        self.unsynced, self.found = [], []
        self.unindexed = []
        self.names_unsynced = False
        return job

    def finish_sync(self, job, error) -> None:
        """Take the result of a SyncJob: what it covered is safe now, or the store failed for good."""
        assert job is self.in_flight
        self.in_flight = None
        self.unearth()
        self.files.give_back(job.files, self.growing_path())
        if error is not None and self.closed and not self.disk.exists(self.directory):
            return                          # the stream was deleted meanwhile, with its files
        if error is not None:
            self.found, self.names_above = job.found, job.above
            self.sync_failed(error)
            return
        for problem in job.problems:
            self.log.debug(problem)
        self.synced_mark = job.mark
        self.take_rewritten()

    def growing_path(self) -> str:
        """Return the path of the segment that records are appended to; "": there is none."""
        cdef Segment* s = index_last(&self.catalogue.index)
        return "" if s == NULL or s.sealed or self.closed else self.path_of(s.number)

    def sync_failed(self, error) -> None:
        """Refuse everything from now on, unless the directory could only not be opened to be synced."""
        if getattr(error, "errno", 0) in UNOPENED:
            self.names_unsynced = True
            self.fail(error)
            return
        self.error = StoreFailed(self.directory, f"sync failed: {error}; what it held may be lost")
        self.failed = True
        self.resumable = False
        self.sync_lost = True
        self.forget_staged()
        self.log.error(f"Store of {self.directory} refuses messages: sync failed: {error}; restart to recover it")

    cdef bint removal_is_due(self):
        """Whether a file is superfluous, by what is on the medium."""
        return self.removing is None and not self.closed and bool(self.doomed) \
            and 0 < self.doomed[0][0] <= self.synced_mark

    def begin_removal(self):
        """Return the job that removes some of the files that nothing needs any more; None: there are none."""
        if not self.removal_is_due():
            return None
        due = [path for mark, path in self.doomed[:REMOVED_AT_ONCE] if 0 < mark <= self.synced_mark]
        self.doomed = self.doomed[len(due):]
        for path in due:
            self.files.close(path)
        self.removing = SegmentRemoval(self.disk, self.log, self.directory, due)
        return self.removing

    def finish_removal(self, error) -> None:
        """Take the result of the job: others may go only when these are gone for good."""
        self.removing = None
        if error is not None and not self.closed:
            self.names_unsynced = True
            self.log.warn(f"{self.directory}: removed files may come back: {error}")

    def sync_now(self) -> None:
        """Sync in this thread; for a stop and for tests."""
        if self.in_flight is not None:      # nobody waits for the thread that has it: all is synced here
            files, failure = self.files.take(self.unsynced)
            job = SyncJob(self.disk, self.in_flight.files + files, self.directory, self.written_mark)
            job.found, job.failure = self.in_flight.found + self.found, failure
            error = job()
            self.files.give_back(files)
            if error is not None:
                self.sync_failed(error)
            return
        error = None
        while error is None:
            job = self.begin_sync()
            if job is None:
                break
            error = job()
            self.finish_sync(job, error)
        while (removal := self.begin_removal()) is not None:
            self.finish_removal(removal())

    # -- upkeep ------------------------------------------------------------------------------------------------
    @property
    def wants_upkeep(self) -> bool:
        """Whether begin_upkeep may have a job."""
        if self.removing is not None or self.rewriting is not None or self.recasting is not None:
            return False
        return self.removal_is_due() or (bool(self.sparse or self.formless) and self.rewritten is None)

    def begin_upkeep(self):
        """Return a job for any thread, whose result goes to finish_upkeep; None: nothing is to be done."""
        cdef size_t at
        cdef Segment* s
        cdef bint due
        if self.wants_upkeep and self.removal_is_due():
            return self.begin_removal()
        while self.wants_upkeep and not self.failed:
            if not self.sparse:
                self.recasting = self.next_recast()
                return self.recasting
            at = self.place_of(self.sparse.pop(0))
            if at == self.catalogue.index.n:
                continue
            s = self.catalogue.index.segments[at]
            s.sparse = False
            # Behind the last one nothing tells last_seq.
            if s.live == 0 or s.examined or at + 1 == self.catalogue.index.n:
                continue
            due = self.staged or self.n_removals or self.n_erasures or self.state_due
            self.rewriting = rewrite_of(self.disk, self.path_of(s.number), s, self.incarnation,
                                        self.written_mark + due, self.meta, self.key,
                                        self.codec or s.form & CODEC_MASK)
            return self.rewriting
        return None

    def leave_tail(self) -> None:
        """Let the last segment be as it is in its file, and go on in a new one.

        What is encrypted is never written twice at one place: whoever has seen both would know more than he should.
        """
        cdef Segment* s = index_last(&self.catalogue.index)
        if s == NULL or s.sealed:
            return
        s.sealed = self.left = True
        try:
            self.cut(mark=True)
        except OSError as error:
            self.log.warn(f"{self.path_of(s.number)} keeps what could not be written: {error}")
        self.note_form(s)

    def set_codec(self, uint32_t codec) -> None:
        """Have segments compressed from now on, those as well that are sealed already; 0: no more are."""
        cdef size_t at
        if codec == self.codec:
            return
        self.codec = codec
        self.formless = []
        for at in range(self.catalogue.index.n):
            self.note_form(self.catalogue.index.segments[at])

    def begin_anew(self) -> None:
        """Go on in a new segment, which holds the metadata of now; it is written at once."""
        self.leave_tail()
        self.meta_due = True
        if self.begin_segment() == 0:
            self.commit()

    def next_recast(self):
        """Return the job that gives one more segment the form that the stream wants, None: all have it."""
        cdef size_t at
        cdef Segment* s
        while self.formless:
            at = self.place_of(self.formless.pop(0))
            wanted = self.codec | (self.key.algorithm if self.key is not None else 0)
            s = self.catalogue.index.segments[at] if at < self.catalogue.index.n else NULL
            if s != NULL and s.sealed and wanted & ~s.form:
                return Recast(self.disk, self.path_of(s.number), s.number, self.codec, self.key, self.meta)
        return None

    def finish_upkeep(self, error) -> None:
        """Take the result of the job: the new file takes its place when what it leaves out is known on the medium."""
        if self.removing is not None:
            self.finish_removal(error)
            return
        if self.recasting is not None:
            job, self.recasting = self.recasting, None
            self.take_recast(job, error)
            return
        self.rewritten, self.rewriting = self.rewriting, None
        if error is not None:
            self.log.warn(f"{self.rewritten.path} stays larger than its messages: {error}")
            self.rewritten.stale = True
        self.take_rewritten()

    def take_recast(self, job, error) -> None:
        """Put a segment in its new form in its place."""
        cdef size_t at = self.place_of(job.number)
        cdef Segment* s = self.catalogue.index.segments[at] if at < self.catalogue.index.n else NULL
        if error is not None:
            self.log.warn(f"{job.path} keeps the form it has: {error}")
        try:
            if error is not None or job.stale or self.closed or s == NULL or job.flags == job.old_flags:
                if self.disk.exists(job.new_path):
                    self.disk.unlink(job.new_path)
                if s != NULL and error is None and job.stale:
                    self.note_form(s)
                return
            self.disk.rename(job.new_path, job.path)
        except OSError as failure:
            self.log.warn(f"{job.path} keeps the form it has: {failure}")
            return
        self.files.close(job.path)      # it is of the file before
        s.form = job.flags
        self.names_unsynced = True
        self.forget_map(s)
        if job.flags & CIPHER_MASK and not job.old_flags & CIPHER_MASK:     # its index file must be encrypted as well
            remove_file(self.disk, self.log, index_path(job.path))
            self.unindexed = [full for full in self.unindexed if full.number != job.number]
            self.unindexed.append(full_segment(self.catalogue, self.key, job.path, s, False, self.incarnation, 0,
                                               False))

    def take_rewritten(self) -> None:
        """Put a segment that was written anew in its place, if that is possible by now."""
        cdef SegmentRewrite job = self.rewritten
        cdef Segment* fresh
        cdef size_t at
        if job is None or (job.mark > self.synced_mark and not job.stale and not self.closed):
            return
        self.rewritten = None
        at = self.place_of(job.number)
        # The one behind it may have gone meanwhile, and the next not have come: what is last is not written anew.
        fresh = NULL if job.stale or self.closed or at + 1 >= self.catalogue.index.n \
            else rewritten_segment(job, self.catalogue.index.segments[at])
        try:
            if fresh == NULL:
                self.disk.unlink(job.new_path)
                return
            remove_file(self.disk, self.log, index_path(job.path))      # it names messages that are gone for good
            self.disk.rename(job.new_path, job.path)
        except FileNotFoundError:
            segment_free_if(fresh)
            return
        except OSError as error:
            self.log.warn(f"{job.path} stays larger than its messages: {error}")
            segment_free_if(fresh)
            return
        self.files.close(job.path)      # it is of the file before
        self.forget_map(self.catalogue.index.segments[at])
        self.index_maps.pop(job.number, None)
        self.names_unsynced = True
        self.bury(self.catalogue.index.segments[at])
        self.catalogue.index.segments[at] = fresh
        self.unindexed = [full for full in self.unindexed if full.number != job.number]
        self.unindexed.append(full_segment(self.catalogue, self.key, job.path, fresh, True, self.incarnation,
                                           job.contents.chain, False))
        self.note_form(fresh)

    def try_resume(self) -> bool:
        """Take appends again if the disk has room again; returns whether the store works."""
        if not self.failed or not self.resumable:
            return not self.failed
        probe = f"{self.directory}/.probe"
        try:
            fd = self.disk.open_file(probe, create=True)
            try:
                self.disk.allocate(fd, 0, STAGED_MAX)
                self.disk.sync_file(fd)
            finally:
                self.disk.close_file(fd)
                self.disk.unlink(probe)
        except OSError:
            return False
        if self.veil is not None:
            self.leave_tail()
        self.failed = False
        self.error = None
        self.log.info(f"Store of {self.directory} takes messages again")
        return True

    # -- end ---------------------------------------------------------------------------------------------------
    def close(self, tails=None) -> None:
        """Write, sync and close everything; the last segment gives its reserved space back.

        `tails` is a list that takes (number, index file) of the last segment, if that is small, instead of a file.
        """
        if self.closed:
            return
        self.commit()
        if not self.failed:
            self.give_room_back()
            # What only the start found is no better known than before, and so costs a stop nothing.
            if self.unsynced or self.in_flight is not None or self.written_mark != self.synced_mark:
                self.sync_now()
        if not self.failed:
            self.take_rewritten()
            self.write_indexes(tails)
        self.release()

    def give_room_back(self) -> None:
        """Cut the last segment behind its records. It need not be synced: a start does that again."""
        if not self.growing_path() or self.allocated == self.written:
            return
        try:
            self.cut(unsynced=False)
        except OSError as error:
            self.log.warn(f"{self.directory}: reserved space stays: {error}")

    def write_indexes(self, tails=None) -> None:
        """Write the index files that are missing: that of the open segment above all; see `close`."""
        cdef Segment* s = index_last(&self.catalogue.index)
        if s != NULL and (not s.sealed or self.left) \
                and (self.indexed != self.written or self.stored_tail is not None):
            full = self.without_index(s, False)
            small = None if tails is None else small_index(full)
            if small is not None:
                tails.append((s.number, small))
            else:
                self.unindexed.append(full)
        for problem in index_segments(self.disk, self.unindexed):
            self.log.debug(problem)
        self.unindexed = []

    def release(self) -> None:
        """Close the files without writing."""
        self.files.close(self.growing_path())
        for path in self.unsynced:
            self.files.close(path)
        self.closed = True
        self.failed = True
        if self.error is None:
            self.error = StoreFailed(self.directory, "closed")
        for rewrite in (self.rewriting, self.rewritten, self.recasting):
            if rewrite is not None:
                remove_file(self.disk, self.log, rewrite.new_path)
        if self.in_flight is not None:
            for file in self.in_flight.files:
                self.files.close(file.path)     # finish_sync does
        self.unsynced, self.found = [], []
        self.unindexed = []
        self.names_unsynced = False
        self.drop_maps()

    def destroy(self) -> None:
        """Close, and remove the directory of the segments, unless it has been renamed to be removed."""
        if not self.closed:
            self.release()
        self.doomed = []
        if self.in_flight is None:              # who syncs may read them
            self.catalogue.msgs = self.catalogue.bytes = 0
            self.catalogue.part_from_subjects()
            self.catalogue.part_from_segments()
        if self.disk.exists(self.directory):
            self.disk.remove_tree(self.directory)
