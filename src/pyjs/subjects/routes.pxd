"""Routes (the receivers of a subject), and the cache of routes for all subscription lists of a node."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from pyjs.subjects.trie cimport Found, SubState

cdef struct Target:
    PyObject* sink              # borrowed: the Sublist owns the Subscription, which outlives its routes
    SubState* sub
    # "HMSG subject sid ", from its second byte also the start of an MSG line; NULL: written for each delivery
    const char* head
    uint32_t head_len

cdef struct Group:
    Target* targets
    uint32_t n
    uint32_t n_here  # number of members at this server; `targets` has them first, then the members at other servers

cdef struct Route:
    Target* targets             # plain subscriptions
    Group* groups               # queue groups: one member of each gets the message
    uint32_t n
    uint32_t n_groups
    # generation of the subject's class (its first byte) when the route was built; an older route is outdated
    uint32_t generation
    uint32_t busy               # in a scratch route: number of deliveries in progress
    bint inexact  # in the route of a prefix: receivers depend on the tail, so the whole subject must be looked up
    bint scratch                # the route is not cached, and the next miss may overwrite it
    bint used                   # the route was found since the last check by `trim`
    # A cached route is a block in a segment; the block also has its targets, groups, heads and key.
    uint32_t list_id            # id of the route's list; 0: the route was removed
    uint32_t key_len
    size_t size                 # bytes of the block
    uint64_t hash
    char* key

cdef struct Entry:
    uint64_t hash               # 0: empty
    Route* route

cdef struct Segment:            # its blocks follow it in memory
    Segment* next               # the next newer segment
    int64_t born_ns
    size_t size
    size_t used

cdef struct ListRecord:         # a subscription list whose routes are in the cache
    uint32_t* generations       # NULL: the list was removed
    uint32_t n_routes
    uint32_t next_free          # in a removed list: the id of the next removed list; 0: none

cdef class RouteCache:
    cdef Entry* entries
    cdef size_t mask
    cdef readonly size_t count          # number of routes
    cdef readonly size_t size           # bytes of segments and entries
    cdef public size_t size_max
    cdef Segment* oldest
    cdef Segment* newest
    cdef uint16_t* doors  # fingerprints of recently looked-up subjects that are not cached; DOORS * 4 entries
    cdef uint32_t door_turn
    cdef ListRecord* lists              # by list id; id 0 is not used
    cdef uint32_t n_lists
    cdef size_t lists_room
    cdef uint32_t free_id               # id of a removed list, whose ListRecord names the next one; 0: none
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
    # Return a route for the found subscriptions; NULL: the cache is full.
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

cdef struct Mark:               # of a queue name, while subscriptions are grouped
    uint64_t round
    uint32_t slot

cdef struct Grouping:           # assigns the found subscriptions to queue groups
    Mark* marks                 # by queue id
    uint32_t* sizes             # by group of the route, in the order of first members: number of members
    size_t marks_room, sizes_room
    uint32_t n_groups
    uint32_t n_plain
    uint64_t round

cdef int grouping_room(Grouping* g, uint32_t queue_id) except -1    # make room for `queue_id`
cdef void grouping_free(Grouping* g) noexcept nogil
cdef void group(Grouping* g, Found* found) noexcept nogil
cdef size_t route_size(Found* found, Grouping* g, size_t n, bint heads) noexcept nogil
cdef void fill_route(Route* r, const char* subject, size_t n, Found* found, Grouping* g, bint heads) noexcept nogil
