"""The recovery of a file store, which adopts the segments, and then applies the removals recorded in them.

It also overwrites messages whose erasure was interrupted, drops removed messages, counts and reports damage, and
opens the last segment for appends if it may grow.

Compiled, because it drops millions of messages (measured by benchmarks/store_start.py).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pyjs.store.file.adoption cimport adopt_segment
from pyjs.store.file.eraser cimport Eraser, is_overwritten
from pyjs.store.file.examiner cimport Examiner
from pyjs.store.file.segment_writer cimport SegmentWriter
from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport ENTRY_ERASED, ENTRY_MSG, Entry, Segment, index_find, index_last, is_dead
from pyjs.store.segment.contents cimport ERASED_BIT
from pyjs.store.segment.recovery cimport Recovery
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.store cimport StreamStore

from pyjs.base.disk import closing
from pyjs.store.format.image import MARK
from pyjs.store.segment.index_file import remove_file
from pyjs.store.format.lost_sync import write_again
from pyjs.store.segment.recorded_ids import kept_path

cdef enum:
    CODEC_MASK = 0xff00         # bits of `encoding` for the compression
    UNSYNCED_MAX = 16           # maximum number of segments that a killed process may have left unsynced


cdef class StoreStart:
    """A recovery of one store, which adopts the segments of a directory and applies their recorded removals."""
    cdef StreamStore store
    cdef Catalogue catalogue
    cdef SegmentFiles files
    cdef SegmentWriter writer
    cdef Examiner examiner
    cdef Eraser eraser
    cdef Recovery recovery
    cdef list erased                # messages that their records mark as erased
    cdef set unfinished  # messages that may be overwritten, although the record of their removal was cut off
    cdef set removed                # sequences in DELETES records; empty: not needed

    def __init__(self, StreamStore store not None, SegmentWriter writer not None, Examiner examiner not None,
                 Eraser eraser not None, set unfinished not None) -> None:
        self.store = store
        self.catalogue = writer.catalogue
        self.files = writer.files
        self.writer = writer
        self.examiner = examiner
        self.eraser = eraser
        self.recovery = Recovery(writer.files, writer.segment_size, writer.stored_tail)
        self.erased = []
        self.unfinished = unfinished

    def steps(self):
        """Read the directory, one segment in each step; return the paths of segments that were set aside.

        Raises the same errors as FileStore.recover_steps.
        """
        for found in self.recovery.steps():
            if found is not None:
                self.writer.go_on_behind(found)
                self.erased += adopt_segment(self.catalogue, self.writer.maps, found)
            yield
        self._settle()
        if self.recovery.has_lost_sync:
            yield from self._write_again()
        return self.recovery.damaged_paths

    def _settle(self):
        """Apply the recorded removals, and open the last segment for appends."""
        cdef Recovery recovery = self.recovery
        self.examiner.losses.bytes += recovery.lost_bytes
        self.catalogue.last_seq = recovery.last_seq
        self.store.run_from = recovery.run.first_seq
        self.writer.take_over(recovery.next_number, recovery.stored_tail, recovery.state_due)
        if recovery.end_damaged:
            self._lose_end()
        if self.store.group:
            self._lose_front()
        self.removed = self._removed_seqs() if recovery.lost else set()
        self._finish_erasure()
        self.store.drop_singly_below(recovery.floor)
        self._drop_removed()
        self._hear_witnesses()
        self._drop_erased()
        if self.catalogue.msgs == 0 and (self.catalogue.last_seq or recovery.floor):
            self.catalogue.first_seq = self.catalogue.last_seq + 1
        self.catalogue.check_counts()
        self.writer.condition.recovered()
        if recovery.sync_error is not None:
            self.writer.sync_failed(recovery.sync_error)
        self._retire_empty()
        if recovery.unrecorded:
            self._record_again()
        self._tell_losses()
        self._reopen()
        self._sync_later()

    # -- removals ----------------------------------------------------------------------------------------------
    def _removed_seqs(self) -> set:
        """Return the removed sequences, including those that no DELETES record names any more."""
        return self._recorded_seqs() | {removal & ~ERASED_BIT for removal in self.recovery.unrecorded}

    def _recorded_seqs(self) -> set:
        """Return the sequences of the DELETES records."""
        cdef size_t at
        cdef uint32_t i
        cdef Segment* s
        seqs = set()
        for at in range(self.catalogue.index.n):
            s = self.catalogue.index.segments[at]
            for i in range(s.n_removed):
                seqs.add(s.removed[i] & ~ERASED_BIT)
        return seqs

    def _finish_erasure(self):
        """Overwrite the message that was erased last, since the server may have crashed after recording its removal.

        A replica overwrites all erased messages whose ids could still count: a power failure may undo the zeros but
        keep the record of the removal, and the ids would count again.
        """
        cdef Segment* last = index_last(&self.catalogue.index)
        cdef size_t at
        cdef uint32_t i
        cdef Segment* s
        if last == NULL or self.writer.indexed:
            return
        if self.store.group == 0:
            if last.n_removed and last.removed[last.n_removed - 1] & ERASED_BIT:
                self._erase_again(last.removed[last.n_removed - 1] & ~ERASED_BIT, 0)
            return
        for at in range(self.catalogue.index.n):
            s = self.catalogue.index.segments[at]
            for i in range(s.n_removed):
                if s.removed[i] & ERASED_BIT:
                    self._erase_again(s.removed[i] & ~ERASED_BIT, self.store.ids_from)

    cdef void _erase_again(self, uint64_t seq, int64_t from_ns) except *:
        cdef Segment* s = index_find(&self.catalogue.index, seq)
        cdef Entry* e
        if s == NULL:
            return
        e = &s.entries[seq - s.base]
        if e.flags & (ENTRY_MSG | ENTRY_ERASED) == ENTRY_MSG and e.ts >= from_ns:
            self.eraser.overwrite(s, <uint32_t> (seq - s.base))

    def _drop_removed(self):
        """Drop the messages in DELETES records, and those whose removal is known although its record is lost.

        The sequences are copied first, since a segment with such records may be removed.
        """
        cdef Segment* s
        cdef size_t at, n = 0
        cdef uint64_t* removed
        for at in range(self.catalogue.index.n):
            n += self.catalogue.index.segments[at].n_removed
        removed = <uint64_t*> malloc((n + 1) * 8)
        if removed == NULL:
            raise MemoryError
        n = 0
        for at in range(self.catalogue.index.n):
            s = self.catalogue.index.segments[at]
            memcpy(removed + n, s.removed, s.n_removed * 8)
            n += s.n_removed
        with nogil:
            for at in range(n):
                self.store.drop(removed[at] & ~ERASED_BIT, False)
        free(removed)
        for removal in self.recovery.unrecorded:
            self.store.drop(removal & ~ERASED_BIT, False)

    def _drop_erased(self):
        """Drop erased messages whose removal is not recorded; those that were not overwritten count as lost.

        A removal is recorded before the message is overwritten, but a power failure can undo the record, and a
        recovery cuts off the records of an entry that is applied again.
        """
        cdef Segment* s
        for seq in self.unfinished:
            s = index_find(&self.catalogue.index, seq)
            if s != NULL and not is_dead(s, <uint32_t> (seq - s.base)):
                self.eraser.overwrite(s, <uint32_t> (seq - s.base))
                self.store.drop(seq, False)
                self.recovery.unrecorded.append(seq | ERASED_BIT)
        for seq in self.erased:
            s = index_find(&self.catalogue.index, seq)
            if s == NULL or is_dead(s, <uint32_t> (seq - s.base)):
                continue
            is_done = is_overwritten(self.files, s, &s.entries[seq - s.base])
            self.store.drop(seq, False)
            if is_done:
                self.recovery.unrecorded.append(seq | ERASED_BIT)
                continue
            self.recovery.lost.append((seq, seq))
            self.files.log.error(f"{self.files.directory}: message {seq} is marked as erased, and not overwritten")

    def _record_again(self):
        """Queue a record of the removals that no record names any more."""
        cdef set recorded = self._recorded_seqs()
        for removal in self.recovery.unrecorded:
            seq = removal & ~ERASED_BIT
            if seq not in recorded and index_find(&self.catalogue.index, seq) != NULL:
                self.writer.note_removal(seq, removal & ERASED_BIT != 0)

    def _retire_empty(self):
        """Retire all segments without live messages, except the last one."""
        cdef size_t at = self.catalogue.index.n
        while at > 1:
            at -= 1
            if self.catalogue.index.segments[at - 1].live == 0:
                self.store.retire(at - 1)

    # -- losses ------------------------------------------------------------------------------------------------
    def _lose_end(self):
        """Report the message of the last record, which is damaged, as lost; its sequence is not used again."""
        if self.catalogue.add_gap(index_last(&self.catalogue.index)) != 0:
            raise MemoryError
        self.recovery.lost.append((self.catalogue.last_seq, self.catalogue.last_seq))
        self.writer.state_due = True

    def _lose_front(self):
        """Report messages before the first segment of a replica as lost, unless a removal is recorded for them.

        Every commit of a replica records the first sequence of the stream, and a segment is removed only after that.
        """
        cdef uint64_t base, floor = self.recovery.floor
        if self.catalogue.index.n and floor:
            base = self.catalogue.index.segments[0].base
            if floor < base:
                self.recovery.lost.append((floor, base - 1))

    def _hear_witnesses(self):
        """Report missing segments whose existence other files prove, unless all their messages were removed.

        After a power loss, the index file of a removed segment may exist again. A replica also reports a segment that
        had ids of removed messages, if these ids still count.
        """
        floor = self.recovery.floor
        for path, last_seq, missed, size, ids_ns, what in self.recovery.witnesses:
            has_ids = self.store.group and ids_ns >= self.store.ids_from > 0 \
                and not self.files.disk.exists(kept_path(path))
            if has_ids or any(seq >= floor and seq not in self.removed for seq in missed):
                self.examiner.losses.bytes += size
                if what:
                    self.files.log.error(what)
            elif last_seq < floor:
                remove_file(self.files.disk, self.files.log, path)

    def _tell_losses(self):
        """Count damaged messages that were not removed, and report segments whose end is missing.

        After a purge, a segment without live messages may lack a FOOTER.
        """
        floor = self.recovery.floor
        lost = [seq for first, last in self.recovery.lost for seq in range(max(first, floor), last + 1)
                if seq not in self.removed]
        if lost:
            self.examiner.note_lost(lost)
        for path, end, next_seq in self.recovery.ends:
            if next_seq > floor:
                self.files.log.warn(f"{path} at {end}: the end of the segment is missing")

    # -- the last segment --------------------------------------------------------------------------------------
    def _reopen(self):
        """Open the last segment if it may grow."""
        cdef Segment* s = index_last(&self.catalogue.index)
        if s == NULL or s.sealed:
            return
        if s.encoding:
            self.leave_last(s)
            return
        # Old bytes after the end must not be taken for records later.
        if self.writer.allocated > self.writer.written:
            self.writer.cut()
            self.writer.allocated = self.writer.written
        if self.files.key is not None or s.roomy:  # the next record would be encrypted, or the segment has wide gaps
            self.writer.seal()

    cdef leave_last(self, Segment* s):
        """Begin a new segment with the next record, since no offset of an encrypted file may be written twice.

        Unacknowledged bytes after the last record are truncated, as in a plain segment.
        """
        cdef uint64_t end = self.recovery.shift + self.writer.written
        s.sealed = self.writer.left = True
        if s.encoding & CODEC_MASK or (self.writer.allocated == self.writer.written and self.recovery.marked):
            return
        with closing(self.files.disk, self.files.disk.open_file(self.files.path_of(s.number))) as fd:
            self.files.disk.truncate(fd, end)
            self.files.disk.write_at(fd, MARK, end)
        self.writer.allocated = self.writer.written

    def _write_again(self):
        """Write the segments again before the first sync, since an earlier sync of them failed."""
        try:
            for path in self.files.found:
                write_again(self.files.disk, path)
                yield
        except OSError as error:
            self.writer.sync_failed(error)

    def _sync_later(self):
        """Queue the recovered segments for the first sync, since a killed process may not have synced them.

        Otherwise a repeated publish could be acknowledged as the duplicate of a message that a power failure then
        removes. Also queue segments for compaction, compression or encryption.
        """
        cdef size_t at
        cdef Segment* s
        newest = set(self.recovery.scanned[-UNSYNCED_MAX:])
        for at in range(self.catalogue.index.n):
            s = self.catalogue.index.segments[at]
            if s.number in newest:
                self.files.found.append(self.files.path_of(s.number))
            self.writer.compactor.note_sparse(s)
            self.writer.compactor.note_encoding(s)
