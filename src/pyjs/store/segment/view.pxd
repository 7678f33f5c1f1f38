"""A view, which is memory for the plain image of one segment file; each read fills the chunks that it needs."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.sequences cimport Filled

cdef class ViewCache:
    """The views of all streams of a node; one limit of bytes applies to all of them."""
    cdef public uint64_t held_max   # maximum number of filled bytes
    cdef readonly uint64_t held     # number of filled bytes
    # address of each View -> None, least recently used first; freed views are removed
    cdef dict views
    cdef uint64_t reads             # number of records read in views

    cdef int make_room(self) except -1
    cdef bint is_over(self)

cdef inline void note_use(ViewCache cache, Filled* filled) noexcept nogil:
    """Record a read in the view, so that the view is not freed soon."""
    cache.reads += 1
    filled.used = cache.reads

cdef class View:
    """The image of a segment in private memory. A reader with pointers into it must hold a reference to the view."""
    cdef ViewCache cache
    cdef object owner               # a weak reference to the SegmentMaps that has this view
    cdef uint32_t number            # number of the view's segment
    cdef uint64_t held              # number of its filled bytes
    cdef uint64_t looked_at         # `reads` when make_room last checked this view
    cdef object room                # an mmap that is never closed
    cdef char* memory               # the memory of `room`
    cdef readonly uint64_t size
    cdef Filled filled
    cdef object image               # store/format/outer_header.PlainImage
    cdef bint passing               # created by a bulk read, which frees it after reading the segment
    cdef dict torn                  # chunk -> (offset in the image at which to read on, unreadable places in it)

    cdef int fill(self, object fd, uint64_t begin, uint64_t end, uint64_t limit) except -1
    cdef int put(self, const char* data, uint64_t at, size_t n) except -1
    cdef int count(self, uint64_t n) except -1
    cdef int give_up(self) except -1
    cdef void leave(self) noexcept
    cdef int fill_chunk(self, uint64_t chunk, uint64_t limit) except -1
