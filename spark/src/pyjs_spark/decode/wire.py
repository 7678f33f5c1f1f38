"""Decodes pull deliveries to columns, in plain Python; pyjs_spark_fast/wire.pyx is the compiled version.

A worker of a cluster may have only this version. Both decode the same bytes to the same columns
(spark/tests/decode/test_wire.py). This module knows nothing of sockets or Arrow schemas: columns are the buffers of
Arrow arrays.

    delivery = "MSG" SP subject SP sid SP reply SP size CRLF payload CRLF
             | "HMSG" SP subject SP sid SP reply SP headers-size SP size CRLF headers payload CRLF
    reply    = "$JS.ACK." [domain "." account "."] stream "." consumer "."
               delivered "." stream-seq "." consumer-seq "." time-ns "." pending ["." random]

If any other frame comes (a status, PING, other subscriptions), the decoder stops before it, in the state OTHER.

Columns are these tuples of buffers; integers of 8 bytes and offsets of 4 bytes have the byte order of the machine:

    seq, ts_ns: (int64s,)    size: (int32s,)    subject, data: (offsets, bytes)
    headers raw: (validity bits, offsets, bytes)
    headers map: (validity bits, entry offsets, key offsets, keys, list offsets, value offsets, values)

Source: nats.docs "Client Protocol"; ADR-15 (reply subjects), ADR-4 (headers); Arrow "Columnar Format".
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

# Reasons why decode() returned.
NEED_MORE = 0  # the frame is incomplete: it has at least `need` bytes
OTHER = 1  # not a delivery of this subscription
FULL = 2  # rows_max or size_max is reached
ENOUGH = 3  # all messages of the pull request have arrived
DONE = 4  # the range is complete: its last sequence arrived, or nothing is pending
GAP = 5  # a delivery is missing or out of order: create a new consumer at last_seq + 1
TOO_LARGE = 6  # a sequence above 2^63-1

SEQ_MAX = 2**63 - 1
HEADERS = ("map", "raw", "false")
COLUMNS = ("seq", "ts_ns", "subject", "headers", "data", "size")
FRAME = (
    rb"H?MSG ([^ \r\n]+) %d %s\d{1,18}\.(\d{1,20})\.(\d{1,18})\.([0-8]?\d{1,18})\.(\d{1,18})"
    rb"(?:\.[^ \r\n]*)? (?:(\d{1,9}) )?(\d{1,9})\r\n"
)
FIRST = re.compile(rb"H?MSG [^ \r\n]+ (\d{1,18}) (\$JS\.ACK\.[^ \r\n]+) ")
NEVER = re.compile(rb"(?!)")

Columns = dict[str, tuple[object, ...]]


class Taken(NamedTuple):
    """One batch: the number of rows, the number of rows without headers, and the buffers of each column."""

    rows: int
    headerless: int
    columns: Columns


class Pumped(Protocol):
    """The interface of a decoder for the bytes that a client reads."""

    @property
    def sid(self) -> int:
        """The id of the subscription whose messages are decoded."""

    @property
    def state(self) -> int:
        """The reason why decode() returned."""

    @property
    def need(self) -> int:
        """The number of bytes needed for the next step, counted from the returned offset.

        The number is valid only with NEED_MORE.
        """

    def decode(self, data: bytearray, start: int, end: int) -> int: ...  # noqa: D102


class Rows:
    """The rows of a batch, which are collected as lists and converted to columns."""

    def __init__(self, columns: Sequence[str], headers: str) -> None:
        """Initialize an empty batch with `columns` (names of COLUMNS); `headers` is one of HEADERS."""
        assert headers in HEADERS
        assert set(columns) <= set(COLUMNS)
        self.columns = tuple(columns)
        self.headers = headers
        self.wants_headers = "headers" in columns and headers != "false"
        self._begin()

    @property
    def count(self) -> int:
        """The number of rows since the last take()."""
        return len(self.seqs)

    def add(self, seq: int, ts_ns: int, subject: bytes, headers: bytes, payload: bytes) -> None:
        """Add one row."""
        if headers and self.wants_headers:
            self.blocks[len(self.seqs)] = headers
        self.seqs.append(seq)
        self.times.append(ts_ns)
        self.subjects.append(subject)
        self.payloads.append(payload)
        self.sizes.append(len(payload))
        self.size += len(subject) + len(headers) + len(payload)

    def take(self) -> Taken:
        """Return the rows as columns, and start a new batch."""
        count, headerless = self.count, self.count - len(self.blocks)
        columns = {
            name: self._column(name) for name in self.columns if name != "headers" or self.wants_headers
        }
        self._begin()
        return Taken(count, headerless, columns)

    def _column(self, name: str) -> tuple[object, ...]:
        if name == "seq":
            return (array("q", self.seqs),)
        if name == "ts_ns":
            return (array("q", map(int, self.times)),)
        if name == "size":
            return (array("i", self.sizes),)
        if name == "subject":
            return text_column(self.subjects)
        if name == "data":
            return byte_column(self.payloads)
        return (
            raw_headers(self.count, self.blocks)
            if self.headers == "raw"
            else header_maps(self.count, self.blocks)
        )

    def _begin(self) -> None:
        self.seqs: list[int] = []
        self.times: list[int | bytes] = []  # bytes: the digits were not converted yet
        self.subjects: list[bytes] = []
        self.blocks: dict[int, bytes] = {}  # row -> headers, for rows that have headers
        self.payloads: list[bytes] = []
        self.sizes: list[int] = []
        self.size = 0  # total bytes of these rows


class Decoder:
    """A decoder that fills batches of rows with deliveries; it can decode one consumer after another."""

    def __init__(self, columns: Sequence[str], headers: str, rows_max: int, size_max: int) -> None:
        """Initialize the decoder; it fills `columns` (names of COLUMNS).

        A batch has at most `rows_max` rows and `size_max` bytes. Only a message larger than `size_max` exceeds this
        size; it gets a separate batch.
        """
        self.sid = 0
        self.state = NEED_MORE
        self.need = 1
        self.last_seq = 0  # sequence of the last row, or of a message skipped after it
        self.delivered = 0  # number of deliveries of the current consumer
        self.pending = 0  # the pending count of the last delivery
        self._high = 0
        self._enough = 0
        self._frame = NEVER
        self._rows = Rows(columns, headers)
        self._rows_max = rows_max
        self._size_max = size_max

    def listen(self, sid: int, high: int, next_seq: int) -> None:
        """Continue with the deliveries of a new consumer, from `next_seq` on.

        Sequences from `high` on are dropped.
        """
        self.sid = sid
        self.delivered = 0
        self.last_seq = next_seq - 1
        self._high = high
        self._enough = 0
        self._frame = NEVER

    def expect(self, count: int) -> None:
        """Stop with ENOUGH after `count` more deliveries."""
        self._enough = self.delivered + count

    @property
    def rows(self) -> int:
        """The number of rows since the last take()."""
        return len(self._rows.seqs)

    @property
    def size(self) -> int:
        """The size of the rows since the last take(), in bytes: subjects, headers and payloads."""
        return self._rows.size

    def decode(self, data: bytearray, start: int, end: int) -> int:
        """Decode deliveries in `data[start:end]`; return the offset of the first unread byte.

        `state` is then the reason why decoding ended.
        """
        chunk = bytes(memoryview(data)[start:end])
        if self._frame is NEVER and not self._learn(chunk):
            return start
        rows = self._rows
        seqs, times, subjects, blocks = rows.seqs, rows.times, rows.subjects, rows.blocks
        payloads, sizes, wants_headers = rows.payloads, rows.sizes, rows.wants_headers
        wants_subject, wants_data = "subject" in rows.columns, "data" in rows.columns
        match, limit, at = self._frame.match, end - start, 0
        rows_max, size_max, size, high = self._rows_max, self._size_max, rows.size, self._high
        last_seq, delivered, enough, left = self.last_seq, self.delivered, self._enough, b""
        row = len(seqs)
        while True:
            if row >= rows_max:
                self.state = FULL
                break
            if delivered == enough:
                self.state = ENOUGH
                break
            if (found := match(chunk, at)) is None:
                self._stop_at(chunk, at)
                break
            subject, seq_text, consumer_seq, ts, left_now, head_text, total_text = found.groups()
            total = int(total_text)
            head = int(head_text) if head_text else 0
            body = found.end()
            after = body + total + 2
            if after > limit or head > total:
                self.state, self.need = (NEED_MORE, after - at) if head <= total else (OTHER, 1)
                break
            if row and size + total + len(subject) > size_max:
                self.state = FULL
                break
            seq = int(seq_text)
            if seq > SEQ_MAX or seq <= last_seq or int(consumer_seq) != delivered + 1:
                self.state = TOO_LARGE if seq > SEQ_MAX else GAP
                break
            delivered += 1
            left = left_now
            at = after
            if seq >= high:
                self.state = DONE
                break
            last_seq = seq
            seqs.append(seq)
            times.append(ts)
            sizes.append(total - head)
            if wants_subject:
                subjects.append(subject)
            if head and wants_headers:
                blocks[row] = chunk[body : body + head]
            if wants_data:
                payloads.append(chunk[body + head : after - 2])
            size += total + len(subject)
            row += 1
            if left == b"0" or seq == high - 1:
                self.state = DONE
                break
        rows.size, self.last_seq, self.delivered = size, last_seq, delivered
        self.pending = int(left) if left else self.pending
        return start + at

    def take(self) -> Taken:
        """Return the rows as columns, and start a new batch."""
        return self._rows.take()

    def _learn(self, chunk: bytes) -> bool:
        """Store the constant part of this consumer's frames, taken from the first frame in `chunk`.

        Returns False if `chunk` does not begin with a delivery of this consumer.
        """
        prefix = first_prefix(chunk, self.sid)
        if prefix:
            self._frame = re.compile(FRAME % (self.sid, re.escape(prefix)))
        else:
            self._stop_at(chunk, 0)
        return bool(prefix)

    def _stop_at(self, chunk: bytes, at: int) -> None:
        """Set `state` after a stop at byte `at`: there, a line is incomplete or a frame is not a delivery."""
        is_whole = chunk.find(b"\r\n", at) >= 0
        self.state, self.need = (OTHER, 1) if is_whole else (NEED_MORE, len(chunk) - at + 1)


def first_prefix(chunk: bytes, sid: int) -> bytes:
    """Return the constant part of a consumer's reply subjects, with a dot at its end.

    The part is taken from the delivery at the start of `chunk`; the result is b"" if there is none.
    """
    found = FIRST.match(chunk)
    if found is None or int(found[1]) != sid:
        return b""
    tokens = found[2].split(b".")
    constant = 4 if len(tokens) == 9 else 6
    return b".".join(tokens[:constant]) + b"." if len(tokens) in (9, 11, 12) else b""


def header_pairs(block: bytes) -> dict[bytes, list[bytes]]:
    """Return the values of each header name in a block, in the order of the block.

    Names keep their case. White space before a value is not part of it. A line without a name is left out.
    """
    pairs: dict[bytes, list[bytes]] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon and name:
            pairs.setdefault(name, []).append(value.lstrip(b" \t"))
    return pairs


def offsets(lengths: Iterable[int]) -> array[int]:
    """Return the offset of each value, and the end of the last value, for values of these lengths."""
    return array("i", accumulate(lengths, initial=0))


def byte_column(values: Sequence[bytes]) -> tuple[object, ...]:
    """Return offsets and bytes of `values`."""
    return offsets(map(len, values)), b"".join(values)


def text_column(values: Sequence[bytes]) -> tuple[object, ...]:
    """Return the offsets and UTF-8 bytes of `values`.

    Bytes that are not UTF-8 become replacement characters.
    """
    joined = b"".join(values)
    if joined.isascii():
        return offsets(map(len, values)), joined
    return byte_column([value.decode("utf-8", "replace").encode() for value in values])


def repaired(begins: memoryview, values: bytes) -> tuple[object, ...]:
    """Return the result of text_column() for several values, which `values` joins; `begins` has their offsets."""
    ends = begins.cast("i").tolist()
    return text_column([values[start:end] for start, end in pairwise(ends)])


def raw_headers(rows: int, blocks: dict[int, bytes]) -> tuple[object, ...]:
    """Return the column of unparsed header blocks; `blocks` has the blocks by row.

    Rows without a block are null.
    """
    lengths = [0] * rows
    for row, block in blocks.items():
        lengths[row] = len(block)
    return validity(rows, blocks), offsets(lengths), b"".join(blocks.values())


def header_maps(rows: int, blocks: dict[int, bytes]) -> tuple[object, ...]:
    """Return the column of header blocks as maps from name to values; `blocks` has the blocks by row.

    Rows without a block are null.
    """
    counts = [0] * rows
    names: list[bytes] = []
    lists: list[int] = []
    values: list[bytes] = []
    for row, block in blocks.items():
        pairs = header_pairs(block)
        counts[row] = len(pairs)
        names.extend(pairs)
        lists.extend(map(len, pairs.values()))
        for some in pairs.values():
            values.extend(some)
    entries = (validity(rows, blocks), offsets(counts))
    return (*entries, *text_column(names), offsets(lists), *text_column(values))


def validity(rows: int, valid: Iterable[int]) -> bytearray:
    """Return a bitmap with one bit for each row, lowest bit first; the bits of the rows in `valid` are 1."""
    bits = bytearray((rows + 7) // 8)
    for row in valid:
        bits[row >> 3] |= 1 << (row & 7)
    return bits
