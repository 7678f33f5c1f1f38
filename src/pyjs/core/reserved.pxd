"""Reserved subjects, which clients may not use; they are recognized by their prefix.

Inline: every message whose subject begins with $ or _ is checked.
"""
from libc.string cimport memcmp


cdef inline bint reserved_reply(const char* p, size_t n) noexcept nogil:
    """Return whether only the server may use this reply subject."""
    if n < 5 or (p[0] != c'$' and p[0] != c'_'):
        return False
    return ((n > 8 and memcmp(p, b"$JS.ACK.", 8) == 0) or memcmp(p, b"_R_.", 4) == 0
            or memcmp(p, b"_GR_.", 5) == 0)


cdef inline bint reserved_subject(const char* p, size_t n) noexcept nogil:
    """Return whether only servers may publish to this subject."""
    if n < 5 or (p[0] != c'$' and p[0] != c'_'):
        return False
    return memcmp(p, b"$NRG.", 5) == 0 or memcmp(p, b"_GR_.", 5) == 0
