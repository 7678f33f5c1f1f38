"""Routes: the receivers of one subject; and the cache of routes for all subscription lists of a node."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from pyjs.subjects.trie cimport Found, SubState

cdef struct Target:
    PyObject* sink              # borrowed: the Sublist owns the Subscription, which outlives its routes
    SubState* sub
    const char* head            # "HMSG subject sid " (plus one: "MSG ..."); NULL: to be written from its parts
    uint32_t head_len

cdef struct Group:
    Target* targets
    uint32_t n
    uint32_t n_here             # number of members at this server, which come first; the others are at other servers

cdef struct Route:
    Target* targets             # plain subscriptions
    Group* groups               # queue groups: one member of each gets the message
    uint32_t n
    uint32_t n_groups
    uint32_t generation         # generation of the subject's class (its first byte) when the route was built
    uint32_t busy               # of a scratch route: deliveries in progress
    bint inexact                # prefix route: receivers depend on the tail, so look up the whole subject
    bint scratch                # not cached: the next miss may overwrite it
    bint used                   # found since the last check by `trim`
    # A cached route is a block of a segment; its targets, groups, heads and key follow it in memory.
    uint32_t list_id            # 0: dead
    uint32_t key_len
    size_t size                 # of the block
    uint64_t hash
    char* key

cdef struct Entry:
    uint64_t hash               # 0: empty
    Route* route

cdef struct Segment:            # followed by its blocks
    Segment* next               # newer
    int64_t born_ns
    size_t size
    size_t used

cdef struct ListRecord:         # a subscription list that shares the cache
    uint32_t* generations       # NULL: the list was removed
    uint32_t n_routes
    uint32_t next_free          # of a removed list: the id of the next removed list; 0: none

cdef class RouteCache:
    cdef Entry* entries
    cdef size_t mask
    cdef readonly size_t count          # routes
    cdef readonly size_t size           # bytes of segments and entries
    cdef public size_t size_max
    cdef Segment* oldest
    cdef Segment* newest
    cdef uint16_t* doors                # fingerprints of recent misses that were not cached; DOORS * 4 entries
    cdef uint32_t door_turn
    cdef ListRecord* lists              # by list id; 0 is unused
    cdef uint32_t n_lists
    cdef size_t lists_room
    cdef uint32_t free_id               # of a removed list, 0: none; its record names the next
    cdef uint64_t next_salt
    cdef int64_t now_ns
    cdef int64_t expired_ns
    cdef uint32_t rounds

    cdef inline Route* get(self, uint64_t h, const char* key, size_t n) noexcept nogil:
        cdef size_t at
        cdef Route* r
        if self.entries == NULL:
            return NULL
        at = (h >> 7) & self.mask
        while self.entries[at].hash:
            if self.entries[at].hash == h:
                r = self.entries[at].route
                if r.key_len == n and memcmp(r.key, key, n) == 0:
                    if not r.used:
                        r.used = True
                    return r
            at = (at + 1) & self.mask
        return NULL

    cdef bint seen_before(self, uint64_t h) noexcept nogil
    # Return a route for the found subscriptions; NULL: the cache is full. `sizes`: members by group, see
    # Grouping.
    cdef Route* add(self, uint32_t list_id, uint64_t h, const char* key, size_t n, Found* found, Grouping* grouping,
                    bint heads) noexcept nogil
    cdef void remove(self, Route* r) noexcept nogil
    cdef uint32_t register(self, uint32_t* generations) except 0
    cdef void unregister(self, uint32_t list_id) noexcept
    cdef uint64_t new_salt(self) noexcept nogil
    cdef char* reserve(self, size_t n, bint force) noexcept nogil
    cdef int insert(self, Route* r) noexcept nogil
    cdef int resize(self, size_t slots) noexcept nogil
    cdef void forget(self, Route* r) noexcept nogil
    cdef bint due(self) noexcept nogil
    cdef bint full(self) noexcept nogil
    cdef void recycle(self) noexcept nogil
    cdef void look_again(self, Route* r, bint full) noexcept nogil

cdef struct Mark:               # of a queue name, in one grouping
    uint64_t round
    uint32_t slot

cdef struct Grouping:           # maps the found subscriptions to queue groups
    Mark* marks                 # by queue id
    uint32_t* sizes             # number of members, by group of the route, in the order of the first member
    size_t marks_room, sizes_room
    uint32_t n_groups
    uint32_t n_plain
    uint64_t round

cdef int grouping_room(Grouping* g, uint32_t queue_id) except -1    # make room for `queue_id`
cdef void grouping_free(Grouping* g) noexcept nogil
cdef void group(Grouping* g, Found* found) noexcept nogil
cdef size_t route_size(Found* found, Grouping* g, size_t n, bint heads) noexcept nogil
cdef void fill_route(Route* r, const char* subject, size_t n, Found* found, Grouping* g, bint heads) noexcept nogil
