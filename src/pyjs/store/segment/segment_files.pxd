"""The directory of a stream's segments."""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from pyjs.store.open_files cimport OpenFiles

cdef class SegmentFiles:
    """The directory of a stream's segments, with its unsynced files and names."""
    cdef readonly object disk               # base.disk.Disk
    cdef readonly OpenFiles handles         # of the node
    cdef readonly object log                # base.log.Log
    cdef readonly str directory
    cdef readonly uint64_t incarnation
    cdef readonly object key                # keys.StreamKey; None: the stream is not encrypted
    cdef bytes meta                         # the stream's metadata for META records; b"": unknown
    cdef list unsynced                      # paths of segments written since the last sync
    cdef list found                         # paths of segments whose writes a killed process may not have synced
    cdef list replaced             # of open_files.ReplacedFile, which upkeep will close
    cdef bint names_unsynced                # names in the directory have changed since the last sync
    cdef uint16_t version         # version of the open segment's format; 0: not known
    cdef public int64_t ids_from  # ns; ids of messages since then are still needed; INT64.high: no ids are needed
    cdef readonly set suspects  # numbers of segments in which the recovery saw damage without examining it
    cdef readonly dict last_times  # path of a retired segment with needed ids -> time of its last message, ns
    cdef readonly dict kept                 # the same, for files that were renamed to keep their ids
    cdef public tuple names_above           # directories above that already existed; the first job syncs their names

    cdef bint keeps_ids(self, int64_t last_ts) noexcept nogil
    cdef void wrote(self, str path) except *
