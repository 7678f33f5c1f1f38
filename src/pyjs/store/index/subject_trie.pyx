"""A trie of the tokens of a store's subjects, for filters with wildcards.

The first filter with wildcards over many subjects builds the trie; later searches use it again. The cost of a search
depends on the number of its matches, not on the number of subjects. A branch is a node where subjects differ, or a
token that several subjects share. If only one subject continues after a token, this continuation is a leaf of eight
bytes, and its tokens are read from the subject. This module knows nothing of messages.

No function is recursive, since clients determine the depth of the trie.
Compiled, because a search visits a branch per token of each subject (measured in benchmarks/: scaling, subjects).
"""
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

from pyjs.base.grow cimport grow, grow_by_half
from pyjs.base.ref_table cimport ref_fit, ref_free, ref_put, ref_remove, ref_search
from pyjs.base.table cimport table_hash
from pyjs.store.index.subjects cimport subject_by_id, subject_matches

cdef uint32_t LEAF = 0x80000000u    # a bit of a child: the child is a leaf, and the other bits are a subject id
cdef enum:
    BRANCHES_MAX = 0x7fffffff


cdef inline size_t token_size(const char* at, size_t left) noexcept nogil:
    cdef const char* dot = <const char*> memchr(at, c'.', left)
    return left if dot == NULL else dot - at


cdef inline uint32_t tag_of(const char* token, size_t n) noexcept nogil:
    return <uint32_t> (table_hash(token, n) >> 32)


cdef inline Subject* leaf(SubjectIndex* x, uint32_t child) noexcept nogil:
    return subject_by_id(x.subjects, child & ~LEAF)


# -- branches --------------------------------------------------------------------------------------------------

cdef int more_branches(SubjectIndex* x) noexcept nogil:
    if x.n + 1 >= BRANCHES_MAX:
        return -1
    return grow_by_half(<void**> &x.branches, &x.room, x.n + 1, sizeof(Branch*))


cdef Branch* branch_new(SubjectIndex* x, Branch* parent, const char* token, size_t n) noexcept nogil:
    """Return a new branch to which its parent does not link yet, or NULL if out of memory."""
    cdef Branch* b
    if x.free == 0 and more_branches(x) != 0:
        return NULL
    b = <Branch*> malloc(sizeof(Branch) + n)
    if b == NULL:
        return NULL
    memset(b, 0, sizeof(Branch))
    b.number = x.free if x.free else x.n
    if x.free:
        x.free = <uint32_t> (<uintptr_t> x.branches[b.number] >> 1)
    else:
        x.n += 1
    x.branches[b.number] = b
    if parent != NULL:
        b.parent = parent.number
        b.begin = parent.begin + <uint32_t> n + 1
        b.token_size = <uint32_t> n
        memcpy(b.token, token, n)
    return b


cdef void branch_free(SubjectIndex* x, Branch* b) noexcept nogil:
    """Free a branch that its parent no longer links to."""
    x.branches[b.number] = <Branch*> ((<uintptr_t> x.free << 1) | 1)
    x.free = b.number
    ref_free(&b.children)
    free(b)


cdef SubjectIndex* subject_index_new(SubjectTable* subjects) noexcept nogil:
    cdef SubjectIndex* x = <SubjectIndex*> calloc(1, sizeof(SubjectIndex))
    if x == NULL:
        return NULL
    x.subjects = subjects
    if branch_new(x, NULL, NULL, 0) == NULL:
        subject_index_free(x)
        return NULL
    return x


cdef void subject_index_free(SubjectIndex* x) noexcept nogil:
    cdef uint32_t i
    if x == NULL:
        return
    for i in range(x.n):
        if not <uintptr_t> x.branches[i] & 1:
            ref_free(&x.branches[i].children)
            free(x.branches[i])
    free(x.branches)
    free(x)


# -- children --------------------------------------------------------------------------------------------------

cdef bint leads_to(SubjectIndex* x, Branch* b, uint32_t child, const char* token, size_t n) noexcept nogil:
    """Return whether `token` leads from `b` to the child `child`."""
    cdef Subject* s
    cdef Branch* below
    if not child & LEAF:
        below = x.branches[child]
        return below.token_size == n and memcmp(below.token, token, n) == 0
    s = leaf(x, child)
    return s.len >= b.begin + n and memcmp(s.name + b.begin, token, n) == 0 \
        and (s.len == b.begin + n or s.name[b.begin + n] == c'.')


cdef uint32_t child_of(SubjectIndex* x, Branch* b, const char* token, size_t n, uint32_t* slot) noexcept nogil:
    """Return the child of `b` to which `token` leads, and set `slot` to its slot; return 0 if there is none."""
    cdef uint32_t tag = tag_of(token, n), child
    slot[0] = tag & b.children.mask
    child = ref_search(&b.children, tag, slot)
    while child and not leads_to(x, b, child, token, n):
        slot[0] = (slot[0] + 1) & b.children.mask
        child = ref_search(&b.children, tag, slot)
    return child


cdef int put_leaf(Branch* b, Subject* s) noexcept nogil:
    """Add `s` as a leaf below `b`, or as the subject that ends at `b`; no child of `b` may have the same token."""
    cdef const char* token = s.name + b.begin
    if s.len + <uint32_t> 1 == b.begin:
        b.here = s.id + 1
        return 0
    return ref_put(&b.children, tag_of(token, token_size(token, s.len - b.begin)), LEAF | s.id)


cdef Branch* split(SubjectIndex* x, Branch* b, uint32_t slot, size_t n) noexcept nogil:
    """Replace the leaf in `slot` with a branch that contains it; return NULL if out of memory."""
    cdef Subject* s = leaf(x, b.children.slots[slot].ref)
    cdef Branch* below = branch_new(x, b, s.name + b.begin, n)
    if below == NULL:
        return NULL
    if put_leaf(below, s) != 0:
        branch_free(x, below)
        return NULL
    b.children.slots[slot].ref = below.number
    return below


# -- subjects --------------------------------------------------------------------------------------------------

cdef int subject_index_add(SubjectIndex* x, Subject* s) noexcept nogil:
    cdef Branch* b = x.branches[0]
    cdef const char* token
    cdef uint32_t child, slot = 0
    cdef size_t n
    while s.len + <uint32_t> 1 != b.begin:
        token = s.name + b.begin
        n = token_size(token, s.len - b.begin)
        child = child_of(x, b, token, n, &slot)
        if child == 0 or child == (LEAF | s.id):
            return 0 if child else put_leaf(b, s)
        b = split(x, b, slot, n) if child & LEAF else x.branches[child]
        if b == NULL:
            return -1
    b.here = s.id + 1
    return 0


cdef void subject_index_remove(SubjectIndex* x, Subject* s) noexcept nogil:
    cdef Branch* b = x.branches[0]
    cdef uint32_t child, slot = 0
    while s.len + <uint32_t> 1 != b.begin:
        child = child_of(x, b, s.name + b.begin, token_size(s.name + b.begin, s.len - b.begin), &slot)
        if child == (LEAF | s.id):
            ref_remove(&b.children, slot)
            prune(x, b)
            return
        if child == 0 or child & LEAF:              # the subject was never added
            return
        b = x.branches[child]
    if b.here == s.id + 1:
        b.here = 0
        prune(x, b)


cdef uint32_t only_leaf(Branch* b) noexcept nogil:
    """Return the leaf that can replace `b` if only one subject is left at or below it, otherwise 0."""
    cdef uint32_t i
    if b.children.used == 0:
        return LEAF | (b.here - 1) if b.here else 0
    if b.children.used > 1 or b.here:
        return 0
    for i in range(b.children.mask + 1):
        if b.children.slots[i].ref:
            return b.children.slots[i].ref if b.children.slots[i].ref & LEAF else 0
    return 0


cdef void prune(SubjectIndex* x, Branch* b) noexcept nogil:
    """Remove `b` and then its ancestors, except the root, while they have fewer than two subjects.

    If one subject remains, it becomes a leaf of the parent.
    """
    cdef Branch* parent
    cdef uint32_t only, slot
    ref_fit(&b.children)
    only = only_leaf(b)
    while b.number and (only or b.children.used == 0):
        parent = x.branches[b.parent]
        slot = tag_of(b.token, b.token_size) & parent.children.mask
        while parent.children.slots[slot].ref != b.number:
            slot = (slot + 1) & parent.children.mask
        if only:
            parent.children.slots[slot].ref = only
        else:
            ref_remove(&parent.children, slot)
            ref_fit(&parent.children)
        branch_free(x, b)
        b = parent
        only = only_leaf(b)


# -- searching -------------------------------------------------------------------------------------------------

cdef Matches matches_up_to(size_t most) noexcept nogil:
    cdef Matches m
    memset(&m, 0, sizeof(Matches))
    m.max, m.looks_left = most, <size_t> -1
    return m


cdef int matches_push(Matches* m, Subject* s) noexcept nogil:
    if m.n == m.max or grow(<void**> &m.items, &m.cap, m.n + 1, sizeof(Subject*)) != 0:
        return -1
    m.items[m.n] = s
    m.n += 1
    return 0


cdef uint32_t next_child(SubjectIndex* x, Branch* b, const char* token, size_t n, bint wild) noexcept nogil:
    """Return the next child that a search for `token` visits, or 0 if there are no more."""
    cdef uint32_t slot = 0
    if not wild:
        b.at += 1
        return child_of(x, b, token, n, &slot) if b.at == 1 else 0
    while b.children.slots != NULL and b.at <= b.children.mask:
        b.at += 1
        if b.children.slots[b.at - 1].ref:
            return b.children.slots[b.at - 1].ref
    return 0


cdef int subject_index_collect(SubjectIndex* x, const char* pattern, size_t n, Matches* out) noexcept nogil:
    cdef Branch* b = x.branches[0]
    cdef Branch* below
    cdef Subject* s
    cdef const char* rest
    cdef size_t left, size
    cdef uint32_t child
    cdef bint all, last
    b.at = b.pattern_at = 0
    while out.looks_left:
        out.looks_left -= 1
        rest, left = pattern + b.pattern_at, n - b.pattern_at
        size = token_size(rest, left)
        all = left == 1 and rest[0] == c'>'
        last = size == left
        child = next_child(x, b, rest, size, all or (size == 1 and rest[0] == c'*'))
        if child == 0:
            if b.number == 0:
                return 0
            b = x.branches[b.parent]
            continue
        if child & LEAF:
            s = leaf(x, child)
            if (all or subject_matches(rest, left, s.name + b.begin, s.len - b.begin)) and matches_push(out, s) != 0:
                return -1
            continue
        below = x.branches[child]
        if last and below.here and matches_push(out, subject_by_id(x.subjects, below.here - 1)) != 0:
            return -1
        if all or not last:
            below.at = 0
            below.pattern_at = b.pattern_at if all else b.pattern_at + <uint32_t> size + 1
            b = below
    return -1


cdef bint subject_index_is_every(SubjectIndex* x, const char* pattern, size_t n) noexcept nogil:
    cdef Branch* b = x.branches[0]
    cdef uint32_t slot
    cdef size_t size
    while b.here == 0:    # a subject that ends at `b` does not match: `>` needs at least one more token
        if n == 1 and pattern[0] == c'>':
            return True
        size = token_size(pattern, n)
        if b.children.used != 1 or size == n:
            return False
        slot = 0
        while b.children.slots[slot].ref == 0:
            slot += 1
        if b.children.slots[slot].ref & LEAF:
            return False
        b = x.branches[b.children.slots[slot].ref]
        if not (size == 1 and pattern[0] == c'*') and \
                (size != b.token_size or memcmp(pattern, b.token, size) != 0):
            return False
        pattern += size + 1
        n -= size + 1
    return False
