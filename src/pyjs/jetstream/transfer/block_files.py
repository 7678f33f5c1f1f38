"""Fills a stream from the files of nats-server's store: message blocks, their indexes, consumers.

Blocks come in the order of their numbers, and messages in the order of their sequences. A message counts as removed
if this is shown by a tombstone in a later record, by the index of its block (before nats-server 2.10), or by the
index of all blocks. Like nats-server, this module ignores an index that does not match the blocks: messages that
limits had removed then exist again, until the limits remove them again.

Damage is reported to the owner, which decides whether to continue. After a damaged record, reading continues with the
next record if that is valid, otherwise with the next block.
Source: rebuildStateFromBufLocked, recoverFullState and readIndexInfo in nats-server's server/filestore.go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from pyjs.archive.block_file import BlockBytes
from pyjs.archive.block_index import StreamIndex, read_block_index, read_stream_index
from pyjs.archive.blocks import MESSAGE, TOMBSTONE, BlockReader, BlockRecord
from pyjs.archive.consumer_file import read_consumer_file
from pyjs.archive.entries import INT64_MAX
from pyjs.archive.frames import BadArchive
from pyjs.archive.highway import highway_hash
from pyjs.jetstream.config.json_strict import parse_time_ns
from pyjs.jetstream.transfer.consumer_states import read_config
from pyjs.jetstream.transfer.writing import COMMIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Protocol, TypeAlias

    from pyjs.core.chore import Step
    from pyjs.jetstream.transfer.writing import StreamWriter

    # Called with a description of the damage; may raise BadArchive to stop.
    Damaged: TypeAlias = Callable[[str], None]

    class Build(Protocol):
        """A stream under construction."""

        @property
        def writer(self) -> StreamWriter:
            """The writer of the stream."""

        def commit(self) -> None:
            """Write all appended messages.

            Raises:
                StoreFailed, ApiError: the messages cannot be written, or exceed a limit.
            """


STEP_RECORDS = 256  # number of records processed in one step: half a millisecond
STEP_RANGES = 256  # number of ranges of removed messages processed in one step
TEARS_TOLD = 20  # number of damaged places reported per block; the rest are only counted
NO_CHECK = bytes(8)  # the check of a block without records


class BlockFiles:
    """The import of message blocks: their messages are appended to a stream under construction.

    Messages that a block or an index marks as removed are removed again.
    """

    def __init__(self, build: Build, stream: str, damaged: Damaged) -> None:
        self._build = build
        self._stream = stream
        self._damaged = damaged
        self._number = -1  # number of the current block
        self._bytes = BlockBytes()
        self._reader = BlockReader(stream, 0)
        self._skips_rest = False  # ignore the rest of the current block, because of damage
        self._index = b""  # index of the current block
        self._before = 0  # the last sequence before the current block
        self._checks: dict[int, bytes] = {}  # number of each block -> check of its last record
        # the last sequence before a damaged place, until the next message; -1: no damage
        self._torn_after = -1
        self._problems: list[str] = []  # problems that were not reported yet
        self._tears = 0  # number of damaged places in the current block
        self.last_seq = 0  # all later messages have higher sequences
        self.missing: list[tuple[int, int]] = []  # (first, last) sequence of each range with damaged messages
        # number of messages that the index counts and the blocks lack; -1: unknown, without an index
        self.lost = -1

    @property
    def skips_rest(self) -> bool:
        """Whether the rest of the current block is ignored, because of damage."""
        return self._skips_rest

    # -- blocks --------------------------------------------------------------------------------------------

    def begin_block(self, number: int, index: bytes = b"") -> None:
        """Begin a block; `index` has the bytes of its index file, `N.idx`.

        Raises:
            BadArchive: the number is not higher than that of the block before.
        """
        if number <= self._number:
            raise BadArchive(f"block {number} comes after block {self._number}")
        self._number, self._index, self._skips_rest, self._tears = number, index, False, 0
        self._bytes, self._reader = BlockBytes(), BlockReader(self._stream, number)
        self._before = max(self._build.writer.store.last_seq, self.last_seq)

    def add(self, data: bytes) -> Generator[Step, None, None]:
        """Read more bytes of the current block, in steps.

        Raises:
            BadArchive: the block is damaged, and the callback that reports damage raised this exception.
            StoreFailed, ApiError: messages cannot be written, or exceed a limit.
        """
        if not self._skips_rest:
            yield from self._reading(lambda: self._bytes.add(data))

    def end_block(self) -> Generator[Step, None, None]:
        """Check the end of the current block, and apply its index, in steps.

        Raises:
            BadArchive, StoreFailed, ApiError: for the same reasons as in `add`.
        """
        if not self._skips_rest:
            yield from self._reading(lambda: (self._bytes.finish(),))
        if not self._skips_rest and self._reader.left:
            self._tear(f"it ends within the record at {self._reader.offset}")
        if self._tears > TEARS_TOLD:
            self._problems.append(f"{self._tears - TEARS_TOLD} more of its records cannot be used")
        self._report()
        self._checks[self._number] = self._reader.check
        if self._index:
            yield from self._use_block_index()
        self._build.commit()

    def _reading(self, parts: Callable[[], Iterable[bytes]]) -> Generator[Step, None, None]:
        """Read the records in parts of the block; stop at damage that no valid record follows."""
        try:
            for part in parts():
                self._reader.add(part)
                yield from self._take_records()
                yield None  # also after a part in which no record ends
        except BadArchive as error:
            self._tear(str(error))
            self._skips_rest = True
        self._report()

    def _take_records(self) -> Generator[Step, None, None]:
        while True:
            records = self._reader.next(STEP_RECORDS)
            for offset in self._reader.passed_by:
                self._tear(f"the record at {offset} does not fit its checksum")
            for record in records:
                self._take(record)
            if not records:
                return
            if self._build.writer.uncommitted > COMMIT_SIZE:
                self._build.commit()
            yield None

    def _take(self, record: BlockRecord) -> None:
        writer, seq = self._build.writer, record.seq
        if seq >= INT64_MAX:
            raise BadArchive(f"a record claims the sequence {seq}")
        if record.kind == MESSAGE:
            if seq > writer.store.last_seq:
                self._append(record)
        elif seq > writer.store.last_seq:
            self.last_seq = max(self.last_seq, seq)
        elif record.kind == TOMBSTONE:
            writer.store.drop_some(writer.store.make_filter(()), seq, seq + 1, 1)

    def _append(self, record: BlockRecord) -> None:
        try:
            self._build.writer.add(record)
        except BadArchive as error:  # this server refuses the message; the messages after it are valid
            self._tear(str(error))
        else:
            self._mend(record.seq - 1)

    def _tear(self, problem: str) -> None:
        """Record damage that begins after the last record."""
        if self._torn_after < 0:
            self._torn_after = max(self._build.writer.store.last_seq, self.last_seq)
        self._tears += 1
        if self._tears <= TEARS_TOLD:
            self._problems.append(problem)

    def _mend(self, last_seq: int) -> None:
        """Record that the damage ends at sequence `last_seq`."""
        if 0 <= self._torn_after < last_seq:
            self.missing.append((self._torn_after + 1, last_seq))
        self._torn_after = -1

    def finish(self) -> None:
        """Record the sequences lost by damage at the end of the last block; call this after `use_index`."""
        self._mend(max(self._build.writer.store.last_seq, self.last_seq))

    def _report(self) -> None:
        problems, self._problems = self._problems, []
        for problem in problems:
            self._damaged(f"message block {self._number} is damaged: {problem}")

    # -- indexes -------------------------------------------------------------------------------------------

    def _use_block_index(self) -> Generator[Step, None, None]:
        try:
            block, check = read_block_index(self._index, self._number)
        except BadArchive:
            return  # continue as without an index
        if check == self._reader.check:
            self.last_seq = max(self.last_seq, min(block.last_seq, INT64_MAX - 1))
            yield from self._drop(block.removed_ranges(self._before))

    def use_index(self, data: bytes) -> Generator[Step, None, None]:
        """Apply the index of all blocks, the content of `index.db`; call this after the last block.

        A damaged index is ignored. Of an index that does not match the blocks, only the last sequence is used.

        Raises:
            StoreFailed, ApiError: removals cannot be written, or a limit is exceeded.
        """
        try:
            index = yield from read_stream_index(data, self._stream)
        except BadArchive:
            return  # continue as without an index
        self.last_seq = max(self.last_seq, min(index.last_seq, INT64_MAX - 1))
        if not self._fits(index):
            return
        writer, before = self._build.writer, 0
        if index.first_seq > 1:
            yield from writer.drop(1, index.first_seq - 1)
            before = index.first_seq - 1
        for block in index.blocks:
            yield from self._drop(block.removed_ranges(before))
            before = max(before, block.last_seq)
        self._build.commit()
        self.lost = max(index.msgs - writer.store.msgs, 0)
        if writer.store.msgs != index.msgs:
            self._damaged(f"the index counts {index.msgs} messages, the blocks have {writer.store.msgs}")

    def _fits(self, index: StreamIndex) -> bool:
        """Return whether the index was written after the last record of these blocks."""
        last = max(self._checks, default=index.last_block)
        return last == index.last_block and self._checks.get(last, NO_CHECK) == index.check

    def _drop(self, ranges: Iterable[tuple[int, int]]) -> Generator[Step, None, None]:
        for number, (first, last) in enumerate(ranges):
            yield from self._build.writer.drop(first, last)
            if number % STEP_RANGES == STEP_RANGES - 1:
                self._build.commit()
                yield None


class ConsumerFiles:
    """The files of one consumer, `obs/<name>/`."""

    def __init__(self, stream: str, name: str) -> None:
        self._stream = stream
        self.name = name
        self.files: dict[str, bytes] = {}  # contents of the files, by name

    def add_to(self, build: Build) -> Generator[Step, None, None]:
        """Add the consumer to a stream under construction.

        Raises:
            BadArchive, ApiError, StoreFailed: the consumer is damaged, is refused, or cannot be written.
        """
        meta, data = self.files.get("meta.inf"), self.files.get("o.dat", b"")
        if meta is None:
            raise BadArchive(f"consumer {self.name!r} has no meta.inf")
        check_sum(meta, self.files.get("meta.sum"), f"{self._stream}/{self.name}")
        config = read_config(meta, self.name)
        if config.num_replicas > build.writer.config.num_replicas:  # the stream has fewer replicas here
            config = replace(config, num_replicas=build.writer.config.num_replicas)
        state = None
        if data:
            state = yield from read_consumer_file(data)
        yield from build.writer.add_consumer(self.name, config, state, created_ns(meta))


def check_sum(meta: bytes, given: bytes | None, name: str) -> None:
    """Check the content of a `meta.inf` against its checksum.

    `given` is the content of its `meta.sum`, or None if there is no such file and thus nothing to check. `name` is
    `<stream>` or `<stream>/<consumer>`.

    Raises:
        BadArchive: the contents do not match.
    """
    if given is not None and given != highway_hash(name.encode(), meta).hex().encode():
        raise BadArchive(f"meta.inf of {name!r} does not fit its checksum")


def created_ns(meta: bytes) -> int:
    """Return the creation time of a stream or consumer in ns from its `meta.inf`, or 0 if it has no valid time."""
    try:
        return max(parse_time_ns(orjson.loads(meta)["Created"]), 0)
    except (ValueError, TypeError, LookupError):
        return 0
