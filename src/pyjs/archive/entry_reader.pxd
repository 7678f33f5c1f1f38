"""The reader of an archive's entries, and their bytes; see entry_reader.pyx."""
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    ENTRY_HEAD_MAX = 50         # maximum bytes before the name: five numbers of at most ten bytes

cdef struct EntryView:          # one entry, valid until the next `add`
    const char* name
    const char* body            # headers, then payload
    size_t name_size
    size_t header_size
    size_t size                 # bytes of headers and payload
    uint64_t seq
    int64_t ts

cdef inline uint8_t* write_uvarint(uint8_t* out, uint64_t value) noexcept nogil:
    while value >= 0x80:
        out[0] = <uint8_t> (value | 0x80)
        out += 1
        value >>= 7
    out[0] = <uint8_t> value
    return out + 1

cdef inline uint8_t* write_entry_head(uint8_t* out, EntryView* e) noexcept nogil:
    """Write the numbers of an entry to `out`; return the position for its name, headers and payload."""
    out = write_uvarint(out, e.name_size)
    out = write_uvarint(out, (<uint64_t> e.ts << 1) ^ <uint64_t> (e.ts >> 63))
    out = write_uvarint(out, e.seq)
    out = write_uvarint(out, e.header_size)
    return write_uvarint(out, e.size - e.header_size)

cdef class EntryReader:
    """A reader of the entries of an archive whose bytes arrive in pieces of any size."""
    cdef bytearray _held
    cdef size_t _at                     # offset of the next entry in `_held`
    cdef uint64_t _size_max             # maximum bytes of headers and payload of one entry
    cdef bint _seen_magic

    cdef int peek(self, EntryView* e) except -1     # 1: `e` is the next entry; 0: more bytes are needed
    cdef void pass_by(self, EntryView* e) noexcept  # skip the entry `e`
    cdef size_t read_head(self, uint64_t* numbers) except? 0
