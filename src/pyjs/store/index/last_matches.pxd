"""The last matches of expensive filters with wildcards in one store."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.filter cimport StoreFilter

cdef class LastMatches:
    """The results of the last searches that took long, for filters that are likely to be searched again."""
    # filter -> (its last match, last_seq at that time), the one unused for longest first
    cdef readonly dict results
    cdef uint64_t falls                 # Catalogue.falls at the last search

    cpdef uint64_t last_match(self, Catalogue catalogue, bytes subject)
    cdef uint64_t find(self, Catalogue catalogue, bytes subject, int64_t* work) noexcept
    cdef uint64_t find_since(self, Catalogue catalogue, StoreFilter wanted, uint64_t match,
                             uint64_t up_to) noexcept nogil
