"""Copies messages of one stream into another, a bounded number in each turn.

A mirror keeps sequence, time, subject and headers of the messages, and the gaps between sequences. A message of
a source is stored like a publish, with a header that names its origin. Headers that were conditions of the publish to
the origin are dropped in both cases. A message that the target refuses is tried again when the target changes.

Only committed messages of the origin are copied. A copy is safe (`kept`) when the target has committed it and
`sync_interval` is satisfied; only then may an interest or workqueue origin remove the message. All copiers of a turn
share one budget, so that many copiers do not delay other work; a copier that got no share is served first in the
next turn.

If the target has several replicas, its leader proposes the copies, which are safe when their entry is applied.

This module does not find origins or store positions (sourcing.py does).
Compiled because it handles every mirrored message (benchmarks/: JetStream mirror).
Source: nats.docs "Source and Mirror Streams"; headers and refusals probed on nats-server 2.15.1
(tests/conformance/scenarios/mirror, source).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy

from pyjs.base.grow cimport grow
from pyjs.jetstream.mirror.backlog cimport Backlog
from pyjs.jetstream.stream.copies cimport REFUSED, STORED, SKIPPED, is_countable, keep_copy
from pyjs.jetstream.stream.limits cimport COUNTS, DISCARD_NEW, DISCARD_NEW_PER_SUBJECT, HOLDS, SEALED
from pyjs.jetstream.stream.replicated.replica cimport Replica
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.jetstream.stream.stream_consumer cimport StreamConsumer
from pyjs.store.index.sequences cimport Entry, index_live, index_prev_live
from pyjs.store.store cimport Record, StreamStore
from pyjs.wire.compose cimport compose
from pyjs.wire.ops cimport Msg

from functools import partial

from pyjs.base.errors import NotNow

cdef extern from "string.h" nogil:
    const void* memmem(const void* haystack, size_t n, const void* needle, size_t m)

cdef enum:
    NOT_NOW = -3                # of StreamStore.load
    MESSAGES_PER_PUMP = 1024
    BYTES_PER_PUMP = 262144
    HEADER_ROOM = 512           # bytes for names, sequence and line ends of one Nats-Stream-Source
    STATUS_LINE_SIZE = 10       # bytes of NATS/1.0 and its line end


cdef class Copier(StreamConsumer):
    """The copier of one mirror or source: it reads messages from `origin` and stores them in `target`."""

    def __init__(self, owner, Stream target, str name, tuple filters, list transforms, bint mirrors):
        self.owner = owner
        self.target = target
        self.name = name
        self.filters = filters
        self.transforms = [each for each in transforms if each is not None]
        self.renames = len(self.transforms) > 0
        self.mirrors = mirrors
        self.backlog = Backlog()
        self.describe(b"", b"")

    def __dealloc__(self):
        free(self.scratch)

    def __str__(self) -> str:
        return f"copier '{self.target.account.name} > {self.target.name} < {self.name}'"

    @property
    def account(self):
        """The account of the target."""
        return self.target.account

    def describe(self, bytes head, bytes tail) -> None:
        """Set the text of Nats-Stream-Source: `head` before the sequence, `tail` between it and the subject."""
        self.head = self.head_text = head
        self.tail = self.tail_text = tail
        self.head_len = len(head)
        self.tail_len = len(tail)

    def attach(self, Stream origin not None, uint64_t position, bytes ident, uint64_t copied_from=0) -> None:
        """Begin to copy the messages after `position` from `origin`, whose identity is `ident`.

        `copied_from` is the first sequence that was copied earlier (0: unknown); the origin may remove the messages
        from there to `position`.
        """
        self.origin = origin
        self.wanted = origin.store.make_filter(self.filters)
        self.ident = self.ident_text = ident
        self.ident_len = len(ident)
        self.start_at(position)
        self.at = position + 1
        self.error = None
        self.blocked = False
        self.current = False
        origin.add_follower(self)
        self.target.mark_dirty()
        if copied_from:
            origin.release(copied_from, position, self.wanted)

    cdef void start_at(self, uint64_t position) noexcept:
        """Set all positions to `position`; ignore running syncs, since the position may be in another origin."""
        self.copied = self.written = self.kept = position
        self.noted = 0
        self.generation += 1
        self.backlog.forget()

    def detach(self) -> None:
        """Stop copying; called when the origin or the target is closed."""
        if self.feed is not None:
            self.feed.close()
        if self.origin is not None:
            self.origin.remove_follower(self)
            self.origin = None
            self.generation += 1
        self.blocked = False

    cpdef bint needs(self, uint64_t seq) noexcept:
        """Return whether a message of the origin has no safe copy yet; the filters must match the message."""
        return seq > self.kept

    cpdef void wake(self, uint64_t seq) noexcept:
        """Queue the copier to read new messages of the origin in this turn, or in the next one."""
        if not self.queued:
            self.queued = True
            self.target.turn.consumers.append(self)

    @property
    def proposed(self) -> tuple:
        """The arguments of `applied` for the copies made so far.

        After this property is read, the owner is notified of the next copy.
        """
        self.noted = 0
        return self.generation, self.copied

    def applied(self, uint64_t generation, uint64_t seq) -> None:
        """Record that the proposed copies of a generation up to `seq` are stored on a majority of the replicas."""
        if generation == self.generation and seq > self.written:
            self.written = seq
            self.durable(generation, seq, None)

    def drop(self) -> None:
        """Stop copying until the position is set again, since proposed copies may be lost."""
        self.generation += 1
        self.noted, self.blocked = 0, True
        self.wake(0)

    def committed(self) -> bool:
        """Handle a commit of the target; return whether it had a message of this copier."""
        self.noted = 0
        if self.copied == self.written:
            return False
        self.written = self.copied
        if self.target.sync_always:
            self.target.when_durable(partial(self.durable, self.generation, self.written))
        else:
            self.durable(self.generation, self.written, None)
        return True

    def durable(self, uint64_t generation, uint64_t seq, error) -> None:
        """Handle the end of a sync. Unless `error` is set, copies up to `seq` are durable.

        The origin may then remove the messages up to `seq`.
        """
        cdef uint64_t before = self.kept
        if error is not None or generation != self.generation or seq <= before:
            return
        self.kept = seq
        if self.feed is not None:
            self.wake(0)
        elif self.origin is not None:
            self.origin.release(before + 1, seq, self.wanted)

    def lost(self, uint64_t taken) -> None:
        """Return to the last written position after a failed commit.

        For a source, `taken` is the last sequence whose copy was written.
        """
        if taken > self.written:
            self.copied = taken
            self.committed()
        if self.mirrors:
            self.target.store.catalogue.take_back(self.written)
            self.target.aging.passed_seq = 0
        self.copied = self.written
        self.at = self.written + 1
        self.backlog.forget()
        self.noted, self.blocked = 0, True

    def lag(self) -> int:
        """Return the lag behind the origin in messages, counted as by nats-server.

        May take long, unless `count_some` has just returned True.
        """
        if self.feed is not None:
            return self.feed.lag()
        if self.origin is None or self.active_ns == 0:
            return 0
        while not self.count_some():
            pass
        return max(0, <int64_t> self.backlog.msgs - (2 if self.blocked else 1))

    def count_some(self) -> bool:
        """Count, for about a millisecond, the messages that are not copied yet; return whether `lag` is known."""
        if self.feed is not None or self.origin is None or self.active_ns == 0:
            return True
        return self.backlog.count_some(self.origin.store.catalogue, self.at, self.wanted, self.target.turn.now)

    def pump(self) -> None:
        """Copy messages up to the budget; if some are left, queue the copier for the next turn."""
        cdef int more
        self.queued = False
        if self.target.closed:
            return
        if self.feed is not None:
            self.target.interest.tell_drops()
            self.feed.pump()
            return
        if self.origin is None and not self.owner.find_origin(self):
            return
        self.active_ns = self.target.turn.now
        if self.target.turn.copies_left <= 0 or self.origin.store.changing or self.target.limits.features & HOLDS:
            self.queued = True
            self.target.turn.held.append(self)
            return
        more = self.copy_some()
        if self.blocked:
            self.current = False
            self.owner.was_blocked(self)
        elif more:
            self.wake(0)
        else:
            self.inbox.caught_up(self)
            if not self.current:
                self.current = True
                self.owner.is_current(self)

    # -- messages ------------------------------------------------------------------------------------------

    cdef int copy_some(self) except -1:
        """Copy up to the budget of one pump; return whether more messages can be copied at once."""
        cdef StreamStore store = self.origin.store
        cdef uint64_t limit = self.origin.kept_seq, seq, rest = 0
        cdef size_t size = 0
        cdef int taken = 0, result
        cdef Record r
        self.blocked = False
        with nogil:
            while taken < MESSAGES_PER_PUMP and size < BYTES_PER_PUMP:
                seq = store.catalogue.next_some(self.at, self.wanted, &rest)
                if rest:
                    self.at = rest
                    break
                if seq == 0 or seq > limit:
                    self.at = max(self.at, limit + 1)
                    break
                result = store.load(seq, &r)
                if result == -3:                # out of file descriptors: try again instead of skipping the message
                    self.blocked = True
                    break
                if result != 0:                 # the message is damaged, which the store has reported
                    self.at = seq + 1
                    self.backlog.pass_by(seq)
                    continue
                result = self.copy(&r)
                if result == REFUSED:
                    self.blocked = True
                    break
                if result == STORED:
                    self.stored = seq
                self.copied = seq
                self.at = seq + 1
                self.backlog.pass_by(seq)
                taken += 1
                size += r.size + r.subject_len
        if taken:
            self.target.mark_dirty()
            self.target.interest.tell_drops()       # before a consumer counts its num_pending
            self.owner.has_copied(self)
            self.target.turn.copies_left -= 1
        return not self.blocked and (rest != 0 or taken >= MESSAGES_PER_PUMP or size >= BYTES_PER_PUMP)

    cdef int copy(self, Record* r) noexcept nogil:
        cdef Msg m
        cdef int result
        compose(&m, r.subject, r.subject_len, r.body, r.header_len, r.size)
        self.seq, self.ts = r.seq, r.ts
        if not self.mirrors:
            return self.source(&m, r)
        if self.target.replica is not None:
            return self.mirror(&m, r)
        self.target.stamp = r.ts
        result = self.mirror(&m, r)
        self.target.stamp = 0
        return result

    cdef int mirror(self, Msg* m, Record* r) noexcept nogil:
        cdef size_t n
        if r.seq <= self.target.store.catalogue.last_seq:
            return SKIPPED
        if self.target.replica is None:
            if self.target.limits.features & (DISCARD_NEW | DISCARD_NEW_PER_SUBJECT) \
                    and self.target.limits_refused(m, False):
                # before the gap is applied: the message may no longer exist when there is space again
                return REFUSED
            if self.target.store.skip_to(r.seq - 1) != 0:
                return REFUSED
        if r.header_len:
            if self.reserve(r.size + 2) != 0:
                return REFUSED
            n = copy_headers(self.scratch, r.body, r.header_len, False)
            if n == STATUS_LINE_SIZE:
                n = 0
            else:
                memcpy(self.scratch + n, b"\r\n", 2)
                n += 2
            if n != r.header_len:
                memcpy(self.scratch + n, r.body + r.header_len, r.size - r.header_len)
                m.body = self.scratch
                m.size = <uint32_t> (n + r.size - r.header_len)
                m.header_len = <uint32_t> n
        return self.take(m)

    cdef int source(self, Msg* m, Record* r) noexcept nogil:
        """Store a message with a header that names its origin."""
        cdef size_t n, fixed = self.head_len + self.tail_len + self.ident_len
        # The subject is copied: if target and origin are the same stream, storing moves the memory that `m` points
        # to.
        if self.reserve(r.size + 2 * r.subject_len + fixed + HEADER_ROOM) != 0:
            return REFUSED
        if r.header_len:
            n = copy_headers(self.scratch, r.body, r.header_len, True)
        else:
            memcpy(self.scratch, b"NATS/1.0\r\n", STATUS_LINE_SIZE)
            n = STATUS_LINE_SIZE
        n = put(self.scratch, n, b"Nats-Stream-Source: ", 20)
        n = put(self.scratch, n, self.head_text, self.head_len)
        n = put_number(self.scratch, n, r.seq)
        n = put(self.scratch, n, self.tail_text, self.tail_len)
        n = put(self.scratch, n, r.subject, r.subject_len)
        n = put(self.scratch, n, self.ident_text, self.ident_len)
        n = put(self.scratch, n, b"\r\n\r\n", 4)
        m.header_len = <uint32_t> n
        n = put(self.scratch, n, r.body + r.header_len, r.size - r.header_len)
        m.body = self.scratch
        m.size = <uint32_t> n
        put(self.scratch, n, r.subject, r.subject_len)
        m.subject = self.scratch + n
        return self.take(m)

    cdef int take(self, Msg* m) noexcept nogil:
        """Store a copy in the target, under its transformed subject if there is a transform; return the result."""
        if (self.renames or self.target.transform is not None) and not m.aliased:
            with gil:
                return self.take_renamed(m)
        if self.target.replica is not None:
            return self.propose(m)
        return keep_copy(self.target, m, self.mirrors, False)

    cdef int propose(self, Msg* m) noexcept nogil:
        """Propose a copy to the replicas of the target; return STORED or REFUSED."""
        if self.target.limits.features & SEALED or self.target.size_refused(m):
            return REFUSED
        if self.target.limits.features & COUNTS and not self.mirrors:
            with gil:
                if not is_countable(self.target, m):
                    return REFUSED
        if not (<Replica> self.target.replica).collect_copy(m, self.mirrors, self.seq, self.ts):
            return REFUSED
        return STORED

    cdef int take_renamed(self, Msg* m) noexcept:
        """Store a message under its transformed subject."""
        cdef bytes subject = self.renamed(m.subject, m.subject_len)
        m.subject = subject
        m.subject_len = <uint32_t> len(subject)
        m.aliased = True
        return self.take(m)

    cdef bytes renamed(self, const char* subject, uint32_t n):
        cdef bytes out = subject[:n]
        for transform in self.transforms:
            made = transform.apply(out)
            if made is not None:
                out = made
                break
        if self.target.transform is not None:
            made = self.target.transform.apply(out)
            out = out if made is None else made
        return out

    cdef int reserve(self, size_t n) noexcept nogil:
        return grow(<void**> &self.scratch, &self.scratch_room, n, 1)


cdef inline size_t put(char* to, size_t at, const char* what, size_t n) noexcept nogil:
    memcpy(to + at, what, n)
    return at + n


cdef inline size_t put_number(char* to, size_t at, uint64_t number) noexcept nogil:
    cdef char[20] digits
    cdef int i = 20
    while True:
        i -= 1
        digits[i] = <char> (c'0' + number % 10)
        number //= 10
        if number == 0:
            return put(to, at, &digits[i], 20 - i)


cdef size_t copy_headers(char* to, const char* h, size_t n, bint source) noexcept nogil:
    """Copy a header block without its end and without the headers that are dropped; return the size of the copy."""
    cdef const char* end = h + n - 2            # the empty line
    cdef const char* line = h
    cdef const char* following
    cdef size_t at = 0
    while line < end:
        following = <const char*> memchr(line, c'\n', end - line)
        following = end if following == NULL else following + 1
        if line == h or not is_dropped(line, following - line, source):
            at = put(to, at, line, following - line)
        line = following
    return at


cdef inline bint is_dropped(const char* line, size_t n, bint source) noexcept nogil:
    if n < 11 or memcmp(line, b"Nats-", 5) != 0:
        return False
    if memcmp(line, b"Nats-Batch-", 11) == 0 or (n > 14 and memcmp(line, b"Nats-Expected-", 14) == 0):
        return True
    return source and n > 19 and memcmp(line, b"Nats-Stream-Source:", 19) == 0


cdef class SourceSearch:
    """A search in steps for the newest message that a stream has from each of several sources.

    The search goes backwards from the last message of the stream. A source is named as in Nats-Stream-Source, without
    sequence, subject and identity.
    """

    cdef StreamStore store
    cdef uint64_t seq, above
    cdef readonly set wanted
    cdef readonly dict found        # name -> (sequence, identity of the origin)

    def __init__(self, StreamStore store not None, uint64_t above, set wanted not None):
        """Search for `wanted` in messages with a sequence above `above`."""
        self.store, self.above, self.wanted, self.found = store, above, wanted, {}
        if store.catalogue.msgs:
            self.seq = index_prev_live(&store.catalogue.index, store.catalogue.last_seq)

    def go_on(self, int64_t most) -> bool:
        """Examine up to `most` messages; return whether there are more to examine.

        Raises:
            NotNow: the next message cannot be read for the moment; the next call tries again.
        """
        while most > 0 and self.seq > self.above and len(self.found) < len(self.wanted):
            self.examine()
            self.pass_by()
            most -= 1
        return self.seq > self.above and len(self.found) < len(self.wanted)

    cdef void pass_by(self) noexcept:
        """Continue with the message before the one at `seq`."""
        self.seq = index_prev_live(&self.store.catalogue.index, self.seq - 1) if self.seq > 1 else 0

    cdef int examine(self) except -1:
        """Record the source of the message at `seq`, if the source is wanted and was not found before.

        Raises:
            NotNow: the message cannot be read for the moment.
        """
        cdef Record r
        cdef Entry* e = index_live(&self.store.catalogue.index, self.seq)
        cdef int failed
        if e == NULL or e.header_len <= 30:
            return 0
        failed = self.store.load(self.seq, &r)
        if failed == NOT_NOW:
            raise NotNow(f"message {self.seq} cannot be read at present")
        if failed != 0 or memmem(r.body, r.header_len, b"\nNats-Stream-Source: ", 21) == NULL:
            return 0
        headers = r.body[:r.header_len]
        fields = headers.partition(b"\r\nNats-Stream-Source: ")[2].partition(b"\r\n")[0].split(b" ")
        if len(fields) >= 4 and fields[1].isdigit():     # a client may have written the header
            key = b"%b %b %b" % (fields[0], fields[2], fields[3])
            if key in self.wanted and key not in self.found:
                self.found[key] = (int(fields[1]), fields[5] if len(fields) > 5 else b"")
        return 0


def last_sources(StreamStore store not None, uint64_t above, set wanted not None) -> dict:
    """Run a SourceSearch in one step, and return its `found`; messages that cannot be read now are skipped."""
    cdef SourceSearch search = SourceSearch(store, above, wanted)
    while True:
        try:
            search.go_on(<int64_t> store.catalogue.msgs + 1)
            return search.found
        except NotNow:
            search.pass_by()
