"""The subscription list: wildcard trie, and the routes found for subjects."""
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from pyjs.base.table cimport Table

cdef struct SubState:           # per subscription, shared by all its targets
    uint64_t delivered
    uint64_t max                # UNSUB max; 0: unlimited
    const char* sid
    uint32_t sid_len
    bint closed                 # removed or used up: deliver nothing more

cdef class Subscription:
    """One subscription of one sink. Owned by the Sublist while inserted; the sink's owner may hold it too."""
    cdef readonly object sink           # a core.sink.Sink
    cdef readonly bytes subject
    cdef readonly bytes queue           # b"": a plain subscription
    cdef readonly bytes sid
    cdef SubState state

cdef struct Target:
    PyObject* sink              # borrowed: Route.owner holds the Subscription
    SubState* sub
    const char* head            # "HMSG subject sid " (plus one: "MSG ..."), NULL in a prefix route
    uint32_t head_len
    void* memo                  # a slot that the sink may fill; starts NULL, dies with the route

cdef struct Group:
    Target* targets
    uint32_t n

cdef struct Route:
    Target* targets             # plain subscriptions
    uint32_t n
    Group* groups               # queue groups: one member each gets the message
    uint32_t n_groups
    bint inexact                # a prefix route: heads are NULL
    PyObject* owner             # list of the Subscriptions
    char* heads

cdef struct TrieNode            # private to sublist.pyx

cdef class Sublist:
    cdef TrieNode* root
    cdef Table cache            # literal subject -> Route*
    cdef Table prefixes         # "_INBOX.x.", "$JS.ACK.s.c." -> Route*
    cdef Route empty
    cdef readonly uint64_t count, inserts, removes, matches, cache_hits
    cdef size_t cache_max

    # Never NULL. A route stays valid until the next insert, remove or trim of this list.
    cdef Route* find(self, const char* subject, size_t n) noexcept nogil
    # As find, for subjects with a unique tail (inboxes, acks): one route serves all tails where that is exact.
    cdef Route* find_prefixed(self, const char* subject, size_t n) noexcept nogil
    cdef Route* miss(self, Table* table, const char* key, size_t key_len,
                     const char* subject, size_t n, bint prefix) noexcept nogil
    cdef void drop_route(self, Table* table, const char* key, size_t n) noexcept
