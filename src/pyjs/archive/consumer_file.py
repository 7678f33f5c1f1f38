"""States of consumers as nats-server stores them in `o.dat`.

    o.dat     = magic 22 u8 | version u8 | ack floor: consumer_seq, stream_seq | delivered: consumer_seq, stream_seq
                | number of pending [ newest time, s { entry } ] | number of redelivered { stream_seq | count }
    entry     = stream_seq | [ consumer_seq, since version 2 ] | seconds before the newest time

Numbers are varints; times are signed varints. Sequences of entries and of redelivered messages are relative
to the ack floor. In version 1, `delivered` sequences are relative to the ack floor too, and times are
relative to the oldest.

Source: nats-server's source, decodeConsumerState in server/filestore.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.archive.frames import BadArchive
from pyjs.archive.varints import VarintReader

if TYPE_CHECKING:
    from collections.abc import Generator

MAGIC, VERSIONS = 22, (1, 2)
NS_PER_S = 1_000_000_000
INT63 = 1 << 63
ENTRIES_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """The state of a consumer. `delivered` and `ack_floor` are (consumer_seq, stream_seq)."""

    delivered: tuple[int, int]
    ack_floor: tuple[int, int]
    pending: list[tuple[int, int, int]]  # (stream_seq, consumer_seq, time in ns) of each delivery; any order
    redelivered: dict[int, int]  # stream_seq -> number of deliveries after the first one
    # stream_seq -> number of deliveries of messages that were given up; only archives of this server have it
    given_up: dict[int, int] = field(default_factory=dict)
    terms: dict[int, str] = field(default_factory=dict)  # the reasons of those that a client terminated


def read_consumer_file(data: bytes) -> Generator[None, None, ConsumerState]:
    """Yield between steps; return the state in `data`, the contents of a file `o.dat`.

    Raises:
        BadArchive: the data are damaged, or of an unknown version.
    """
    if len(data) < 2 or data[0] != MAGIC or data[1] not in VERSIONS:
        raise BadArchive("o.dat is of an unknown version")
    numbers, version = VarintReader(data, 2), data[1]
    floor, delivered = (numbers.unsigned(), numbers.unsigned()), (numbers.unsigned(), numbers.unsigned())
    if version == 1:
        delivered = (delivered[0] + max(floor[0] - 1, 0), delivered[1] + max(floor[1] - 1, 0))
    if max(*floor, *delivered) >= INT63:
        raise BadArchive(f"o.dat claims the ack floor {floor}, and {delivered} delivered")
    pending = yield from _pending(numbers, version, floor)
    redelivered = {}
    for number in range(_count(numbers)):
        seq, count = numbers.unsigned(), numbers.unsigned()
        if seq and count:
            redelivered[seq + floor[1]] = count
        if number % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1:
            yield
    return ConsumerState(delivered, floor, pending, redelivered)


def _pending(
    numbers: VarintReader, version: int, floor: tuple[int, int]
) -> Generator[None, None, list[tuple[int, int, int]]]:
    pending: list[tuple[int, int, int]] = []
    count = _count(numbers)
    base = numbers.signed() if count else 0
    for number in range(count):
        seq = numbers.unsigned() + floor[1]
        cseq = numbers.unsigned() + floor[0] if version > 1 else 0
        after = numbers.signed()
        seconds = base + after if version == 1 else base - after
        pending.append((seq, cseq, min(max(seconds * NS_PER_S, 0), INT63 - 1)))
        if number % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1:
            yield
    return pending


def _count(numbers: VarintReader) -> int:
    """Read and return a number of entries.

    Raises:
        BadArchive: there are fewer bytes left than entries.
    """
    count = numbers.unsigned()
    if count > numbers.left:
        raise BadArchive(f"o.dat claims {count} entries in {numbers.left} bytes")
    return count
