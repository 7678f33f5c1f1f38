"""The headers of all messages that a replicated stream has stored since a given time, including removed ones.

Replicas must agree on the duplicate window after any crash, so message ids are needed even after their
messages were removed. The ids stay in the records: a segment with ids in the window is not compacted. If
it has no live messages, it is renamed to `NNNNNNNN.ids`, and removed when its ids have left the window.

This module knows nothing of the meaning of ids. Compiled: a start reads the segments of the window
(benchmarks/replica.py).
"""
from libc.stdint cimport int64_t, uint32_t

from pyjs.base.borrow cimport borrowed
from pyjs.store.index.sequences cimport ENTRY_ERASED, ENTRY_MSG, Entry
from pyjs.store.segment.contents cimport SegmentContents, subject_at
from pyjs.store.segment.segment_files cimport SegmentFiles

from pyjs.base.disk import closing
from pyjs.store.format.image import UNREADABLE, open_image
from pyjs.store.segment.index_file import remove_file
from pyjs.store.segment.recovery import contents_of, is_segment

KEPT = ".ids"


def kept_path(str path) -> str:
    """Return the new path for a segment without live messages whose message ids are still needed."""
    return f"{path[:-4]}{KEPT}"


def headers_steps(SegmentFiles files not None, int64_t from_ns):
    """Yield after each file; return (sequence, time, headers) of each message that was stored since `from_ns`.

    The messages are in ascending order. Messages without headers and erased ones are not included. Remove `.ids`
    files that have no such messages or cannot be read.
    """
    names = [name for name in files.disk.list_dir(files.directory)
             if is_segment(name) or (name.endswith(KEPT) and is_segment(f"{name[:-4]}.seg"))]
    names.sort(key=lambda name: (int(name[:-4]), name), reverse=True)
    found, number = [], -1
    for name in names:
        path, kept = f"{files.directory}/{name}", name.endswith(KEPT)
        part, last_ts = (None, 0) if int(name[:-4]) == number else _read(files, path, from_ns)
        number = int(name[:-4])
        if kept and last_ts < from_ns:
            remove_file(files.disk, files.log, path)
        elif kept:
            files.kept[path] = last_ts
        if part:
            found.append(part)
        yield
    found.reverse()
    every = [each for part in found for each in part]
    if any(found[at][0][0] <= found[at - 1][-1][0] for at in range(1, len(found))):
        every.sort()        # a segment that was restored has ids of other files too
    return every


cdef tuple _read(SegmentFiles files, str path, int64_t from_ns):
    """Return a list of (sequence, time, headers) from one file, and the time of the last message in the file.

    The list is None if all messages are older than `from_ns`. Return (None, 0) if the file is unreadable.
    """
    cdef SegmentContents c
    try:
        with closing(files.disk, files.disk.open_read_only(path)) as fd:
            image = open_image(files.disk, path, fd, files.key)
            data = image.whole(True)
            c = contents_of(path, data, int(path[-12:-4]), files.incarnation, 1, image=image)
            if c is None or c.problems:
                files.suspects.add(int(path[-12:-4]))
            return _headers(c, data, from_ns) if c is not None else (None, 0)
    except UNREADABLE as error:
        files.log.warn(f"{path}: its message ids cannot be read: {error}")
        return None, 0


cdef tuple _headers(SegmentContents c, object data, int64_t from_ns):
    cdef const char* p
    cdef size_t size = 0, at
    cdef uint32_t i
    cdef Entry* e
    cdef list found = []
    if c.last_ts < from_ns:
        return None, c.last_ts
    p = borrowed(data, &size)
    for i in range(c.n):
        e = &c.entries[i]
        if e.flags & ENTRY_MSG and not e.flags & ENTRY_ERASED and e.header_len and e.ts >= from_ns:
            at = subject_at(e) + e.subject_len
            found.append((e.seq, e.ts, p[at:at + e.header_len]))
    return found, c.last_ts
