"""Positions of sources: for each source of a stream, the last message of its origin that was copied.

While the newest message of a source is in the stream, the header of this message shows the position too. The stored
positions are for the other sources, whose newest message was purged, has expired, was acknowledged, or was not stored
because it was a duplicate. Each stored entry names the last message of the stream that the entry covers; the headers
of newer messages take precedence. After a power failure, an entry may be ahead of the stream; such an entry is used
only if no header shows a position.

Sources are named as in Nats-Stream-Source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.errors import NONSENSE, CorruptRecord, PyjsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from pyjs.base.log import Log
    from pyjs.store.state.consumer_state import ConsumerStateFile

    Position: TypeAlias = tuple[int, bytes]  # (sequence in the origin, identity of the origin)

DELTAS_SIZE_MAX = 1 << 20  # bytes of deltas from which on a new snapshot is written


class Positions:
    """The positions of one stream's sources."""

    def __init__(self, open_file: Callable[[], ConsumerStateFile] | None, log: Log) -> None:
        """Begin without positions. `open_file` opens the file of positions; without it, positions are not stored."""
        self._open_file = open_file
        self._file: ConsumerStateFile | None = None
        self._log = log
        self._whole = False  # the file has a snapshot to which deltas can be appended
        self.known: dict[bytes, Position] = {}
        self.true_at = 0  # seq of the newest message of the stream that the stored positions cover

    def load(self) -> bool:
        """Read the stored positions. Return False if there are none or they cannot be read.

        The caller must then read the headers of messages.
        """
        if self._open_file is None:
            return False
        try:
            self._file = self._open_file()
            snapshot, deltas, problems = self._file.load()
            for entry in (snapshot, *deltas):
                self._apply(entry)
            self._whole = not problems
            return True
        except FileNotFoundError:
            return False
        except (PyjsError, OSError, *NONSENSE) as error:
            self._log.warn(f"  Positions of sources are read from messages: {error}")
            if self._file is not None and isinstance(error, CorruptRecord):
                self._file.set_aside()
            return False

    def save(self, true_at: int, moved: dict[bytes, Position]) -> None:
        """Store changed positions; only log a failure, since the headers of messages show the positions too."""
        self.known.update(moved)
        self.true_at = true_at
        if self._open_file is None:
            return
        try:
            if self._file is None:
                self._file = self._open_file()
            if self._whole and self._file.deltas_size < DELTAS_SIZE_MAX:
                self._file.append(_entry(true_at, moved))
            else:
                self._file.snapshot(_entry(true_at, self.known))
                self._whole = True
        except (PyjsError, OSError) as error:
            self._whole = False
            self._log.warn(f"Positions of sources cannot be kept: {error}")

    def _apply(self, entry: bytes) -> None:
        values = orjson.loads(entry)
        true_at = _sequence(values["at"])
        for name, (seq, ident) in values["sources"].items():
            self.known[name.encode("utf-8", "surrogateescape")] = (_sequence(seq), ident.encode())
        self.true_at = true_at


def _sequence(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise ValueError(f"{value!r} is no sequence")
    return value


def _entry(true_at: int, positions: dict[bytes, Position]) -> bytes:
    sources = {
        name.decode("utf-8", "surrogateescape"): [seq, ident.decode()]
        for name, (seq, ident) in positions.items()
    }
    return orjson.dumps({"at": true_at, "sources": sources})
