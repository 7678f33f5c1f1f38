"""Tar archives of regular files with relative names; nats-server before 2.15 wrote such snapshots.

    archive = { header, 512 bytes | data, padded to 512 bytes } | two blocks of zeros

A header of type `x` gives the next file a longer name, a larger size or a more precise time. Links, directories,
absolute names and names with `..` are refused: they would do no harm, since no file is written under these names, but
no server writes such an archive.

The standard library checks each header; this module reads bytes as they arrive, and holds one header at a time.
Source: pax of POSIX.1-2001; archive/tar of Go, which wrote the archives.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyjs.archive.frames import BadArchive

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 512
FILE_MAX = 1 << 40  # maximum bytes of a file
EXTENSION_MAX = 64 * 1024  # bytes of a header of type x
REGULAR, EXTENSION = (b"0", b"\0"), b"x"


@dataclass(frozen=True, slots=True)
class FileStart:
    """The start of a file in an archive; `size` bytes follow."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The end of a file in an archive."""


class Part(Enum):
    """The kinds of bytes that a TarReader can expect next."""

    HEADER = "header"
    EXTENSION = "extension"  # the contents of a header of type `x`
    FILE = "file"


class TarReader:
    """A reader of a tar archive whose bytes arrive in pieces of any size."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._part = Part.HEADER
        self._left = 0  # bytes left of the current file or extension
        self._padding = 0  # bytes of padding after it
        self._extension: dict[str, str] = {}  # values that apply to the next file
        self._zeros = 0  # number of consecutive blocks of zeros

    @property
    def is_complete(self) -> bool:
        """Whether the end of the archive was read."""
        return self._zeros >= 2

    def add(self, data: bytes) -> Iterator[FileStart | FileEnd | bytes]:
        """Add `data`; yield the start, the contents in pieces and the end of each file, as far as they are available.

        Raises:
            BadArchive: the archive is damaged, or has anything other than regular files with relative names.
        """
        self._held += data
        while True:
            if self._part is Part.FILE:
                if part := self._file_bytes():
                    yield part
                if self._left:
                    return
                self._part = Part.HEADER
                yield FileEnd()
            elif self._part is Part.EXTENSION:
                if len(self._held) < self._left:
                    return
                self._extension = _records(self._file_bytes())
                self._part = Part.HEADER
            elif not self._pass_padding() or len(self._held) < BLOCK:
                return
            elif start := self._header():
                yield start

    def _file_bytes(self) -> bytes:
        part = bytes(self._held[: self._left])
        del self._held[: len(part)]
        self._left -= len(part)
        return part

    def _pass_padding(self) -> bool:
        """Drop the padding after the last file or extension; return whether all of it was read."""
        part = min(self._padding, len(self._held))
        del self._held[:part]
        self._padding -= part
        return not self._padding

    def _header(self) -> FileStart | None:
        header = bytes(self._held[:BLOCK])
        del self._held[:BLOCK]
        if not any(header):
            self._zeros += 1
            return None
        if self._zeros:
            raise BadArchive("the tar archive goes on after its end")
        try:
            found = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise BadArchive(f"a header of the tar archive is damaged: {error}") from None
        if found.type == EXTENSION:
            if not 0 < found.size <= EXTENSION_MAX:
                raise BadArchive(f"a header of the tar archive claims {found.size} bytes")
            self._expect(Part.EXTENSION, found.size)
            return None
        return self._file(found)

    def _file(self, found: tarfile.TarInfo) -> FileStart:
        extension, self._extension = self._extension, {}
        name, size = extension.get("path", found.name), found.size
        if "size" in extension:
            text = extension["size"]
            size = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        if found.type not in REGULAR or not _is_relative(name):
            raise BadArchive(f"unexpected content: {name[:100]!r} of type {found.type.decode('latin-1')!r}")
        if not 0 <= size <= FILE_MAX:
            raise BadArchive(f"{name[:100]!r} claims {size} bytes")
        self._expect(Part.FILE, size)
        return FileStart(name, size)

    def _expect(self, part: Part, size: int) -> None:
        self._part, self._left, self._padding = part, size, -size % BLOCK


def _records(data: bytes) -> dict[str, str]:
    """Return the values of an extension by their keys; each record is `<size> <key>=<value>` and a line end.

    Raises:
        BadArchive: a record is damaged.
    """
    found = {}
    while data:
        head = data.partition(b" ")[0]
        size = int(head) if head.isdigit() and len(head) < 6 else 0
        key, equals, value = data[len(head) + 1 : size - 1].partition(b"=")
        if not equals or size > len(data) or data[size - 1] != 0x0A:
            raise BadArchive("a header of the tar archive is damaged")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        data = data[size:]
    return found


def _is_relative(name: str) -> bool:
    parts = name.split("/")
    return bool(name) and "\0" not in name and not any(part in ("", ".", "..") for part in parts)
