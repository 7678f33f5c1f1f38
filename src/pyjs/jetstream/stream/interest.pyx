"""The consumers of a stream by subject: which to wake, which need a message, and which to inform of a removal.

Every consumer is subscribed to its filters in a list of subscriptions that the stream owns, so the work for a message
depends only on the consumers with matching filters. This module knows nothing of the work of consumers and streams.

Compiled, because it is called for every message (measured in benchmarks/: scaling, consumers).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pyjs.jetstream.stream.stream_consumer cimport StreamConsumer, StreamInbox
from pyjs.store.index.sequences cimport index_next_live
from pyjs.store.store cimport StreamStore
from pyjs.subjects.routes cimport Route, RouteCache
from pyjs.subjects.sublist cimport Sublist, Subscription

from pyjs.store.index.filter import is_wildcard
from pyjs.subjects.tokens import is_subset

cdef enum:
    FEW = 4  # up to this many waiting consumers are woken without comparing messages with their filters


cdef class Interest:
    """The consumers of one stream, by subject."""

    def __cinit__(self, StreamStore store, StreamInbox inbox not None, RouteCache routes=None):
        self.store = store
        self.inbox = inbox
        self.subs = Sublist(routes)
        self.subs_by_name = {}
        self.woken_seq = store.catalogue.last_seq

    def add(self, StreamConsumer consumer) -> None:
        """Subscribe `consumer` to its filters."""
        subs = [Subscription(consumer, subject) for subject in consumer.filters or (b">",)]
        self.subs_by_name[consumer.name] = subs
        for sub in subs:
            self.subs.insert(sub)

    def remove(self, StreamConsumer consumer) -> None:
        """Remove the subscriptions of `consumer`."""
        for sub in self.subs_by_name.pop(consumer.name):
            self.subs.remove(sub)

    def change(self, StreamConsumer consumer) -> None:
        """Replace the subscriptions after a change of the filters."""
        self.remove(consumer)
        self.add(consumer)

    def concerned(self, list filters) -> dict:
        """Return the consumers whose filters may overlap with one of `filters`; b"" stands for all subjects.

        The values are sequences: a consumer needs no message below. If a filter covers all subjects of a consumer,
        this is the first message that the purge left; otherwise it is the first message of the stream.
        """
        subjects = dict.fromkeys(filters)
        patterns = [each for each in subjects if each and is_wildcard(each)]
        if patterns or b"" in subjects:
            consumers = [subs[0].sink for subs in self.subs_by_name.values()]
        else:
            consumers = self.matching(subjects)
        first_seqs = dict.fromkeys(consumers, self.store.catalogue.first_seq)
        left, covering = {}, {}
        for consumer in first_seqs:
            wanted = consumer.filters or (b">",)
            if wanted not in covering:          # most consumers share their filters with others
                covering[wanted] = self.covering(wanted, subjects, patterns)
            for subject in covering[wanted]:
                if subject not in left:
                    left[subject] = self.first_left(subject)
                first_seqs[consumer] = max(first_seqs[consumer], left[subject])
        return first_seqs

    cdef list matching(self, dict subjects):
        """Return the consumers with a filter that matches one of `subjects`, which have no wildcards."""
        cdef list found = []
        cdef bytes subject
        cdef StreamConsumer consumer
        cdef Route* r
        cdef uint32_t i
        self.lookups += 1
        for subject in subjects:
            if len(found) == len(self.subs_by_name):
                break
            r = self.subs.find(subject, len(subject))
            for i in range(r.n):
                consumer = <StreamConsumer> r.targets[i].sink
                if consumer.found_by != self.lookups:
                    consumer.found_by = self.lookups
                    found.append(consumer)
        return found

    def covering(self, tuple filters, dict subjects, list patterns) -> list:
        """Return those of the purged `subjects` that match everything that the filters match.

        `patterns` has the `subjects` with wildcards. A subject without wildcards covers only the same filter.
        """
        found = [each for each in patterns if is_subset(filters[0], each)]
        if len(filters) == 1:
            return [*found, filters[0]] if filters[0] in subjects else found
        return [each for each in found if all([is_subset(inner, each) for inner in filters])]

    def first_left(self, bytes subject) -> int:
        """Return a sequence above 0 below which no stored message matches `subject`, after a short search."""
        cdef uint64_t rest = 0, found
        if is_wildcard(subject):
            found = self.store.catalogue.next_some(0, self.store.make_filter((subject,)), &rest)
        else:
            found = self.store.catalogue.first_seq_of(subject, len(subject))
        return found or rest or self.store.catalogue.last_seq + 1

    cdef bint wanted(self, const char* subject, size_t n) noexcept nogil:
        return self.subs.find(subject, n).n > 0

    cdef bint wants(self, uint64_t seq) noexcept nogil:
        cdef uint32_t n = 0
        cdef const char* subject = self.store.catalogue.subject_at(seq, &n)
        if subject == NULL or not self.wanted(subject, n):
            return False
        with gil:
            return begins_before(self.subs.find(subject, n), seq, self.store.catalogue.time_of(seq))

    cdef bint needed(self, uint64_t seq) noexcept:
        cdef uint32_t i, n = 0
        cdef const char* subject = self.store.catalogue.subject_at(seq, &n)
        cdef Route* r
        if subject == NULL:
            return False
        cdef bint needs = False
        r = self.subs.find(subject, n)
        r.busy += 1
        for i in range(r.n):
            if (<StreamConsumer> r.targets[i].sink).needs(seq):
                needs = True
                break
        r.busy -= 1
        return needs

    cdef int tell(self, list purges) except -1:
        """Report purges and removals to consumers, and wake consumers for new messages.

        `purges` has the filters of the purges (b"": all messages), and is cleared.
        """
        if purges:
            concerned = self.concerned(purges)
            purges.clear()
            for consumer, first_seq in concerned.items():
                consumer.on_purge(first_seq)
        self.tell_drops()
        self.wake(self.store.catalogue.last_seq)
        return 0

    cdef void tell_drops(self) noexcept:
        """Report the removals since the last call to the consumers whose filters match."""
        cdef StreamStore store = self.store
        cdef size_t at = 0
        cdef uint64_t seq = 0
        cdef uint32_t i, n = 0
        cdef Route* r
        cdef StreamConsumer consumer
        while at < store.catalogue.drops.size:
            memcpy(&seq, store.catalogue.drops.data + at, 8)
            memcpy(&n, store.catalogue.drops.data + at + 8, 4)
            r = self.subs.find(store.catalogue.drops.data + at + 12, n)
            store.catalogue.drops.at = at
            r.busy += 1
            for i in range(r.n):
                consumer = <StreamConsumer> r.targets[i].sink
                if consumer.told_seq != seq:
                    consumer.told_seq = seq
                    consumer.dropped(seq)
            r.busy -= 1
            at += 12 + n
        store.catalogue.drops.empty()

    cdef void wake(self, uint64_t last_seq) noexcept:
        """Wake the waiting consumers whose filters match a message stored since the last call.

        If at most FEW consumers wait, all of them are woken.
        """
        cdef uint64_t seq = self.woken_seq
        cdef uint32_t n = 0
        cdef const char* subject
        cdef const char* before = NULL
        if last_seq <= seq:
            return
        self.woken_seq = last_seq
        if len(self.inbox.waiting) <= FEW:
            self.wake_all()
        while self.inbox.waiting:
            seq = index_next_live(&self.store.catalogue.index, seq + 1)
            if seq == 0 or seq > last_seq:
                break
            subject = self.store.catalogue.subject_at(seq, &n)
            if subject != before:           # one lookup for successive messages with the same subject
                before = subject
                self.wake_route(self.subs.find(subject, n), seq)

    cdef void wake_route(self, Route* r, uint64_t seq) noexcept:
        cdef StreamConsumer consumer
        cdef uint32_t i
        r.busy += 1
        for i in range(r.n):
            consumer = <StreamConsumer> r.targets[i].sink
            if self.inbox.waiting.pop(consumer, self) is None:
                consumer.wake(seq)
        r.busy -= 1

    cdef void wake_all(self) noexcept:
        waiting, self.inbox.waiting = self.inbox.waiting, {}
        for consumer in waiting:
            (<StreamConsumer> consumer).wake(0)


cdef bint begins_before(Route* r, uint64_t seq, int64_t ts) noexcept:
    """Return whether any consumer of a route may begin at the message (`seq`, `ts`) or before it."""
    cdef uint32_t i
    for i in range(r.n):
        config = (<StreamConsumer> r.targets[i].sink).config
        if config is None or (config.opt_start_seq <= seq and (config.opt_start_time_ns or 0) <= ts):
            return True
    return False
