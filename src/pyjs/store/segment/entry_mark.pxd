"""Marks: the entry of its log that a replicated stream applied last, stored together with the entry's effects."""
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    MARK_SIZE_MAX = 312         # maximum bytes of the body of a STATE record with a mark

cdef class EntryMark:
    """The mark of an entry: the records before the mark have the effects of all entries up to this entry."""
    cdef readonly uint64_t index, term
    cdef readonly int64_t ns            # ns since the epoch, time of the entry
    cdef readonly uint64_t group        # identity of the group of replicas whose log has the entry
    cdef readonly int64_t ids_from      # ns since the epoch; ids of earlier messages no longer count
    cdef readonly bytes last_id         # Nats-Msg-Id of the stream's last message, at most 256 bytes; b"": none
    cdef const char* id_text            # points into `last_id`
    cdef size_t id_len

    cdef size_t write(self, char* out) noexcept nogil       # write the mark to `out`; return its size in bytes
