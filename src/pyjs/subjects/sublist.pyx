"""The subscription list: finds the subscriptions that match a subject.

This module knows nothing of sinks. A publish looks up the route of a literal subject. If the route is not in the
cache (`routes`), a walk of the trie (`trie`) finds the subscriptions, and a route is built from them. The route is
stored in the cache if the subject was looked up recently, otherwise in scratch memory that the next miss overwrites.
A miss creates no Python object.

A SUB or UNSUB of a literal subject removes this subject's route. Subjects with the same first byte are a class. A SUB
or UNSUB with wildcards makes all routes of its class outdated, or the routes of all classes if its first token is a
wildcard. Outdated routes are rebuilt at their next lookup, or dropped with their segment. Invariant: no route leads
to a removed subscription.

Subjects with a unique tail (`_INBOX.id.N`, `$JS.ACK.stream.consumer.…`) share one route per prefix. If a subscription
depends on the tail, the prefix is marked inexact, and the whole subject is looked up.

Compiled, because `find` runs for every message (measured in benchmarks/: core publish, 1-1, 150,000 distinct
subjects, new subjects).
"""
cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memset

from pyjs.base.table cimport table_hash
from pyjs.subjects.routes cimport RouteCache, fill_route, group, grouping_free, grouping_room, route_size
from pyjs.subjects.tokens cimport has_wildcard, no_empty_token
from pyjs.subjects.trie cimport (
    found_free, trie_free, trie_insert, trie_new, trie_remove, trie_walk, trie_walk_prefix,
)

from sys import getsizeof

cdef enum:
    SCRATCHES_MAX = 64          # levels of nested deliveries; a message at a deeper level has no receivers
    SCRATCH_KEEP = 65536        # scratch memory is used again for the next miss unless it has more bytes than this
    FIT_EVERY = 1024            # the size of the dict is checked after this many removals
    ENTRY_SIZE_MAX = 200        # bytes per entry of a dict that has only grown; half of them are spare

cdef Route NOTHING              # the route used when a lookup fails: no receivers
memset(&NOTHING, 0, sizeof(Route))


cdef class Subscription:
    """A subscription of one sink."""

    def __cinit__(self, object sink, bytes subject, bytes queue=b"", bytes sid=b""):
        memset(&self.state, 0, sizeof(SubState))
        self.sink = sink
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.state.sid = sid
        self.state.sid_len = <uint32_t> len(sid)
        self.state.queue = queue
        self.state.queue_len = <uint32_t> len(queue)
        self.state.sink = <PyObject*> sink
        self.state.owner = <PyObject*> self

    @property
    def delivered(self) -> int:
        """The number of messages delivered to the subscription."""
        return self.state.delivered

    @property
    def max(self) -> int:
        """The number of deliveries after which the subscription ends (UNSUB max), or 0 if unlimited."""
        return self.state.max

    @max.setter
    def max(self, value) -> None:
        self.state.max = value

    @property
    def closed(self) -> bool:
        """Whether the subscription was removed or has reached its maximum, so that it gets no more messages."""
        return self.state.closed

    @closed.setter
    def closed(self, value) -> None:
        self.state.closed = value

    @property
    def is_remote(self) -> bool:
        """Whether the subscription belongs to a client of another server in the cluster."""
        return self.state.weight > 0

    @property
    def filtered(self) -> bool:
        """Whether routes include the subscription only for subjects that `sink.accepts()` allows.

        This must be set before `insert`.
        """
        return self.state.filtered

    @filtered.setter
    def filtered(self, value) -> None:
        self.state.filtered = value


cdef void refuse_filtered(Found* found, const char* subject, size_t n, bint exact) noexcept:
    """Remove from `found` the filtered subscriptions whose sink does not accept `subject`.

    If `exact` is not set, `subject` is only a prefix: keep all subscriptions, and set `found.inexact`.
    """
    cdef size_t i, kept = 0
    cdef Subscription sub
    found.inexact = found.inexact or not exact
    for i in range(found.n):
        sub = <Subscription> found.subs[i].owner
        if not sub.state.filtered or not exact or sub.sink.accepts(subject[:n], sub.queue):
            found.subs[kept] = found.subs[i]
            kept += 1
    found.n = kept


cdef dict fitted(dict entries):
    """Return `entries` or, if many were removed, a smaller copy, since a dict does not shrink."""
    return dict(entries) if getsizeof(entries) > ENTRY_SIZE_MAX * (len(entries) + FIT_EVERY) else entries


@cython.no_gc_clear             # `cache` is needed until the list is freed
cdef class Sublist:
    """The subscriptions of one account, or of one stream's consumers."""

    def __cinit__(self, RouteCache cache=None):
        self.cache = RouteCache() if cache is None else cache
        self.caching = True
        self.root = trie_new()
        self.owned, self.queues, self.free_queue_ids = {}, {}, []
        self.list_id = self.cache.register(self.generations)
        self.salt = self.cache.new_salt()

    def __dealloc__(self):
        cdef uint32_t i
        if self.list_id:
            self.cache.unregister(self.list_id)
        for i in range(self.n_scratches):
            free(self.scratches[i])
        free(self.scratches)
        free(self.scratch_rooms)
        found_free(&self.found)
        grouping_free(&self.grouping)
        trie_free(self.root)

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self.owned)

    @property
    def visited(self) -> int:
        """The number of nodes visited and subscriptions found by all walks so far."""
        return self.found.visited

    # -- publishing ----------------------------------------------------------------------------------------

    cdef Route* find_prefixed(self, const char* subject, size_t n) noexcept nogil:
        cdef size_t end = n, dots = 0
        cdef bint deep = n > 8 and memcmp(subject, b"$JS.ACK.", 8) == 0
        cdef uint64_t h
        cdef Route* r
        if deep:
            end = 8
            while end < n and dots < 2:
                dots += subject[end] == c'.'
                end += 1
            if dots < 2:
                return self.find(subject, n)
        else:
            while end > 0 and subject[end - 1] != c'.':
                end -= 1
            if end == 0 or end == n:
                return self.find(subject, n)
        h = table_hash(subject, end) ^ self.salt ^ PREFIX_SALT
        r = self.cache.get(h, subject, end)
        if r == NULL or r.generation != self.generations[<unsigned char> subject[0]]:
            r = self.miss_prefix(subject, end, h, r, deep)
        if r.inexact:
            return self.find(subject, n)
        self.finds += 1
        return r

    cdef Route* miss(self, const char* subject, size_t n, uint64_t h, Route* old) noexcept nogil:
        self.misses += 1
        if no_empty_token(subject, n):
            trie_walk(&self.found, self.root, subject, n, False)
        else:
            self.found.n = 0
            self.found.filtered = self.found.inexact = self.found.failed = False
        return self.route(subject, n, h, old, True)

    cdef Route* miss_prefix(self, const char* subject, size_t n, uint64_t h, Route* old, bint deep) noexcept nogil:
        self.misses += 1
        trie_walk_prefix(&self.found, self.root, subject, n, deep)
        if not no_empty_token(subject, n - 1):
            self.found.inexact = True
        return self.route(subject, n, h, old, False)

    cdef Route* route(self, const char* subject, size_t n, uint64_t h, Route* old, bint heads) noexcept nogil:
        """Return the route for the subscriptions that the last walk found; it replaces the route `old`, if any.

        The route is cached if it replaces another one, or if the subject was looked up recently. Otherwise it is in
        scratch memory.
        """
        cdef Route* r = NULL
        if self.found.filtered:
            with gil:
                refuse_filtered(&self.found, subject, n, heads)
        group(&self.grouping, &self.found)
        if self.found.failed:
            return &NOTHING
        if old != NULL:
            self.cache.remove(old)
        if self.caching and (old != NULL or self.cache.seen_before(h)):
            r = self.cache.add(self.list_id, h, subject, n, &self.found, &self.grouping, heads)
        return self.scratch(subject, n) if r == NULL else r

    cdef Route* scratch(self, const char* subject, size_t n) noexcept nogil:
        """Return a route in scratch memory, which the next miss overwrites unless the route is busy.

        Return NOTHING, a route without receivers, if there is no scratch memory left.
        """
        cdef size_t size = route_size(&self.found, &self.grouping, n, False)
        cdef uint32_t i = 0
        cdef Route** scratches
        cdef size_t* rooms
        cdef Route* r
        while i < self.n_scratches and self.scratches[i] != NULL and self.scratches[i].busy:
            i += 1
        if i == SCRATCHES_MAX:
            return &NOTHING
        if self.scratches == NULL:
            scratches = <Route**> malloc(SCRATCHES_MAX * sizeof(Route*))
            rooms = <size_t*> malloc(SCRATCHES_MAX * sizeof(size_t))
            if scratches == NULL or rooms == NULL:
                free(scratches)
                free(rooms)
                return &NOTHING
            self.scratches = scratches
            self.scratch_rooms = rooms
        if i == self.n_scratches:
            self.scratches[i] = NULL
            self.scratch_rooms[i] = 0
            self.n_scratches += 1
        if size > self.scratch_rooms[i] or (self.scratch_rooms[i] > SCRATCH_KEEP and size < SCRATCH_KEEP):
            r = <Route*> realloc(self.scratches[i], size + 64)
            if r == NULL:
                return &NOTHING
            self.scratches[i] = r
            self.scratch_rooms[i] = size + 64
        r = self.scratches[i]
        memset(r, 0, sizeof(Route))
        fill_route(r, subject, n, &self.found, &self.grouping, False)
        r.scratch = True
        return r

    # -- subscribing ---------------------------------------------------------------------------------------

    def insert(self, Subscription sub) -> None:
        """Add `sub`, whose subject must be valid. Do not call this during a delivery."""
        if sub.queue:
            self.join_queue(sub)
        try:
            trie_insert(self.root, &sub.state, sub.subject, len(sub.subject))
        except MemoryError:
            self.leave_queue(sub)
            raise
        self.owned[id(sub)] = sub
        self.inserts += 1
        self.outdate(sub.subject)

    cdef int join_queue(self, Subscription sub) except -1:
        """Set the queue id of `sub`, and count `sub` as a member of its queue group."""
        entry = self.queues.get(sub.queue)
        if entry is None:
            queue_id = self.free_queue_ids.pop() if self.free_queue_ids else len(self.queues) + 1
            grouping_room(&self.grouping, queue_id)
            entry = self.queues[sub.queue] = [queue_id, 0]
        entry[1] += 1
        sub.state.queue_id = entry[0]
        return 0

    cdef void leave_queue(self, Subscription sub) noexcept:
        if not sub.queue:
            return
        entry = self.queues[sub.queue]
        entry[1] -= 1
        if entry[1] == 0:
            del self.queues[sub.queue]
            self.free_queue_ids.append(entry[0])
        if not self.queues:
            self.queues, self.free_queue_ids = {}, []
            grouping_free(&self.grouping)

    def remove(self, Subscription sub) -> bool:
        """Remove `sub`; return whether it was in the list. Do not call this during a delivery."""
        if self.owned.pop(id(sub), None) is None:
            return False
        sub.state.closed = True
        trie_remove(&sub.state)
        self.leave_queue(sub)
        if len(self.owned) % FIT_EVERY == 0:
            self.owned = fitted(self.owned)
        self.removes += 1
        self.outdate(sub.subject)
        return True

    cdef void outdate(self, bytes subject) noexcept:
        """Drop or outdate the cached routes of all subjects that `subject` matches."""
        cdef const char* s = subject
        cdef size_t n = len(subject), i, dots = 0
        if has_wildcard(s, n):
            if (s[0] == c'*' or s[0] == c'>') and (n == 1 or s[1] == c'.'):
                for i in range(256):
                    self.generations[i] += 1
            else:
                self.generations[<unsigned char> s[0]] += 1
            return
        self.drop(s, n, self.salt)
        if s[0] != c'_' and s[0] != c'$':
            return
        i = n
        while i > 0 and s[i - 1] != c'.':
            i -= 1
        self.drop(s, i, self.salt ^ PREFIX_SALT)
        for i in range(n):              # a route for the prefix "$JS.ACK.stream.consumer." is used for all tails
            dots += s[i] == c'.'
            if s[i] == c'.' and dots == 4:
                self.drop(s, i + 1, self.salt ^ PREFIX_SALT)
                return

    cdef void drop(self, const char* key, size_t n, uint64_t salt) noexcept nogil:
        cdef Route* r = self.cache.get(table_hash(key, n) ^ salt, key, n)
        if r != NULL:
            self.cache.remove(r)

    # -- queries -------------------------------------------------------------------------------------------

    cdef list collected(self):
        return [<object> self.found.subs[at].owner for at in range(self.found.n)]

    def match(self, bytes subject) -> list:
        """Return the subscriptions that match the literal `subject`."""
        trie_walk(&self.found, self.root, subject, len(subject), False)
        return self.collected()

    def covering(self, bytes subject) -> list:
        """Return the subscriptions that match every literal subject that `subject` matches."""
        trie_walk(&self.found, self.root, subject, len(subject), True)
        return self.collected()

    def matches(self, bytes subject) -> bool:
        """Return whether a subscription matches the literal `subject`."""
        trie_walk(&self.found, self.root, subject, len(subject), False)
        return self.found.n > 0

    def subscriptions(self) -> list:
        """Return all subscriptions, oldest first."""
        return list(self.owned.values())

    def num_cached(self) -> int:
        """Return the number of cached routes of this list."""
        return self.cache.lists[self.list_id].n_routes

    def cached_fanout(self) -> tuple:
        """Return (most receivers of one cached route, receivers of all cached routes of this list together).

        A queue group counts as one receiver.
        """
        return self.cache.fanout(self.list_id)
