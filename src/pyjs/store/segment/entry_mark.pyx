"""Marks, which name the last entry that a replicated stream has applied, and are stored with the entry's effects.

A mark follows first_seq and last_ts in a STATE record. It has the term, index and time of the entry, the identity of
the group that has the log, the time from which message ids count, the last message id, and the steps of the clock
that matter for the ids (clock_steps.pyx). The records before the mark have the effects of every entry up to this one.
After a crash, later entries are applied again, so no part of their effects may be left: `cut_steps` removes
everything after the last mark. A mark of another group is ignored: the stream was replicated before, and messages
stored since then are kept.

Invariant of a replicated stream: in each segment a mark precedes the first message, and a segment is sealed only
after a mark that covers all of its records.

This module handles segment files, not stores. Compiled because it is part of the write of each batch
(benchmarks/replica.py). Source: docs/storage-format.md, "Replicated streams".
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pyjs.store.clock_steps cimport ClockSteps
from pyjs.store.format.record cimport RECORD_HEADER_SIZE
from pyjs.store.segment.contents cimport ERASED_BIT, SegmentContents
from pyjs.store.segment.segment_files cimport SegmentFiles

from struct import Struct

from pyjs.base.disk import closing
from pyjs.base.errors import CorruptRecord
from pyjs.store.format.image import MARK, open_image
from pyjs.store.segment.index_file import index_path, remove_file
from pyjs.store.segment.recovery import contents_of, is_segment

cdef enum:
    STATE_SIZE = 16             # bytes of first_seq and last_ts
    FIXED_SIZE = 40             # bytes of term, index, time, group, ids_from
    ID_SIZE_MAX = 256
    STEPS_AT = 314              # offset of clock steps in the body: after the id, filled up, and its size (u16)
_NUMBERS = Struct("<QQqQq")            # the numbers of FIXED_SIZE, in the same order


cdef class EntryMark:
    def __init__(self, uint64_t index, uint64_t term, int64_t ns, bytes last_id not None, uint64_t group,
                 int64_t ids_from, bytes steps not None=b"") -> None:
        self.index, self.term, self.ns = index, term, ns
        self.group, self.ids_from = group, ids_from
        self.last_id = last_id[:ID_SIZE_MAX]
        self.steps, self.rest = steps, self.last_id
        if steps:
            self.rest = self.last_id.ljust(ID_SIZE_MAX, b"\0") + len(self.last_id).to_bytes(2, "little") + steps
        self.rest_text, self.rest_len = self.rest, len(self.rest)

    cdef size_t write(self, char* out) noexcept nogil:
        memcpy(out, &self.term, 8)
        memcpy(out + 8, &self.index, 8)
        memcpy(out + 16, &self.ns, 8)
        memcpy(out + 24, &self.group, 8)
        memcpy(out + 32, &self.ids_from, 8)
        memcpy(out + FIXED_SIZE, self.rest_text, self.rest_len)
        return FIXED_SIZE + self.rest_len


def read_mark(bytes state not None) -> EntryMark:
    """Return the mark in the body of a STATE record that has one.

    Raises:
        ValueError: the clock steps in the mark are invalid.
    """
    term, index, ns, group, ids_from = _NUMBERS.unpack_from(state, STATE_SIZE)
    rest, steps = state[STATE_SIZE + FIXED_SIZE:], b""
    if len(state) > PLAIN_MARK_SIZE_MAX:
        steps = state[STEPS_AT:]
        ClockSteps().load(steps, ns)
        rest = rest[:min(int.from_bytes(state[STEPS_AT - 2:STEPS_AT], "little"), ID_SIZE_MAX)]
    return EntryMark(index, term, ns, rest, group, ids_from, steps)


def cut_steps(SegmentFiles files not None, uint64_t group):
    """Remove everything after the last mark of `group`; if there is no such mark, remove nothing.

    Each step reads one segment.

    Return the mark or None, the numbers of the segments that were cut or removed, and the sequences of messages whose
    recorded erasure was cut off: their bytes may be overwritten already.

    Raises, at any step:
        OSError, UnknownFormat, Locked, CorruptRecord: the last segment cannot be read, so the last mark is unknown.
    """
    names = sorted((name for name in files.disk.list_dir(files.directory) if is_segment(name)),
                   key=lambda name: int(name[:-4]), reverse=True)
    newer = []                          # segments of which the first write was torn; their entries were never applied
    changed, erased = set(), set()
    for name in names:
        path = f"{files.directory}/{name}"
        found = _read(files, path, int(name[:-4]))
        yield
        if found is not None:
            erased |= _erasures(found[0])
        if found is not None and found[1]:
            contents, state, uncut = found
            try:
                mark = read_mark(state)
            except ValueError as error:
                raise CorruptRecord(path, contents.mark_at, f"its mark has {error}") from None
            if mark.group != group:
                break
            if uncut is not None:
                _cut(files, path, uncut, contents)
                changed.add(int(name[:-4]))
            _remove(files, newer)
            changed.update(int(path[-12:-4]) for path, _ in newer)
            return mark, changed, erased
        newer.append((path, 0 if found is None else found[0].messages))
    return None, changed, set()         # this group wrote none of them


cdef set _erasures(SegmentContents c):
    """Return the sequences of the messages that the records of a segment name as erased."""
    cdef uint32_t i
    cdef set found = set()
    for i in range(c.n_removals):
        if c.removals[i] & ERASED_BIT:
            found.add(c.removals[i] & ~ERASED_BIT)
    return found


def _read(SegmentFiles files, path, number):
    """Return (contents, body of the STATE record with the last mark, image to cut after the mark).

    The body is b"" if there is no mark; the image is None if nothing must be cut. Return None if the header of the
    segment is damaged.
    """
    cdef SegmentContents c
    with closing(files.disk, files.disk.open_read_only(path)) as fd:
        image = open_image(files.disk, path, fd, files.key)
        data = image.whole(True)
        c = contents_of(path, data, number, files.incarnation, 1, image=image)
        if c is None:
            return None
        if any(at < c.mark_end for at, _, _ in c.problems):
            files.suspects.add(number)
        mended = c.mended.get(c.mark_at - RECORD_HEADER_SIZE, b"")
        state = mended[RECORD_HEADER_SIZE:RECORD_HEADER_SIZE + c.mark_size] \
            or bytes(data[c.mark_at:c.mark_at + c.mark_size])
        is_whole = c.end == c.mark_end and not (c.problems and c.problems[-1][0] >= c.mark_end)
        uncut = None if is_whole or image.outer is not None and image.outer.codec else image
        return c, state, uncut


def _remove(SegmentFiles files, list segments) -> None:
    """Remove segments without a valid mark; `segments` has the path and the number of messages of each."""
    for path, messages in segments:
        if messages:
            files.log.warn(f"{path} is removed: what is in it is applied again, since no mark covers it")
        remove_file(files.disk, files.log, index_path(path))
        files.disk.unlink(path)
        files.names_unsynced = True


def _cut(SegmentFiles files, path, image, SegmentContents contents) -> None:
    """Truncate an uncompressed segment after its last mark."""
    cdef uint64_t end = image.shift + contents.mark_end
    remove_file(files.disk, files.log, index_path(path))
    with closing(files.disk, files.disk.open_file(path)) as fd:
        files.disk.truncate(fd, end)
        if image.outer is not None:
            files.disk.write_at(fd, MARK, end)
    files.log.debug(f"{path}: {contents.end - contents.mark_end} bytes of entries that are applied again are cut off")
