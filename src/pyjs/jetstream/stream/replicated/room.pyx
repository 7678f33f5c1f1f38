"""The messages of a replicated stream that its leader has accepted and not applied yet, and the room they need.

When the entry of a mirror's or source's copy is applied, nothing refuses the copy (copies.pyx). So the leader
proposes a copy only if there is room for it in addition to all messages in flight; otherwise, the copy would evict
messages from a stream with discard new. The leader assumes that all messages in flight will be stored. If one of them
is not stored after all, a copy may be refused without need, and is tried again later. If no message is in flight, the
leader decides as a stream with one replica does.

Compiled because it handles every message of a replicated stream (benchmarks/replica.py).
"""
from libc.stdint cimport uint64_t
from libc.string cimport memset

from pyjs.jetstream.stream.limits cimport (
    ALLOW_ROLLUP, DISCARD_NEW, DISCARD_NEW_PER_SUBJECT, KEEPS_INTEREST, StreamLimits,
)
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, scan_pub_headers
from pyjs.store.index.catalogue cimport Catalogue

cdef enum:
    RECORD_OVERHEAD = 48        # maximum bytes of a stored record in addition to subject and message


cdef class InFlight:
    def __cinit__(self):
        self.subjects = {}

    cdef void add(self, Stream stream, Proposal proposal, const char* subject, size_t n) noexcept nogil:
        """Count a message that was added to the payload of `proposal`."""
        self.messages += 1
        proposal.messages += 1
        if stream.limits.features & DISCARD_NEW_PER_SUBJECT and stream.inflow is not None:
            with gil:
                self.add_subject(proposal, subject[:n])

    cdef void add_subject(self, Proposal proposal, bytes subject) noexcept:
        proposal.subjects.append(subject)
        self.subjects[subject] = self.subjects.get(subject, 0) + 1

    cdef void add_operation(self, Proposal proposal) noexcept:
        """Count an operation, which is alone in its proposal."""
        self.operations += 1
        proposal.operates = True

    cdef void remove(self, Proposal proposal) noexcept:
        """Subtract the messages or the operation of a proposal that is applied or lost."""
        self.operations -= proposal.operates
        proposal.operates = False
        self.messages -= min(proposal.messages, self.messages)
        proposal.messages = 0
        subjects, proposal.subjects = proposal.subjects, []
        for subject in subjects:
            self.subjects[subject] -= 1
            if self.subjects[subject] == 0:
                del self.subjects[subject]

    cdef bint refuses(self, Stream stream, Msg* m, bint mirrored, uint64_t size) noexcept nogil:
        cdef PubHeaders h
        cdef bint rolls_up
        if not stream.limits.features & (DISCARD_NEW | DISCARD_NEW_PER_SUBJECT):
            return False
        memset(&h, 0, sizeof(h))
        if m.header_len:
            scan_pub_headers(m.body, m.header_len, &h)
        if is_skipped(stream, m, mirrored, &h):
            return False
        rolls_up = h.rollup.n != 0 and stream.limits.features & ALLOW_ROLLUP != 0
        if stream.limits.reached(stream.store.catalogue, m, rolls_up):
            return True
        return size != 0 and self.refuses_beside(stream.limits, stream.store.catalogue, m, rolls_up, size)

    cdef bint refuses_beside(self, StreamLimits limits, Catalogue catalogue, Msg* m, bint rolls_up,
                             uint64_t size) noexcept nogil:
        """Return whether there is no room for a copy besides the messages in flight, which have `size` bytes."""
        cdef uint64_t count = 0, of_subject = 0
        if limits.max_msgs_per_subject > 0:
            count = catalogue.count_of(m.subject, m.subject_len)
        if limits.max_msgs > 0 and catalogue.msgs + self.messages >= <uint64_t> limits.max_msgs \
                and not (limits.max_msgs_per_subject > 0 and count >= <uint64_t> limits.max_msgs_per_subject):
            return True
        size += m.size + m.subject_len + (self.messages + 1) * RECORD_OVERHEAD
        if limits.max_bytes > 0 and catalogue.bytes + size > <uint64_t> limits.max_bytes:
            return True
        if limits.max_msgs_per_subject <= 0 or rolls_up or not limits.features & DISCARD_NEW_PER_SUBJECT:
            return False
        with gil:
            of_subject = self.subjects.get(m.subject[:m.subject_len], 0)
        return count + of_subject >= <uint64_t> limits.max_msgs_per_subject


cdef bint is_skipped(Stream stream, Msg* m, bint mirrored, PubHeaders* h) noexcept nogil:
    """Return whether a copy will not be stored and needs no room: no consumer wants it, or it is a duplicate."""
    if stream.limits.features & KEEPS_INTEREST and not stream.interest.wanted(m.subject, m.subject_len):
        return True
    return (h.msg_id.n != 0 and stream.dedupe.window_ns != 0 and not mirrored
            and stream.dedupe.seq_of(h.msg_id.p, h.msg_id.n, stream.now()) != 0)
