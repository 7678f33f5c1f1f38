"""Indexes of message blocks, which name the removed messages of the blocks.

    index.db = magic 11 u8 | version u8 | messages | bytes | first sequence | first time | last sequence | last time
               | number of subjects { subject size | subject | total | first block | [ last block ] }
               | number of blocks { number | bytes | first sequence | first time | last sequence | last time
                                    | number of removed | [ messages with TTL ] | [ schedules ] | [ set ] }
               | number of the last block | check of its last record u64 | HighwayHash u64
    N.idx    = magic 22 u8 | version u8 | messages | bytes | first sequence | first time | last sequence | last time
               | number of removed | check of the last record u64 | [ set, or numbers in version 1 ]
    set      = magic 22 u8 | version u8 | nodes u32 | size u32 { first sequence u64 | bits u64 * 32 | height u16 }

Numbers without a given size are varints, and times are signed varints. Numbers with a given size are little-endian.
A set of version 1 has 64 words of bits in each node. nats-server wrote `N.idx` before 2.10; since 2.10, it writes
`index.db`.

An index is valid only if it belongs to the blocks: its check must equal the check of the last record.
Source: nats-server's source, server/filestore.go and server/avl/seqset.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.archive.frames import BadArchive
from pyjs.archive.highway import highway_hash
from pyjs.archive.varints import VarintReader

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

INDEX_MAGIC, INDEX_VERSIONS = 11, range(1, 5)
SET_MAGIC = 22
BLOCK_MAGIC, SET_SINCE = 22, 2  # the magic number, and the first version of N.idx that has a set
CHECK_SIZE = 8
SUBJECTS_AT_ONCE = 10_000
SEQ_MASK = (1 << 63) - 1  # the highest bit of a sequence marks an erased message


@dataclass(frozen=True, slots=True)
class RemovedSet:
    """The removed sequences of a block: the bytes of a set, or a list of numbers."""

    data: bytes = b""
    words: int = 32  # number of 64-bit words in a node
    seqs: tuple[int, ...] = ()

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield (first, last) of ranges that together cover all removed sequences, in any order."""
        for seq in self.seqs:
            yield seq, seq
        size = 8 + 8 * self.words + 2
        for at in range(0, len(self.data), size):
            base = int.from_bytes(self.data[at : at + 8], "little")
            bits = int.from_bytes(self.data[at + 8 : at + size - 2], "little")
            while bits:
                zeros = (bits & -bits).bit_length() - 1
                bits >>= zeros
                ones = (~bits & (bits + 1)).bit_length() - 1
                yield base + zeros, base + zeros + ones - 1
                base += zeros + ones
                bits >>= ones


NOTHING_REMOVED = RemovedSet()


@dataclass(frozen=True, slots=True)
class IndexedBlock:
    """The description of one block in an index."""

    number: int
    first_seq: int
    last_seq: int
    removed: RemovedSet

    def removed_ranges(self, before: int) -> Iterator[tuple[int, int]]:
        """Yield (first, last) of each range of removed sequences in this block and in the gap before it.

        `before` is the last sequence of the previous block.
        """
        if before + 1 < self.first_seq:
            yield before + 1, self.first_seq - 1
        for first, last in self.removed.ranges():
            if self.first_seq <= first and last <= self.last_seq:
                yield first, last


@dataclass(frozen=True, slots=True)
class StreamIndex:
    """The decoded index of all blocks of a stream."""

    msgs: int
    first_seq: int
    last_seq: int
    blocks: tuple[IndexedBlock, ...]
    last_block: int  # number of the last block
    check: bytes  # check of the last record


def read_stream_index(data: bytes, stream: str) -> Generator[None, None, StreamIndex]:
    """Yield between steps of a few milliseconds; return the decoded `index.db` of the stream named `stream`.

    Raises:
        BadArchive: the index is damaged, or of an unknown version.
    """
    body, check = data[:-CHECK_SIZE], data[-CHECK_SIZE:]
    if len(body) < 2 or highway_hash(stream.encode(), body) != check:
        raise BadArchive("index.db does not fit its checksum")
    if body[0] != INDEX_MAGIC or body[1] not in INDEX_VERSIONS:
        raise BadArchive(f"index.db is of the unknown version {body[1]}")
    numbers, version = VarintReader(body, 2), body[1]
    msgs, _, first_seq, _ = numbers.unsigned(), numbers.unsigned(), numbers.unsigned(), numbers.signed()
    last_seq, _ = numbers.unsigned(), numbers.signed()
    left = numbers.unsigned()
    while left:
        count = min(left, SUBJECTS_AT_ONCE)
        numbers.skip_subjects(count, version >= 4)
        left -= count
        yield
    blocks = []
    for _ in range(numbers.unsigned()):
        blocks.append(_indexed_block(numbers, version))
        yield
    last_block, check = numbers.unsigned(), numbers.take(CHECK_SIZE)
    return StreamIndex(msgs, first_seq, last_seq, tuple(blocks), last_block, check)


def _indexed_block(numbers: VarintReader, version: int) -> IndexedBlock:
    number, _, first_seq, _ = numbers.unsigned(), numbers.unsigned(), numbers.unsigned(), numbers.signed()
    last_seq, _, removed = numbers.unsigned(), numbers.signed(), numbers.unsigned()
    for _ in range(2, min(version, 3) + 1):
        numbers.unsigned()
    return IndexedBlock(number, first_seq, last_seq, _set(numbers) if removed else NOTHING_REMOVED)


def read_block_index(data: bytes, number: int) -> tuple[IndexedBlock, bytes]:
    """Decode `N.idx`; return the index of block `number`, and the check of the block's last record.

    Raises:
        BadArchive: the index is damaged, or of an unknown version.
    """
    if len(data) < 2 or data[0] != BLOCK_MAGIC or data[1] not in (1, SET_SINCE):
        raise BadArchive(f"{number}.idx is of an unknown version")
    numbers = VarintReader(data, 2)
    _, _, first_seq, _ = numbers.unsigned(), numbers.unsigned(), numbers.unsigned(), numbers.signed()
    last_seq, _, count = numbers.unsigned(), numbers.signed(), numbers.unsigned()
    first_seq, last_seq = first_seq & SEQ_MASK, last_seq & SEQ_MASK
    check, removed = numbers.take(CHECK_SIZE), NOTHING_REMOVED
    if count and data[1] == SET_SINCE:
        removed = _set(numbers)
    elif count:
        if count > numbers.left:
            raise BadArchive(f"{number}.idx claims {count} removed messages in {len(data)} bytes")
        removed = RemovedSet(seqs=tuple(first_seq + numbers.unsigned() for _ in range(count)))
    return IndexedBlock(number, first_seq, last_seq, removed), check


def _set(numbers: VarintReader) -> RemovedSet:
    head = numbers.take(10)
    if head[0] != SET_MAGIC or head[1] not in (1, 2):
        raise BadArchive("an index has a set of an unknown version")
    nodes, words = int.from_bytes(head[2:6], "little"), 64 if head[1] == 1 else 32
    return RemovedSet(numbers.take(nodes * (8 + 8 * words + 2)), words)
