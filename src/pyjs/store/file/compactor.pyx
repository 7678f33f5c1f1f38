"""Compaction, which rewrites segments to leave out dead messages, or to apply the stream's compression or encryption.

`note_sparse` queues a sealed segment of which over half is dead; `note_encoding` queues one that lacks the
compression or encryption of its stream; `repair` queues one with damaged records that another replica
has intact. `begin` returns a job, which any thread may run; `finish` handles its result. A compacted file leaves out
removed messages, so it replaces the old file only after their removals are durable. A recast file has the same image,
so it replaces the old one at once. If the segment has changed since the job began, the new file is discarded.

This module knows nothing of records: store/segment/rewrite and store/format/recast write the files.
Compiled, because every removed message may queue a segment (measured in benchmarks/, JetStream rows with limits).
"""
from pyjs.store.file.condition cimport STORE_CLOSED
from pyjs.store.index.sequences cimport index_place, segment_free
from pyjs.store.segment.index_file cimport full_segment
from pyjs.store.format.record cimport RECORD_SIZE_MIN
from pyjs.store.segment.rewrite cimport rewrite_of, rewritten_segment

from pyjs.store.segment.index_file import index_path, remove_file
from pyjs.store.format.recast import Recast

cdef enum:
    CIPHER_MASK = 0xff          # bits of `encoding` for the encryption
    CODEC_MASK = 0xff00         # bits of `encoding` for the compression
    REWRITE_MIN = 32768         # bytes; smaller segments are not compacted


cdef str kept_text(SegmentRewrite job):
    """Return the words of a log line for a segment that was not rewritten."""
    return "cannot be repaired now" if job.is_repair() else "stays larger than its messages"


cdef class Compactor:
    def __init__(self, Catalogue catalogue not None, SegmentFiles files not None, StoreCondition condition not None,
                 StoreSync syncs not None, SegmentMaps maps not None, RetiredFiles retired not None,
                 dict damaged not None) -> None:
        self.catalogue = catalogue
        self.files = files
        self.condition = condition
        self.syncs = syncs
        self.maps = maps
        self.retired = retired
        self.damaged = damaged
        self.repairs = {}
        self.failed = set()
        self.sparse = []
        self.to_recast = []

    cdef void note_sparse(self, Segment* s) noexcept nogil:
        """Queue a sealed, undamaged segment for compaction if it is not small and over half of it is dead."""
        cdef uint64_t left = s.live_bytes + s.live * (RECORD_SIZE_MIN - self.catalogue.overhead)
        if s.sealed and s.live and not s.sparse and not s.examined and s.end > REWRITE_MIN and left * 2 < s.end:
            s.sparse = True
            with gil:
                self.sparse.append(s.number)

    cdef void note_encoding(self, Segment* s) noexcept nogil:
        """Queue a sealed segment that lacks the compression or encryption of its stream."""
        with gil:
            wanted = self.codec | (self.files.key.algorithm if self.files.key is not None else 0)
            if s.sealed and s.encoding != wanted and wanted & ~s.encoding and s.number not in self.to_recast:
                self.to_recast.append(s.number)

    def repair(self, uint32_t number, dict records not None) -> None:
        """Queue a damaged segment for repair; `records` (by sequence) replace its damaged records."""
        self.repairs[number] = records
        self.failed.discard(number)

    def has_failed(self, uint32_t number) -> bool:
        """Return whether the last repair of a segment could not be written."""
        return number in self.failed

    def is_repairing(self, uint32_t number) -> bool:
        """Return whether a segment is queued for a repair, or is being rewritten."""
        return number in self.repairs or any(
            job is not None and job.number == number for job in (self.rewriting, self.rewritten)
        )

    cdef void outdate(self, uint32_t number) except *:
        """Discard work on a segment that has changed.

        Drop its queued repair. If a job has written or is writing a new file for it, mark this file as stale.
        """
        self.repairs.pop(number, None)
        for job in (self.rewriting, self.rewritten, self.recasting):
            if job is not None and job.number == number:
                job.stale = True

    cdef bint is_busy(self):
        """Return whether `begin` returned a job that has not been finished."""
        return self.rewriting is not None or self.recasting is not None

    cdef bint has_work(self):
        """Return whether `begin` may have work."""
        return bool(self.sparse or self.to_recast or self.repairs) and self.rewritten is None

    def begin(self, uint64_t mark):
        """Return a job that any thread may run, or None if there is no work; pass its result to `finish`.

        The new file may replace the old one when the commit with the number `mark` is durable.
        """
        cdef size_t at
        cdef Segment* s
        while self.has_work():
            if self.repairs:
                self.rewriting = self._next_repair(mark)
                if self.rewriting is not None:
                    return self.rewriting
                continue
            if not self.sparse:
                self.recasting = self._next_recast()
                return self.recasting
            at = index_place(&self.catalogue.index, self.sparse.pop(0))
            if at == self.catalogue.index.n:
                continue
            s = self.catalogue.index.segments[at]
            s.sparse = False
            # The last segment is not compacted, since it records last_seq.
            if s.live == 0 or s.examined or at + 1 == self.catalogue.index.n or self.files.keeps_ids(s.last_ts):
                continue
            self.rewriting = rewrite_of(self.files.disk, self.files.path_of(s.number), s, self.files.incarnation,
                                        mark, self.files.meta, self.files.key, self.codec or s.encoding & CODEC_MASK,
                                        None)
            return self.rewriting
        return None

    def _next_repair(self, uint64_t mark):
        """Take a repair from the queue; return its job, or None if the segment is the last one or does not exist."""
        number, records = self.repairs.popitem()
        cdef size_t at = index_place(&self.catalogue.index, number)
        cdef Segment* s
        if at + 1 >= self.catalogue.index.n:
            return None
        s = self.catalogue.index.segments[at]
        return rewrite_of(self.files.disk, self.files.path_of(number), s, self.files.incarnation, mark,
                          self.files.meta, self.files.key, self.codec or s.encoding & CODEC_MASK, records)

    def _next_recast(self):
        """Return the job that compresses or encrypts the next queued segment, or None if there is none."""
        cdef size_t at
        cdef Segment* s
        while self.to_recast:
            at = index_place(&self.catalogue.index, self.to_recast.pop(0))
            wanted = self.codec | (self.files.key.algorithm if self.files.key is not None else 0)
            s = self.catalogue.index.segments[at] if at < self.catalogue.index.n else NULL
            if s != NULL and s.sealed and wanted & ~s.encoding:
                return Recast(self.files.disk, self.files.path_of(s.number), s.number, self.codec, self.files.key,
                              self.files.meta)
        return None

    def finish(self, error) -> None:
        """Handle the result of the job. A compacted file replaces the old one when the removals are durable."""
        if self.recasting is not None:
            job, self.recasting = self.recasting, None
            self._take_recast(job, error)
            return
        self.rewritten, self.rewriting = self.rewriting, None
        if error is not None:
            self.files.log.warn(f"{self.rewritten.path} {kept_text(self.rewritten)}: {error}")
            self.rewritten.stale = True
            if self.rewritten.is_repair():
                self.failed.add(self.rewritten.number)
        self.take_rewritten()

    def _take_recast(self, job, error):
        """Replace a segment with its recast file, unless the job failed or the segment has changed since."""
        cdef size_t at = index_place(&self.catalogue.index, job.number)
        cdef Segment* s = self.catalogue.index.segments[at] if at < self.catalogue.index.n else NULL
        if error is not None:
            self.files.log.warn(f"{job.path} keeps the form it has: {error}")
        elif s != NULL and job.stale:
            self.note_encoding(s)
        wanted = error is None and not job.stale and s != NULL and job.flags != job.old_flags
        if not self._put_in_place(job, wanted, "keeps the form it has"):
            return
        s.encoding = job.flags
        self.maps.forget(s)
        if job.flags & CIPHER_MASK and not job.old_flags & CIPHER_MASK:     # its index file must be encrypted as well
            remove_file(self.files.disk, self.files.log, index_path(job.path))
            self.renew_index(s, False, 0)

    def take_rewritten(self) -> None:
        """Replace a segment with its rewritten file if the removals are durable; discard a stale file."""
        cdef SegmentRewrite job = self.rewritten
        cdef Segment* fresh
        cdef size_t at
        if job is None or (job.mark > self.syncs.synced_mark and not job.stale and not self.is_closed()):
            return
        self.rewritten = None
        at = index_place(&self.catalogue.index, job.number)
        # It may have become the last segment, which is not compacted, if the one after it was removed.
        fresh = NULL if job.stale or self.is_closed() or at + 1 >= self.catalogue.index.n \
            else rewritten_segment(job, self.catalogue.index.segments[at])
        if fresh != NULL and not job.is_repair():       # its old index file contains removed messages
            remove_file(self.files.disk, self.files.log, index_path(job.path))
        if not self._put_in_place(job, fresh != NULL, kept_text(job)):
            if fresh != NULL:
                segment_free(fresh)
            return
        self.maps.forget(self.catalogue.index.segments[at])
        self.maps.index_maps.pop(job.number, None)
        self.retired.free_segment(self.catalogue.index.segments[at])
        self.catalogue.index.segments[at] = fresh
        if job.is_repair():             # until now the index file recorded the damaged messages
            remove_file(self.files.disk, self.files.log, index_path(job.path))
            self.damaged.pop(job.number, None)
        self.renew_index(fresh, True, job.contents.chain)
        self.note_encoding(fresh)

    def _put_in_place(self, job, wanted, otherwise):
        """Rename the new file of a job over the old one, or remove it; return whether it was renamed."""
        old, job.old = job.old, None
        try:
            if wanted and not self.is_closed():
                self.files.disk.rename(job.new_path, job.path)
                self.files.handles.close(job.path)      # the open descriptor belongs to the old file
                self.files.names_unsynced = True
                self.files.replaced.append(old)
                return True
            self.files.disk.unlink(job.new_path)
        except FileNotFoundError:
            pass
        except OSError as error:
            self.files.log.warn(f"{job.path} {otherwise}: {error}")
        if old is not None:
            old.close()
        return False

    def set_codec(self, uint32_t codec) -> None:
        """Set the compression for sealed segments (0: none); segments that are already compressed remain so."""
        cdef size_t at
        if codec == self.codec:
            return
        self.codec = codec
        self.to_recast = []
        for at in range(self.catalogue.index.n):
            self.note_encoding(self.catalogue.index.segments[at])

    cdef void renew_index(self, Segment* s, bint footer, uint64_t chain) except *:
        """Queue a new index file for a segment whose file was replaced."""
        self.syncs.forget_index(s.number)
        self.syncs.unindexed.append(full_segment(self.catalogue, self.files, self.retired, s, footer, chain, False))

    cdef bint is_closed(self) noexcept nogil:
        return self.condition.state == STORE_CLOSED

    # -- removal of segments -----------------------------------------------------------------------------------
    cdef void give_up(self, Segment* s) noexcept:
        """Retire the file of `s` with the next commit, and drop work queued for the segment."""
        path = self.files.path_of(s.number)
        if self.files.keeps_ids(s.last_ts):
            self.files.last_times[path] = s.last_ts
        self.retired.retire(path)
        self.damaged.pop(s.number, None)
        self.repairs.pop(s.number, None)
        self.outdate(s.number)
        self.syncs.forget_index(s.number)
        self.maps.forget(s)
        if s.locals != NULL:
            self.maps.index_maps.pop(s.number, None)
        if path not in self.files.unsynced:
            self.files.handles.close(path)

    def remove_unfinished(self) -> None:
        """Remove the new files of jobs that have not replaced the old files yet."""
        for rewrite in (self.rewriting, self.rewritten, self.recasting):
            if rewrite is not None:
                remove_file(self.files.disk, self.files.log, rewrite.new_path)
        if self.rewritten is not None and self.rewritten.old is not None:
            self.rewritten.old.close()
