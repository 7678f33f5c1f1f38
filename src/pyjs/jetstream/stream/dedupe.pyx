"""The duplicate window: ids of recent messages, each with its sequence.

It has three blocks of memory: a ring of entries in order of arrival, a hash table of entry numbers (open addressing,
linear probing), and the bytes of the ids, one after another. Expired ids are removed at the start of the ring and of
the bytes, and ids of unwritten messages at the end. The bytes are moved when half of them are dead. Times are passed
as arguments, and must not decrease.

This module knows nothing of messages or streams. Compiled: runs for every message with an id (benchmarks/: JetStream
async publish with Nats-Msg-Id). Source: nats.docs "Nats-Msg-Id", duplicate window.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memmove

from pyjs.base.grow cimport grow
from pyjs.base.table cimport table_hash

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void*) nogil

cdef enum:
    FIRST_ENTRIES = 64
    DEAD_MIN = 2048             # bytes of removed ids; if there are fewer, nothing is moved
    PREFETCH_AHEAD = 16         # number of entries
    ENTRIES_MAX = 1 << 30       # a hash of 32 bits can address the slots, which are twice as many as the entries


cdef inline uint32_t id_hash(const char* key, size_t n) noexcept nogil:
    """Return the 32-bit hash of an id; its lowest bits select the slot."""
    return <uint32_t> (table_hash(key, n) >> 7)


cdef class Dedupe:
    """The duplicate window of one stream."""

    def __cinit__(self, int64_t window_ns):
        self.window_ns = window_ns
        self.steps = ClockSteps()

    def __dealloc__(self):
        free(self.ring)
        free(self.slots)
        free(self.keys)

    cdef void set_last_id(self, const char* msg_id, size_t n) noexcept nogil:
        self.last_id_len = <uint32_t> min(n, sizeof(self.last_id))
        if n:
            memcpy(self.last_id, msg_id, self.last_id_len)

    cdef uint64_t seq_of(self, const char* key, size_t n, int64_t now) noexcept nogil:
        cdef uint64_t at
        self.forget_before(self.horizon(now))
        if self.oldest == self.newest:
            return 0
        at = self.find_slot(id_hash(key, n), key, n)
        return self.ring[self.slots[at] - 1].seq if self.slots[at] else 0

    cdef int remember(self, const char* key, size_t n, uint64_t seq, int64_t now) noexcept nogil:
        cdef SeenId* entry
        if self.ring == NULL or self.newest - self.oldest > self.ring_mask:
            if self.grow_ring(self.newest - self.oldest + 1) != 0:
                return -1
        if self.keep_key(key, n) != 0:
            return -1
        entry = &self.ring[self.newest & self.ring_mask]
        entry.hash = id_hash(key, n)
        entry.seq = seq
        entry.at = now
        entry.key_at = self.keys_base + self.keys_used - n
        entry.key_len = <uint32_t> n
        self.put_slot(self.newest)
        self.newest += 1
        return 0

    cdef void release(self, SeenId* entry) noexcept nogil:
        """Remove an entry's slot from the hash table, so that its id is no longer found."""
        if entry.key_len:               # 0: forget_one has removed it
            self.remove_slot(self.find_slot(entry.hash, self.keys + (entry.key_at - self.keys_base), entry.key_len))

    cdef int64_t horizon(self, int64_t now) noexcept nogil:
        return now - self.window_ns if self.steps.count == 0 else self.steps.before(now, self.window_ns)

    cdef void forget_before(self, int64_t horizon) noexcept nogil:
        cdef SeenId* entry
        cdef size_t dead
        while self.oldest != self.newest:
            entry = &self.ring[self.oldest & self.ring_mask]
            if entry.at >= horizon:
                break
            self.release(entry)
            self.oldest += 1
        dead = self.keys_used if self.oldest == self.newest else \
            self.ring[self.oldest & self.ring_mask].key_at - self.keys_base
        if dead > DEAD_MIN and dead * 2 >= self.keys_used:
            memmove(self.keys, self.keys + dead, self.keys_used - dead)
            self.keys_used -= dead
            self.keys_base += dead

    cdef void forget_from(self, uint64_t seq) noexcept nogil:
        cdef SeenId* entry
        while self.oldest != self.newest:
            entry = &self.ring[(self.newest - 1) & self.ring_mask]
            if entry.seq < seq:
                break
            self.release(entry)
            self.keys_used -= entry.key_len
            self.newest -= 1

    cdef uint64_t find_slot(self, uint32_t h, const char* key, size_t n) noexcept nogil:
        """Return the slot of the id, or the free slot in which it belongs."""
        cdef uint64_t at = h & self.slots_mask
        cdef SeenId* entry
        while self.slots[at]:
            entry = &self.ring[self.slots[at] - 1]
            if entry.hash == h and entry.key_len == n \
                    and memcmp(self.keys + (entry.key_at - self.keys_base), key, n) == 0:
                break
            at = (at + 1) & self.slots_mask
        return at

    cdef void remove_slot(self, uint64_t at) noexcept nogil:
        """Free a slot, and move those later entries of its run that would no longer be found."""
        cdef uint64_t hole = at, home
        while True:
            at = (at + 1) & self.slots_mask
            if self.slots[at] == 0:
                break
            home = self.ring[self.slots[at] - 1].hash & self.slots_mask
            if ((at - home) & self.slots_mask) >= ((at - hole) & self.slots_mask):
                self.slots[hole] = self.slots[at]
                hole = at
        self.slots[hole] = 0

    cdef void put_slot(self, uint64_t e) noexcept nogil:
        cdef uint64_t at = self.ring[e & self.ring_mask].hash & self.slots_mask
        while self.slots[at]:
            at = (at + 1) & self.slots_mask
        self.slots[at] = <uint32_t> ((e & self.ring_mask) + 1)

    cdef int grow_ring(self, uint64_t entries) noexcept nogil:
        """Allocate a ring for at least `entries` entries, and a hash table with twice as many slots as the ring has.

        Return -1 if out of memory, or if there are too many entries.
        """
        cdef uint64_t size = FIRST_ENTRIES, e
        cdef SeenId* ring
        cdef uint32_t* slots
        if entries > ENTRIES_MAX:
            return -1
        while size < entries:
            size *= 2
        ring = <SeenId*> malloc(size * sizeof(SeenId))
        slots = <uint32_t*> calloc(size * 2, sizeof(uint32_t))
        if ring == NULL or slots == NULL:
            free(ring)
            free(slots)
            return -1
        for e in range(self.oldest, self.newest):
            ring[e & (size - 1)] = self.ring[e & self.ring_mask]
        free(self.ring)
        free(self.slots)
        self.ring, self.slots = ring, slots
        self.ring_mask, self.slots_mask = size - 1, size * 2 - 1
        for e in range(self.oldest, self.newest):
            if self.ring[e & self.ring_mask].key_len:
                self.put_slot(e)
        return 0

    cdef int keep_key(self, const char* key, size_t n) noexcept nogil:
        if grow(<void**> &self.keys, &self.keys_room, self.keys_used + n, 1) != 0:
            return -1
        memcpy(self.keys + self.keys_used, key, n)
        self.keys_used += n
        return 0

    # -- for Python code -----------------------------------------------------------------------------------
    @property
    def last_msg_id(self) -> bytes:
        """The first 256 bytes of the last message's Nats-Msg-Id, or b"" if it had none."""
        return self.last_id[:self.last_id_len]

    def dump(self, uint64_t first, uint64_t count) -> bytes:
        """Return `count` ids as bytes, without the `first` oldest ids.

        For each id, the result has an entry: seq u64, time i64 (ns), size u32, zero u32. After all entries, it has
        the bytes of all ids.

        Raises:
            IndexError: there are fewer ids.
        """
        cdef uint64_t begin = self.oldest + first, end = begin + count, e
        cdef bytes out
        cdef KeptId* kept
        cdef char* keys
        cdef SeenId* entry
        if end > self.newest or count > end:
            raise IndexError(f"there are {len(self)} message ids")
        out = PyBytes_FromStringAndSize(NULL, count * sizeof(KeptId) + self.size_of_keys(begin, end))
        kept = <KeptId*> PyBytes_AS_STRING(out)
        keys = PyBytes_AS_STRING(out) + count * sizeof(KeptId)
        for e in range(begin, end):
            entry = &self.ring[e & self.ring_mask]
            kept.seq, kept.at, kept.size, kept.spare = entry.seq, entry.at, entry.key_len, 0
            memcpy(keys, self.keys + (entry.key_at - self.keys_base), entry.key_len)
            keys += entry.key_len
            kept += 1
        return out

    cdef size_t size_of_keys(self, uint64_t begin, uint64_t end) noexcept nogil:
        """Return the total size in bytes of the ids of entries `begin` to `end` - 1."""
        cdef uint64_t e
        cdef size_t size = 0
        for e in range(begin, end):
            size += self.ring[e & self.ring_mask].key_len
        return size

    def reserve(self, uint64_t count, size_t key_bytes=0) -> None:
        """Allocate memory for `count` ids with `key_bytes` bytes in total, so that adding them moves nothing."""
        if (self.ring == NULL or count > self.ring_mask + 1) and self.grow_ring(count) != 0:
            raise MemoryError
        if grow(<void**> &self.keys, &self.keys_room, key_bytes, 1) != 0:
            raise MemoryError

    def restore(self, bytes data, uint64_t count) -> None:
        """Add the `count` ids of a dump, which must be newer than all ids in the window.

        Raises:
            ValueError: `data` is not such a dump.
        """
        cdef const KeptId* kept = <const KeptId*> PyBytes_AS_STRING(data)
        cdef uint64_t i, key_at = self.keys_base + self.keys_used
        cdef size_t left = len(data), begin = count * sizeof(KeptId)
        if count > left // sizeof(KeptId):
            raise ValueError(f"{len(data)} bytes are no {count} message ids")
        left -= begin
        for i in range(count):
            if kept[i].size > left:
                raise ValueError(f"message id {i} is cut off")
            left -= kept[i].size
        if count == 0:
            return
        self.reserve(len(self) + count)
        if self.keep_key(PyBytes_AS_STRING(data) + begin, len(data) - begin - left) != 0:
            raise MemoryError
        with nogil:
            self.restore_entries(kept, count, key_at)

    cdef void restore_entries(self, const KeptId* kept, uint64_t count, uint64_t key_at) noexcept nogil:
        """Add `count` ids, whose bytes begin at `key_at`, to the ring and the hash table, which must have room."""
        cdef uint64_t i, e
        cdef SeenId* entry
        for i in range(count):
            entry = &self.ring[(self.newest + i) & self.ring_mask]
            entry.key_at, entry.key_len = key_at, kept[i].size
            entry.seq, entry.at = kept[i].seq, kept[i].at
            entry.hash = id_hash(self.keys + (key_at - self.keys_base), kept[i].size)
            key_at += kept[i].size
        for e in range(self.newest, self.newest + count):
            if e + PREFETCH_AHEAD < self.newest + count:
                prefetch(&self.slots[self.ring[(e + PREFETCH_AHEAD) & self.ring_mask].hash & self.slots_mask])
            self.put_slot(e)
        self.newest += count

    def __len__(self) -> int:
        return self.newest - self.oldest

    def find(self, bytes msg_id, int64_t now_ns) -> int:
        """Return the sequence of `msg_id`, or 0 if it is not in the window."""
        return self.seq_of(msg_id, len(msg_id), now_ns)

    def add(self, bytes msg_id, uint64_t seq, int64_t at_ns) -> None:
        """Add `msg_id`, which must not be in the window; `at_ns` must not decrease."""
        if self.remember(msg_id, len(msg_id), seq, at_ns) != 0:
            raise MemoryError

    def forget(self, uint64_t from_seq) -> None:
        """Remove the ids of all sequences from `from_seq` on."""
        self.forget_from(from_seq)

    def forget_one(self, uint64_t seq) -> None:
        """Remove the id of one message, wherever it is in the window."""
        cdef uint64_t low = self.oldest, high = self.newest, middle
        while low < high:               # sequences ascend
            middle = (low + high) // 2
            if self.ring[middle & self.ring_mask].seq < seq:
                low = middle + 1
            else:
                high = middle
        if low < self.newest and self.ring[low & self.ring_mask].seq == seq:
            self.release(&self.ring[low & self.ring_mask])
            self.ring[low & self.ring_mask].key_len = 0

    def expire(self, int64_t now_ns) -> None:
        """Remove the ids that are older than the window at the time `now_ns`."""
        self.forget_before(self.horizon(now_ns))

    def forget_older(self, int64_t horizon) -> None:
        """Remove ids stored before `horizon` (ns)."""
        self.forget_before(horizon)
