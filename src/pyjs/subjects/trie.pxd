"""The trie that stores subscriptions by the tokens of their subjects, and the walks that find them."""
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from pyjs.base.table cimport Table

cdef struct SubState:  # the state of a subscription; part of its Subscription object, which the Sublist holds
    uint64_t delivered
    uint64_t max                # UNSUB max; 0: unlimited
    const char* sid
    uint32_t sid_len
    uint32_t queue_id           # 0: a plain subscription
    uint32_t weight             # number of members of a queue group at another server; 0: a local subscription
    uint32_t queue_len
    const char* queue           # the name of the queue group
    bint closed                 # removed, or at its maximum: no more messages are delivered
    bint filtered               # sink.accepts(subject) decides whether a route includes it
    PyObject* sink              # borrowed: `owner` holds a reference
    PyObject* owner             # the Subscription
    TrieNode* node              # NULL: not inserted
    SubState* previous          # neighbours at the same node, oldest first, which is the order of delivery
    SubState* next

cdef struct TrieNode:
    Table children              # first token of the label -> TrieNode*; `slots` is NULL until the first child
    TrieNode* any_token         # the child whose label begins with *
    TrieNode* any_tail          # the child for >
    uint32_t label_size         # 0: this is the root, or the > child of its parent
    uint32_t token_size         # bytes of the first token of the label
    SubState* first
    SubState* last
    TrieNode* parent
    char label[1]               # the tokens without a final >, joined by dots; extends beyond the struct

cdef struct Step:               # a node to visit later in the walk
    TrieNode* node
    size_t end                  # offset in the subject where the token ends that the first token of the label matched

cdef struct Found:              # the result of a walk; the memory is used again by the next walk
    SubState** subs
    size_t n
    size_t room
    Step* steps
    size_t n_steps
    size_t steps_room
    uint64_t visited            # number of nodes visited and subscriptions found in all walks
    bint filtered               # some of `subs` have `filtered` set
    bint inexact                # set by trie_walk_prefix: the result depends on the tail
    bint failed                 # no memory

cdef TrieNode* trie_new() except NULL
cdef int trie_insert(TrieNode* root, SubState* sub, const char* s, size_t n) except -1
cdef void trie_remove(SubState* sub) noexcept nogil
cdef void trie_free(TrieNode* root) noexcept nogil
cdef void found_begin(Found* found) noexcept nogil
cdef void found_free(Found* found) noexcept nogil
# Collect the subscriptions that match s[:n]. With `covering`, s may have wildcards, and a subscription must match
# all that s matches.
cdef void trie_walk(Found* found, TrieNode* root, const char* s, size_t n, bint covering) noexcept nogil
# Walk as trie_walk does, for a prefix that ends with a dot, followed by any tail: one token, or several if `deep`.
cdef void trie_walk_prefix(Found* found, TrieNode* root, const char* s, size_t n, bint deep) noexcept nogil
