"""Subjects as bytes: validity, wildcards, matching, overlap.

A subject is a list of tokens, joined by dots; no token is empty. `*` as a whole token matches one token, `>` as the
last token matches one or more. Anything else is literal, even `foo*`. Source: nats.docs "Subject-Based Messaging".
Compiled, because each route miss and each read with a filter match here (measured in benchmarks/: 150,000 distinct
subjects).
"""
from libc.string cimport memchr, memcmp


cdef inline size_t token_len(const char* s, size_t n) noexcept nogil:
    """Return the length in bytes of the first token of `s`, which has `n` bytes."""
    cdef const char* dot = <const char*> memchr(s, c'.', n)
    return n if dot == NULL else dot - s


cdef bint valid_tokens(const char* s, size_t n, bint wildcards) noexcept nogil:
    cdef size_t i = 0, t, j
    if n == 0:
        return False
    while True:
        t = token_len(s + i, n - i)
        if t == 0:
            return False
        if t == 1 and (s[i] == c'*' or s[i] == c'>'):
            if not wildcards or (s[i] == c'>' and i + t != n):
                return False
        for j in range(i, i + t):
            if s[j] == c' ' or s[j] == c'\t' or s[j] == c'\r' or s[j] == c'\n' or s[j] == c'\f':
                return False
        i += t
        if i == n:
            return True
        i += 1              # skip the dot; a subject that ends with a dot has an empty last token
        if i == n:
            return False


cdef bint no_empty_token(const char* s, size_t n) noexcept nogil:
    """Return whether `s` has no empty token.

    As in nats-server, a message to a subject with an empty token has no receivers, not even subscriptions to `>`.
    """
    cdef size_t i
    if n == 0 or s[0] == c'.' or s[n - 1] == c'.':
        return False
    for i in range(1, n):
        if s[i] == c'.' and s[i - 1] == c'.':
            return False
    return True


cdef bint valid_subject(const char* s, size_t n) noexcept nogil:
    return valid_tokens(s, n, True)


cdef bint valid_literal(const char* s, size_t n) noexcept nogil:
    return valid_tokens(s, n, False)


cdef bint has_wildcard(const char* s, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if s[i] == c'*' or s[i] == c'>':
            if (i == 0 or s[i - 1] == c'.') and (i + 1 == n or s[i + 1] == c'.'):
                return True
    return False


cdef bint matches(const char* subject, size_t n, const char* filter, size_t m) noexcept nogil:
    """Return whether `filter` matches the literal `subject`."""
    cdef size_t i = 0, j = 0, t, u
    while True:
        t = token_len(subject + i, n - i)
        u = token_len(filter + j, m - j)
        if u == 1 and filter[j] == c'>' and j + 1 == m:
            return True
        if not (u == 1 and filter[j] == c'*') and (t != u or memcmp(subject + i, filter + j, t) != 0):
            return False
        i += t
        j += u
        if i == n or j == m:
            return i == n and j == m
        i += 1
        j += 1


cdef bint overlaps(const char* a, size_t n, const char* b, size_t m) noexcept nogil:
    """Return whether there is a literal subject that both `a` and `b` match."""
    cdef size_t i = 0, j = 0, t, u
    while True:
        t = token_len(a + i, n - i)
        u = token_len(b + j, m - j)
        if (t == 1 and a[i] == c'>' and i + 1 == n) or (u == 1 and b[j] == c'>' and j + 1 == m):
            return True
        if not (t == 1 and a[i] == c'*') and not (u == 1 and b[j] == c'*'):
            if t != u or memcmp(a + i, b + j, t) != 0:
                return False
        i += t
        j += u
        if i == n or j == m:
            return i == n and j == m
        i += 1
        j += 1


def is_valid_subject(bytes subject) -> bool:
    """Return whether `subject` is valid; it may have wildcards."""
    return valid_subject(subject, len(subject))


def is_valid_literal(bytes subject) -> bool:
    """Return whether `subject` is valid and has no wildcards."""
    return valid_literal(subject, len(subject))


def subject_has_wildcard(bytes subject) -> bool:
    """Return whether a token of `subject` is `*` or `>`."""
    return has_wildcard(subject, len(subject))


def subject_matches(bytes subject, bytes subject_filter) -> bool:
    """Return whether `subject_filter` matches the literal `subject`."""
    return matches(subject, len(subject), subject_filter, len(subject_filter))


def subjects_overlap(bytes a, bytes b) -> bool:
    """Return whether there is a literal subject that both `a` and `b` match."""
    return overlaps(a, len(a), b, len(b))


def is_subset(bytes inner, bytes outer) -> bool:
    """Return whether `outer` matches every subject that `inner` matches."""
    a = inner.split(b".")
    b = outer.split(b".")
    for at, token in enumerate(b):
        if at >= len(a):
            return False
        if token == b">" and at == len(b) - 1:
            return True
        if a[at] == b">" and at == len(a) - 1:
            return False
        if token != b"*" and token != a[at]:
            return False
    return len(a) == len(b)
