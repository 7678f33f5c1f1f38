"""The trie of the tokens of subscriptions' subjects.

One node per token; `*` and `>` are separate branches. A node has its subscriptions as a chain through their own
memory, so removing one takes constant time. Nothing here is recursive: clients determine the depth of the trie.

A walk visits each node at most once and collects, per level: `>`, the branch of `*`, the branch of the token.
Knows nothing of sinks and routes. Compiled: a route miss walks here (benchmarks/: core publish to new
subjects).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcpy, memset

from pyjs.base.grow cimport grow
from pyjs.base.table cimport table_fit, table_free, table_get, table_init, table_next, table_put, table_remove


cdef TrieNode* trie_new() except NULL:
    return new_node(NULL, NULL, 0)


cdef TrieNode* new_node(TrieNode* parent, const char* token, size_t n) except NULL:
    cdef TrieNode* node = <TrieNode*> calloc(1, sizeof(TrieNode) + n)
    if node == NULL:
        raise MemoryError
    node.parent = parent
    node.token_len = <uint32_t> n
    if n:
        memcpy(node.token, token, n)
    return node


cdef inline bint bare(TrieNode* node) noexcept nogil:
    """Return whether `node` has neither subscriptions nor children."""
    return node.first == NULL and node.children.used == 0 and node.any_token == NULL and node.any_tail == NULL


cdef inline TrieNode* child(TrieNode* node, const char* token, size_t n) noexcept nogil:
    if node.children.used == 0:
        return NULL
    return <TrieNode*> table_get(&node.children, token, n)


cdef inline size_t token_end(const char* s, size_t n, size_t i) noexcept nogil:
    cdef const char* dot = <const char*> memchr(s + i, c'.', n - i)
    return n if dot == NULL else <size_t> (dot - s)


cdef TrieNode* branch(TrieNode* node, const char* token, size_t n, bint last) except NULL:
    """Return the child of `node` for `token`; create it if there is none."""
    cdef TrieNode* below
    if n == 1 and token[0] == c'*':
        if node.any_token == NULL:
            node.any_token = new_node(node, NULL, 0)
        return node.any_token
    if n == 1 and token[0] == c'>' and last:
        if node.any_tail == NULL:
            node.any_tail = new_node(node, NULL, 0)
        return node.any_tail
    below = child(node, token, n)
    if below == NULL:
        if node.children.slots == NULL:
            table_init(&node.children, 1)
        below = new_node(node, token, n)
        try:
            table_put(&node.children, token, n, below)
        except MemoryError:
            free(below)
            raise
    return below


cdef int trie_insert(TrieNode* root, SubState* sub, const char* s, size_t n) except -1:
    cdef TrieNode* node = root
    cdef size_t i = 0, end
    try:
        while i <= n:
            end = token_end(s, n, i)
            node = branch(node, s + i, end - i, end == n)
            i = end + 1
    except MemoryError:
        prune(node)
        raise
    sub.node = node
    sub.next = NULL
    sub.previous = node.last
    if node.last == NULL:
        node.first = sub
    else:
        node.last.next = sub
    node.last = sub
    return 0


cdef void trie_remove(SubState* sub) noexcept nogil:
    cdef TrieNode* node = sub.node
    if sub.previous == NULL:
        node.first = sub.next
    else:
        sub.previous.next = sub.next
    if sub.next == NULL:
        node.last = sub.previous
    else:
        sub.next.previous = sub.previous
    sub.node = NULL
    prune(node)


cdef void prune(TrieNode* node) noexcept nogil:
    """Free `node` and its parents, as long as they have neither subscriptions nor children."""
    cdef TrieNode* parent
    while node.parent != NULL and bare(node):
        parent = node.parent
        if node == parent.any_token:
            parent.any_token = NULL
        elif node == parent.any_tail:
            parent.any_tail = NULL
        else:
            table_remove(&parent.children, node.token, node.token_len)
            table_fit(&parent.children)
        table_free(&node.children)
        free(node)
        node = parent


cdef inline TrieNode* chained(TrieNode* node, TrieNode* chain) noexcept nogil:
    """Insert `node` before a chain through `parent`."""
    if node == NULL:
        return chain
    node.parent = chain
    return node


cdef void trie_free(TrieNode* root) noexcept nogil:
    cdef TrieNode* chain = root
    cdef TrieNode* node
    cdef size_t at
    while chain != NULL:
        node = chain
        chain = chained(node.any_tail, chained(node.any_token, node.parent))
        if node.children.slots != NULL:
            at = table_next(&node.children, 0)
            while at <= node.children.mask:
                chain = chained(<TrieNode*> node.children.slots[at].value, chain)
                at = table_next(&node.children, at + 1)
            table_free(&node.children)
        free(node)


# -- walks -----------------------------------------------------------------------------------------------------

cdef void found_begin(Found* found) noexcept nogil:
    found.n = found.n_steps = 0
    found.filtered = found.inexact = found.failed = False


cdef void found_free(Found* found) noexcept nogil:
    free(found.subs)
    free(found.steps)
    memset(found, 0, sizeof(Found))


cdef void collect(Found* found, TrieNode* node) noexcept nogil:
    cdef SubState* sub = node.first
    found.visited += 1
    while sub != NULL:
        if grow(<void**> &found.subs, &found.room, found.n + 1, sizeof(SubState*)) != 0:
            found.failed = True
            return
        found.subs[found.n] = sub
        found.n += 1
        found.visited += 1
        found.filtered = found.filtered or sub.filtered
        sub = sub.next


cdef void come_back(Found* found, TrieNode* node, size_t at) noexcept nogil:
    """Visit `node` later."""
    if grow(<void**> &found.steps, &found.steps_room, found.n_steps + 1, sizeof(Step)) != 0:
        found.failed = True
        return
    found.steps[found.n_steps].node = node
    found.steps[found.n_steps].at = at
    found.n_steps += 1


cdef void trie_walk(Found* found, TrieNode* root, const char* s, size_t n, bint covering) noexcept nogil:
    cdef TrieNode* node = root
    cdef TrieNode* below
    cdef size_t i = 0, end
    cdef bint tail
    found_begin(found)
    while True:
        found.visited += 1
        if node.any_tail != NULL:
            collect(found, node.any_tail)
        end = token_end(s, n, i)
        tail = covering and end == n and end - i == 1 and s[i] == c'>'      # only another > covers it
        below = NULL
        if not tail:
            if node.children.used:
                below = child(node, s + i, end - i)
            if end == n:
                if node.any_token != NULL:
                    collect(found, node.any_token)
                if below != NULL:
                    collect(found, below)
            elif node.any_token != NULL:
                if below != NULL:
                    come_back(found, below, end + 1)
                below = node.any_token
        if end != n and below != NULL:
            node = below
            i = end + 1
        elif found.n_steps:
            found.n_steps -= 1
            node = found.steps[found.n_steps].node
            i = found.steps[found.n_steps].at
        else:
            return


cdef void at_prefix(Found* found, TrieNode* node, bint deep) noexcept nogil:
    """Collect the subscriptions that match any tail below `node`, the end of the prefix."""
    if node.children.used or (deep and node.any_token != NULL):
        found.inexact = True
    if node.any_tail != NULL:
        collect(found, node.any_tail)
    if node.any_token != NULL and not deep:
        collect(found, node.any_token)


cdef void trie_walk_prefix(Found* found, TrieNode* root, const char* s, size_t n, bint deep) noexcept nogil:
    cdef TrieNode* node = root
    cdef TrieNode* below
    cdef size_t i = 0, end
    found_begin(found)
    while True:
        found.visited += 1
        below = NULL
        if i >= n:
            at_prefix(found, node, deep)
        else:
            if node.any_tail != NULL:
                collect(found, node.any_tail)
            end = token_end(s, n, i)
            below = child(node, s + i, end - i)
            if node.any_token != NULL:
                if below != NULL:
                    come_back(found, below, end + 1)
                below = node.any_token
            i = end + 1
        if below != NULL:
            node = below
        elif found.n_steps:
            found.n_steps -= 1
            node = found.steps[found.n_steps].node
            i = found.steps[found.n_steps].at
        else:
            return
