"""The subjects of one store as a trie of their tokens.

Made when a filter with wildcards first meets many subjects, and kept from then on: its answer costs as much as it
has subjects, not as the store has. A token that only one subject ends with needs no branch of its own: its pointer
is marked by the lowest bit. Knows nothing of messages.

Compiled because a branch is taken per token of each subject (benchmarks/: scaling, subjects).
"""
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.base.table cimport table_free, table_get, table_init, table_next, table_put, table_remove
from pyjs.store.subjects cimport Subject

SOURCE_HASH = PYJS_SOURCE_HASH


cdef inline bint is_leaf(void* child) noexcept nogil:
    return <uintptr_t> child & 1


cdef inline void* as_leaf(Subject* s) noexcept nogil:
    return <void*> (<uintptr_t> s | 1)


cdef inline Subject* leaf(void* child) noexcept nogil:
    return <Subject*> (<uintptr_t> child - 1)


cdef inline size_t token_size(const char* at, size_t left) noexcept nogil:
    cdef const char* dot = <const char*> memchr(at, c'.', left)
    return left if dot == NULL else dot - at


cdef Branch* branch_new() noexcept nogil:
    cdef Branch* b = <Branch*> calloc(1, sizeof(Branch))
    if b == NULL:
        return NULL
    with gil:
        try:
            table_init(&b.children, 4)
        except MemoryError:
            free(b)
            return NULL
    return b


cdef void branch_free(Branch* b) noexcept nogil:
    cdef size_t at
    if b == NULL:
        return
    at = table_next(&b.children, 0)
    while at <= b.children.mask:
        if not is_leaf(b.children.slots[at].value):
            branch_free(<Branch*> b.children.slots[at].value)
        at = table_next(&b.children, at + 1)
    table_free(&b.children)
    free(b)


cdef int put_child(Branch* b, const char* token, size_t n, void* child) noexcept nogil:
    with gil:
        try:
            table_put(&b.children, token, n, child)
        except MemoryError:
            return -1
    return 0


cdef int branch_add(Branch* root, Subject* s) noexcept nogil:
    cdef Branch* b = root
    cdef Branch* below
    cdef void* child
    cdef const char* at = s.name
    cdef size_t left = s.len, n
    while True:
        n = token_size(at, left)
        child = table_get(&b.children, at, n)
        if n == left:                               # the last token
            if child == NULL or is_leaf(child):
                return put_child(b, at, n, as_leaf(s))
            (<Branch*> child).here = s
            return 0
        if child == NULL or is_leaf(child):
            below = branch_new()
            if below == NULL:
                return -1
            if child != NULL:
                below.here = leaf(child)
            if put_child(b, at, n, below) != 0:
                branch_free(below)
                return -1
            child = below
        b = <Branch*> child
        at += n + 1
        left -= n + 1


cdef bint remove_below(Branch* b, const char* at, size_t left) noexcept nogil:
    """Remove the subject whose tokens are at `at`; True: nothing is left of the branch."""
    cdef size_t n = token_size(at, left)
    cdef void* child = table_get(&b.children, at, n)
    cdef Branch* below
    if child == NULL:
        return False
    if is_leaf(child):
        if n < left:                                # another subject: this one was never added
            return False
        table_remove(&b.children, at, n)
    else:
        below = <Branch*> child
        if n == left:
            below.here = NULL
        elif not remove_below(below, at + n + 1, left - n - 1):
            return False
        if below.children.used == 0:
            if below.here == NULL:
                table_remove(&b.children, at, n)
            elif put_child(b, at, n, as_leaf(below.here)) != 0:
                return False
            branch_free(below)
    return b.children.used == 0


cdef void branch_remove(Branch* root, Subject* s) noexcept nogil:
    remove_below(root, s.name, s.len)


cdef int matches_push(Matches* m, Subject* s) noexcept nogil:
    cdef size_t cap
    cdef void* items
    if m.n == m.max:
        return -1
    if m.n == m.cap:
        cap = m.cap * 2 if m.cap else 64
        items = realloc(m.items, cap * sizeof(Subject*))
        if items == NULL:
            return -1
        m.items = <Subject**> items
        m.cap = cap
    m.items[m.n] = s
    m.n += 1
    return 0


cdef int collect_all(Branch* b, Matches* out) noexcept nogil:
    cdef size_t at = table_next(&b.children, 0)
    while at <= b.children.mask:
        if collect_child(b.children.slots[at].value, NULL, 0, out, True) != 0:
            return -1
        at = table_next(&b.children, at + 1)
    return 0


cdef int collect_child(void* child, const char* rest, size_t n, Matches* out, bint everything) noexcept nogil:
    """Collect what is at and below one child: what matches `rest`, or everything."""
    cdef Branch* b
    if is_leaf(child):
        return matches_push(out, leaf(child)) if n == 0 else 0
    b = <Branch*> child
    if n:
        return branch_collect(b, rest, n, out)
    if b.here != NULL and matches_push(out, b.here) != 0:
        return -1
    return collect_all(b, out) if everything else 0


cdef int branch_collect(Branch* b, const char* pattern, size_t n, Matches* out) noexcept nogil:
    cdef size_t size = token_size(pattern, n), at
    cdef const char* rest = pattern + size + 1
    cdef size_t left = n - size - 1 if size < n else 0
    cdef void* child
    if size < n and left == 0:                      # ends with a dot: no subject does
        return 0
    if size == 1 and pattern[0] == c'>' and left == 0:
        return collect_all(b, out)
    if size == 1 and pattern[0] == c'*':
        at = table_next(&b.children, 0)
        while at <= b.children.mask:
            if collect_child(b.children.slots[at].value, rest, left, out, False) != 0:
                return -1
            at = table_next(&b.children, at + 1)
        return 0
    child = table_get(&b.children, pattern, size)
    return 0 if child == NULL else collect_child(child, rest, left, out, False)
