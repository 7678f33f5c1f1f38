"""Descriptors of the files that a node's streams and consumers write."""

cdef class OpenFile:
    cdef readonly str path
    cdef readonly object fd
    cdef bint dirty                     # it has bytes that no job covers yet
    cdef int syncing                    # number of jobs that are syncing it
    cdef bint forgotten                 # `close` was called: the last job closes the descriptor

cdef class OpenFiles:
    cdef object disk                    # base.disk.Disk
    cdef Py_ssize_t count_max
    cdef object idle                    # OrderedDict of path -> OpenFile, least recently used first
    cdef object held                    # the same
    cdef OpenFile newest                # the last file in `held`, or None
    cdef dict failed                    # path -> error of a sync that was done only to free a descriptor
    cdef Py_ssize_t dirty               # number of files in `held` with unsynced bytes

    cdef Py_ssize_t size(self) except -1
    cdef bint is_crowded(self) noexcept
    cpdef open(self, str path, bint create=?)
    cpdef wrote(self, str path)
    cdef int let_go(self, OpenFile file) except -1
    cdef object open_on_disk(self, str path, bint create)
    cdef bint close_one(self) except -1
    cdef int sync_oldest(self) except -1
