"""The subscription list: a trie of subscriptions, and the routes found for subjects."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.base.table cimport table_hash
from pyjs.subjects.routes cimport Grouping, Route, RouteCache
from pyjs.subjects.trie cimport Found, SubState, TrieNode

cdef enum:
    PREFIX_SALT = 0x5bd1e994    # an even number, like every salt

cdef class Subscription:
    """A subscription of one sink. A Sublist holds a reference to the subscription while it is inserted."""
    cdef readonly object sink           # a core.sink.Sink
    cdef readonly bytes subject
    cdef readonly bytes queue           # b"": a plain subscription
    cdef readonly bytes sid
    cdef SubState state

cdef class Sublist:
    cdef readonly RouteCache cache      # shared with the other lists of the node
    cdef public bint caching
    cdef uint32_t list_id               # in the cache
    cdef uint64_t salt
    cdef TrieNode* root
    cdef uint32_t generations[256]      # by the subject's first byte; a route with an older generation is outdated
    cdef dict owned                     # id(Subscription) -> Subscription, oldest first
    cdef dict queues                    # queue name -> [id, members]
    cdef list free_queue_ids
    cdef Found found
    cdef Grouping grouping
    cdef Route** scratches  # memory for routes that are not cached, one for each level of nested deliveries
    cdef size_t* scratch_rooms
    cdef uint32_t n_scratches
    cdef readonly uint64_t inserts, removes, misses, finds

    # Never returns NULL. A cached route is valid until the next insert, remove or trim. A scratch route
    # (Route.scratch) is valid until the next find, or longer while its `busy` is above 0.
    cdef inline Route* find(self, const char* subject, size_t n) noexcept nogil:
        cdef uint64_t h = table_hash(subject, n) ^ self.salt
        cdef Route* r = self.cache.get(h, subject, n)
        self.finds += 1
        if r != NULL and r.generation == self.generations[<unsigned char> subject[0]]:
            return r
        return self.miss(subject, n, h, r)

    # Find as `find` does, for subjects with a unique tail (inboxes, acks): if possible, one route is used for
    # all tails.
    cdef Route* find_prefixed(self, const char* subject, size_t n) noexcept nogil
    cdef Route* miss(self, const char* subject, size_t n, uint64_t h, Route* old) noexcept nogil
    cdef Route* miss_prefix(self, const char* subject, size_t n, uint64_t h, Route* old, bint deep) noexcept nogil
    cdef Route* route(self, const char* subject, size_t n, uint64_t h, Route* old, bint heads) noexcept nogil
    cdef Route* scratch(self, const char* subject, size_t n) noexcept nogil
    cdef void drop(self, const char* key, size_t n, uint64_t salt) noexcept nogil
    cdef void outdate(self, bytes subject) noexcept
    cdef int join_queue(self, Subscription sub) except -1
    cdef void leave_queue(self, Subscription sub) noexcept
    cdef list collected(self)
