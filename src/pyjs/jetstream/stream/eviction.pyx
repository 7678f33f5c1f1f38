"""What a turn's messages replace: noted when they are taken, carried out when they are in the file.

A message beyond a limit, or with a roll-up header, takes older ones away. They go only after it was written: a disk
that refuses it then costs nothing that was acknowledged, and no file ever says that something is gone whose
replacement is not in it. A note is a sequence; without a live message of that sequence there is nothing to do.

Knows nothing of files, answers and consumers. Compiled because a message that replaces another passes here
(benchmarks/: JetStream async publish to a stream with max_msgs_per_subject).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free

from pyjs.base.grow cimport grow
from pyjs.store.index.sequences cimport Segment, index_find, index_live, is_dead, subject_of
from pyjs.store.store cimport StreamStore
from pyjs.store.index.subjects cimport Subject, subject_by_id

from pyjs.jetstream.files.removals import MemoryRelease


cdef class Evictions:
    """Of one stream."""

    def __cinit__(self, StreamStore store, turn):
        self.store = store
        self.turn = turn
        self.rollups = []

    def __dealloc__(self):
        free(self.seqs)

    cdef bint pending(self) noexcept nogil:
        """Whether something is to be carried out."""
        if self.n:
            return True
        with gil:
            return len(self.rollups) != 0

    cdef void note(self, uint64_t seq) noexcept nogil:
        """Have the subject of message `seq` cut to its limit."""
        if grow(<void**> &self.seqs, &self.room, self.n + 1, sizeof(uint64_t)) != 0:
            return                      # the next message of the subject will see to it
        self.seqs[self.n] = seq
        self.n += 1

    cdef void note_rollup(self, bytes subject, bytes scope, uint64_t seq):
        """Have everything go that is older than message `seq`: on its subject, or in the stream."""
        self.rollups.append((seq, b"" if scope.lower() == b"all" else subject))

    cdef list roll_up(self):
        """Carry out the roll-ups that were kept; return the filters of what they purged, b"": everything."""
        rollups, self.rollups = self.rollups, []
        purged = []
        for seq, subject in rollups:
            if index_live(&self.store.catalogue.index, seq) != NULL:
                self.purge(subject, seq, 0)
                purged.append(subject)
        return purged

    cdef uint64_t purge(self, bytes subject, uint64_t before_seq, uint64_t keep) except? 0:
        """Remove messages, b"": of every subject, as the store's purge does; the memory goes to a thread."""
        wanted = self.store.make_filter((subject,) if subject else ())
        cdef uint64_t purged = self.store.purge(wanted, before_seq, keep)
        for remains in self.store.catalogue.take_remains():
            self.turn.jobs.append(MemoryRelease(remains))
        return purged

    cdef void trim_noted(self, int64_t max_per_subject) noexcept nogil:
        """Drop the oldest messages of the noted subjects beyond `max_per_subject`, unless that is 0 or less."""
        cdef Segment* segment
        cdef Subject* s
        cdef uint32_t at
        cdef size_t i, n = self.n
        self.n = 0
        for i in range(n if max_per_subject > 0 else 0):
            segment = index_find(&self.store.catalogue.index, self.seqs[i])
            at = 0 if segment == NULL else <uint32_t> (self.seqs[i] - segment.base)
            if segment != NULL and not is_dead(segment, at):
                s = subject_by_id(&self.store.catalogue.subjects.table, subject_of(segment, at))
                self.trim_subject(s, max_per_subject)

    cdef void trim_subject(self, Subject* s, int64_t max_per_subject) noexcept nogil:
        while s.count > <uint64_t> max_per_subject:         # at least one is left, and with it the subject
            self.store.catalogue.settle_first(s)
            if self.store.drop(s.first, False) != 0:
                return

    cdef void trim_stream(self, int64_t max_msgs, int64_t max_bytes) noexcept nogil:
        """Drop the oldest messages beyond the limits of the whole stream, those of 0 or less excepted."""
        while max_msgs > 0 and self.store.catalogue.msgs > <uint64_t> max_msgs:
            if self.store.drop(self.store.catalogue.first_seq, False) != 0:
                return
        while max_bytes > 0 and self.store.catalogue.bytes > <uint64_t> max_bytes:
            if self.store.drop(self.store.catalogue.first_seq, False) != 0:
                return

    def trim_subjects(self, int64_t max_per_subject) -> None:
        """Cut every subject to `max_per_subject`, unless that is 0 or less: a kill may have left more."""
        cdef uint32_t id
        cdef Subject* s
        for id in range(self.store.catalogue.subjects.table.n_ids if max_per_subject > 0 else 0):
            s = subject_by_id(&self.store.catalogue.subjects.table, id)
            if s != NULL:
                self.trim_subject(s, max_per_subject)
