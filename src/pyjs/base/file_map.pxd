"""Reading ahead in maps of files."""
from posix.mman cimport POSIX_MADV_WILLNEED, posix_madvise

cdef enum:
    ADVISED = 4096              # bytes; advice begins at a multiple of this


cdef inline void advise_reads(const char* map, size_t begin, size_t end) noexcept nogil:
    """Make the kernel begin to read the bytes `begin` to `end` of a map into memory, and return at once.

    It is only advice: where pages are larger than ADVISED, the kernel may ignore it.
    """
    begin -= begin % ADVISED
    posix_madvise(<void*> (map + begin), end - begin, POSIX_MADV_WILLNEED)
