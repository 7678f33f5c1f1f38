"""A tree of the tokens of many filters, which shows whether any of the filters matches a subject.

A match visits each node of the tree at most once, usually one or two for each token of the subject, however many
filters there are. The tree borrows the strings of the filters, and uses about 60 bytes for each of their tokens.

Compiled, because each of a million subjects may be asked about (measured by benchmarks/hostile.py filter-updates).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memset

from pyjs.base.grow cimport grow
from pyjs.base.ref_table cimport ref_free, ref_put, ref_search
from pyjs.base.table cimport table_hash

cdef enum:
    NODES_MAX = 0x7fffffff


cdef inline size_t token_size(const char* at, size_t left) noexcept nogil:
    cdef const char* dot = <const char*> memchr(at, c'.', left)
    return left if dot == NULL else dot - at


cdef inline uint32_t tag_of(uint32_t parent, const char* token, size_t n) noexcept nogil:
    return <uint32_t> (table_hash(token, n) >> 32) ^ (parent * <uint32_t> 0x9E3779B1)


cdef uint32_t child_of(FilterTree* x, uint32_t parent, const char* token, size_t n) noexcept nogil:
    """Return the number of the child of `parent` for a literal token, or 0 if there is none."""
    cdef uint32_t tag = tag_of(parent, token, n)
    cdef uint32_t slot = tag & x.children.mask
    cdef uint32_t found = ref_search(&x.children, tag, &slot)
    cdef FilterNode* node
    while found:
        node = &x.nodes[found]
        if node.parent == parent and node.size == n and memcmp(node.token, token, n) == 0:
            return found
        slot = (slot + 1) & x.children.mask
        found = ref_search(&x.children, tag, &slot)
    return 0


cdef uint32_t node_new(FilterTree* x, uint32_t parent, const char* token, size_t n) noexcept nogil:
    """Add a node to which its parent does not link yet; return the number of the node, or 0 if out of memory."""
    if x.n >= NODES_MAX or grow(<void**> &x.nodes, &x.room, <size_t> x.n + 2, sizeof(FilterNode)) != 0:
        return 0
    if x.n == 0:
        memset(&x.nodes[0], 0, sizeof(FilterNode))
        x.n = 1
    memset(&x.nodes[x.n], 0, sizeof(FilterNode))
    x.nodes[x.n].token, x.nodes[x.n].size, x.nodes[x.n].parent = token, n, parent
    x.n += 1
    return x.n - 1


cdef int filter_tree_add(FilterTree* x, const char* pattern, size_t n) noexcept nogil:
    cdef uint32_t node = 0, child
    cdef size_t at = 0, size, depth = 0
    while at <= n:
        if at + 1 == n and pattern[at] == c'>' and node:
            x.nodes[node].rest = True
            break
        size = token_size(pattern + at, n - at)
        depth += 1
        if size == 1 and pattern[at] == c'*':
            child = x.nodes[node].star if x.n else 0
            if child == 0:
                child = node_new(x, node, pattern + at, size)
                if child == 0:
                    return -1
                x.nodes[node].star = child
        else:
            child = child_of(x, node, pattern + at, size)
            if child == 0:
                child = node_new(x, node, pattern + at, size)
                if child == 0 or ref_put(&x.children, tag_of(node, pattern + at, size), child) != 0:
                    return -1
        node = child
        at += size + 1
        if at > n:
            x.nodes[node].ends = True
    x.depth = max(x.depth, depth)
    return 0


cdef int filter_tree_fit(FilterTree* x) noexcept nogil:
    x.stack = <Place*> malloc((x.depth + 1) * sizeof(Place))
    return -1 if x.stack == NULL or x.n == 0 else 0


cdef void filter_tree_free(FilterTree* x) noexcept nogil:
    ref_free(&x.children)
    free(x.nodes)
    free(x.stack)
    memset(x, 0, sizeof(FilterTree))


cdef bint filter_tree_matches(FilterTree* x, const char* subject, size_t n) noexcept nogil:
    cdef size_t left = 1, at, size
    cdef uint32_t node, child
    x.stack[0].node, x.stack[0].at = 0, 0
    while left:
        left -= 1
        node, at = x.stack[left].node, x.stack[left].at
        while True:
            if at > n:
                if x.nodes[node].ends:
                    return True
                break
            if x.nodes[node].rest:
                return True
            size = token_size(subject + at, n - at)
            child = child_of(x, node, subject + at, size)
            at += size + 1
            if child == 0:
                child = x.nodes[node].star
            elif x.nodes[node].star:
                x.stack[left].node, x.stack[left].at = x.nodes[node].star, at
                left += 1
            if child == 0:
                break
            node = child
    return False
