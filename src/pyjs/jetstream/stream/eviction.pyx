"""Evictions: removals of older messages because of new ones, by a limit or a roll-up.

An eviction is noted when the new message is accepted, and carried out after that message is written. So no
acknowledged message is lost if the disk refuses the new one, and no file records the removal of a message without the
message that replaces it. An eviction is noted as the sequence of the new message; if that message is removed
meanwhile, nothing is evicted. The message of a roll-up may also be one that an interest stream does not store,
because no consumer needs it.

This module knows nothing of files, answers and consumers. Compiled: runs for every message that replaces another
(benchmarks/: JetStream async publish to a stream with max_msgs_per_subject).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free

from pyjs.base.grow cimport grow
from pyjs.jetstream.stream.limits cimport DISCARD_NEW, StreamLimits
from pyjs.store.index.sequences cimport Segment, index_find, index_live, is_dead, subject_of
from pyjs.store.store cimport StreamStore
from pyjs.store.index.subjects cimport Subject, subject_by_id
from pyjs.subjects.tokens cimport has_wildcard

from pyjs.jetstream.files.removals import MemoryRelease


cdef class Evictions:
    """The noted evictions of one stream."""

    def __cinit__(self, StreamStore store, turn):
        self.store = store
        self.turn = turn
        self.rollups, self.purges = [], []

    def __dealloc__(self):
        free(self.seqs)

    cdef bint pending(self) noexcept nogil:
        """Return whether evictions are noted."""
        return self.n != 0 or self.has_rollups

    cdef bint exceeds(self, StreamLimits limits) noexcept nogil:
        """Return whether messages must be removed because of max_msgs or max_bytes."""
        if limits.features & DISCARD_NEW:
            return False
        return ((limits.max_msgs > 0 and self.store.catalogue.msgs > <uint64_t> limits.max_msgs)
                or (limits.max_bytes > 0 and self.store.catalogue.bytes > <uint64_t> limits.max_bytes))

    cdef bint may_remove(self, StreamLimits limits, uint64_t seq) noexcept nogil:
        """Return whether `carry_out` may remove message `seq`, by a roll-up with wildcards or a limit of the stream.

        A limit removes the oldest messages, as many as exceed the limit. So it may remove `seq` if the number of
        stored messages up to `seq` may be that low. This number is at least the number of sequences up to `seq` minus
        the number of removed messages.
        """
        cdef uint64_t exceeding = 0, removed, before
        if seq < self.swept_before:
            return True
        if not self.exceeds(limits):
            return False
        if limits.max_msgs > 0 and self.store.catalogue.msgs > <uint64_t> limits.max_msgs:
            exceeding = self.store.catalogue.msgs - <uint64_t> limits.max_msgs
        if limits.max_bytes > 0 and self.store.catalogue.bytes > <uint64_t> limits.max_bytes:
            exceeding = max(exceeding, (self.store.catalogue.bytes - <uint64_t> limits.max_bytes)
                            // max(self.store.catalogue.overhead, <uint32_t> 1) + 1)
        removed = self.store.catalogue.last_seq - self.store.catalogue.first_seq + 1 - self.store.catalogue.msgs
        before = seq - self.store.catalogue.first_seq + 1
        return before <= removed + exceeding

    cdef bint due(self, StreamLimits limits) noexcept nogil:
        """Return whether `carry_out` may remove messages."""
        return self.pending() or self.exceeds(limits)

    cdef void note(self, uint64_t seq) noexcept nogil:
        """Record that the subject of message `seq` may exceed its limit."""
        if grow(<void**> &self.seqs, &self.room, self.n + 1, sizeof(uint64_t)) != 0:
            return                      # out of memory: the next message of the subject notes it again
        self.seqs[self.n] = seq
        self.n += 1

    cdef void note_rollup(self, bytes subject, bytes scope, uint64_t seq):
        """Record that message `seq` is a roll-up, which removes older messages.

        With scope "all", it removes all older messages of the stream, otherwise those that match `subject`.
        """
        if scope.lower() == b"all":
            subject = b""
        elif has_wildcard(subject, len(subject)):
            self.swept_before = seq
        elif self.store.catalogue.count_of(subject, len(subject)) == (
                self.store.catalogue.last_seq_of(subject, len(subject)) == seq):
            return                      # the subject has no older message
        is_stored = index_live(&self.store.catalogue.index, seq) != NULL
        self.rollups.append((seq, subject, is_stored))
        self.has_rollups = True
        if not subject:
            self.rolled_up_before = seq

    cdef void forget_from(self, uint64_t seq):
        """Forget the noted roll-ups from sequence `seq` on, because their messages were refused."""
        self.rollups = [rollup for rollup in self.rollups if rollup[0] < seq]

    cdef uint64_t after_rollups(self, uint64_t seq) noexcept nogil:
        """Return `seq`, or 0 if a queued roll-up of the whole stream removes that message."""
        return seq if seq >= self.rolled_up_before else 0

    cdef bint carry_out(self, StreamLimits limits) noexcept nogil:
        """Carry out the noted evictions, then the limits of the stream; return whether any message was removed."""
        cdef uint64_t before = self.store.catalogue.msgs
        if self.pending():
            with gil:
                self.purges.extend(self.roll_up())
            self.trim_noted(limits.max_msgs_per_subject)
        if not limits.features & DISCARD_NEW:
            self.trim_stream(limits.max_msgs, limits.max_bytes)
        return self.store.catalogue.msgs != before

    cdef list roll_up(self):
        """Apply the queued roll-ups unless their messages were removed; return the purged subjects (b"": all)."""
        rollups, self.rollups, self.has_rollups, self.rolled_up_before = self.rollups, [], False, 0
        self.swept_before = 0
        purged = []
        for seq, subject, was_stored in rollups:
            if not was_stored or index_live(&self.store.catalogue.index, seq) != NULL:
                self.purge(subject, seq, 0)
                purged.append(subject)
        return purged

    cdef uint64_t purge(self, bytes subject, uint64_t before_seq, uint64_t keep) except? 0:
        """Purge the store's messages of `subject` (b"": all), as `StreamStore.purge` does, and return their number.

        A job frees the memory.
        """
        wanted = self.store.make_filter((subject,) if subject else ())
        cdef uint64_t purged = self.store.purge(wanted, before_seq, keep)
        for remains in self.store.catalogue.take_remains():
            self.turn.jobs.append(MemoryRelease(remains))
        return purged

    cdef void trim_noted(self, int64_t max_per_subject) noexcept nogil:
        """Remove the oldest messages of the noted subjects in excess of `max_per_subject`; <= 0 means no limit."""
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
        while s.count > <uint64_t> max_per_subject:         # at least one message stays, and with it the subject
            self.store.catalogue.settle_first(s)
            if self.store.drop(s.first, False) != 0:
                return

    cdef void trim_stream(self, int64_t max_msgs, int64_t max_bytes) noexcept nogil:
        """Remove the oldest messages in excess of the limits of the whole stream; <= 0 means no limit."""
        while max_msgs > 0 and self.store.catalogue.msgs > <uint64_t> max_msgs:
            if self.store.drop(self.store.catalogue.first_seq, False) != 0:
                return
        while max_bytes > 0 and self.store.catalogue.bytes > <uint64_t> max_bytes:
            if self.store.drop(self.store.catalogue.first_seq, False) != 0:
                return

    def lower(self, config) -> None:
        """Remove the oldest messages that exceed the limits of `config`, in the order of `trimming.trim_steps`."""
        if config.discard != "new":
            self.trim_stream(config.max_msgs, config.max_bytes)
        self.trim_subjects(config.max_msgs_per_subject)

    def trim_subjects(self, int64_t max_per_subject) -> None:
        """Remove the oldest messages of every subject in excess of `max_per_subject`; <= 0 means no limit."""
        cdef uint32_t id
        cdef Subject* s
        for id in range(self.store.catalogue.subjects.table.n_ids if max_per_subject > 0 else 0):
            s = subject_by_id(&self.store.catalogue.subjects.table, id)
            if s != NULL:
                self.trim_subject(s, max_per_subject)
