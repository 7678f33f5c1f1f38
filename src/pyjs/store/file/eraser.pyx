"""Secure erasure, which overwrites removed messages in their files.

The record keeps its place and its checksum, because the next record's checksum depends on it; a flag in the record
shows that its body is erased. A compressed segment is first replaced with its plain image.

This module knows nothing of the reasons for removals. Compiled: it holds plain pointers (benchmarks/store_start.py
has stores with erased messages).
"""
from libc.stdint cimport uint8_t
from libc.string cimport memset

from pyjs.store.format.record cimport FLAG_ERASED, FLAG_EXTENDED, FLAG_UNFINISHED
from pyjs.store.index.sequences cimport ENTRY_EXTENDED, index_last
from pyjs.store.segment.contents cimport subject_at

from pyjs.base.disk import closing
from pyjs.store.format.image import UNREADABLE, open_image
from pyjs.store.format.recast import restore_plain

cdef enum:
    CODEC_MASK = 0xff00         # bits of `encoding` for the compression
    FLAGS_AT = 5                # offset of the flags in a record


cdef class Eraser:
    def __init__(self, SegmentWriter writer not None) -> None:
        self.files = writer.files
        self.writer = writer

    cdef void overwrite(self, Segment* s, uint32_t i) noexcept:
        """Overwrite the headers and payload of entry i with zeros, and flag the record as erased.

        The checksum stays, since the chain uses it. An error is only logged.
        """
        cdef Entry* e = &s.entries[i]
        cdef uint64_t at = subject_at(e) + e.subject_len
        self.writer.compactor.outdate(s.number)
        try:
            if s.encoding & CODEC_MASK:
                self.unpack(s)
            path = self.files.path_of(s.number)
            fd = self.files.handles.open(path)
            self.files.wrote(path)
            if s.encoding:
                self.overwrite_encrypted(fd, s, e, at)
            else:
                flags = flags_of(e, self.files.disk.read_at(fd, 1, <uint64_t> e.offset + FLAGS_AT))
                self.files.disk.write_at(fd, flags, <uint64_t> e.offset + FLAGS_AT)
                self.files.disk.write_at(fd, bytes(e.size), at)
            self.writer.syncs.written_mark += 1
        except UNREADABLE as error:
            self.files.log.error(f"{self.files.path_of(s.number)}: message {s.base + i} is removed but its bytes "
                                 f"could not be overwritten: {error}")

    cdef void unpack(self, Segment* s) except *:
        """Replace a compressed segment with its plain image, so that a message in it can be overwritten."""
        s.encoding = restore_plain(self.files.disk, self.files.path_of(s.number), self.files.key, self.files.meta)
        self.files.handles.close(self.files.path_of(s.number))        # the open descriptor belongs to the old file
        self.writer.maps.forget(s)
        self.files.names_unsynced = True
        self.writer.compactor.note_encoding(s)

    cdef void overwrite_encrypted(self, int fd, Segment* s, Entry* e, uint64_t at) except *:
        """Overwrite a message of an encrypted segment, whose file is open as `fd`.

        Zeros are written without encryption, since encrypted zeros would reveal the key stream. A later decryption
        of these zeros gives meaningless bytes.
        """
        is_growing = not s.sealed and s == index_last(&self.writer.catalogue.index)
        encrypted = self.writer.encryption if is_growing else None
        if encrypted is None:                # the segment is sealed, or it is the last one and the server is starting
            encrypted = open_image(self.files.disk, self.files.path_of(s.number), fd, self.files.key)
        place = <uint64_t> e.offset + FLAGS_AT
        stored = self.files.disk.read_at(fd, 1, place + encrypted.shift)
        flags = flags_of(e, encrypted.stream.apply(stored, place))
        self.files.disk.write_at(fd, encrypted.stream.apply(flags, place), place + encrypted.shift)
        self.files.disk.write_at(fd, bytes(e.size), encrypted.shift + at)
        if s.data != NULL and s.filled != NULL and at + e.size <= s.map_size:
            memset(<char*> s.data + at, 0, e.size)
            (<char*> s.data)[e.offset + FLAGS_AT] = flags[0]


cdef bytes flags_of(Entry* e, bytes stored):
    """Return the flags for the record of an erased message; `stored` has the old flags, or b"" if unreadable.

    A message inside a batch keeps the flag that says so: if the end of a batch is missing, a start removes the batch.
    """
    cdef uint8_t flags = FLAG_ERASED | (FLAG_EXTENDED if e.flags & ENTRY_EXTENDED else 0)
    return bytes([flags | (stored[0] & FLAG_UNFINISHED if stored else 0)])


cdef bint is_overwritten(SegmentFiles files, Segment* s, Entry* e) noexcept:
    cdef uint64_t at = subject_at(e) + e.subject_len
    path = files.path_of(s.number)
    try:
        with closing(files.disk, files.disk.open_read_only(path)) as fd:
            shift = open_image(files.disk, path, fd, files.key).shift if s.encoding else 0
            return e.size and files.disk.read_at(fd, e.size, at + shift) == bytes(e.size)
    except UNREADABLE:
        return False
