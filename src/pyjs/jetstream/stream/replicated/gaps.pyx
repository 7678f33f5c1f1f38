"""The entries whose outcome a leader cannot decide because it has lost messages (healing.py).

Another replica may still have these messages. When it returns, it applies the same entries. If one of them had
another outcome there, acknowledged messages would get other sequences or be missing. So the outcome of every entry
must be the same with and without the lost messages:
- A condition on the last message of a subject can be decided if that message is younger than all lost ones: only
  messages up to `last` can be missing, and limits remove the oldest ones first. So the condition has the same outcome
  when the entry is applied, unless an operation in flight removes this message.
- A known id is a duplicate. An unknown id is new if all lost messages are older than the duplicate window.
- A counter adds to the last message of its subject.
- A schedule that a lost message may have replaced does not fire, and no subject gets a marker when it expires.
- `discard new` can be decided if the message would fit even with all lost messages. The bytes of these are unknown,
  so `discard new` cannot be decided if `max_bytes` is set.

The leader refuses a publish that it cannot decide. If a replica that has lost messages finds such a publish in an
entry of another leader, it closes itself until an undamaged replica answers (stream_machine.py).

Compiled because it uses compiled parts of the ingest (benchmarks/replica.py).
"""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from pyjs.jetstream.stream.limits cimport COUNTS, DISCARD_NEW, DISCARD_NEW_PER_SUBJECT
from pyjs.jetstream.stream.pub_headers cimport scan_pub_headers
from pyjs.jetstream.stream.replicated.payload cimport (
    ITEM_EXPIRE, ITEM_FIRE, ITEM_HEADER_SIZE, PAYLOAD_HEADER_SIZE,
)
from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.filter cimport StoreFilter

cdef enum:
    DUE_SIZE = 16       # bytes of a schedule in an entry


cdef class Gaps:
    def __init__(self, Stream stream not None, list lost not None, uint64_t ids_upto) -> None:
        """Describe the gaps of a stream that is open without the messages `lost`, a list of sequences.

        If this list is empty, any message may be missing. Ids of messages up to `ids_upto` may be missing too.
        """
        cdef Catalogue catalogue = stream.store.catalogue
        cdef uint64_t behind
        self.stream = stream
        self.last = max(lost) if lost else catalogue.last_seq
        self.count = len(lost) or catalogue.last_seq
        behind = catalogue.next_seq(max(self.last, ids_upto) + 1, StoreFilter(()))
        self.ids_ns = catalogue.time_of(behind) if behind else stream.entry_ns

    cdef bint decides(self, Msg* m, int64_t now_ns, uint64_t more, bint may_change) noexcept nogil:
        cdef PubHeaders h
        if self.may_lack_room(m, more):
            return False
        if self.stream.limits.features & COUNTS and (may_change or not self.knows_last(m.subject, m.subject_len)):
            return False
        if m.header_len == 0:
            return True
        scan_pub_headers(m.body, m.header_len, &h)
        if h.has_status or self.may_be_duplicate(&h, now_ns):
            return False
        if h.expected_last_subject_seq.n == 0:
            return True
        if may_change:
            return False
        if h.expected_last_subject.n:
            return self.knows_last(h.expected_last_subject.p, h.expected_last_subject.n)
        return self.knows_last(m.subject, m.subject_len)

    cdef bint decides_copy(self, Msg* m, bint mirrored, int64_t now_ns, uint64_t more) noexcept nogil:
        cdef PubHeaders h
        if self.may_lack_room(m, more):
            return False
        if mirrored or m.header_len == 0:
            return True
        scan_pub_headers(m.body, m.header_len, &h)
        return not self.may_be_duplicate(&h, now_ns)

    cdef bint decides_operation(self, int kind, const char* payload, size_t n) noexcept nogil:
        cdef uint64_t seq = 0
        cdef size_t at = PAYLOAD_HEADER_SIZE + ITEM_HEADER_SIZE
        if kind == ITEM_EXPIRE:
            return self.stream.limits.marker_ttl_ns == 0
        while kind == ITEM_FIRE and at < n:
            memcpy(&seq, payload + at, 8)
            if seq <= self.last:
                return False
            at += DUE_SIZE
        return True

    cdef bint may_lack_room(self, Msg* m, uint64_t more) noexcept nogil:
        """Return whether `discard new` may refuse a message on replicas that have the lost messages, but not here."""
        if not self.stream.limits.features & (DISCARD_NEW | DISCARD_NEW_PER_SUBJECT):
            return False
        if self.stream.limits.max_bytes > 0:
            return True
        more += self.count
        if self.stream.limits.max_msgs > 0 \
                and self.stream.store.catalogue.msgs + more >= <uint64_t> self.stream.limits.max_msgs:
            return True
        if self.stream.limits.max_msgs_per_subject <= 0 \
                or not self.stream.limits.features & DISCARD_NEW_PER_SUBJECT:
            return False
        more += self.stream.store.catalogue.count_of(m.subject, m.subject_len)
        return more >= <uint64_t> self.stream.limits.max_msgs_per_subject

    cdef bint may_be_duplicate(self, PubHeaders* h, int64_t now_ns) noexcept nogil:
        """Return whether the message id, if unknown here, may be that of a lost message."""
        if h.msg_id.n == 0 or self.stream.dedupe.window_ns == 0 \
                or self.stream.dedupe.horizon(now_ns) > self.ids_ns:
            return False
        return self.stream.dedupe.seq_of(h.msg_id.p, h.msg_id.n, self.stream.entry_ns) == 0

    cdef bint knows_last(self, const char* subject, size_t n) noexcept nogil:
        """Return whether the last message of a subject is younger than all lost messages."""
        return self.stream.store.last_of(subject, n, &self.stream.turn.extra_work) > self.last
