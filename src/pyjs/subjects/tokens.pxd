"""Subjects as bytes in C: validity, wildcards, matching."""

cdef bint valid_subject(const char* s, size_t n) noexcept nogil         # wildcards allowed as whole tokens
cdef bint valid_literal(const char* s, size_t n) noexcept nogil         # as in PUB: no wildcard tokens
cdef bint has_wildcard(const char* s, size_t n) noexcept nogil
cdef bint matches(const char* subject, size_t n, const char* filter, size_t m) noexcept nogil
cdef bint overlaps(const char* a, size_t n, const char* b, size_t m) noexcept nogil
cdef bint no_empty_token(const char* s, size_t n) noexcept nogil
