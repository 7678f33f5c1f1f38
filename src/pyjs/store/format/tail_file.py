"""The index files of many open segments in one file, written by a clean stop of a server with many streams.

    <account>/tails     envelope of kind 6 *, each: {"streams": {file name of the stream: [number, index file]}}

With a separate file for each of thousands of streams, a server would spend most of its stop on writing files, and
most of its start on opening them. An entry is identical to the index file of segment `number` of its stream; it is
encrypted if the stream is encrypted. A damaged part is skipped: the next part is found by its magic bytes, and the
segments of the damaged part are read instead.

The file describes the store as it was when the server stopped: a starting server reads and removes it before any
stream changes.

This module knows nothing of segments and streams. docs/storage-format.md describes the format for other programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyjs.base.disk import write_file
from pyjs.base.errors import PyjsError
from pyjs.store.format.meta import KIND_TAILS, MAGIC, decode, encode, envelope_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.base.disk import Disk

Tail: TypeAlias = tuple[int, bytes]  # (number of the segment, its index file)
Tails: TypeAlias = dict[str, Tail]  # by the file names of the streams

NAME = "tails"
PART_STREAMS = 1024  # number of streams in one part, which has about 256 KiB


def tails_path(streams: str) -> str:
    """Return the path of an account's `tails` file; `streams` is the directory of the account's streams."""
    return f"{streams.rpartition('/')[0]}/{NAME}"


def read_tails(disk: Disk, path: str) -> tuple[Tails, list[str]]:
    """Return the intact entries of the file at `path`, and a text about each damaged part.

    Both are empty if the file is missing.

    Raises:
        OSError: the file cannot be read.
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
    """Return the valid entries of one part. Raises PyjsError if it is damaged."""
    _, values = decode(data, KIND_TAILS, path)
    streams = values.get("streams")
    return dict(_entries(streams)) if isinstance(streams, dict) else {}


def _entries(streams: dict[object, object]) -> Iterator[tuple[str, Tail]]:
    for name, entry in streams.items():
        match entry:
            case [int(number), bytes(index)] if isinstance(name, str) and 0 < number < 1 << 32:
                yield name, (number, index)


def write_tails(disk: Disk, path: str, tails: Tails) -> None:
    """Write `tails` to the file at `path` without a sync; if `tails` is empty, remove the file.

    Raises:
        OSError: the write failed; the old file is unchanged.
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
