"""Hash table from byte strings to pointers: open addressing, with copies of the keys."""
from libc.stdint cimport uint32_t, uint64_t

cdef struct Slot:
    uint64_t hash               # 0: empty
    char* key                   # owned by the table; NULL with hash != 0: the entry was removed
    uint32_t key_len
    void* value

cdef struct Table:
    Slot* slots
    size_t mask                 # slots - 1; the number of slots is a power of two
    size_t used                 # live entries
    size_t filled               # live and removed entries

cdef uint64_t table_hash(const char* key, size_t n) noexcept nogil
cdef int table_init(Table* t, size_t capacity) except -1 nogil
cdef void table_free(Table* t) noexcept nogil  # free the keys and slots; the values belong to the user
cdef void* table_get(Table* t, const char* key, size_t n) noexcept nogil      # NULL: absent
cdef void* table_get_hashed(Table* t, uint64_t h, const char* key, size_t n) noexcept nogil
# value must not be NULL; replaces an earlier value
cdef int table_put(Table* t, const char* key, size_t n, void* value) except -1 nogil
# return the value; NULL: the key was absent
cdef void* table_remove(Table* t, const char* key, size_t n) noexcept nogil
cdef size_t table_next(Table* t, size_t at) noexcept nogil          # index of the first live slot >= at, or mask + 1
cdef void table_fit(Table* t) noexcept nogil                        # release memory if few entries are left
