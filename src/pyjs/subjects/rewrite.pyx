"""Subject transforms in C: imports, exports and mappings of accounts rewrite the subject of each message.

This module composes destinations of literal and copied tokens. SubjectTransform computes destinations with mapping
functions (partition, split, ...), and caches the results for the last few thousand subjects.

Compiled, because it runs for each publish across an import (benchmarks/).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcpy

from pyjs.subjects.tokens cimport matches

cdef enum:
    TOKENS_MAX = 64             # SubjectTransform handles subjects with more tokens


cdef class Rewrite:
    """A SubjectTransform in a form that C code can apply."""

    def __cinit__(self, object transform):
        cdef Part* part
        self.transform = transform
        self.source = transform.source
        self.pattern, self.pattern_len = self.source, len(self.source)
        self.tail_from = transform.tail_from
        self.plain = self.tail_from < TOKENS_MAX
        self.n_tokens = <uint32_t> (self.tail_from + 1)
        self.parts = <Part*> calloc(len(transform.pieces) + 1, sizeof(Part))
        if self.parts == NULL:
            raise MemoryError
        for piece in transform.pieces:
            part = &self.parts[self.n_parts]
            self.n_parts += 1
            if isinstance(piece, bytes):
                # `transform` keeps the piece alive
                part.text, part.size = <bytes> piece, <uint32_t> len(<bytes> piece)
            elif isinstance(piece, int) and piece < TOKENS_MAX:
                part.token = piece
                self.n_tokens = max(self.n_tokens, part.token + 1)
            else:
                self.plain = False

    def __dealloc__(self):
        free(self.parts)

    cdef bint fits(self, const char* s, size_t n) noexcept nogil:
        return n > 0 and matches(s, n, self.pattern, self.pattern_len)

    cdef char* apply(self, const char* s, size_t n, uint32_t* size) noexcept nogil:
        cdef const char* starts[TOKENS_MAX + 1]
        cdef const char* end = s + n
        cdef const char* dot
        cdef char* out
        cdef char* at
        cdef uint32_t i, found = 1
        cdef size_t room
        if not self.plain:
            with gil:
                return self.apply_function(s, n, size)
        starts[0] = s
        while found <= self.n_tokens:
            dot = <const char*> memchr(starts[found - 1], c'.', end - starts[found - 1])
            if dot == NULL:
                break
            starts[found] = dot + 1
            found += 1
        if found <= self.n_tokens:
            starts[found] = end + 1         # the offset after a dot at the end of the subject
        room = self.size_of(starts, end)
        out = at = <char*> malloc(room)
        if out == NULL:
            return NULL
        for i in range(self.n_parts):
            if self.parts[i].text != NULL:
                memcpy(at, self.parts[i].text, self.parts[i].size)
                at += self.parts[i].size
            else:
                room = starts[self.parts[i].token + 1] - starts[self.parts[i].token] - 1
                memcpy(at, starts[self.parts[i].token], room)
                at += room
            at[0] = c'.'
            at += 1
        if self.tail_from >= 0:
            memcpy(at, starts[self.tail_from], end - starts[self.tail_from])
            at += end - starts[self.tail_from] + 1
        size[0] = <uint32_t> (at - out - 1)
        return out

    cdef size_t size_of(self, const char** starts, const char* end) noexcept nogil:
        """Return an upper limit for the size of the destination in bytes, including one trailing dot."""
        cdef size_t size = 1
        cdef uint32_t i
        for i in range(self.n_parts):
            if self.parts[i].text != NULL:
                size += self.parts[i].size + 1
            else:
                size += starts[self.parts[i].token + 1] - starts[self.parts[i].token]
        if self.tail_from >= 0:
            size += end - starts[self.tail_from] + 1
        return size

    cdef char* apply_function(self, const char* s, size_t n, uint32_t* size) noexcept:
        """Return the destination as `apply` does, but compute it with the SubjectTransform.

        Also return NULL if the SubjectTransform has no destination for the subject.
        """
        cdef char* out
        cdef bytes made
        try:
            made = self.transform.apply(s[:n])
        except MemoryError:
            return NULL
        if made is None:
            return NULL
        out = <char*> malloc(len(made) + 1)
        if out != NULL:
            memcpy(out, <const char*> made, len(made))
            size[0] = <uint32_t> len(made)
        return out

    def subject(self, bytes subject):
        """Return the destination for `subject`, or None if the source does not match it or memory runs out.

        `subject` may have wildcards unless the destination has a mapping function.
        """
        cdef uint32_t size = 0
        cdef char* made
        if not subject or not self.fits(subject, len(subject)):
            return None
        made = self.apply(subject, len(subject), &size)
        if made == NULL:
            return None
        try:
            return made[:size]
        finally:
            free(made)
