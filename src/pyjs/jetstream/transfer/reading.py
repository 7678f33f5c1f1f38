"""Builds a stream from the bytes of a version 2 archive, entry by entry.

An archive consists of the parts STATE (the first entry), CONSUMERS and MESSAGES, in this order; pyjs.archive.entries
describes them.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import orjson

from pyjs.archive.entries import (
    CONSUMER_PREFIX,
    INT64_MAX,
    STATE_NAME,
    ArchiveEntry,
)
from pyjs.archive.entry_reader import EntryReader
from pyjs.archive.frames import BadArchive
from pyjs.jetstream.transfer.consumer_states import read_archived
from pyjs.jetstream.transfer.writing import COMMIT_SIZE, STEP_SIZE

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Step
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.jetstream.transfer.building import StreamBuild

ENTRY_WORK = 512  # bytes that an entry counts in addition to its size
ENTRY_MAX = 64 << 20  # maximum bytes; a consumer's state is one entry, and so is each message


class Part(Enum):
    """The part of the archive that the next entry belongs to."""

    STATE = "state"
    CONSUMERS = "consumers"
    MESSAGES = "messages"
    ENDED = "ended"


class ArchiveBuilder:
    """The builder of a stream from the decoded bytes of an archive of version 2."""

    def __init__(self, build: StreamBuild) -> None:
        self._build = build
        self._entries = EntryReader(ENTRY_MAX)
        self._part = Part.STATE
        self._consumers_left = 0
        self._last_seq = 0

    def take(self, data: bytes) -> Generator[Step, None, None]:
        """Process more bytes of the archive.

        Raises:
            BadArchive, ApiError, StoreFailed: the stream cannot be built.
        """
        self._entries.add(data)
        work = 0  # bytes appended since the last yield
        while True:
            if self._part is Part.MESSAGES:
                work += self._messages()
            if work >= STEP_SIZE:
                work = 0
                yield None
            entry = self._entries.next()
            if entry is None:
                return
            work += ENTRY_WORK
            if self._part is Part.MESSAGES:
                self._message(entry)
            elif self._part is Part.STATE:
                yield from self._state(entry)
            elif self._part is Part.CONSUMERS:
                yield from self._consumer(entry)
            else:
                raise BadArchive("the archive goes on after its end")

    def finish(self) -> Generator[Step, None, Stream]:
        """Complete and open the stream, after the last bytes of the archive.

        Raises:
            BadArchive: the archive is incomplete.
            ApiError, StoreFailed: the stream cannot be opened.
        """
        if self._part is not Part.ENDED or not self._entries.is_between:
            raise BadArchive("backup was truncated")
        return (yield from self._build.finish(self._last_seq))

    def _state(self, entry: ArchiveEntry) -> Generator[Step, None, None]:
        if entry.name != STATE_NAME:
            raise BadArchive("expected state.json first")
        try:
            state = orjson.loads(entry.payload)
            numbers = [state.get(name, 0) for name in ("first_seq", "last_seq", "bytes", "consumer_count")]
        except (ValueError, AttributeError) as error:
            raise BadArchive(f"error in state.json: {error}") from None
        if not all(type(each) is int and 0 <= each < INT64_MAX for each in numbers):
            raise BadArchive(f"error in state.json: {numbers}")
        first_seq, self._last_seq, size, self._consumers_left = numbers
        if first_seq > self._last_seq + 1:
            raise BadArchive(f"error in state.json: first_seq {first_seq}, last_seq {self._last_seq}")
        self._build.count(size)
        yield from self._build.begin()
        if first_seq > 1:
            self._build.writer.store.set_first_seq(first_seq)
        self._part = Part.CONSUMERS if self._consumers_left else Part.MESSAGES

    def _consumer(self, entry: ArchiveEntry) -> Generator[Step, None, None]:
        if not entry.name.startswith(CONSUMER_PREFIX):
            raise BadArchive(f"expected consumer, found {entry.name.decode('utf-8', 'replace')!r}")
        name = entry.name[len(CONSUMER_PREFIX) :].decode("utf-8", "replace")
        config, state = yield from read_archived(entry.payload, name)
        yield from self._build.writer.add_consumer(name, config, state)
        self._consumers_left -= 1
        if not self._consumers_left:
            self._part = Part.MESSAGES

    def _messages(self) -> int:
        """Append the messages before the next one that needs `_message`; return the size of their archive entries."""
        size = self._build.writer.add_from(self._entries, self._build.payload_max)
        self._commit()
        return size

    def _message(self, entry: ArchiveEntry) -> None:
        """Append or skip one message, or handle the entry that ends the messages.

        Raises:
            BadArchive: the entry is invalid.
        """
        writer = self._build.writer
        if not entry.seq:
            if not entry.is_end:
                raise BadArchive("expected message sequence")
            self._part = Part.ENDED
            return
        writer.check_size(entry, self._build.payload_max)
        if writer.is_over(entry):
            writer.pass_by(entry)
        else:
            writer.add(entry)
        self._commit()

    def _commit(self) -> None:
        if self._build.writer.uncommitted > COMMIT_SIZE:
            self._build.commit()
