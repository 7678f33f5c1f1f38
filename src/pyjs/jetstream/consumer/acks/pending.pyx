"""Deliveries that wait for an acknowledgement; they are found by sequence and redelivered by deadline.

This module knows nothing of streams, subjects or sockets: it sees sequences and times.

There is one entry per stream_seq. The entries are in a slab, and a hash table finds them. Every entry is in two
linked lists. One list has all entries by sequence; first deliveries are in that order, so a new entry is the newest.
The other is the list for the state of the entry. There is one list of waiting entries per step of `backoff`. All
entries of such a list have equal waits, and time never decreases, so the list is ordered by deadline without a heap.
An ack takes constant time, and the next deadline is the earliest of the list heads. Entries with an individual
deadline (nak with delay) are in a binary heap instead, since they come in any order.

Invariants: seq ascends from `oldest` to `newest`; count == 0 exactly if oldest == 0.

Long because deliveries, their deadlines, and the tables that find them change the same state.
Compiled, because it runs for every delivery and every ack (measured in benchmarks/: pull with explicit acks).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort

from pyjs.base.fast cimport write_digits
from pyjs.base.grow cimport grow, grow_to

cdef enum:
    FIRST_CAPACITY = 64
    FIRST_BUCKETS_LOG = 7
    ENTRY_TEXT_MAX = 128        # characters of an entry in JSON: six numbers and separators
    EXPIRED_MAX = 16384         # maximum number of due entries handled by one call; more would delay the turn
    FEW_PART = 4  # the table is rebuilt if at least 1 / FEW_PART as many entries are removed at once as remain
    ROOMY_PART = 16             # the slab is shrunk if at most 1 / ROOMY_PART of it is used
    MANY = 4096                 # entries: smaller slabs are not shrunk, and fewer removals do not rebuild the table

cdef struct SortKey:
    int64_t key
    uint32_t index

cdef char* put_unsigned(char* out, char before, uint64_t value) noexcept nogil:
    out[0] = before
    return out + 1 + write_digits(out + 1, value)

cdef char* put_signed(char* out, char before, int64_t value) noexcept nogil:
    if value >= 0:
        return put_unsigned(out, before, <uint64_t> value)
    out[0] = before
    return put_unsigned(out + 1, c'-', 0 - <uint64_t> value)

cdef int by_key(const void* a, const void* b) noexcept nogil:
    cdef int64_t x = (<const SortKey*> a).key
    cdef int64_t y = (<const SortKey*> b).key
    return (x > y) - (x < y)


cdef class PendingAcks:
    """The unacknowledged deliveries of one consumer."""

    def __cinit__(self, waits_ns=(0,)):
        self.capacity = FIRST_CAPACITY
        self.used = 1
        self.entries = <Entry*> malloc(FIRST_CAPACITY * sizeof(Entry))
        self.bucket_shift = 64 - FIRST_BUCKETS_LOG
        self.bucket_mask = (1 << FIRST_BUCKETS_LOG) - 1
        self.buckets = <uint32_t*> calloc(1 << FIRST_BUCKETS_LOG, sizeof(uint32_t))
        self.heap = <uint32_t*> malloc(FIRST_CAPACITY * sizeof(uint32_t))
        if self.entries == NULL or self.buckets == NULL or self.heap == NULL:
            raise MemoryError
        self.set_waits(waits_ns)

    def __dealloc__(self):
        free(self.entries)
        free(self.buckets)
        free(self.heap)
        free(self.lists)
        free(self.waits)

    def set_waits(self, waits_ns) -> None:
        """Set the ack wait after the n-th delivery of a message to the n-th item of `waits_ns`, which is not empty.

        Later deliveries have the last ack wait. The deadlines of waiting entries are recomputed.
        """
        cdef uint32_t n = <uint32_t> len(waits_ns), i
        cdef Ends* lists = <Ends*> calloc(IN_WAIT + n, sizeof(Ends))
        cdef int64_t* waits = <int64_t*> malloc(n * sizeof(int64_t))
        if n == 0 or lists == NULL or waits == NULL:
            free(lists)
            free(waits)
            raise MemoryError
        for i in range(n):
            waits[i] = waits_ns[i]
        if self.lists != NULL:
            for i in range(IN_WAIT):
                lists[i] = self.lists[i]
        free(self.waits)
        free(self.lists)
        self.waits = waits
        self.lists = lists
        self.n_waits = n
        self.reorder()

    cdef int reorder(self) except -1:
        """Recompute the deadlines of all waiting entries, and add the entries, by deadline, to the waiting lists.

        The waiting lists must be empty.
        """
        cdef SortKey* keys = <SortKey*> malloc((self.count + 1) * sizeof(SortKey))
        cdef uint32_t n = 0, i = self.oldest, k
        cdef Entry* e
        if keys == NULL:
            raise MemoryError
        while i:
            e = &self.entries[i]
            if e.where >= IN_WAIT:
                e.due_at = e.sent_at + self.waits[min(e.count, self.n_waits) - 1]
                keys[n].key = e.due_at
                keys[n].index = i
                n += 1
            i = e.newer
        qsort(keys, n, sizeof(SortKey), by_key)
        for k in range(n):
            self.link(keys[k].index, IN_WAIT + min(self.entries[keys[k].index].count, self.n_waits) - 1)
        free(keys)
        return 0

    # -- the table of sequences ------------------------------------------------------------------------------------

    cdef uint64_t bucket_of(self, uint64_t seq) noexcept nogil:
        return (seq * <uint64_t> 0x9E3779B97F4A7C15) >> self.bucket_shift

    cdef uint32_t find(self, uint64_t seq) noexcept nogil:
        cdef uint64_t at = self.bucket_of(seq)
        while self.buckets[at]:
            if self.entries[self.buckets[at]].seq == seq:
                return self.buckets[at]
            at = (at + 1) & self.bucket_mask
        return 0

    cdef uint32_t allocate(self) noexcept nogil:
        cdef uint32_t i = self.free
        if i:
            self.free = self.entries[i].after
            return i
        self.used += 1
        return self.used - 1

    cdef int make_room(self) noexcept nogil:
        cdef size_t room = <size_t> self.capacity * 2
        if (grow_to(<void**> &self.entries, &room, room, sizeof(Entry)) < 0
                or grow_to(<void**> &self.heap, &room, room, sizeof(uint32_t)) < 0):
            return -1
        self.capacity = <uint32_t> room
        return 0

    cdef int rehash(self, int size_log) noexcept nogil:
        """Rebuild the table with 2 ** size_log buckets; return -1 if out of memory."""
        cdef uint32_t* buckets = <uint32_t*> calloc(<size_t> 1 << size_log, sizeof(uint32_t))
        if buckets == NULL:
            return -1
        self.take_table(buckets, size_log)
        return 0

    cdef void take_table(self, uint32_t* buckets, int size_log) noexcept nogil:
        """Replace the table with `buckets`, which are empty, and insert all entries."""
        cdef uint32_t i = self.oldest
        cdef uint64_t at
        free(self.buckets)
        self.buckets = buckets
        self.bucket_mask = (<uint64_t> 1 << size_log) - 1
        self.bucket_shift = 64 - size_log
        while i:
            at = self.bucket_of(self.entries[i].seq)
            while buckets[at]:
                at = (at + 1) & self.bucket_mask
            buckets[at] = i
            i = self.entries[i].newer

    # -- lists -----------------------------------------------------------------------------------------------------

    cdef void link(self, uint32_t i, uint32_t where) noexcept nogil:
        cdef Ends* ends = &self.lists[where]
        cdef Entry* e = &self.entries[i]
        e.where = where
        self.n_queued += where == IN_REDELIVER
        e.before = ends.tail
        e.after = 0
        if ends.tail:
            self.entries[ends.tail].after = i
        else:
            ends.head = i
        ends.tail = i

    cdef void unlink(self, uint32_t i) noexcept nogil:
        cdef Entry* e = &self.entries[i]
        cdef Ends* ends = &self.lists[e.where]
        if e.where == IN_NONE:
            return
        if e.where == IN_DELAYED:
            self.leave_heap(i)
            e.where = IN_NONE
            return
        if e.before:
            self.entries[e.before].after = e.after
        else:
            ends.head = e.after
        if e.after:
            self.entries[e.after].before = e.before
        else:
            ends.tail = e.before
        self.n_queued -= e.where == IN_REDELIVER
        e.where = IN_NONE

    cdef void place(self, uint32_t i, uint32_t at) noexcept nogil:
        """Put entry `i` in position `at` of the heap."""
        self.heap[at] = i
        self.entries[i].before = at
        self.heap_steps += 1

    cdef void rise(self, uint32_t i, uint32_t at) noexcept nogil:
        """Move entry `i` from the free position `at` towards the root, past entries that are due later."""
        cdef uint32_t parent
        while at:
            parent = self.heap[(at - 1) // 2]
            if self.entries[parent].due_at <= self.entries[i].due_at:
                break
            self.place(parent, at)
            at = (at - 1) // 2
        self.place(i, at)

    cdef void sink(self, uint32_t i, uint32_t at) noexcept nogil:
        """Move entry `i` from the free position `at` towards the leaves, past entries that are due earlier."""
        cdef uint32_t child = 2 * at + 1
        while child < self.n_heap:
            if child + 1 < self.n_heap and (
                    self.entries[self.heap[child + 1]].due_at < self.entries[self.heap[child]].due_at):
                child += 1
            if self.entries[self.heap[child]].due_at >= self.entries[i].due_at:
                break
            self.place(self.heap[child], at)
            at = child
            child = 2 * at + 1
        self.place(i, at)

    cdef void leave_heap(self, uint32_t i) noexcept nogil:
        """Remove entry `i` from the heap; the last entry takes its position."""
        cdef uint32_t at = self.entries[i].before, last
        self.n_heap -= 1
        last = self.heap[self.n_heap]
        if last == i:
            return
        if self.entries[last].due_at < self.entries[i].due_at:
            self.rise(last, at)
        else:
            self.sink(last, at)

    cdef void await_ack(self, uint32_t i) noexcept nogil:
        cdef Entry* e = &self.entries[i]
        cdef uint32_t step = (e.count if e.count < self.n_waits else self.n_waits) - 1
        e.due_at = e.sent_at + self.waits[step]
        self.link(i, IN_WAIT + step)

    # -- deliveries and acks ---------------------------------------------------------------------------------------

    cdef int reserve(self) noexcept nogil:
        if (<uint64_t> self.count + 1) * 2 > self.bucket_mask and self.rehash(65 - self.bucket_shift) < 0:
            return -1
        if self.free == 0 and self.used == self.capacity:
            return self.make_room()
        return 0

    cpdef uint32_t track(self, uint64_t seq, uint64_t cseq, int64_t now) noexcept nogil:
        """Add the first delivery of `seq`, which must be the highest sequence so far.

        Return the index of its entry, or 0 if out of memory.
        """
        cdef uint32_t i
        cdef uint64_t at
        cdef Entry* e
        if self.reserve() < 0:
            return 0
        i = self.allocate()
        e = &self.entries[i]
        e.seq = seq
        e.cseq = cseq
        e.sent_at = now
        e.count = 1
        e.newer = 0
        e.older = self.newest
        if self.newest:
            self.entries[self.newest].newer = i
        else:
            self.oldest = i
        self.newest = i
        at = self.bucket_of(seq)
        while self.buckets[at]:
            at = (at + 1) & self.bucket_mask
        self.buckets[at] = i
        self.count += 1
        self.await_ack(i)
        return i

    cdef void sent_again(self, uint32_t i, int64_t now) noexcept nogil:
        cdef Entry* e = &self.entries[i]
        self.unlink(i)
        if e.count == 1:
            self.redelivered += 1
        e.count += 1
        e.sent_at = now
        self.await_ack(i)

    cdef void remove(self, uint32_t i) noexcept nogil:
        self.leave_table(i)
        self.release(i)

    cdef void release(self, uint32_t i) noexcept nogil:
        """Free entry `i`, which is no longer in the table."""
        cdef Entry* e = &self.entries[i]
        self.unlink(i)
        if e.older:
            self.entries[e.older].newer = e.newer
        else:
            self.oldest = e.newer
        if e.newer:
            self.entries[e.newer].older = e.older
        else:
            self.newest = e.older
        self.count -= 1
        if e.count > 1:
            self.redelivered -= 1
        e.after = self.free
        self.free = i

    cdef void leave_table(self, uint32_t i) noexcept nogil:
        cdef uint64_t at = self.bucket_of(self.entries[i].seq), hole, home
        while self.buckets[at] != i:
            at = (at + 1) & self.bucket_mask
        hole = at
        while True:  # move later entries of the run into the gap, so that no search ends too early
            at = (at + 1) & self.bucket_mask
            if self.buckets[at] == 0:
                break
            home = self.bucket_of(self.entries[self.buckets[at]].seq)
            if ((at - home) & self.bucket_mask) >= ((at - hole) & self.bucket_mask):
                self.buckets[hole] = self.buckets[at]
                hole = at
        self.buckets[hole] = 0

    cpdef void remove_to(self, uint64_t seq) noexcept nogil:
        """Remove all entries up to sequence `seq`. If they are many, rebuild the table from the remaining entries."""
        cdef uint32_t i = self.oldest, n = 0
        cdef uint32_t* buckets = NULL
        while i and self.entries[i].seq <= seq:
            n += 1
            i = self.entries[i].newer
        if n >= MANY and n >= (self.count - n) // FEW_PART:
            buckets = <uint32_t*> calloc(self.bucket_mask + 1, sizeof(uint32_t))
        if buckets == NULL:
            while n:
                self.remove(self.oldest)
                n -= 1
            return
        while n:
            self.release(self.oldest)
            n -= 1
        self.take_table(buckets, 64 - self.bucket_shift)

    cpdef void shrink(self) noexcept nogil:
        """Shrink the slab if few entries remain; this invalidates the indexes of all entries."""
        cdef uint32_t room = FIRST_CAPACITY, n = 0, i = self.oldest, k
        cdef int size_log = FIRST_BUCKETS_LOG
        cdef Entry* entries
        cdef uint32_t* heap
        cdef uint32_t* buckets
        if self.capacity < MANY or self.count > self.capacity // ROOMY_PART:
            return
        while room < self.count * 2 + 1:
            room *= 2
            size_log += 1
        entries = <Entry*> malloc(room * sizeof(Entry))
        heap = <uint32_t*> malloc(room * sizeof(uint32_t))
        buckets = <uint32_t*> calloc(<size_t> 1 << size_log, sizeof(uint32_t))
        if entries == NULL or heap == NULL or buckets == NULL:
            free(entries)
            free(heap)
            free(buckets)
            return
        while i:
            n += 1
            entries[n] = self.entries[i]
            self.entries[i].due_at = n      # the entry's new index
            i = self.entries[i].newer
        for i in range(1, n + 1):
            entries[i].older = i - 1
            entries[i].newer = i + 1 if i < n else 0
            if entries[i].where != IN_DELAYED:
                entries[i].before = self.moved(entries[i].before)
                entries[i].after = self.moved(entries[i].after)
        for k in range(self.n_heap):
            heap[k] = self.moved(self.heap[k])
        for k in range(IN_WAIT + self.n_waits):
            self.lists[k].head, self.lists[k].tail = self.moved(self.lists[k].head), self.moved(self.lists[k].tail)
        self.oldest, self.newest = 1 if n else 0, n
        free(self.entries)
        free(self.heap)
        self.entries, self.heap, self.capacity = entries, heap, room
        self.used, self.free = n + 1, 0
        self.take_table(buckets, size_log)

    cdef uint32_t moved(self, uint32_t i) noexcept nogil:
        """Return the new index of entry `i` after the slab was shrunk."""
        return <uint32_t> self.entries[i].due_at if i else 0

    cdef void progress(self, uint32_t i, int64_t now) noexcept nogil:
        """Restart the ack wait of entry `i` (in progress); an entry queued for redelivery stays queued."""
        self.entries[i].sent_at = now
        if self.entries[i].where >= IN_DELAYED:
            self.unlink(i)
            self.await_ack(i)

    cdef void requeue(self, uint32_t i) noexcept nogil:
        """Queue entry `i` for redelivery, after the entries already queued."""
        if self.entries[i].where == IN_REDELIVER:
            return
        self.unlink(i)
        self.link(i, IN_REDELIVER)

    cdef void delay(self, uint32_t i, int64_t due_at) noexcept nogil:
        """Redeliver entry `i` at `due_at` instead of after its ack wait."""
        self.unlink(i)
        self.entries[i].due_at = due_at
        self.entries[i].where = IN_DELAYED
        self.n_heap += 1
        self.rise(i, self.n_heap - 1)

    # -- deadlines -------------------------------------------------------------------------------------------------

    cdef int64_t deadline(self, uint32_t i) noexcept nogil:
        cdef Entry* e = &self.entries[i]
        return e.sent_at + self.waits[(e.count if e.count < self.n_waits else self.n_waits) - 1]

    cdef int64_t last_deadline(self) noexcept nogil:
        """Return the latest of all deadlines, or 0 if nothing is pending."""
        cdef int64_t latest = 0
        cdef uint32_t i = self.oldest
        while i:
            latest = max(latest, self.deadline(i))
            i = self.entries[i].newer
        return latest

    cpdef int64_t next_due(self) noexcept nogil:
        cdef int64_t best = self.entries[self.heap[0]].due_at if self.n_heap else 0
        cdef uint32_t k, head
        for k in range(<uint32_t> IN_WAIT, IN_WAIT + self.n_waits):
            head = self.lists[k].head
            if head and (best == 0 or self.entries[head].due_at < best):
                best = self.entries[head].due_at
        return best

    cdef uint32_t first_due(self, int64_t now, uint32_t* where) noexcept nogil:
        """Return the index of an entry that is due at `now`, or 0 if there is none.

        The search begins with the list `where`, and sets `where` to the list in which it ends.
        """
        cdef uint32_t i
        if self.n_heap and self.entries[self.heap[0]].due_at <= now:
            return self.heap[0]
        while where[0] < IN_WAIT + self.n_waits:
            i = self.lists[where[0]].head
            if i and self.entries[i].due_at <= now:
                return i
            where[0] += 1
        return 0

    cdef uint32_t expire(self, int64_t now, uint32_t max_deliver) noexcept nogil:
        """Queue entries that are due at `now` for redelivery, in sequence order.

        Entries that were delivered `max_deliver` times go to the list of exhausted entries instead; 0 means no limit.
        Return the number of entries that were moved to either list. One call moves at most EXPIRED_MAX entries, and
        fewer if memory runs out. The next call continues with the remaining due entries.
        """
        cdef uint32_t k, i, n = 0, where = IN_WAIT
        cdef size_t room = 0
        cdef SortKey* keys = NULL
        cdef bint ascending = True
        while n < EXPIRED_MAX:
            i = self.first_due(now, &where)
            if i == 0:
                break
            if grow(<void**> &keys, &room, n + 1, sizeof(SortKey)) < 0:
                break
            self.unlink(i)
            keys[n].key = <int64_t> self.entries[i].seq
            keys[n].index = i
            ascending = ascending and (n == 0 or keys[n - 1].key < keys[n].key)
            n += 1
        if not ascending:
            qsort(keys, n, sizeof(SortKey), by_key)
        for k in range(n):
            i = keys[k].index
            self.link(i, IN_EXHAUSTED if max_deliver and self.entries[i].count >= max_deliver else IN_REDELIVER)
        free(keys)
        return n

    cdef void clear(self) noexcept nogil:
        """Remove all entries."""
        self.remove_to(<uint64_t> -1)

    # -- for recovery, reports and tests ---------------------------------------------------------------------------

    def restore(self, entries) -> None:
        """Add `entries`, which are tuples as `dump` returns them, in the order of their sequences.

        Raises:
            ValueError: an entry is invalid, or its sequence is not higher than that of the previous entry.
        """
        cdef uint32_t i
        for seq, cseq, sent_at, count, where, due_at in entries:
            if count < 1 or where not in (IN_REDELIVER, IN_DELAYED, IN_WAIT) \
                    or (self.count and seq <= self.entries[self.newest].seq):
                raise ValueError(f"delivery {count} of {seq}, in list {where}")
            i = self.track(seq, cseq, sent_at)
            if i == 0:
                raise MemoryError
            self.entries[i].count = count
            if count > 1:
                self.redelivered += 1
            if where == IN_DELAYED:
                self.delay(i, due_at)
            elif where != IN_WAIT:
                self.requeue(i)
        self.reorder_all()

    def reorder_all(self) -> None:
        """Recompute the deadlines of waiting entries, and sort the waiting lists by deadline."""
        cdef uint32_t k
        for k in range(IN_WAIT, IN_WAIT + self.n_waits):
            self.lists[k].head = self.lists[k].tail = 0
        self.reorder()

    def sent_by(self, int64_t now) -> None:
        """After the clock was set back, lower each delivery time above `now` to `now`, and adjust the deadline."""
        cdef uint32_t i = self.oldest
        cdef int64_t ahead
        cdef bint changed = False
        while i:
            ahead = self.entries[i].sent_at - now
            if ahead > 0:
                self.entries[i].sent_at = now
                if self.entries[i].where == IN_DELAYED:
                    self.delay(i, self.entries[i].due_at - ahead)
                changed = True
            i = self.entries[i].newer
        if changed:
            self.reorder_all()

    @property
    def n_delayed(self) -> int:
        """The number of entries that a nak has delayed."""
        return self.n_heap

    def dump(self) -> list:
        """Return (seq, cseq, sent_at, count, where, due_at) of every entry, ascending by seq.

        `where` is 1 if the message is queued for redelivery, 3 if it is delayed until `due_at`, 4 if it waits for an
        ack.
        """
        return self.first(self.count)

    def first(self, uint32_t limit) -> list:
        """Return the first `limit` rows of `dump`."""
        cdef list out = []
        cdef uint32_t i = self.oldest
        cdef Entry* e
        while i and limit:
            limit -= 1
            e = &self.entries[i]
            out.append((e.seq, e.cseq, e.sent_at, e.count, min(e.where, IN_WAIT), e.due_at))
            i = e.newer
        return out

    def dump_json(self) -> bytes:
        """Return the result of `dump` as JSON text, without creating a Python object for each entry."""
        cdef char* text = <char*> malloc((<size_t> self.count + 1) * ENTRY_TEXT_MAX)
        cdef char* out = text
        cdef uint32_t i = self.oldest
        cdef Entry* e
        if text == NULL:
            raise MemoryError
        out[0] = c'['
        out += 1
        while i:
            e = &self.entries[i]
            if e.older:
                out[0] = c','
                out += 1
            out = put_unsigned(out, c'[', e.seq)
            out = put_unsigned(out, c',', e.cseq)
            out = put_signed(out, c',', e.sent_at)
            out = put_unsigned(out, c',', e.count)
            out = put_unsigned(out, c',', e.where if e.where < IN_WAIT else IN_WAIT)
            out = put_signed(out, c',', e.due_at)
            out[0] = c']'
            out += 1
            i = e.newer
        out[0] = c']'
        try:
            return <bytes> text[:out + 1 - text]
        finally:
            free(text)

    def queued(self) -> list:
        """Return the sequences queued for redelivery, next first."""
        cdef list out = []
        cdef uint32_t i = self.lists[<uint32_t> IN_REDELIVER].head
        while i:
            out.append(self.entries[i].seq)
            i = self.entries[i].after
        return out

    def __len__(self) -> int:
        return self.count

    cdef uint64_t newest_seq(self) noexcept nogil:
        return self.entries[self.newest].seq if self.newest else 0

    # The message path for Python tests: each method returns False if `seq` is not pending.

    def deliver_again(self, int64_t now) -> int:
        """Deliver the next entry queued for redelivery; return its sequence, or 0 if none is queued."""
        cdef uint32_t i = self.lists[<uint32_t> IN_REDELIVER].head
        if i == 0:
            return 0
        self.sent_again(i, now)
        return self.entries[i].seq

    def acknowledge(self, uint64_t seq) -> bool:
        """Acknowledge `seq`; return False if it is not pending."""
        cdef uint32_t i = self.find(seq)
        if i:
            self.remove(i)
        return i != 0

    def in_progress(self, uint64_t seq, int64_t now) -> bool:
        """Restart the ack wait of `seq`; return False if it is not pending."""
        cdef uint32_t i = self.find(seq)
        if i:
            self.progress(i, now)
        return i != 0

    def nak(self, uint64_t seq, int64_t due_at=0) -> bool:
        """Queue `seq` for redelivery, at once or at `due_at`; return False if it is not pending."""
        cdef uint32_t i = self.find(seq)
        if i == 0:
            return False
        if due_at:
            self.delay(i, due_at)
        else:
            self.requeue(i)
        return True

    def expire_due(self, int64_t now, uint32_t max_deliver=0) -> list:
        """Queue due entries; remove those delivered `max_deliver` times, and return their sequences."""
        cdef list exhausted = []
        cdef uint32_t i
        self.expire(now, max_deliver)
        while self.lists[<uint32_t> IN_EXHAUSTED].head:
            i = self.lists[<uint32_t> IN_EXHAUSTED].head
            exhausted.append(self.entries[i].seq)
            self.remove(i)
        return exhausted
