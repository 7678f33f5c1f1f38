"""Builds a stream from the bytes of an archive of version 1, file by file.

    meta.inf meta.sum { [ msgs/N.idx ] msgs/N.blk } [ msgs/index.db ] { obs/<consumer>/{meta.inf, meta.sum, o.dat} }

`msgs/index.db` comes before the blocks in archives of nats-server 2.10.0. Other files are ignored. Damage ends
the restore.

Source: streamSnapshot and RestoreStream of nats-server 2.2 to 2.14.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from pyjs.archive.frames import BadArchive
from pyjs.archive.tar import FileEnd, FileStart, TarReader
from pyjs.jetstream.transfer.block_files import BlockFiles, ConsumerFiles, check_sum, created_ns

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Step
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.jetstream.transfer.building import StreamBuild

FILE_MAX = 64 << 20  # maximum bytes of a file that is read into memory as a whole
BLOCK_NAME = re.compile(r"msgs/([0-9]{1,9})\.blk")
BLOCK_INDEX_NAME = re.compile(r"msgs/([0-9]{1,9})\.idx")
CONSUMER_NAME = re.compile(r"obs/([^/]+)/(meta\.inf|meta\.sum|o\.dat)")
META, SUM, INDEX, ERRORS = "meta.inf", "meta.sum", "msgs/index.db", "errors.txt"


class TarBuilder:
    """The builder of a stream from the decoded bytes of an archive of version 1."""

    def __init__(self, build: StreamBuild) -> None:
        self._build = build
        self._name = build.config.name
        self._tar = TarReader()
        self._blocks: BlockFiles | None = None  # None: the metadata is not complete yet
        self._consumer: ConsumerFiles | None = None
        self._file = ""  # name of the current file; "": the file is ignored
        self._held = bytearray()  # contents of the current file, unless it is a block
        self._meta = b""
        self._sum: bytes | None = None
        self._index = b""  # index.db
        self._block_indexes: dict[int, bytes] = {}  # indexes for the next block

    def take(self, data: bytes) -> Generator[Step, None, None]:
        """Process more bytes of the archive.

        Raises:
            BadArchive, ApiError, StoreFailed: the stream cannot be built.
        """
        for part in self._tar.add(data):
            if isinstance(part, FileStart):
                yield from self._begin(part)
            elif isinstance(part, FileEnd):
                yield from self._end()
            elif BLOCK_NAME.fullmatch(self._file):
                yield from self._blocks_now().add(part)
            elif self._file:
                self._held += part
            yield None

    def finish(self) -> Generator[Step, None, Stream]:
        """Complete and open the stream, after the last bytes of the archive.

        Raises:
            BadArchive: the archive is incomplete.
            ApiError, StoreFailed: the stream cannot be opened.
        """
        if not self._tar.is_complete or not self._meta:
            raise BadArchive("backup was truncated")
        yield from self._begin_build()
        yield from self._end_messages()
        yield from self._end_consumer()
        return (yield from self._build.finish(self._blocks_now().last_seq))

    def _begin(self, start: FileStart) -> Generator[Step, None, None]:
        """Begin to read a file of the archive; the first block or consumer begins the build of the stream."""
        name, self._file = start.name, ""
        block, consumer = BLOCK_NAME.fullmatch(name), CONSUMER_NAME.fullmatch(name)
        if block or consumer:
            yield from self._begin_build()
        if block:
            number = int(block[1])
            self._blocks_now().begin_block(number, self._block_indexes.pop(number, b""))
            self._block_indexes.clear()
        elif consumer:
            yield from self._begin_consumer(consumer[1])
        elif name not in (META, SUM, INDEX, ERRORS) and not BLOCK_INDEX_NAME.fullmatch(name):
            return
        if not block and start.size > FILE_MAX:
            if name == INDEX:
                return  # the file is not needed, since all of it is also in the blocks
            raise BadArchive(f"{name} claims {start.size} bytes, {FILE_MAX} are the most")
        self._file = name

    def _end(self) -> Generator[Step, None, None]:
        name, data = self._file, bytes(self._held)
        self._held.clear()
        if BLOCK_NAME.fullmatch(name):
            yield from self._blocks_now().end_block()
        elif found := CONSUMER_NAME.fullmatch(name):
            assert self._consumer is not None
            self._consumer.files[found[2]] = data
        elif found := BLOCK_INDEX_NAME.fullmatch(name):
            self._block_indexes = {int(found[1]): data}
        elif name == META:
            self._meta = data
        elif name == SUM:
            self._sum = data
        elif name == INDEX:
            self._index = data
        elif name == ERRORS:
            raise BadArchive(
                f"the server that made the archive failed: {data[:200].decode('utf-8', 'replace')}"
            )

    def _begin_build(self) -> Generator[Step, None, None]:
        """Check the metadata and create the store; later calls do nothing."""
        if self._blocks is not None:
            return
        if not self._meta:
            raise BadArchive("expected meta.inf first")
        check_sum(self._meta, self._sum, self._name)
        try:
            name = orjson.loads(self._meta)["name"]
        except (ValueError, TypeError, LookupError) as error:
            raise BadArchive(f"error in meta.inf: {error}") from None
        if name != self._name:
            raise BadArchive("stream names do not match")
        yield from self._build.begin(created_ns(self._meta))
        self._blocks = BlockFiles(self._build, self._name, _refuse)

    def _blocks_now(self) -> BlockFiles:
        assert self._blocks is not None
        return self._blocks

    def _begin_consumer(self, name: str) -> Generator[Step, None, None]:
        if self._consumer is None or self._consumer.name != name:
            yield from self._end_messages()
            yield from self._end_consumer()
            self._consumer = ConsumerFiles(self._name, name)

    def _end_messages(self) -> Generator[Step, None, None]:
        """Apply the index of all blocks; later calls do nothing."""
        index, self._index = self._index, b""
        if index:
            yield from self._blocks_now().use_index(index)
        self._build.writer.skip_to(self._blocks_now().last_seq)

    def _end_consumer(self) -> Generator[Step, None, None]:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            yield from consumer.add_to(self._build)


def _refuse(problem: str) -> None:
    raise BadArchive(problem)
