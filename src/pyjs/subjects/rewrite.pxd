"""Subject transforms in C, for the message path."""
from libc.stdint cimport uint32_t

cdef struct Part:               # a part of a destination
    const char* text            # NULL: the part is a token of the subject
    uint32_t size               # of the text
    uint32_t token              # index of the token in the subject

cdef class Rewrite:
    """A subjects.transform.SubjectTransform in a form that C code can apply."""
    cdef readonly object transform      # computes destinations that have a mapping function
    cdef readonly bytes source
    cdef const char* pattern            # source, which the transform keeps alive
    cdef size_t pattern_len
    cdef bint plain                     # the destination has only literal and copied tokens
    cdef Part* parts
    cdef uint32_t n_parts
    cdef uint32_t n_tokens              # number of leading tokens of the subject whose offsets are needed
    cdef int tail_from                  # index of the first token that is copied after all parts; -1: none

    cdef bint fits(self, const char* s, size_t n) noexcept nogil
    # Return the destination for s[:n], which must match the source, in memory that the caller frees; NULL: no
    # memory. Wildcards in s count as ordinary tokens.
    cdef char* apply(self, const char* s, size_t n, uint32_t* size) noexcept nogil
    cdef size_t size_of(self, const char** starts, const char* end) noexcept nogil
    cdef char* apply_function(self, const char* s, size_t n, uint32_t* size) noexcept
