"""Records that wait for the next write."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from pyjs.consensus.log.group cimport StoredGroup

cdef packed struct Head:
    uint32_t mark, size
    uint8_t kind, flags
    uint16_t entry_kind
    uint32_t body_size
    uint64_t number, synced, before, group, seq, term, vote, commit, last, entry_term, payload_check


cdef class Staging:
    """The end of the log, with the staged records."""
    cdef object shelf                   # shelf.Shelf
    cdef dict groups                    # number -> StoredGroup
    cdef object incarnation
    cdef object file_size
    cdef public object boot
    cdef public object machine          # machine for the headers of new files, see files.Header
    cdef public bint is_in_doubt        # whether groups that are not in the log may have been lost
    cdef public uint64_t number         # number of the next record
    cdef public uint64_t synced         # records up to this number are durable
    cdef readonly uint64_t claimed      # the value of `synced` in the last staged record
    cdef public uint64_t before         # group of the last record; 0: that record is a census
    cdef public uint64_t at             # offset of the next record in the newest file
    cdef list chunks                    # (file, offset, parts)
    cdef list parts                     # parts of the last chunk
    cdef dict touched                   # group -> seq, of groups with records since the last census; 0: removed
    cdef uint64_t census_number         # number of the record with the last census
    cdef public uint64_t census_due_at  # offset in the file at which the next census is due
    cdef object file                    # the newest file, and its end, id and number
    cdef uint64_t file_end, file_id, file_number

    cdef newest(self)
    cdef stage_all(self)
    cdef add_census(self, bytes body, int flags=?)
    cdef int reserve_entries(self, entries, payloads) except -1
    cpdef stage_entries(self, StoredGroup group, uint64_t index, entries, payloads)
    cdef int add(self, StoredGroup group, int kind, int flags, uint64_t index, bytes body, bytes payload,
                 uint64_t entry_term, int entry_kind) except -1
    cdef int put(self, Head* head, bytes body, bytes payload) except -1
