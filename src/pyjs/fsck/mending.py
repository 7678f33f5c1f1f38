"""Repairs of the files of one stream: a starting server makes some of them too, and others rewrite segments.

With its arguments bound, each function is a mend: it makes a repair and returns a description of the repair.
Invariants:

- A file that may contain acknowledged messages is never removed without a copy beside it.
- A file replaces another only after it is durable.
- A repaired store has the same messages under the same sequences as a server would find without the repair. A lost
  sequence has no message and is not used again: a later record, or a STATE record at the end, has the last used
  sequence.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import xxhash

from pyjs.base.disk import write_file
from pyjs.fsck.images import (
    Files,
    cut_segment,
    put_index,
    put_segment,
    segment_file,
    state_file,
)
from pyjs.jetstream.files.consumer_files import ListFile
from pyjs.store.format.layout import DAMAGED, HEALING, free_name, make_directory, set_aside
from pyjs.store.format.meta import Opener, encode, save_meta
from pyjs.store.format.outer_header import OuterHeader
from pyjs.store.segment.census import removals_of
from pyjs.store.segment.index_file import encode_index, index_path
from pyjs.store.segment.recovery import contents_of
from pyjs.store.state.consumer_list import load_list
from pyjs.store.state.consumer_state import OpenLogs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pyjs.base.disk import Disk
    from pyjs.store.crypt.keys import StreamKey
    from pyjs.store.format.outer_header import Buffer
    from pyjs.store.segment.contents import SegmentContents

RECORD = struct.Struct("<IBBHQqII")
CHECKSUM = struct.Struct("<Q")
CHECK = struct.Struct("<I")
STATE, DELETES, FOOTER = 2, 3, 4
ERASED = 2  # flag of an erased message
HEADER_SIZE = 64
DELETES_SIZE = 448  # maximum bytes of sequences in one DELETES record, as in the server


def rewrite_segment(
    files: Files,
    path: str,
    number: int,
    base_seq: int,
    incarnation: int,
    last: bool,
    erased: tuple[int, ...] = (),
    known: SegmentContents | None = None,
) -> str:
    """Rewrite a segment from its intact records; leave a copy of the old file beside it.

    `base_seq` replaces a damaged value in the segment header. `last` means that the segment is the last one,
    which gets no FOOTER. `erased` has the sequences of erased messages whose removal is not recorded. `known` has
    the contents of the index file if the segment lacks its end or some removals. Return a description of the repair.
    """
    file = segment_file(files, path)
    c = contents_of(path, file.data, number, incarnation, base_seq, image=file.image)
    assert c is not None
    fresh = _rewritten(file.data, c, number, incarnation, last, erased, known)
    aside = _copy_aside(files.disk, path)
    _remove(files.disk, index_path(path))
    put_segment(files, path, fresh, not last)
    if not last:
        _write_index(files, path, fresh, number, incarnation)
    return f"{path} is rewritten with {c.messages} messages; the original is now {aside}"


def replace_lost(files: Files, path: str, known: SegmentContents, incarnation: int) -> str:
    """Write a segment without messages in place of a lost segment; return a description of the repair.

    The new segment records the last used sequence and the removals from the lost segment's index file, `known`.
    """
    end = known.base_seq + known.n - 1
    aside = f"; the original is now {set_aside(files.disk, path)}" if files.disk.exists(path) else ""
    out = _begun(known.base_seq, known.number, incarnation)
    _add_known(out, known)
    footer = struct.pack("<QQQqqQ", known.base_seq, end, known.n, 0, known.last_ts, len(out))
    _add(out, FOOTER, end, footer)
    put_segment(files, path, bytes(out), True)
    _write_index(files, path, bytes(out), known.number, incarnation)
    return f"{path} is put in place of what is lost, without a message{aside}"


def mark_healing(disk: Disk, directory: str) -> None:
    """Mark the replica in a stream's directory as incomplete, so that its server copies the lost messages again."""
    write_file(disk, f"{directory}/msgs/{HEALING}", [b""])
    disk.sync_dir(f"{directory}/msgs")


def cut_tail(files: Files, path: str, end: int) -> str:
    """Truncate the image of a segment at offset `end`, before a torn write; return a description of the repair."""
    cut_segment(files, path, end)
    return f"{path} is cut to its {end} bytes of whole records"


def move_segment_aside(disk: Disk, path: str) -> str:
    """Rename an unreadable segment so that no server reads it, or remove the segment if it has only zeros.

    The index file of the segment is removed. Return a description of the repair.
    """
    _remove(disk, index_path(path))
    if not disk.read_file(path).strip(b"\0"):
        disk.unlink(path)
        return f"{path} is removed, it was empty"
    return f"{path} is set aside as {set_aside(disk, path)}"


def move_file_aside(disk: Disk, path: str) -> str:
    """Rename an unreadable file or directory so that no server reads it; return a description of the repair."""
    return f"{path} is set aside as {set_aside(disk, path)}"


def make_index(files: Files, segment: str, whole: bool) -> str:
    """Re-create the index file of a segment; return a description of the repair.

    If `whole` is not set, the segment is damaged or may grow, and its index file is only removed.
    """
    path = index_path(segment)
    _remove(files.disk, path)
    if not whole:
        return f"{path} is removed"
    file = segment_file(files, segment)
    c = contents_of(segment, file.data, 0, 0, 1, image=file.image)
    assert c is not None
    put_index(files, path, encode_index(c))
    return f"{path} is re-created"


def write_metadata(
    disk: Disk, directory: str, kind: int, generation: int, values: dict[str, Any], key: StreamKey | None
) -> str:
    """Rewrite both copies of a stream's metadata, as the next generation; return a description of the repair."""
    save_meta(disk, directory, "meta", encode(kind, generation + 1, values, key))
    return f"{directory}/meta.a and meta.b are rewritten"


def rewrite_list(files: Files, directory: str) -> str:
    """Rewrite both copies of a stream's consumer list, from the undamaged entries in either copy.

    Return a description of the repair.
    """
    file = ListFile(directory, files.key)
    file.adopt(files.disk, load_list(files.disk, directory, Opener(files.key)))
    return f"{directory}/consumers.a and consumers.b are rewritten with {len(file.live)} consumers"


def rewrite_state(files: Files, directory: str) -> str:
    """Begin a new generation of a state, with all changes before the damage; return a description of the repair."""
    logs = OpenLogs(files.disk)
    file = state_file(files, directory, logs)
    snapshot, changes, _ = file.load(seal=False)
    file.snapshot(snapshot)
    for change in changes:
        file.append(change)
    logs.sync.sync_now()
    logs.files.close_below(directory)
    return f"the state in {directory} is rewritten with {len(changes)} changes"


def set_state_aside(disk: Disk, directory: str) -> str:
    """Rename the files of an unreadable state so that no server reads them; return a description of the repair."""
    file = state_file(Files(disk), directory)
    aside = file.set_aside()
    disk.sync_dir(directory)
    return f"the state in {directory} is set aside: {', '.join(aside)}"


def create_directory(disk: Disk, directory: str) -> str:
    """Create a missing directory of a stream; return a description of the repair."""
    make_directory(disk, directory)
    return f"{directory} is made, without files"


def remove_directory(disk: Disk, directory: str) -> str:
    """Remove a directory that the next start would remove; return a description of the repair."""
    disk.remove_tree(directory)
    return f"{directory} is removed, as a start would do"


# -- segments ----------------------------------------------------------------------------------------------


def _rewritten(
    image: Buffer,
    c: SegmentContents,
    number: int,
    incarnation: int,
    last: bool,
    erased: tuple[int, ...],
    known: SegmentContents | None,
) -> bytes:
    """Return the image of a new segment with the intact records of the old one."""
    out = _begun(c.base_seq, number, incarnation)
    for record in _whole_records(image, c):
        _seal(out, record[: -CHECKSUM.size])
    _add_removals(out, c.base_seq + c.n - 1, struct.pack(f"<{len(erased)}Q", *erased), ERASED)
    n = c.n if known is None else max(c.n, known.n)
    if known is not None:
        _add_known(out, known)
    if last and c.end_damaged and (known is None or known.end <= c.end):
        # its sequence may be used, so the next message must get a higher one
        _add(out, STATE, c.base_seq + n, struct.pack("<Qq", c.floor, c.last_ts))
    if not last:
        end = c.base_seq + n - 1
        _add(out, FOOTER, end, struct.pack("<QQQqqQ", c.base_seq, end, n, c.first_ts, c.last_ts, len(out)))
    return bytes(out)


def _begun(base_seq: int, number: int, incarnation: int) -> bytearray:
    """Return the image of a segment without records, which is its header."""
    return bytearray(OuterHeader(0, base_seq, number, incarnation, b"", 0).pack_plain())


def _whole_records(image: Buffer, c: SegmentContents) -> Iterator[Buffer]:
    """Yield the intact and the corrected records of a segment, except the FOOTER."""
    damaged = {at: size for at, size, _ in c.problems}
    at = HEADER_SIZE
    while at < c.end:
        if at in c.mended:
            yield c.mended[at]
        if at in damaged:
            at += damaged[at]
            continue
        size, kind = struct.unpack_from("<IB", image, at)
        if kind != FOOTER:
            yield image[at : at + size]
        at += size


def _add_known(out: bytearray, known: SegmentContents) -> None:
    """Append records of the removals and of the last used sequence in the index file `known`."""
    end, removals = known.base_seq + known.n - 1, removals_of(known)
    _add_removals(out, end, removals)
    _add(out, STATE, end, struct.pack("<Qq", known.floor, known.last_ts))


def _add_removals(out: bytearray, seq: int, removals: bytes, flags: int = 0) -> None:
    """Append DELETES records, each with at most DELETES_SIZE bytes of sequences."""
    for at in range(0, len(removals), DELETES_SIZE):
        _add(out, DELETES, seq, removals[at : at + DELETES_SIZE], flags)


def _add(out: bytearray, kind: int, seq: int, body: bytes, flags: int = 0) -> None:
    size = RECORD.size + len(body) + CHECKSUM.size
    _seal(out, RECORD.pack(size, kind, flags, 0, seq, 0, 0, 0) + body)


def _seal(out: bytearray, record: Buffer) -> None:
    """Append a record with its check, chained to the record before it."""
    before = CHECKSUM.unpack_from(out, len(out) - CHECKSUM.size)[0]
    head = bytes(record[: RECORD.size - CHECK.size])
    own = xxhash.xxh64_intdigest(record[RECORD.size :], xxhash.xxh64_intdigest(head))
    out += head + CHECK.pack(own & 0xFFFFFFFF or 1) + record[RECORD.size :]
    out += CHECKSUM.pack(xxhash.xxh64_intdigest(CHECKSUM.pack(own), before))


def _write_index(files: Files, path: str, image: bytes, number: int, incarnation: int) -> None:
    c = contents_of(path, image, number, incarnation, 1)
    assert c is not None
    assert not c.problems
    put_index(files, index_path(path), encode_index(c))


def _copy_aside(disk: Disk, path: str) -> str:
    """Copy a file to a new name beside it that no server reads; return the path of the copy, which is durable."""
    aside = free_name(disk, path, DAMAGED)
    write_file(disk, aside, [disk.read_file(path)])
    disk.sync_dir(path.rpartition("/")[0])
    return aside


def _remove(disk: Disk, path: str) -> None:
    if disk.exists(path):
        disk.unlink(path)
