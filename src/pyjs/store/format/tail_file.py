"""The index files of many open segments in one file, as a clean stop of many streams leaves them.

    <account>/tails     envelope of kind 6 *, each: {"streams": {file name of the stream: [number, index file]}}

A file of its own for each of thousands of streams takes a stop longer than everything else, and a start opens each of
them. An entry is, byte for byte, the index file of segment `number` of its stream, encrypted if the stream is. A part
that is damaged is left out: the next one is found by its magic, and the segments are read.

It is of the store as it stopped: a start takes it and removes it before anything changes.

Knows nothing of segments and streams. docs/storage-format.md says the same for readers outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyjs.base.disk import write_file
from pyjs.base.errors import PyjsError
from pyjs.store.format.meta import KIND_TAILS, MAGIC, decode, encode, envelope_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.base.disk import Disk

Tail: TypeAlias = tuple[int, bytes]  # number of the segment, its index file
Tails: TypeAlias = dict[str, Tail]  # by the file names of the streams

NAME = "tails"
PART_STREAMS = 1024  # about 256 KiB


def tails_path(streams: str) -> str:
    """Return where the file of an account is whose streams are in the directory `streams`."""
    return f"{streams.rpartition('/')[0]}/{NAME}"


def read_tails(disk: Disk, path: str) -> tuple[Tails, list[str]]:
    """Return what is whole in the file at `path`, and what is not; nothing if there is none.

    Raises:
        OSError: the disk does not give it.
    """
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return {}, []
    tails: Tails = {}
    problems: list[str] = []
    at = 0
    while at < len(data):
        size = envelope_size(data[at : at + len(MAGIC) * 8]) or len(data)
        try:
            tails |= _part(data[at : at + size], path)
            at += size
        except PyjsError as error:
            problems.append(f"{error} (part at {at})")
            following = data.find(MAGIC, at + 1)
            at = following if following > 0 else len(data)
    return tails, problems


def _part(data: bytes, path: str) -> Tails:
    """Return the entries of one part that make sense. Raises PyjsError: it is none."""
    _, values = decode(data, KIND_TAILS, path)
    streams = values.get("streams")
    return dict(_entries(streams)) if isinstance(streams, dict) else {}


def _entries(streams: dict[object, object]) -> Iterator[tuple[str, Tail]]:
    for name, entry in streams.items():
        match entry:
            case [int(number), bytes(index)] if isinstance(name, str) and 0 < number < 1 << 32:
                yield name, (number, index)


def write_tails(disk: Disk, path: str, tails: Tails) -> None:
    """Put `tails` in place of the file at `path`; without any there is none. As an index file it is not synced.

    Raises:
        OSError: the file that was there still is.
    """
    if not tails:
        if disk.exists(path):
            disk.unlink(path)
        return
    temporary, names = f"{path}.tmp", list(tails)
    parts = (names[at : at + PART_STREAMS] for at in range(0, len(names), PART_STREAMS))
    encoded = (
        encode(KIND_TAILS, number, {"streams": {name: tails[name] for name in part}})
        for number, part in enumerate(parts, 1)
    )
    write_file(disk, temporary, encoded, sync=False)
    disk.rename(temporary, path)
