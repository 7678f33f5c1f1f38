"""Encodes columns as publishes, and decodes acknowledgements to the acknowledged rows; in plain Python.

pyjs_spark_fast/frames.pyx is the compiled version; a worker of a cluster may have only this one. Both pass
spark/tests/decode/test_frames.py. This module knows nothing of sockets or Arrow. Row `r` of a partition becomes

    publish = "PUB" SP subject SP inbox r SP size CRLF data CRLF
            | "HPUB" SP subject SP inbox r SP headers-size SP size CRLF headers data CRLF
    headers = "NATS/1.0" CRLF [id CRLF] [place CRLF] fixed *(name ":" SP value CRLF) CRLF
    id      = "Nats-Msg-Id: " (mark r | the user's id of the row)
    place   = "Pyjs-Sink: " mark r        ; only if the user gave the row an id

and is acknowledged on the subject `inbox r`, so each acknowledgement identifies its row. Subjects and headers
are not checked here: rows.py has checked them.

Source: nats.docs "Client Protocol"; ADR-4 (headers); the PubAck of both servers, spark/tests/write/test_publish.py.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyjs_spark import strict_json

# Reasons why Acks.decode() returned; the numbers are those of wire.py.
NEED_MORE = 0  # the frame is incomplete
OTHER = 1  # not a plain acknowledgement: an error, or another frame
ENOUGH = 3  # at most `enough` rows are still waiting

HEAD = b"NATS/1.0\r\n"
ID = b"Nats-Msg-Id: "
PLACE = b"Pyjs-Sink: "
DIGITS_MAX = 18
NEVER = re.compile(rb"(?!)")

Cells = tuple[memoryview, memoryview]  # 4-byte offsets, one more than there are values; bytes of all values
HeaderCells = tuple[memoryview, memoryview, memoryview, memoryview, memoryview, memoryview]


@dataclass(frozen=True, slots=True)
class Columns:
    """The validated Arrow buffers of a batch of rows; offsets are int32 in native byte order."""

    rows: int
    data: Cells
    subject: Cells | None = None  # None: all rows have the subject of the framing
    # entry offsets, name offsets, names, list offsets, value offsets, values: as in wire.py
    headers: HeaderCells | None = None
    ids: Cells | None = None
    own: bytes = b""  # one byte per row, 1 if the user gave it an id; b"": no row has an id


@dataclass(frozen=True, slots=True)
class Framing:
    """The part that all frames of a partition share."""

    inbox: bytes  # prefix of the reply subjects, with a dot at its end
    subject: bytes = b""  # used if no column has the subject
    mark: bytes = b""  # sink, batch and partition, up to the last colon; b"": only users' ids are sent
    fixed: bytes = b""  # complete header lines


class Frames(NamedTuple):
    """Encoded publishes of consecutive rows, to be sent unchanged."""

    data: bytes | memoryview
    ends: Sequence[int]  # offset of the end of each publish in `data`
    numbers: Sequence[int]  # row number of each publish, ascending


def frame_rows(columns: Columns, low: int, high: int, how: Framing, first: int, skip: bytes = b"") -> Frames:
    """Return the publishes of rows [low, high) of `columns`.

    `first` is the row number of the first row of `columns`. `skip` has one byte for each row of `columns`; rows with
    a 1 are left out.
    """
    subjects = _cells(columns.subject, low, high)
    payloads = _cells(columns.data, low, high)
    ids = _cells(columns.ids, low, high)
    blocks = _blocks(columns.headers, low, high)
    inbox, mark, fixed, own = how.inbox, how.mark, how.fixed, columns.own
    parts: list[bytes] = []
    ends, numbers = array("q"), array("q")
    end = 0
    for at in range(low, high):
        if skip and skip[at]:
            continue
        row = first + at
        subject = subjects[at - low] if subjects is not None else how.subject
        lines = fixed
        if own and own[at]:
            own_id = b"%b%b\r\n" % (ID, ids[at - low]) if ids is not None else b""
            place = b"%b%b%d\r\n" % (PLACE, mark, row) if mark else b""
            lines = own_id + place + fixed
        elif mark:
            lines = b"%b%b%d\r\n%b" % (ID, mark, row, fixed)
        if blocks is not None:
            lines += blocks[at - low]
        data = payloads[at - low] if payloads is not None else b""
        if lines:
            size = len(lines) + len(HEAD) + 2
            frame = b"HPUB %b %b%d %d %d\r\n%b%b\r\n%b\r\n" % (
                subject, inbox, row, size, size + len(data), HEAD, lines, data,
            )  # fmt: skip
        else:
            frame = b"PUB %b %b%d %d\r\n%b\r\n" % (subject, inbox, row, len(data), data)
        end += len(frame)
        parts.append(frame)
        ends.append(end)
        numbers.append(row)
    return Frames(b"".join(parts), ends, numbers)


def _cells(cells: Cells | None, low: int, high: int) -> list[bytes] | None:
    if cells is None:
        return None
    at = _offsets(cells[0], low, high)
    values = bytes(cells[1][at[0] : at[-1]])
    base = at[0]
    return [values[at[i] - base : at[i + 1] - base] for i in range(high - low)]


def _blocks(headers: HeaderCells | None, low: int, high: int) -> list[bytes] | None:
    """Return the header lines of each row in [low, high), or None if there is no column of headers."""
    if headers is None:
        return None
    entry_at, name_at, names, list_at, value_at, values = headers
    entries = _offsets(entry_at, low, high)
    first, last = entries[0], entries[-1]
    lists = _offsets(list_at, first, last)
    all_names = _cells((name_at, names), first, last) or []
    all_values = _cells((value_at, values), lists[0], lists[-1]) or []
    lines = []
    for entry in range(last - first):
        name = all_names[entry]
        some = all_values[lists[entry] - lists[0] : lists[entry + 1] - lists[0]]
        lines.append(b"".join([b"%b: %b\r\n" % (name, value) for value in some]))
    return [b"".join(lines[entries[i] - first : entries[i + 1] - first]) for i in range(high - low)]


def _offsets(view: memoryview, low: int, high: int) -> list[int]:
    return view.cast("B").cast("i")[low : high + 1].tolist()


class Acks:
    """The rows that wait for acknowledgements, and the decoder of acknowledgements."""

    def __init__(self, inbox: bytes) -> None:
        """Initialize the decoder for acknowledgements that arrive at `inbox`, the inbox of the framing."""
        self.sid = 0
        self.state = NEED_MORE
        self.need = 1
        self.waiting = 0  # number of rows that are not acknowledged yet
        self.last_seq = 0  # the highest acknowledged sequence
        self.duplicates = 0  # number of rows that the server had stored before
        self.enough = 0  # decode() stops when at most this many rows are waiting
        self._inbox = inbox
        self._first = 0  # row number of the first flag
        self._flags = bytearray()  # 1: the row is waiting
        self._frame = NEVER
        self._prefix = b""

    def listen(self, sid: int) -> None:
        """Set the subscription on which acknowledgements will arrive."""
        self.sid = sid
        self._compile()

    def learn(self, payload: bytes) -> None:
        """Store the constant part of acknowledgements, taken from the payload of a validated acknowledgement."""
        head, found, _ = payload.partition(b'"seq":')
        self._prefix = head + found
        self._compile()

    def add(self, numbers: Sequence[int]) -> None:
        """Add rows that wait for acknowledgements.

        The row numbers must ascend, and be above all earlier ones.
        """
        if not self._flags:
            self._first = numbers[0]
        self._flags.extend(bytes(numbers[-1] + 1 - self._first - len(self._flags)))
        for number in numbers:
            self._flags[number - self._first] = 1
        self.waiting += len(numbers)

    def is_waiting(self, number: int) -> bool:
        """Return whether a row is not acknowledged yet."""
        return 0 <= number - self._first < len(self._flags) and self._flags[number - self._first] == 1

    def settle(self, number: int, seq: int, is_duplicate: bool) -> None:
        """Mark a row as stored; do nothing if the row is unknown or already stored."""
        if self.is_waiting(number):
            self._flags[number - self._first] = 0
            self.waiting -= 1
            self.duplicates += is_duplicate
            self.last_seq = max(self.last_seq, seq)

    def forget_before(self, number: int) -> None:
        """Forget the rows before `number`, all of which are acknowledged."""
        count = min(number - self._first, len(self._flags))
        if count > 0:
            del self._flags[:count]
            self._first += count

    def decode(self, data: bytearray, start: int, end: int) -> int:
        """Decode acknowledgements in `data[start:end]`; return the offset of the first unread byte.

        `state` is then the reason why decoding ended.
        """
        at, match, first, flags = start, self._frame.match, self._first, self._flags
        count = len(flags)
        while True:
            if self.waiting <= self.enough:
                self.state = ENOUGH
                return at
            if (found := match(data, at, end)) is None:
                break
            number, seq, again = found.groups()
            index = int(number) - first
            if 0 <= index < count and flags[index]:
                flags[index] = 0
                self.waiting -= 1
                self.duplicates += again is not None
                self.last_seq = max(self.last_seq, int(seq))
            at = found.end()
        self.state, self.need = stopped_at(data, at, end)
        return at

    def _compile(self) -> None:
        if self._prefix:
            self._frame = re.compile(
                rb"MSG %b(\d{1,%d}) %d \d{1,18}\r\n%b ?(\d{1,%d})(, ?\"duplicate\": ?true)?\}\r\n"
                % (re.escape(self._inbox), DIGITS_MAX, self.sid, re.escape(self._prefix), DIGITS_MAX)
            )


def stopped_at(data: bytearray, at: int, end: int) -> tuple[int, int]:
    """Return (state, need) for bytes at `at` that do not begin with a complete plain acknowledgement."""
    line = data.find(b"\r\n", at, end)
    if line < 0:
        return NEED_MORE, end - at + 1
    words = bytes(data[at:line]).split()
    size = int(words[-1]) if words and words[0] == b"MSG" and words[-1].isdigit() else 0
    whole = line + 2 + size + 2
    return (NEED_MORE, whole - at) if size and end < whole else (OTHER, 1)


class PubAck(NamedTuple):
    """The fields of the answer to a publish, which may be an error."""

    stream: str
    seq: int
    is_duplicate: bool
    code: int  # of an error, otherwise 0
    err_code: int
    text: str


def pub_ack(payload: bytes) -> PubAck | None:
    """Return the fields of an acknowledgement, or None if `payload` is not an acknowledgement."""
    try:
        said = strict_json.loads(payload)
        error = said.get("error") or {}
        return PubAck(
            str(said.get("stream", "")), int(said.get("seq", 0)), bool(said.get("duplicate")),
            int(error.get("code", 0)), int(error.get("err_code", 0)), str(error.get("description", "")),
        )  # fmt: skip
    except (ValueError, AttributeError, TypeError):
        return None
