"""The trie that stores subscriptions by the tokens of their subjects.

The label of a node is one or more tokens, so a subject that shares no token with others is one node, however long it
is. The children of a node differ in the first token of their labels; the child whose label begins with `*`, and the
child for `>`, are stored separately. A node is split where a new subject differs from its label; the parts are not
joined again. The subscriptions of a node are a chain through their own memory, so removing one takes constant time.

A walk visits each node at most once. Below a node, it visits the child for `>`, the child for `*`, and the child for
the token. No function is recursive, since clients determine the depth of the trie.

This module knows nothing of sinks and routes. Compiled: runs for every route miss (benchmarks/: core publish to new
subjects).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from pyjs.base.grow cimport grow
from pyjs.base.table cimport table_fit, table_free, table_get, table_init, table_next, table_put, table_remove

cdef enum:
    NO_MATCH = 0                # a value below the size of any first token


cdef TrieNode* trie_new() except NULL:
    return new_node(NULL, NULL, 0)


cdef inline size_t token_end(const char* s, size_t n, size_t i) noexcept nogil:
    cdef const char* dot = <const char*> memchr(s + i, c'.', n - i)
    return n if dot == NULL else <size_t> (dot - s)


cdef inline bint is_star(const char* token, size_t n) noexcept nogil:
    return n == 1 and token[0] == c'*'


cdef inline void set_size(TrieNode* node, size_t n) noexcept nogil:
    """Set the sizes of the label and of its first token; the bytes of the label must already be in the node."""
    node.label_size = <uint32_t> n
    node.token_size = <uint32_t> token_end(node.label, n, 0)


cdef TrieNode* new_node(TrieNode* parent, const char* label, size_t n) except NULL:
    cdef TrieNode* node = <TrieNode*> calloc(1, sizeof(TrieNode) + n)
    if node == NULL:
        raise MemoryError
    node.parent = parent
    if n:
        memcpy(node.label, label, n)
        set_size(node, n)
    return node


cdef inline bint bare(TrieNode* node) noexcept nogil:
    """Return whether `node` has neither subscriptions nor children."""
    return node.first == NULL and node.children.used == 0 and node.any_token == NULL and node.any_tail == NULL


cdef inline TrieNode* child(TrieNode* node, const char* token, size_t n) noexcept nogil:
    if node.children.used == 0:
        return NULL
    return <TrieNode*> table_get(&node.children, token, n)


cdef int put_child(TrieNode* parent, const char* token, size_t n, TrieNode* node) except -1:
    """Make `node` the child of `parent` for `token`, in place of any existing child for this token."""
    if is_star(token, n):
        parent.any_token = node
        return 0
    if parent.children.slots == NULL:
        table_init(&parent.children, 1)
    return table_put(&parent.children, token, n, node)


cdef size_t shared_size(const char* a, size_t n, const char* b, size_t m) noexcept nogil:
    """Return the size in bytes of the longest common prefix of `a` and `b` that consists of whole tokens."""
    cdef size_t i = 0, size = 0
    while i < n and i < m and a[i] == b[i]:
        if a[i] == c'.':
            size = i
        i += 1
    return i if (i == n or a[i] == c'.') and (i == m or b[i] == c'.') else size


cdef TrieNode* split(TrieNode* node, size_t size) except NULL:
    """Move the first `size` bytes of the label of `node`, which are whole tokens, to a new parent.

    Return the parent.
    """
    cdef const char* rest = node.label + size + 1
    cdef size_t rest_size = node.label_size - size - 1
    cdef TrieNode* parent = new_node(node.parent, node.label, size)
    try:
        put_child(parent, rest, token_end(rest, rest_size, 0), node)
        put_child(node.parent, parent.label, parent.token_size, parent)
    except MemoryError:
        table_free(&parent.children)
        free(parent)
        raise
    node.parent = parent
    memmove(node.label, rest, rest_size)
    set_size(node, rest_size)
    return parent


cdef TrieNode* branch(TrieNode* node, const char* tokens, size_t n) except NULL:
    """Return the child of `node` whose label is a prefix of `tokens`.

    Create the child, or split an existing child, if necessary.
    """
    cdef size_t first = token_end(tokens, n, 0), shared
    cdef TrieNode* below = node.any_token if is_star(tokens, first) else child(node, tokens, first)
    if below != NULL:
        shared = shared_size(below.label, below.label_size, tokens, n)
        return below if shared == below.label_size else split(below, shared)
    below = new_node(node, tokens, n)
    try:
        put_child(node, tokens, first, below)
    except MemoryError:
        free(below)
        raise
    return below


cdef int trie_insert(TrieNode* root, SubState* sub, const char* s, size_t n) except -1:
    cdef bint tail = s[n - 1] == c'>' and (n == 1 or s[n - 2] == c'.')
    # the offset after the dot that follows, or would follow, the last token
    cdef size_t end = n - 1 if tail else n + 1
    cdef size_t i = 0
    cdef TrieNode* node = root
    try:
        while i < end:
            node = branch(node, s + i, end - 1 - i)
            i += node.label_size + 1
        if tail and node.any_tail == NULL:
            node.any_tail = new_node(node, NULL, 0)
    except MemoryError:
        prune(node)
        raise
    if tail:
        node = node.any_tail
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
    """Free `node` and then its ancestors, until one has subscriptions or children, or is the root."""
    cdef TrieNode* parent
    while node.parent != NULL and bare(node):
        parent = node.parent
        if node == parent.any_token:
            parent.any_token = NULL
        elif node == parent.any_tail:
            parent.any_tail = NULL
        else:
            table_remove(&parent.children, node.label, node.token_size)
            table_fit(&parent.children)
        table_free(&node.children)
        free(node)
        node = parent


cdef inline TrieNode* chained(TrieNode* node, TrieNode* chain) noexcept nogil:
    """Put `node` before a chain of nodes linked by `parent`; return the new chain. A NULL node is not added."""
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


cdef inline void come_back(Found* found, TrieNode* node, size_t end) noexcept nogil:
    """Queue `node` for a later visit.

    The first token of its label matches the token of the subject that ends at offset `end`.
    """
    if grow(<void**> &found.steps, &found.steps_room, found.n_steps + 1, sizeof(Step)) != 0:
        found.failed = True
        return
    found.steps[found.n_steps].node = node
    found.steps[found.n_steps].end = end
    found.n_steps += 1


cdef inline TrieNode* next_step(Found* found, size_t* end) noexcept nogil:
    """Take the last queued node; set `end` to the end of the token that the first token of its label matches."""
    found.n_steps -= 1
    end[0] = found.steps[found.n_steps].end
    return found.steps[found.n_steps].node


cdef inline void look(Found* found, TrieNode* node, const char* s, size_t n, size_t i, bint covering) noexcept nogil:
    """Collect the subscriptions at the `>` child of `node`, and queue its children that match one token.

    The token begins at offset `i` of s[:n].
    """
    cdef size_t end = token_end(s, n, i)
    cdef TrieNode* below
    found.visited += 1
    if node.any_tail != NULL:
        collect(found, node.any_tail)
    if covering and end == n and end - i == 1 and s[i] == c'>':     # only a > covers a >
        return
    below = child(node, s + i, end - i)
    if below != NULL:
        come_back(found, below, end)
    if node.any_token != NULL:
        come_back(found, node.any_token, end)


cdef size_t rest_matched(TrieNode* node, const char* s, size_t n, size_t* end, bint covering) noexcept nogil:
    """Match the label of `node`, from its second token on, with the tokens of s[:n] after `end`, and advance `end`.

    Return the size of the matching part of the label, or NO_MATCH if a token does not match. The matching part is
    shorter than the label if s[:n] ends first.
    """
    cdef const char* label = node.label
    cdef size_t at = node.token_size, size = node.label_size, i = end[0], begin, stop
    while at < size and i < n:
        at += 1
        i += 1
        begin = i
        if label[at] == c'*' and (at + 1 == size or label[at + 1] == c'.'):
            at += 1
            i = token_end(s, n, i)
            if covering and i == n and i - begin == 1 and s[begin] == c'>':
                return NO_MATCH
            continue
        stop = token_end(label, size, at)
        if n - i < stop - at or memcmp(s + i, label + at, stop - at) != 0:
            return NO_MATCH
        i += stop - at
        at = stop
        if i < n and s[i] != c'.':
            return NO_MATCH
    end[0] = i
    return at


cdef inline size_t matched(TrieNode* node, const char* s, size_t n, size_t* end, bint covering) noexcept nogil:
    """Match the label as `rest_matched` does; if the label is a single token, there is nothing left to match."""
    return node.label_size if node.label_size == node.token_size else rest_matched(node, s, n, end, covering)


cdef void trie_walk(Found* found, TrieNode* root, const char* s, size_t n, bint covering) noexcept nogil:
    cdef TrieNode* node
    cdef size_t end = 0
    found_begin(found)
    look(found, root, s, n, 0, covering)
    while found.n_steps:
        node = next_step(found, &end)
        if matched(node, s, n, &end, covering) != node.label_size:
            continue
        if end == n:
            collect(found, node)
        else:
            look(found, node, s, n, end + 1, covering)


cdef void at_prefix(Found* found, TrieNode* node, bint deep) noexcept nogil:
    """Collect the subscriptions that match every tail after the prefix, which ends at `node`.

    Set `found.inexact` if there are subscriptions that match only some tails.
    """
    if node.children.used or (deep and node.any_token != NULL):
        found.inexact = True
    if node.any_tail != NULL:
        collect(found, node.any_tail)
    # a label of several tokens needs a longer tail
    if node.any_token != NULL and not deep and node.any_token.label_size == 1:
        collect(found, node.any_token)


cdef void within_label(Found* found, TrieNode* node, size_t at, bint deep) noexcept nogil:
    """Collect as `at_prefix` does, for a prefix that ends inside the label of `node`.

    The token after the prefix begins at offset `at` of the label.
    """
    cdef bint last = at + 1 == node.label_size
    if deep or node.label[at] != c'*' or not (last or node.label[at + 1] == c'.'):
        found.inexact = True
    elif last:
        collect(found, node)


cdef void trie_walk_prefix(Found* found, TrieNode* root, const char* s, size_t n, bint deep) noexcept nogil:
    cdef TrieNode* node
    cdef size_t size, end = 0, last = n - 1         # without the final dot
    found_begin(found)
    look(found, root, s, last, 0, False)
    while found.n_steps:
        node = next_step(found, &end)
        size = matched(node, s, last, &end, False)
        if size == NO_MATCH:
            continue
        if size < node.label_size:
            within_label(found, node, size + 1, deep)
        elif end == last:
            at_prefix(found, node, deep)
        else:
            look(found, node, s, last, end + 1, False)
