"""Marks, which name the last entry that a replicated stream has applied, and are stored with the entry's effects."""
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    PLAIN_MARK_SIZE_MAX = 312   # maximum bytes of the body of a STATE record with a mark without clock steps
    MARK_SIZE_MAX = 442         # the same with clock steps

cdef class EntryMark:
    """The mark of an entry; the records before the mark have the effects of all entries up to this one."""
    cdef readonly uint64_t index, term
    cdef readonly int64_t ns            # ns since the epoch, time of the entry
    cdef readonly uint64_t group        # identity of the group of replicas whose log has the entry
    cdef readonly int64_t ids_from      # ns since the epoch; ids of earlier messages no longer count
    cdef readonly bytes last_id         # Nats-Msg-Id of the stream's last message, at most 256 bytes; b"": none
    cdef readonly bytes steps           # clock steps, see ClockSteps.encode; b"": none
    cdef bint precedes_step             # the next mark has clock steps
    cdef bytes rest                     # the bytes after the numbers: `last_id`, and `steps` if there are any
    cdef const char* rest_text          # points into `rest`
    cdef size_t rest_len

    cdef size_t write(self, char* out) noexcept nogil       # write the mark to `out`; return its size in bytes
