"""Conversion between the messages of a store and the entries of an archive, many at a time.

The functions handle only ordinary messages. Both stop before a message that is unreadable, damaged, refused or
expired, and the caller handles this message separately (snapshot.py, writing.py).

Compiled, because no Python object is created per message (measured by benchmarks/archives.py).
"""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from pyjs.archive.entry_reader cimport ENTRY_HEAD_MAX, EntryReader, EntryView, write_entry_head
from pyjs.store.index.sequences cimport index_next_live
from pyjs.store.store cimport Record, StreamStore
from pyjs.subjects.tokens cimport valid_literal
from pyjs.wire.compose cimport compose
from pyjs.wire.ops cimport Msg

cdef extern from "string.h" nogil:
    const void* memmem(const void* text, size_t n, const void* part, size_t part_n)

cdef enum:
    LINE_SIZE = 8               # bytes of "NATS/1.0", the first line of headers
    END_SIZE = 4                # bytes of the two line ends after the last header


def read_messages(StreamStore store not None, uint64_t seq, uint64_t last_seq, uint32_t limit, size_t size_max):
    """Return archive entries of the messages from `seq` to `last_seq`, and the next sequence to read (0: none left).

    Stop after `limit` messages or `size_max` bytes, and before a message that cannot be read. If the first message
    cannot be read, return no bytes and the sequence of this message.
    """
    cdef bytearray out = bytearray()
    cdef size_t n = 0, room = 0, need
    cdef EntryView e
    cdef Record r
    cdef uint8_t* to
    while True:
        seq = index_next_live(&store.catalogue.index, seq)
        if seq > last_seq:
            seq = 0
        if seq == 0 or limit == 0 or n >= size_max or store.load(seq, &r) != 0:
            break
        need = n + ENTRY_HEAD_MAX + r.subject_len + r.size
        if need > room:
            room = max(need, 2 * room, size_max)
            PyByteArray_Resize(out, room)
        e.name_size, e.header_size, e.size, e.seq, e.ts = r.subject_len, r.header_len, r.size, r.seq, r.ts
        to = write_entry_head(<uint8_t*> PyByteArray_AS_STRING(out) + n, &e)
        memcpy(to, r.subject, r.subject_len)
        memcpy(to + r.subject_len, r.body, r.size)
        n = to + r.subject_len + r.size - <uint8_t*> PyByteArray_AS_STRING(out)
        seq += 1
        limit -= 1
    PyByteArray_Resize(out, n)
    return out, seq


def append_messages(StreamStore store not None, EntryReader entries not None, uint64_t message_max, bint has_ttls,
                    uint32_t subject_max, size_t size_max) -> int:
    """Append messages of an archive to a store; return the total size of their entries in bytes.

    Stop after `size_max` bytes, and before an entry that is incomplete, is not a message, is larger than
    `message_max`, is otherwise invalid, or is refused by the store. If `has_ttls` is set, also stop before a message
    with its own TTL.
    """
    cdef EntryView e
    cdef size_t begin = entries._at
    cdef Msg m
    while entries._at - begin < size_max and entries.peek(&e):
        if e.size > message_max or e.name_size > subject_max or e.seq <= store.catalogue.last_seq or e.ts < 0 \
                or not valid_literal(e.name, e.name_size) or (e.header_size and not are_plain(&e, has_ttls)):
            break
        if e.seq - 1 > store.catalogue.last_seq and store.skip_to(e.seq - 1) != 0:
            break
        compose(&m, e.name, e.name_size, e.body, e.header_size, e.size)
        if store.append(&m, e.ts) == 0:
            break
        entries.pass_by(&e)
    return entries._at - begin


cdef bint are_plain(EntryView* e, bint has_ttls) noexcept nogil:
    """Return whether the headers of a message are valid and have no TTL that takes effect."""
    return e.header_size >= LINE_SIZE + END_SIZE and memcmp(e.body, b"NATS/1.0", LINE_SIZE) == 0 \
        and memcmp(e.body + e.header_size - END_SIZE, b"\r\n\r\n", END_SIZE) == 0 \
        and not (has_ttls and memmem(e.body, e.header_size, b"Nats-TTL:", 9) != NULL)
