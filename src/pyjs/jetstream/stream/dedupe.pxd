"""The duplicate window: ids of recent messages."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.store.clock_steps cimport ClockSteps

cdef struct SeenId:            # 32 bytes: half a cache line
    uint64_t seq                # sequence of the message
    int64_t at                  # ns, time at which it was stored
    uint64_t key_at             # position of the id among all ids ever added
    uint32_t key_len
    uint32_t hash

cdef packed struct KeptId:      # an entry of a dump
    uint64_t seq
    int64_t at
    uint32_t size
    uint32_t spare

cdef class Dedupe:
    cdef public int64_t window_ns
    cdef public ClockSteps steps        # steps of the clock of a replicated stream; owned by its store
    cdef char last_id[256]      # Nats-Msg-Id of the stream's last message; a longer one is truncated
    cdef uint32_t last_id_len   # 0: the last message had no id
    cdef SeenId* ring           # entry e is at e & ring_mask; entries oldest .. newest - 1
    cdef uint64_t oldest, newest, ring_mask
    cdef uint32_t* slots        # hash table: 1 + position in the ring; 0: free
    cdef uint64_t slots_mask
    cdef char* keys             # the ids, one after another
    cdef size_t keys_used, keys_room
    cdef uint64_t keys_base     # position of keys[0]

    cdef void set_last_id(self, const char* msg_id, size_t n) noexcept nogil
    cdef uint64_t seq_of(self, const char* key, size_t n, int64_t now) noexcept nogil   # 0: not in the window
    cdef int remember(self, const char* key, size_t n, uint64_t seq, int64_t now) noexcept nogil   # -1: out of memory
    cdef void release(self, SeenId* entry) noexcept nogil
    cdef void forget_from(self, uint64_t seq) noexcept nogil  # forget the ids of messages that were not written
    cdef int64_t horizon(self, int64_t now) noexcept nogil   # ids stored before this time do not count at `now`
    cdef void forget_before(self, int64_t horizon) noexcept nogil
    cdef uint64_t find_slot(self, uint32_t h, const char* key, size_t n) noexcept nogil
    cdef void remove_slot(self, uint64_t at) noexcept nogil
    cdef void put_slot(self, uint64_t e) noexcept nogil
    cdef int grow_ring(self, uint64_t entries) noexcept nogil
    cdef void restore_entries(self, const KeptId* kept, uint64_t count, uint64_t key_at) noexcept nogil
    cdef size_t size_of_keys(self, uint64_t begin, uint64_t end) noexcept nogil
    cdef int keep_key(self, const char* key, size_t n) noexcept nogil
