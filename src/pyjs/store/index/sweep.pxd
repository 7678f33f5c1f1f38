"""The removal of many messages of one subject, a few thousand entries at a time."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport Entry, Found, Segment
from pyjs.store.index.subjects cimport Subject

# whether examining all entries from the subject's first message to `before_seq` is faster than searching each message
cdef bint is_dense(Catalogue c, Subject* subject, uint64_t before_seq) noexcept nogil
# Mark the entries found, at least one and all of `subject`, as dead, and subtract them from all counts but that of
# the subject. The log of drops gets no entries.
cdef void unlink_found(Catalogue c, Segment* s, Subject* subject, Found* found) noexcept nogil
# subtract `count` messages from the subject: all that it had below `before_seq`. This may remove the subject.
cdef void subtract(Catalogue c, Subject* subject, uint64_t count, uint64_t before_seq) noexcept nogil
