"""The subscription list: a trie of subject tokens, and a cache of the routes that publishing found in it.

Knows nothing of what a sink is. A route is everything that delivery needs for one literal subject: the plain
subscriptions, one group per queue name, and the prebuilt start of each line on the wire. Routes are found in a
hash table; a miss walks the trie and builds one.

A SUB or UNSUB of a literal subject removes that subject's route. One with wildcards outdates the routes of its
class, which is the first byte of the subject (all classes when the first token is a wildcard): they are rebuilt
when they are next asked for, or freed by `trim`.

Subjects with a unique tail (`_INBOX.id.N`, `$JS.ACK.stream.consumer.…`) would fill the cache with routes used
once. They share one route per prefix, as long as no subscription tells tails apart; where one does, the prefix is
marked inexact and the whole subject is looked up.

Long because the walks of the trie, the routes they make and what outdates a route change together.
Compiled: every message passes `find` (benchmarks/: core publish, 1-1, 150,000 distinct subjects).
"""
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcpy, memcmp, memset

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.base.table cimport table_free, table_get, table_init, table_next, table_put, table_remove
from pyjs.subjects.tokens cimport has_wildcard, no_empty_token

SOURCE_HASH = PYJS_SOURCE_HASH

cdef enum:
    CACHE_MAX = 1000000         # routes; 200-300 bytes each
    SWEEP_STEP = 2048           # slots that one trim looks at
    PREFIXED_MAX = 4096         # bytes of a subject each prefix of which is looked up; one for each token

cdef struct Branch:             # of a walk: go on with `node` for the tokens from `at`
    TrieNode* node
    size_t at

cdef struct Found:              # subscriptions collected by a walk
    PyObject** subs
    size_t n
    size_t room
    size_t visited
    bint inexact
    Branch* branches            # still to be walked, the next one last
    size_t n_branches, branch_room

cdef Route NOTHING              # what a failed miss answers: nobody is interested
memset(&NOTHING, 0, sizeof(Route))


cdef class Subscription:
    """One subscription of one sink."""

    def __cinit__(self, object sink, bytes subject, bytes queue=b"", bytes sid=b""):
        self.sink = sink
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.state.sid = sid
        self.state.sid_len = <uint32_t> len(sid)
        self.state.delivered = 0
        self.state.max = 0
        self.state.closed = False

    @property
    def delivered(self) -> int:
        """Messages delivered since SUB."""
        return self.state.delivered

    @property
    def max(self) -> int:
        """Deliveries after which it ends (UNSUB max); 0: unlimited."""
        return self.state.max

    @max.setter
    def max(self, value) -> None:
        self.state.max = value

    @property
    def closed(self) -> bool:
        """Whether it delivers nothing more."""
        return self.state.closed

    @closed.setter
    def closed(self, value) -> None:
        self.state.closed = value


# -- the trie --------------------------------------------------------------------------------------------------

cdef TrieNode* new_node() except NULL:
    cdef TrieNode* node = <TrieNode*> calloc(1, sizeof(TrieNode))
    if node == NULL:
        raise MemoryError
    return node


cdef inline void put_off(TrieNode** rest, TrieNode* node) noexcept nogil:
    """Put `node` on a list of nodes to be freed; its memory for subscriptions, freed first, is the link."""
    if node != NULL:
        free(node.subs)
        node.subs = <PyObject**> rest[0]
        rest[0] = node


cdef void free_node(TrieNode* node) noexcept:
    """Free `node` and everything below; without recursion, since clients say how deep a subject is."""
    cdef TrieNode* rest = NULL
    cdef size_t at
    put_off(&rest, node)
    while rest != NULL:
        node = rest
        rest = <TrieNode*> node.subs
        put_off(&rest, node.any_token)
        put_off(&rest, node.any_tail)
        if node.children.slots != NULL:
            at = table_next(&node.children, 0)
            while at <= node.children.mask:
                put_off(&rest, <TrieNode*> node.children.slots[at].value)
                at = table_next(&node.children, at + 1)
            table_free(&node.children)
        free(node)


cdef inline bint bare(TrieNode* node) noexcept nogil:
    """Whether nothing hangs on `node` any more."""
    return node.n_subs == 0 and branches(node) == 0


cdef inline size_t branches(TrieNode* node) noexcept nogil:
    return node.children.used + (node.any_token != NULL) + (node.any_tail != NULL)


cdef inline TrieNode* child(TrieNode* node, const char* token, size_t n) noexcept nogil:
    if node.children.slots == NULL:
        return NULL
    return <TrieNode*> table_get(&node.children, token, n)


cdef inline size_t token_end(const char* s, size_t n, size_t i) noexcept nogil:
    cdef const char* dot = <const char*> memchr(s + i, c'.', n - i)
    return n if dot == NULL else <size_t> (dot - s)


cdef inline TrieNode* below(TrieNode* node, const char* s, size_t n, size_t i) noexcept nogil:
    """The node of the token at `i`, of a subscription's subject that is in the trie."""
    cdef size_t end = token_end(s, n, i)
    if end - i == 1 and s[i] == c'*':
        return node.any_token
    if end - i == 1 and s[i] == c'>' and end == n:
        return node.any_tail
    return child(node, s + i, end - i)


cdef void cut(TrieNode* node, const char* s, size_t n, size_t i) noexcept:
    """Free the branch that the token at `i` leads to."""
    cdef size_t end = token_end(s, n, i)
    cdef TrieNode* branch = below(node, s, n, i)
    if branch == node.any_token:
        node.any_token = NULL
    elif branch == node.any_tail:
        node.any_tail = NULL
    else:
        table_remove(&node.children, s + i, end - i)
    free_node(branch)


cdef int collect(Found* found, TrieNode* node) except -1 nogil:
    cdef uint32_t i
    cdef PyObject** more
    if found.n + node.n_subs > found.room:
        more = <PyObject**> realloc(found.subs, (found.room * 2 + node.n_subs) * sizeof(PyObject*))
        if more == NULL:
            with gil:
                raise MemoryError
        found.subs = more
        found.room = found.room * 2 + node.n_subs
    for i in range(node.n_subs):
        found.subs[found.n] = node.subs[i]
        found.n += 1
    return 0


cdef int put_by(Found* found, TrieNode* node, size_t at) except -1 nogil:
    """Note a branch to be walked later: `node` for the tokens from `at`."""
    cdef Branch* more
    if found.n_branches == found.branch_room:
        more = <Branch*> realloc(found.branches, (found.branch_room * 2 + 16) * sizeof(Branch))
        if more == NULL:
            with gil:
                raise MemoryError
        found.branches = more
        found.branch_room = found.branch_room * 2 + 16
    found.branches[found.n_branches].node = node
    found.branches[found.n_branches].at = at
    found.n_branches += 1
    return 0


cdef void forget(Found* found) noexcept nogil:
    free(found.subs)
    free(found.branches)


cdef int walk(Found* found, TrieNode* node, const char* s, size_t n, size_t i) except -1 nogil:
    """Collect the subscriptions below `node` that match s[i:], all tokens of it.

    Wildcards before literals at each token. What waits for its turn is noted, at most one branch for each token: no
    recursion, since clients say how many tokens a subject has.
    """
    cdef size_t end
    cdef TrieNode* literal
    put_by(found, node, i)
    while found.n_branches:
        found.n_branches -= 1
        node, i = found.branches[found.n_branches].node, found.branches[found.n_branches].at
        if i > n:
            collect(found, node)
            continue
        found.visited += 1
        if node.any_tail != NULL:
            collect(found, node.any_tail)
        end = token_end(s, n, i)
        literal = child(node, s + i, end - i)
        if literal != NULL:
            put_by(found, literal, end + 1)
        if node.any_token != NULL:
            put_by(found, node.any_token, end + 1)
    return 0


cdef int walk_prefix(Found* found, TrieNode* node, const char* s, size_t n, bint deep) except -1 nogil:
    """As walk for s, a prefix that ends with a dot, and any tail: one token, or several when `deep`."""
    cdef size_t end, i
    cdef TrieNode* literal
    put_by(found, node, 0)
    while found.n_branches:
        found.n_branches -= 1
        node, i = found.branches[found.n_branches].node, found.branches[found.n_branches].at
        if node.any_tail != NULL:
            collect(found, node.any_tail)
        if i < n:
            end = token_end(s, n, i)
            literal = child(node, s + i, end - i)
            if literal != NULL:
                put_by(found, literal, end + 1)
            if node.any_token != NULL:
                put_by(found, node.any_token, end + 1)
            continue
        if node.children.used or (deep and node.any_token != NULL):
            found.inexact = True
        if node.any_token != NULL and not deep:
            collect(found, node.any_token)
    return 0


# -- routes ----------------------------------------------------------------------------------------------------

cdef void free_route(Route* r) noexcept:
    cdef uint32_t i
    if r == NULL:
        return
    for i in range(r.n_groups):
        free(r.groups[i].targets)
    free(r.groups)
    free(r.targets)
    free(r)


cdef inline void fill(Target* t, Subscription sub, char* head, size_t head_len) noexcept:
    t.sink = <PyObject*> sub.sink
    t.sub = &sub.state
    t.head = head
    t.head_len = <uint32_t> head_len
    t.memo = NULL


cdef size_t write_head(char* out, const char* subject, size_t n, Subscription sub) noexcept:
    memcpy(out, b"HMSG ", 5)
    memcpy(out + 5, subject, n)
    out[5 + n] = c' '
    memcpy(out + 6 + n, sub.state.sid, sub.state.sid_len)
    out[6 + n + sub.state.sid_len] = c' '
    return 7 + n + sub.state.sid_len


cdef int add_to_group(Route* r, Subscription sub, char* head, size_t head_len) except -1:
    """Put `sub` into the group of its queue name, a new one if it is the first of that name."""
    cdef uint32_t i
    cdef Group* group = NULL
    cdef bytes queue
    for i in range(r.n_groups):
        queue = (<list> <object> r.owner)[i]
        if queue == sub.queue:
            group = &r.groups[i]
            break
    if group == NULL:
        (<list> <object> r.owner).insert(r.n_groups, sub.queue)
        r.groups = <Group*> realloc(r.groups, (r.n_groups + 1) * sizeof(Group))
        group = &r.groups[r.n_groups]
        group.targets = NULL
        group.n = 0
        r.n_groups += 1
    group.targets = <Target*> realloc(group.targets, (group.n + 1) * sizeof(Target))
    fill(&group.targets[group.n], sub, head, head_len)
    group.n += 1
    return 0


cdef void refuse_filtered(Found* found, const char* subject, size_t n, bint exact) noexcept:
    """Leave out subscriptions whose sink does not accept `subject`; a prefix cannot tell, so it is inexact."""
    cdef size_t i, kept = 0
    cdef Subscription sub
    for i in range(found.n):
        sub = <Subscription> found.subs[i]
        if sub.filtered and not exact:
            found.inexact = True
        if not sub.filtered or not exact or sub.sink.accepts(subject[:n]):
            found.subs[kept] = found.subs[i]
            kept += 1
    found.n = kept


cdef Route* build(Found* found, const char* subject, size_t n, bint heads) except NULL:
    """Make a route of what a walk found. Its memory: the targets, and the heads behind them."""
    cdef Route* r = <Route*> calloc(1, sizeof(Route))
    cdef size_t i, size = 0, plain = 0, head_len
    cdef Subscription sub
    cdef char* at
    cdef list owner
    if r == NULL:
        raise MemoryError
    refuse_filtered(found, subject, n, heads)
    r.inexact = found.inexact
    if found.n == 0:
        return r
    for i in range(found.n):
        sub = <Subscription> found.subs[i]
        plain += not sub.queue
        size += 8 + n + sub.state.sid_len
    r.targets = <Target*> malloc(plain * sizeof(Target) + (size if heads else 0) + 1)
    if r.targets == NULL:
        free(r)
        raise MemoryError
    at = <char*> (r.targets + plain)
    owner = []              # the groups' names in front, the Subscriptions behind
    Py_INCREF(owner)
    r.owner = <PyObject*> owner
    for i in range(found.n):
        sub = <Subscription> found.subs[i]
        owner.append(sub)
        head_len = write_head(at, subject, n, sub) if heads else 0
        if sub.queue:
            add_to_group(r, sub, at if heads else NULL, head_len)
        else:
            fill(&r.targets[r.n], sub, at if heads else NULL, head_len)
            r.n += 1
        at += head_len
    return r


cdef class Sublist:
    """The subscriptions of one account."""

    def __cinit__(self):
        self.root = new_node()
        table_init(&self.cache, 64)
        table_init(&self.prefixes, 64)
        memset(self.generations, 0, sizeof(self.generations))
        self.owned, self.owners = {}, {}
        self.cache_max = CACHE_MAX

    def __dealloc__(self):
        self.drop_all(&self.cache)
        self.drop_all(&self.prefixes)
        table_free(&self.cache)
        table_free(&self.prefixes)
        free_node(self.root)

    cdef void drop_all(self, Table* table) noexcept:
        cdef size_t at = table_next(table, 0)
        while at <= table.mask:
            free_route(<Route*> table.slots[at].value)
            at = table_next(table, at + 1)

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self.owned)

    # -- publishing ----------------------------------------------------------------------------------------

    cdef Route* find_prefixed(self, const char* subject, size_t n) noexcept nogil:
        cdef size_t end = n, dots = 0
        cdef bint deep = n > 8 and memcmp(subject, b"$JS.ACK.", 8) == 0
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
        r = <Route*> table_get(&self.prefixes, subject, end)
        if r == NULL or r.generation != self.generations[<unsigned char> subject[0]]:
            r = self.miss_prefix(subject, end, deep)
        if r.inexact:
            return self.find(subject, n)
        self.finds += 1
        return r

    cdef Route* miss(self, const char* subject, size_t n) noexcept nogil:
        cdef Found found
        cdef Route* r = &NOTHING
        memset(&found, 0, sizeof(Found))
        self.misses += 1
        with gil:
            try:
                if no_empty_token(subject, n):
                    walk(&found, self.root, subject, n, 0)
                r = build(&found, subject, n, True)
                self.keep(&self.cache, subject, n, r)
            except MemoryError:
                r = &NOTHING
        self.visited += found.visited + found.n
        forget(&found)
        return r

    cdef Route* miss_prefix(self, const char* subject, size_t n, bint deep) noexcept nogil:
        cdef Found found
        cdef Route* r = &NOTHING
        memset(&found, 0, sizeof(Found))
        self.misses += 1
        with gil:
            try:
                found.inexact = not no_empty_token(subject, n - 1)
                walk_prefix(&found, self.root, subject, n, deep)
                r = build(&found, subject, n, False)
                self.keep(&self.prefixes, subject, n, r)
            except MemoryError:
                r = &NOTHING
        self.visited += found.visited + found.n
        forget(&found)
        return r

    cdef int keep(self, Table* table, const char* key, size_t n, Route* r) except -1:
        cdef Route* old = <Route*> table_get(table, key, n)
        r.generation = self.generations[<unsigned char> key[0]]
        table_put(table, key, n, r)
        if r.owner != NULL:
            self.owners[<size_t> r.owner] = <list> r.owner
            Py_DECREF(<object> r.owner)
        self.release(old)
        if table.used > self.cache_max and self.sweep_left == 0:
            self.sweep_left = table.mask // 4 + SWEEP_STEP
        return 0

    cdef void release(self, Route* r) noexcept:
        """Free a route, and let go of the Subscriptions that it leads to."""
        if r != NULL and r.owner != NULL:
            self.owners.pop(<size_t> r.owner, None)
        free_route(r)

    # -- subscribing ---------------------------------------------------------------------------------------

    def insert(self, Subscription sub) -> None:
        """Add `sub`; its subject must be valid. Not from inside a delivery."""
        cdef TrieNode* node = self.root
        cdef TrieNode* below
        cdef const char* s = sub.subject
        cdef size_t n = len(sub.subject), i = 0, end
        while i <= n:
            end = token_end(s, n, i)
            if end - i == 1 and s[i] == c'*':
                if node.any_token == NULL:
                    node.any_token = new_node()
                below = node.any_token
            elif end - i == 1 and s[i] == c'>' and end == n:
                if node.any_tail == NULL:
                    node.any_tail = new_node()
                below = node.any_tail
            else:
                below = child(node, s + i, end - i)
                if below == NULL:
                    below = new_node()
                    if node.children.slots == NULL:
                        table_init(&node.children, 4)
                    table_put(&node.children, s + i, end - i, below)
            node = below
            i = end + 1
        self.append_to(node, sub)
        self.owned[id(sub)] = sub
        self.inserts += 1
        self.outdate(sub.subject)

    cdef int append_to(self, TrieNode* node, Subscription sub) except -1:
        cdef PyObject** more
        if node.n_subs == node.room:
            more = <PyObject**> realloc(node.subs, (node.room * 2 + 2) * sizeof(PyObject*))
            if more == NULL:
                raise MemoryError
            node.subs = more
            node.room = node.room * 2 + 2
        node.subs[node.n_subs] = <PyObject*> sub
        node.n_subs += 1
        return 0

    def remove(self, Subscription sub) -> bool:
        """Take `sub` out; False when it was not in. Not from inside a delivery."""
        if self.owned.pop(id(sub), None) is None:
            return False
        sub.state.closed = True
        self.remove_from_trie(sub)
        self.removes += 1
        self.outdate(sub.subject)
        return True

    cdef void remove_from_trie(self, Subscription sub) noexcept:
        """Take `sub` out of its node, and the nodes that only it needed out of the trie."""
        cdef const char* s = sub.subject
        cdef size_t n = len(sub.subject), i = 0, kept_at = 0
        cdef uint32_t at = 0
        cdef TrieNode* node = self.root
        cdef TrieNode* kept = self.root         # the last node on the way that something else needs as well
        while i <= n:
            if node.n_subs or branches(node) > 1:
                kept, kept_at = node, i
            node = below(node, s, n, i)
            i = token_end(s, n, i) + 1
        while at < node.n_subs and node.subs[at] != <PyObject*> sub:
            at += 1
        while at + 1 < node.n_subs:             # the order of subscription is the order of delivery
            node.subs[at] = node.subs[at + 1]
            at += 1
        node.n_subs -= 1
        if bare(node):
            cut(kept, s, n, kept_at)

    cdef void outdate(self, bytes subject) noexcept:
        """Make sure that no route built before answers for a subject that `subject` matches."""
        cdef const char* s = subject
        cdef size_t n = len(subject), i
        if n <= PREFIXED_MAX and not has_wildcard(s, n):
            self.drop(&self.cache, s, n)
            for i in range(n):
                if s[i] == c'.':
                    self.drop(&self.prefixes, s, i + 1)
            return
        if (s[0] == c'*' or s[0] == c'>') and (n == 1 or s[1] == c'.'):
            for i in range(256):
                self.generations[i] += 1
        else:
            self.generations[<unsigned char> s[0]] += 1
        self.sweep_left = self.cache.mask + self.prefixes.mask + 2

    cdef void drop(self, Table* table, const char* key, size_t n) noexcept:
        self.release(<Route*> table_remove(table, key, n))

    def trim(self) -> bool:
        """Free some outdated or surplus routes; call once a turn. Returns whether more is left to do."""
        cdef size_t step = 0
        while self.sweep_left and step < SWEEP_STEP:
            if self.sweep_at > self.cache.mask + self.prefixes.mask + 1:
                self.sweep_at = 0
            if self.sweep_at <= self.cache.mask:
                self.trim_slot(&self.cache, self.sweep_at)
            else:
                self.trim_slot(&self.prefixes, self.sweep_at - self.cache.mask - 1)
            self.sweep_at += 1
            self.sweep_left -= 1
            step += 1
        return self.sweep_left > 0

    cdef void trim_slot(self, Table* table, size_t at) noexcept:
        cdef Route* r
        if at > table.mask or table.slots[at].hash == 0 or table.slots[at].key == NULL:
            return
        r = <Route*> table.slots[at].value
        if r.generation != self.generations[<unsigned char> table.slots[at].key[0]] or table.used > self.cache_max:
            table_remove(table, table.slots[at].key, table.slots[at].key_len)
            self.release(r)

    # -- looking at it -------------------------------------------------------------------------------------

    def match(self, bytes subject) -> list:
        """Return the subscriptions that match the literal `subject`."""
        cdef Found found
        cdef size_t at
        matching = []
        memset(&found, 0, sizeof(Found))
        try:
            walk(&found, self.root, subject, len(subject), 0)
            for at in range(found.n):
                matching.append(<object> found.subs[at])
            return matching
        finally:
            forget(&found)

    def subscriptions(self) -> list:
        """Return all subscriptions, oldest first."""
        return list(self.owned.values())

    def num_cached(self) -> int:
        """Return how many routes are held."""
        return self.cache.used + self.prefixes.used

    def cached_fanout(self) -> tuple:
        """Return (receivers of the widest route, receivers of all routes together) of the routes held."""
        cdef size_t at = table_next(&self.cache, 0)
        cdef size_t widest = 0, total = 0, receivers
        cdef Route* r
        while at <= self.cache.mask:
            r = <Route*> self.cache.slots[at].value
            receivers = r.n + r.n_groups
            total += receivers
            widest = max(widest, receivers)
            at = table_next(&self.cache, at + 1)
        return widest, total
