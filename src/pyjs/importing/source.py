"""The store directory of a stopped nats-server, read only.

    <store>/jetstream/<account>/streams/<stream>/meta.inf meta.sum [ meta.key ]
                                                 msgs/N.blk [ N.idx ] [ N.key ] index.db
                                                 obs/<consumer>/meta.inf meta.sum o.dat

`meta.key` and `N.key` belong to encrypted streams. Streams in memory have no files.

This module knows nothing of this server's store: pyjs.jetstream.transfer.block_files decodes the bytes.
Source: nats-server's source, server/filestore.go and server/jetstream.go; directories that 2.15.1 wrote.
"""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

from pyjs.archive.frames import BadArchive
from pyjs.base.disk import closing
from pyjs.base.errors import PyjsError
from pyjs.jetstream.transfer.block_files import ConsumerFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.base.disk import Disk

BLOCK_NAME = re.compile(r"(0|[1-9][0-9]{0,8})\.blk")
FILE_MAX = 64 << 20  # maximum bytes of a file that is read as a whole
PIECE = 256 * 1024  # bytes of a block that are read at once
CONSUMER_FILES = ("meta.inf", "meta.sum", "o.dat")


class NotImported(PyjsError):
    """Raised when nothing can be imported; the exception's message states the reason and the remedy."""


class SourceStream:
    """The files of one stream in the store directory of a nats-server."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._messages = f"{directory}/msgs"
        self.name = directory.rpartition("/")[2]
        # The numbers of the blocks, ascending.
        self.blocks = sorted(int(found[1]) for found in map(BLOCK_NAME.fullmatch, self._names()) if found)

    @property
    def is_encrypted(self) -> bool:
        """Whether the stream, or a block of it, is encrypted."""
        names = self._names()
        return self._disk.exists(f"{self._directory}/meta.key") or any(
            name.endswith(".key") for name in names
        )

    def sizes(self) -> dict[str, int | None]:
        """Return the size of each message file in bytes, by file name; None stands for a file that cannot be opened.

        If the sizes change, a server is writing to the files.
        """
        return {name: self._size_or_none(f"{self._messages}/{name}") for name in self._names()}

    def size(self) -> int:
        """Return the total size, in bytes, of the blocks that can be read."""
        return sum(self._size_or_none(self._block_path(number)) or 0 for number in self.blocks)

    def file(self, name: str) -> bytes | None:
        """Return the content of a small file of the stream, or None if it is missing.

        Raises:
            BadArchive: the file has more than FILE_MAX bytes.
            OSError: the file cannot be read.
        """
        path = f"{self._directory}/{name}"
        if not self._disk.exists(path):
            return None
        if self._size(path) > FILE_MAX:
            raise BadArchive(f"{name} has {self._size(path)} bytes, {FILE_MAX} are the most")
        return self._disk.read_file(path)

    def index(self) -> bytes:
        """Return the content of `index.db`, or b"" if it is missing or cannot be read."""
        try:
            return self.file("msgs/index.db") or b""
        except (BadArchive, OSError):
            return b""

    def block_index(self, number: int) -> bytes:
        """Return the content of the index file of one block, or b"" if it is missing or cannot be read.

        Only old versions of nats-server wrote such files.
        """
        try:
            return self.file(f"msgs/{number}.idx") or b""
        except (BadArchive, OSError):
            return b""

    def block(self, number: int) -> Iterator[bytes]:
        """Yield the bytes of a block in pieces.

        Raises:
            OSError: the block cannot be read; this may happen after some pieces.
        """
        with closing(self._disk, self._opened(self._block_path(number))) as fd:
            at = 0
            while piece := self._disk.read_at(fd, PIECE, at):
                at += len(piece)
                yield piece

    def consumers(self) -> list[str]:
        """Return the names of the consumers."""
        return names_in(self._disk, f"{self._directory}/obs")

    def consumer(self, name: str) -> ConsumerFiles:
        """Return the files of one consumer.

        Raises:
            BadArchive: a file is too large.
            OSError: a file cannot be read.
        """
        found = ConsumerFiles(self.name, name)
        for each in CONSUMER_FILES:
            data = self.file(f"obs/{name}/{each}")
            if data is not None:
                found.files[each] = data
        return found

    def _names(self) -> list[str]:
        return names_in(self._disk, self._messages)

    def _block_path(self, number: int) -> str:
        return f"{self._messages}/{number}.blk"

    def _size(self, path: str) -> int:
        with closing(self._disk, self._opened(path)) as fd:
            return self._disk.size_of(fd)

    def _size_or_none(self, path: str) -> int | None:
        try:
            return self._size(path)
        except OSError:
            return None

    def _opened(self, path: str) -> int:
        """Return a read-only descriptor of a regular file.

        Raises:
            OSError: the file cannot be opened, or is a pipe or device.
        """
        if self._disk.exists(path) and not self._disk.is_file(path):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return self._disk.open_read_only(path)


class Source:
    """The store directory of a nats-server."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Find the `jetstream` directory.

        Raises:
            NotImported: `directory` is not a store directory of a nats-server.
        """
        self._disk = disk
        self.root = find_source(disk, directory)

    def accounts(self) -> list[str]:
        """Return the names of the accounts with streams."""
        names = names_in(self._disk, self.root)
        return [name for name in names if names_in(self._disk, f"{self.root}/{name}/streams")]

    def streams(self, account: str) -> list[str]:
        """Return the paths of the directories of an account's streams."""
        parent = f"{self.root}/{account}/streams"
        names = names_in(self._disk, parent)
        return [f"{parent}/{name}" for name in names if self._disk.is_directory(f"{parent}/{name}")]

    def others(self) -> Iterator[str]:
        """Yield all entries of the account directories, except `streams`, as paths relative to `root`."""
        for account in names_in(self._disk, self.root):
            for name in names_in(self._disk, f"{self.root}/{account}"):
                if name != "streams":
                    yield f"{account}/{name}"

    def open(self, directory: str) -> SourceStream:
        """Return the files of one stream.

        Raises:
            OSError: the directory cannot be read.
        """
        return SourceStream(self._disk, directory)


def names_in(disk: Disk, directory: str) -> list[str]:
    """Return the sorted names in a directory, or [] if the path is not a directory."""
    return sorted(disk.list_dir(directory)) if disk.is_directory(directory) else []


def find_source(disk: Disk, directory: str) -> str:
    """Return the `jetstream` directory of a nats-server.

    This is the directory `jetstream` in `directory` if there is one, otherwise `directory` itself.

    Raises:
        NotImported: there is no such directory, it has no streams, or pyjs-server wrote it.
    """
    directory = directory.rstrip("/") or "/"
    if not disk.is_directory(directory):
        raise NotImported(f"{directory} is no directory")
    below = f"{directory}/jetstream"
    root = below if disk.is_directory(below) else directory
    accounts = [name for name in names_in(disk, root) if disk.is_directory(f"{root}/{name}/streams")]
    for account in accounts:
        for stream in names_in(disk, f"{root}/{account}/streams"):
            if disk.exists(f"{root}/{account}/streams/{stream}/meta.a"):
                raise NotImported(f"{root} was written by pyjs-server: it needs no import")
    if not accounts:
        raise NotImported(
            f"{directory} holds no streams of nats-server: give what its store_dir says, or the directory"
            " `jetstream` in it"
        )
    return root
