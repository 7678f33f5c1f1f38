"""Routes, and the cache of routes for all subscription lists of a node.

A route has all data for deliveries to one literal subject: the plain subscriptions, one group per queue name, and the
prebuilt start of each protocol line. It is one block of memory.

The cache is limited in bytes. Blocks are written one after another into segments. `trim`, called once a turn, empties
the oldest segment if the cache is nearly full: it moves recently used routes to the newest segment, drops the others,
and frees the segment. If the cache is larger than SMALL, `trim` also empties segments that are older than AGE_NS, or
older than the last `expire`, so that an idle server frees memory.

A subject is cached when it is looked up a second time: `doors` has fingerprints of recent subjects that were not
cached. A subject with a single publish thus takes no memory.

Each list has a salt, which is a part of its hashes and separates its subjects from those of other lists. A route has
the subscriptions that a walk of the trie has found. Of a list, this module uses only the generations.

Compiled, because it runs for every message (measured in benchmarks/: core publish, 1-1, 150,000 distinct subjects).
"""
cimport cython
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from pyjs.base.grow cimport grow
from pyjs.subjects.trie cimport Found, SubState

cdef enum:
    SIZE_MAX = 50331648         # 48 MiB: 150,000 subjects with two or three subscriptions
    SMALL = 2097152             # bytes; in a smaller cache, routes do not expire
    SEGMENT_SIZE = 131072
    DOORS = 65536               # each has four fingerprints: 512 KiB together
    TRIM_STEPS = 4              # maximum number of segments emptied by one trim
    MIN_SLOTS = 64
cdef int64_t AGE_NS = 5000000000
cdef uint64_t GOLDEN = <uint64_t> 0x9E3779B97F4A7C15


# -- groups ----------------------------------------------------------------------------------------------------

cdef int grouping_room(Grouping* g, uint32_t queue_id) except -1:
    cdef size_t before = g.marks_room
    if grow(<void**> &g.marks, &g.marks_room, <size_t> queue_id + 1, sizeof(Mark)) != 0:
        raise MemoryError
    memset(g.marks + before, 0, (g.marks_room - before) * sizeof(Mark))
    return 0


cdef void grouping_free(Grouping* g) noexcept nogil:
    free(g.marks)
    free(g.sizes)
    memset(g, 0, sizeof(Grouping))


cdef void group(Grouping* g, Found* found) noexcept nogil:
    """Assign a group to each queue name among the found subscriptions, and count the members of each group."""
    cdef size_t i
    cdef Mark* mark
    g.round += 1
    g.n_groups = g.n_plain = 0
    for i in range(found.n):
        if found.subs[i].queue_id == 0:
            g.n_plain += 1
            continue
        mark = &g.marks[found.subs[i].queue_id]
        if mark.round != g.round:
            if grow(<void**> &g.sizes, &g.sizes_room, g.n_groups + 1, sizeof(uint32_t)) != 0:
                found.failed = True
                return
            mark.round = g.round
            mark.slot = g.n_groups
            g.sizes[g.n_groups] = 0
            g.n_groups += 1
        g.sizes[mark.slot] += 1


# -- one route -------------------------------------------------------------------------------------------------

cdef size_t route_size(Found* found, Grouping* g, size_t n, bint heads) noexcept nogil:
    """Return the size in bytes of a route with its targets, groups and key and, if `heads` is set, its heads."""
    cdef size_t i, size = sizeof(Route) + found.n * sizeof(Target) + g.n_groups * sizeof(Group)
    if heads:
        for i in range(found.n):
            size += 7 + n + found.subs[i].sid_len
    return (size + n + 15) & ~<size_t> 15


cdef size_t write_head(char* out, const char* subject, size_t n, SubState* sub) noexcept nogil:
    memcpy(out, b"HMSG ", 5)
    memcpy(out + 5, subject, n)
    out[5 + n] = c' '
    memcpy(out + 6 + n, sub.sid, sub.sid_len)
    out[6 + n + sub.sid_len] = c' '
    return 7 + n + sub.sid_len


cdef inline Target* member_place(Group* group, uint32_t size, bint here) noexcept nogil:
    """Take the place in `targets` for the next member of `group`, which will have `size` members.

    Local members (`here`) fill `targets` from the start, all others from the end.
    """
    cdef uint32_t at = group.n_here if here else size - 1 - (group.n - group.n_here)
    group.n += 1
    group.n_here += here
    return &group.targets[at]


cdef void fill_route(Route* r, const char* subject, size_t n, Found* found, Grouping* g, bint heads) noexcept nogil:
    """Fill `r`, and write its targets, its groups and, if `heads` is set, its heads into the memory after `r`.

    `r.key` points to room for the key; this function does not write the bytes of the key.
    """
    cdef Target* targets = <Target*> (r + 1)
    cdef char* at
    cdef size_t i
    cdef uint32_t slot
    cdef Target* t
    cdef SubState* sub
    r.targets = targets
    r.groups = <Group*> (targets + found.n)
    r.n, r.n_groups, r.inexact = 0, g.n_groups, found.inexact
    at = <char*> (r.groups + g.n_groups)
    targets += g.n_plain
    for slot in range(g.n_groups):
        r.groups[slot].targets = targets
        r.groups[slot].n = r.groups[slot].n_here = 0
        targets += g.sizes[slot]
    for i in range(found.n):
        sub = found.subs[i]
        if sub.queue_id == 0:
            t = &r.targets[r.n]
            r.n += 1
        else:
            slot = g.marks[sub.queue_id].slot
            t = member_place(&r.groups[slot], g.sizes[slot], sub.weight == 0)
        t.sink, t.sub, t.head, t.head_len = sub.sink, sub, NULL, 0
        if heads and sub.weight == 0:
            t.head = at
            t.head_len = <uint32_t> write_head(at, subject, n, sub)
            at += t.head_len
    r.key = at
    r.key_len = <uint32_t> n


cdef void shift(Route* r, size_t n_targets, Py_ssize_t by) noexcept nogil:
    """Correct the pointers in a route that has `n_targets` targets and was moved by `by` bytes."""
    cdef size_t i
    r.targets = <Target*> (<char*> r.targets + by)
    r.groups = <Group*> (<char*> r.groups + by)
    r.key += by
    for i in range(n_targets):
        if r.targets[i].head != NULL:
            r.targets[i].head += by
    for i in range(r.n_groups):
        r.groups[i].targets = <Target*> (<char*> r.groups[i].targets + by)


# -- the cache -------------------------------------------------------------------------------------------------

@cython.no_gc                   # has no reference to an object that could refer to it
cdef class RouteCache:
    """A cache of the routes of all subscription lists of a node."""

    def __cinit__(self, size_t size_max=SIZE_MAX):
        self.size_max = size_max

    def __dealloc__(self):
        cdef Segment* segment
        while self.oldest != NULL:
            segment = self.oldest
            self.oldest = segment.next
            free(segment)
        free(self.entries)
        free(self.doors)
        free(self.lists)

    # -- lists ---------------------------------------------------------------------------------------------

    cdef uint32_t register(self, uint32_t* generations) except 0:
        """Register a subscription list; return its id. `generations` must stay valid until `unregister`."""
        cdef uint32_t at
        if self.free_id:
            at = self.free_id
            self.free_id = self.lists[at].next_free
        else:
            at = self.n_lists + 1
            if grow(<void**> &self.lists, &self.lists_room, <size_t> at + 1, sizeof(ListRecord)) != 0:
                raise MemoryError
            self.n_lists = at
        self.lists[at].generations = generations
        self.lists[at].n_routes = 0
        return at

    cdef void unregister(self, uint32_t list_id) noexcept:
        """Unregister a list; its routes are dropped when `trim` empties the segments that have them."""
        self.lists[list_id].generations = NULL
        if self.lists[list_id].n_routes == 0:
            self.lists[list_id].next_free = self.free_id
            # `trim` frees the id later, since an id that still has routes must not be used again
            self.free_id = list_id

    cdef uint64_t new_salt(self) noexcept nogil:
        """Return a new salt for the subjects of one list, unique in this cache."""
        self.next_salt += GOLDEN
        return self.next_salt & ~<uint64_t> 1

    # -- finding and adding --------------------------------------------------------------------------------

    cdef bint seen_before(self, uint64_t h) noexcept nogil:
        """Return whether the hash `h` was probably looked up recently, and record that it is looked up now."""
        cdef uint16_t mark = <uint16_t> (h >> 48) | 1
        cdef uint16_t* door
        if self.doors == NULL:
            self.doors = <uint16_t*> calloc(DOORS * 4, sizeof(uint16_t))
            if self.doors == NULL:
                return False
        door = self.doors + ((h >> 20) & (DOORS - 1)) * 4
        if door[0] == mark or door[1] == mark or door[2] == mark or door[3] == mark:
            return True
        self.door_turn += 1
        door[self.door_turn & 3] = mark
        return False

    cdef Route* add(self, uint32_t list_id, uint64_t h, const char* key, size_t n, Found* found, Grouping* grouping,
                    bint heads) noexcept nogil:
        cdef size_t size = route_size(found, grouping, n, heads)
        cdef Route* r
        if (self.count + 1) * 4 > (self.mask + 1) * 3 or self.entries == NULL:
            if self.resize((self.mask + 1) * 2 if self.entries != NULL else MIN_SLOTS) < 0:
                return NULL
        r = <Route*> self.reserve(size, False)
        if r == NULL:
            return NULL
        memset(r, 0, sizeof(Route))
        fill_route(r, key, n, found, grouping, heads)
        memcpy(r.key, key, n)
        r.size, r.hash, r.list_id, r.used = size, h, list_id, True
        r.generation = self.lists[list_id].generations[<unsigned char> key[0]]
        self.insert(r)
        self.count += 1
        self.lists[list_id].n_routes += 1
        return r

    cdef void remove(self, Route* r) noexcept nogil:
        """Drop a cached route; its memory is freed together with its segment."""
        self.forget(r)
        r.list_id = 0

    cdef int insert(self, Route* r) noexcept nogil:
        cdef size_t at = (r.hash >> 7) & self.mask
        while self.entries[at].hash:
            at = (at + 1) & self.mask
        self.entries[at].hash = r.hash
        self.entries[at].route = r
        return 0

    cdef void forget(self, Route* r) noexcept nogil:
        """Remove the entry of `r` from the table, and close the gap."""
        cdef size_t at = (r.hash >> 7) & self.mask, home, gap
        while self.entries[at].route != r:
            at = (at + 1) & self.mask
        gap = at
        while True:
            at = (at + 1) & self.mask
            if self.entries[at].hash == 0:
                break
            home = (self.entries[at].hash >> 7) & self.mask
            if ((at - home) & self.mask) >= ((at - gap) & self.mask):
                self.entries[gap] = self.entries[at]
                gap = at
        self.entries[gap].hash = 0
        self.entries[gap].route = NULL
        self.count -= 1
        self.lists[r.list_id].n_routes -= 1

    cdef int resize(self, size_t slots) noexcept nogil:
        """Move the entries to a table with `slots` slots, a power of two; return -1 if out of memory."""
        cdef Entry* before = self.entries
        cdef size_t i, at, n = self.mask + 1 if before != NULL else 0
        cdef Entry* entries = <Entry*> calloc(slots, sizeof(Entry))
        if entries == NULL:
            return -1
        self.size += slots * sizeof(Entry)
        self.size -= n * sizeof(Entry)
        self.entries = entries
        self.mask = slots - 1
        for i in range(n):
            if before[i].hash:
                at = (before[i].hash >> 7) & self.mask
                while entries[at].hash:
                    at = (at + 1) & self.mask
                entries[at] = before[i]
        free(before)
        return 0

    cdef char* reserve(self, size_t n, bint force) noexcept nogil:
        """Return a pointer to `n` unused bytes in the newest segment, or NULL if out of memory.

        If a new segment is necessary and `force` is not set, also return NULL if the cache is full or `n` is too
        large.
        """
        cdef Segment* segment = self.newest
        cdef size_t size = SEGMENT_SIZE
        if segment == NULL or segment.used + n > segment.size:
            if n + sizeof(Segment) > size:
                size = n + sizeof(Segment)
            if not force and (self.size + size > self.size_max or n > self.size_max // 4):
                return NULL
            segment = <Segment*> malloc(size)
            if segment == NULL:
                return NULL
            self.size += size
            segment.next = NULL
            segment.size = size
            segment.used = (sizeof(Segment) + 15) & ~<size_t> 15
            segment.born_ns = self.now_ns
            if self.newest == NULL:
                self.oldest = segment
            else:
                self.newest.next = segment
            self.newest = segment
        segment.used += n
        return <char*> segment + segment.used - n

    # -- freeing memory ------------------------------------------------------------------------------------

    def trim(self, int64_t now_ns) -> bool:
        """Empty a few of the oldest segments if they are due; called once a turn, never during a delivery.

        Return whether more segments are due.
        """
        cdef int steps = 0
        self.now_ns = now_ns
        while steps < TRIM_STEPS and self.due():
            self.recycle()
            steps += 1
        if self.mask >= 1024 and self.count * 8 <= self.mask:
            self.resize((self.mask + 1) // 4)
        return steps == TRIM_STEPS and self.due()

    @property
    def next_trim_ns(self) -> int:
        """The time in ns at which `trim` must empty the oldest segment even if no routes are added; 0: never."""
        if self.oldest == NULL or self.size <= SMALL:
            return 0
        return self.now_ns if self.oldest.born_ns < self.expired_ns else self.oldest.born_ns + AGE_NS

    def expire(self) -> None:
        """Mark the segments from before this turn as expired, since many of their routes may be outdated."""
        self.expired_ns = self.now_ns

    cdef bint full(self) noexcept nogil:
        return self.size > self.size_max - self.size_max // 8

    cdef bint due(self) noexcept nogil:
        if self.oldest == NULL or self.size <= SMALL:
            return self.oldest != NULL and self.full()
        return (self.full() or self.oldest.born_ns < self.expired_ns
                or self.now_ns >= self.oldest.born_ns + AGE_NS or self.now_ns < self.oldest.born_ns)

    cdef void recycle(self) noexcept nogil:
        """Move the recently used routes of the oldest segment to the newest one, and free the oldest segment."""
        cdef Segment* segment = self.oldest
        cdef size_t at = (sizeof(Segment) + 15) & ~<size_t> 15
        cdef bint full = self.full()
        cdef Route* r
        self.rounds += 1
        self.oldest = segment.next
        if self.oldest == NULL:
            self.newest = NULL
        while at < segment.used:
            r = <Route*> (<char*> segment + at)
            at += r.size
            if r.list_id:
                self.look_again(r, full)
        self.size -= segment.size
        free(segment)

    cdef void look_again(self, Route* r, bint full) noexcept nogil:
        """Move `r` to the newest segment if it was used recently and is not outdated; otherwise drop it.

        If `full` is true, also drop one in four of the used routes.
        """
        cdef uint32_t* generations = self.lists[r.list_id].generations
        cdef Route* copy = NULL
        cdef size_t at
        if (r.used and generations != NULL and r.generation == generations[<unsigned char> r.key[0]]
                and not (full and ((r.hash >> 8) + self.rounds) & 3 == 0)):
            copy = <Route*> self.reserve(r.size, True)
        if copy == NULL:
            self.forget(r)
            return
        memcpy(copy, r, r.size)
        shift(copy, <size_t> ((<char*> r.groups - <char*> r.targets) // <Py_ssize_t> sizeof(Target)),
              <char*> copy - <char*> r)
        copy.used = False
        at = (r.hash >> 7) & self.mask
        while self.entries[at].route != r:
            at = (at + 1) & self.mask
        self.entries[at].route = copy

    # -- statistics ----------------------------------------------------------------------------------------

    def fanout(self, uint32_t list_id) -> tuple:
        """Return (most receivers of one route, receivers of all routes together) of one subscription list.

        Only cached routes are counted, and a queue group counts as one receiver.
        """
        cdef size_t at, widest = 0, total = 0, receivers
        cdef Route* r
        if self.entries == NULL or self.lists[list_id].n_routes == 0:
            return 0, 0
        for at in range(self.mask + 1):
            r = self.entries[at].route
            if self.entries[at].hash and r.list_id == list_id:
                receivers = r.n + r.n_groups
                total += receivers
                widest = max(widest, receivers)
        return widest, total
