"""Subjects that clients may not use, because the server itself does: told by how they begin.

Inline, since every message to a subject that begins with $ or _ is looked at.
"""
from libc.string cimport memcmp


cdef inline bint reserved_reply(const char* p, size_t n) noexcept nogil:
    """Reply subjects that only the server may use."""
    if n < 5 or (p[0] != c'$' and p[0] != c'_'):
        return False
    return ((n > 8 and memcmp(p, b"$JS.ACK.", 8) == 0) or memcmp(p, b"_R_.", 4) == 0
            or memcmp(p, b"_GR_.", 5) == 0)


cdef inline bint reserved_subject(const char* p, size_t n) noexcept nogil:
    """Publish subjects that only servers may use among themselves."""
    if n < 5 or (p[0] != c'$' and p[0] != c'_'):
        return False
    return memcmp(p, b"$NRG.", 5) == 0 or memcmp(p, b"_GR_.", 5) == 0
