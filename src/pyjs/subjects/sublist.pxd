"""The subscription list: wildcard trie, and the routes found for subjects."""
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from pyjs.base.table cimport Table, table_get

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
    cdef public bint filtered           # ask sink.accepts(subject) before a route may lead here

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
    uint32_t generation         # of the first byte's class when it was built
    bint inexact                # a prefix that does not decide: look the whole subject up
    PyObject* owner             # list of the Subscriptions, which Sublist.owners holds; NULL: none

cdef struct TrieNode:           # private to sublist.pyx
    Table children              # token -> TrieNode*; slots NULL: no child yet
    TrieNode* any_token         # *
    TrieNode* any_tail          # >
    PyObject** subs             # borrowed: Sublist.owned holds them
    uint32_t n_subs
    uint32_t room

cdef class Sublist:
    cdef TrieNode* root
    cdef Table cache            # literal subject -> Route*
    cdef Table prefixes         # "_INBOX.x.", "$JS.ACK.s.c." -> Route*
    cdef uint32_t generations[256]      # by first byte of the subject: routes of an older one are rebuilt
    cdef dict owned             # id(Subscription) -> Subscription
    cdef dict owners            # the same of the routes' lists: in sight of the garbage collector
    cdef size_t sweep_left      # slots that trim still has to look at
    cdef size_t sweep_at
    cdef readonly uint64_t inserts, removes, misses, finds
    cdef readonly uint64_t visited      # nodes that walks looked at, and subscriptions that they found
    cdef public size_t cache_max

    # Never NULL. A route stays valid until the next insert, remove or trim of this list.
    cdef inline Route* find(self, const char* subject, size_t n) noexcept nogil:
        cdef Route* r = <Route*> table_get(&self.cache, subject, n)
        self.finds += 1
        if r != NULL and r.generation == self.generations[<unsigned char> subject[0]]:
            return r
        return self.miss(subject, n)

    # As find, for subjects with a unique tail (inboxes, acks): one route serves all tails where that is exact.
    cdef Route* find_prefixed(self, const char* subject, size_t n) noexcept nogil
    cdef Route* miss(self, const char* subject, size_t n) noexcept nogil
    cdef Route* miss_prefix(self, const char* subject, size_t n, bint deep) noexcept nogil
    cdef int keep(self, Table* table, const char* key, size_t n, Route* r) except -1
    cdef void release(self, Route* r) noexcept
    cdef void drop(self, Table* table, const char* key, size_t n) noexcept
    cdef void drop_all(self, Table* table) noexcept
    cdef void outdate(self, bytes subject) noexcept
    cdef int append_to(self, TrieNode* node, Subscription sub) except -1
    cdef void remove_from_trie(self, Subscription sub) noexcept
    cdef void trim_slot(self, Table* table, size_t at) noexcept
