"""Bulk read of the messages in one range: chunks of raw records, and entries that locate the records.

pyjs-server offers bulk reads ($JS.API.PYJS.BULK.READ) for streams that allow direct gets. The server answers a
request with some chunks, and keeps no state. The next request is sent when the last chunk of the previous
answer has arrived, before that chunk is decoded. While the caller processes a batch, no request is open. So even
if the caller is slow for minutes, no bytes wait on the server. The read leaves nothing on the server, so it can be
repeated.

If the entries suffice to fill the columns, no records are requested. The client checks the records that it
receives, which saves CPU time on the server. If a check fails, the request is repeated with checks by the server,
which then reports damaged records.

    chunk = "PYJB" version u16 flags u16 first u64 next u64 stream_first u64 stream_last u64
            entries u32 data_size u32 segment u32 lost u32 incarnation u64   entry* (40 each)  data

A chunk has all requested messages in [first, next) that exist. It also has the first sequence that the stream had
at the time of the answer. This sequence shows, without another request, whether missing messages were removed at the
beginning of the stream, or deleted one by one.

Source: docs/bulk-read.md.
"""

from __future__ import annotations

import json
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from pyjs_spark import fast, strict_json
from pyjs_spark.decode import entries
from pyjs_spark.decode.entries import ALONE, DAMAGED, ENTRY_SIZE, FULL, TAKEN
from pyjs_spark.errors import ApiError, BulkRefused, ConnectionLost, ProtocolError, RequestTimeout, SparkError
from pyjs_spark.nats.client import Client
from pyjs_spark.read.batches import BatchMaker, decoded_columns
from pyjs_spark.read.lookup import STREAM_NOT_FOUND
from pyjs_spark.read.ranges import BATCH_SIZE_MAX, Losses, Patience, ReadRange, Report

if fast.IS_THERE:
    from pyjs_spark_fast.entries import Decoder
else:
    from pyjs_spark.decode.entries import Decoder  # type: ignore[assignment]

HEADER = struct.Struct("<4sHHQQQQIIIIQ")
MAGIC = b"PYJB"
VERSION = 1
LAST = 1  # flag of a chunk: the last one of its request
END = 2  # flag of a chunk: the range has no requested message after it
INFO_FIELD = "pyjs_version"  # a field of INFO that only pyjs-server sends
REFUSED = 20001  # error code of the server: allow_direct is off
OTHER_STREAM = 20002
REQUEST_SIZE = 2 << 20  # bytes requested at once; a server returns at most this number
REQUEST_SIZE_MIN = 1 << 16
ROW_SIZE = 200  # estimated bytes per row in a chunk, until the real size is known


class Chunk(NamedTuple):
    """One chunk in the answer to a bulk read."""

    flags: int
    first: int
    next: int
    stream_first: int
    stream_last: int
    messages: int
    table: memoryview  # the entries
    data: memoryview  # the records; empty if only entries were requested
    segment: int
    lost: int
    incarnation: int


def parse_chunk(payload: memoryview) -> Chunk:
    """Return the chunk in the payload of a message; the chunk refers to the memory of the payload.

    Raises:
        ProtocolError: the payload is not a valid chunk.
    """
    if len(payload) < HEADER.size:
        raise ProtocolError(f"a bulk read was answered with {len(payload)} bytes, which are no chunk")
    magic, version, flags, first, after, stream_first, stream_last, *rest = HEADER.unpack_from(payload)
    count, size, segment, lost, incarnation = rest
    if magic != MAGIC or version != VERSION:
        raise ProtocolError(
            f"a bulk read was answered with {bytes(payload[:8])!r}, which is no chunk of version 1"
        )
    body = HEADER.size + count * ENTRY_SIZE
    if body + size != len(payload):
        raise ProtocolError(
            f"a chunk of {count} entries and {size} bytes of records has {len(payload)} bytes"
        )
    table, data = payload[HEADER.size : body], payload[body:]
    state = (flags, first, after, stream_first, stream_last)
    return Chunk(*state, count, table, data, segment, lost, incarnation)


def is_offered(client: Client) -> bool:
    """Return whether the server answers bulk reads."""
    return INFO_FIELD in client.info


def read_range(client: Client, what: ReadRange, report: Report | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the range in order; see pull.read_range().

    Raises:
        BulkRefused: the server does not offer bulk reads, or the stream does not allow them.
    """
    report = report or Report()
    if what.low >= what.high:
        return
    if not is_offered(client):
        raise BulkRefused(
            f"option readMode=bulk: {client.address} is no pyjs-server that offers bulk reads; use readMode=auto"
        )
    info = Patience(client, report).stream_info(what.stream)
    losses = Losses(what, report)
    if info is None or (what.created and info["created"] != what.created):
        losses.of_stream(info, what.low)
        return
    if not info["config"].get("allow_direct"):
        raise refused(what.stream)
    read = _Read(client, what, report, losses, info["config"]["retention"] != "limits")
    try:
        yield from read.batches()
    finally:
        read.close()


def refused(stream: str) -> BulkRefused:
    """Return the error for a stream that does not allow bulk reads."""
    return BulkRefused(
        f"option readMode=bulk: the stream {stream} does not allow direct gets; set allow_direct in its "
        "configuration, or use readMode=auto"
    )


class _Read:
    """One bulk read of a range."""

    def __init__(
        self, client: Client, what: ReadRange, report: Report, losses: Losses, is_consumed: bool
    ) -> None:
        self._client = client
        self._what = what
        self._report = report
        self._losses = losses
        self._is_consumed = is_consumed  # the stream's consumers remove messages, which is no loss
        self._patience = Patience(client, report)
        self._maker = BatchMaker(what)
        self._decoder = Decoder(
            decoded_columns(what.columns), what.headers, what.bulk_batch_rows, BATCH_SIZE_MAX
        )
        self._decoder.listen(what.low, what.high)
        self._needs_records = entries.needs_records(what.columns, what.headers)
        self._is_checking = True  # whether the client checks records; otherwise the server does
        self._next_seq = what.low  # first sequence of the next chunk
        self._is_over = False
        self._inbox = b""
        self._sid = 0
        self._connection = 0  # number of the connection that has the subscription
        self._asked = 0  # number of requests so far
        self._is_waiting = False  # whether chunks of the last request's answer are still expected
        self._chunk: Chunk | None = None  # the current chunk
        self._at = 0  # index of the chunk's first entry that is not a row yet
        self._kept: deque[bytes] = deque()  # chunks received while the caller is busy
        self._mean = ROW_SIZE

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the range in batches."""
        has_more = True
        while has_more:
            has_more = self._fill()
            if self._decoder.rows:
                self._report.rows += self._decoder.rows
                yield self._maker.make(self._decoder.take())

    def close(self) -> None:
        """End the subscription if its connection still exists."""
        if self._sid and self._connection == self._client.connections:
            try:
                self._client.unsubscribe(self._sid)
            except SparkError:
                pass

    def _fill(self) -> bool:
        """Read until the batch is full; return False if the range ends first."""
        while not self._is_over:
            try:
                if self._chunk is None:
                    self._chunk, self._at = self._next_chunk(), 0
                if self._chunk is not None and self._decode(self._chunk):
                    return True
            except ApiError as error:
                self._refused(error)
            except SparkError as error:
                self._patience.bear(error)
                self._forget()
        return False

    def _decode(self, chunk: Chunk) -> bool:
        """Decode the current chunk, and return True if the batch became full.

        The next batch gets the rest of the chunk.

        Raises:
            ProtocolError: an entry does not fit the chunk.
        """
        data = chunk.data if self._needs_records else None
        in_memory = chunk.segment == 0  # the stream is in memory, so its records have no checks
        check = ALONE if self._is_checking and not in_memory else 0
        self._at = self._decoder.add(chunk.table, self._at, data, 0, check)
        state = self._decoder.state
        if state == FULL:
            self._keep(chunk)
            return True
        if state == TAKEN:
            self._patience.progress()
            self._next_seq = chunk.next
            self._chunk = None
            self._is_over = chunk.next >= self._what.high or bool(chunk.flags & END)
            return False
        if not self._is_checking or state != DAMAGED:
            raise ProtocolError(
                f"{self._client.address}: entry {self._at} of a chunk from sequence {chunk.first} on does not fit it"
            )
        self._is_checking = False  # from now on, the server checks the records
        self._drain()
        self._forget()
        return False

    # -- answers ----------------------------------------------------------------------------------------------------

    def _next_chunk(self) -> Chunk | None:
        """Return the next chunk; if no more chunks are expected, send a request first."""
        if self._kept:
            return self._known(parse_chunk(memoryview(self._kept.popleft())))
        if not self._is_waiting:
            self._ask()
        chunk = self._known(parse_chunk(self._receive()))
        if chunk.messages:
            self._mean = (self._mean + (len(chunk.table) + len(chunk.data)) // chunk.messages) // 2
        if chunk.flags & LAST:
            self._is_waiting = False
            self._ask_ahead(chunk)
        return chunk

    def _ask_ahead(self, chunk: Chunk) -> None:
        """Request more chunks before `chunk` is decoded, if the batch has room for more rows than `chunk` has."""
        room = self._what.bulk_batch_rows - self._decoder.rows - chunk.messages
        is_followed = not chunk.flags & END and chunk.next < self._what.high
        if room > 0 and is_followed:
            self._ask(chunk.next, room)

    def _known(self, chunk: Chunk) -> Chunk:
        """Check that a chunk begins where the previous chunk ended, and return the chunk.

        The sequences that the chunk reports as lost are counted.

        Raises:
            ConnectionLost: the chunk begins at another sequence.
        """
        if chunk.first != self._next_seq:
            raise ConnectionLost(
                f"{self._client.address}: a chunk begins at {chunk.first} where {self._next_seq} was expected"
            )
        if not self._is_consumed:
            state = {"first_seq": chunk.stream_first, "last_seq": chunk.stream_last}
            info = {"created": self._what.created, "state": state}
            self._losses.of_chunk(info, chunk.first, chunk.next, chunk.messages)
        if chunk.lost:
            why = f"the server found {chunk.lost} of them damaged"
            self._losses.damaged(chunk.first, chunk.first + chunk.lost, why)
        return chunk

    def _receive(self) -> memoryview:
        """Return the payload of the next part of the answer; the payload is valid until the next receive.

        Raises:
            RequestTimeout: there is no answer in time.
            ApiError: the answer is an error.
        """
        wait_s = self._client.settings.timeout_s
        reply = b"%b.%d" % (self._inbox, self._asked)
        while True:
            found = self._client.next_view(self._sid, time.monotonic() + wait_s)
            if found is None:
                raise RequestTimeout(
                    f"{self._client.address}: a bulk read of {self._what.stream} was not answered in {wait_s:g} s"
                )
            subject, payload = found
            if subject != reply:
                continue  # belongs to an abandoned request
            if bytes(payload[:1]) == b"{":
                self._is_waiting = False
                raise _error_in(bytes(payload))
            return payload

    def _keep(self, chunk: Chunk) -> None:
        """Copy received but unused bytes, since other code may use the connection before the next call."""
        self._chunk = chunk._replace(table=memoryview(bytes(chunk.table)), data=memoryview(bytes(chunk.data)))
        self._drain()

    def _drain(self) -> None:
        """Receive the rest of the current answer."""
        try:
            while self._is_waiting:
                payload = bytes(self._receive())
                self._kept.append(payload)
                self._is_waiting = not parse_chunk(memoryview(payload)).flags & LAST
        except ApiError:
            return  # a repeated request will get the same error, which is then raised
        except SparkError as error:
            self._patience.bear(error)
            self._is_waiting = False

    # -- requests ---------------------------------------------------------------------------------------------------

    def _ask(self, seq: int = 0, rows: int = 0) -> None:
        """Request about `rows` messages from `seq` on.

        If `seq` is 0, the request begins after the last chunk. If `rows` is 0, the rest of a batch is requested.
        """
        what = self._what
        if self._connection != self._client.connections:
            self._connection = self._client.connections
            self._inbox = self._client.new_inbox()
            self._sid = self._client.subscribe(self._inbox + b".*")
        rows = rows or what.bulk_batch_rows - self._decoder.rows
        body: dict[str, object] = {
            "seq": seq or self._next_seq,
            "end_seq": what.high,
            "max_bytes": min(REQUEST_SIZE, max(REQUEST_SIZE_MIN, rows * self._mean)),
        }
        body |= {"created": what.created} if what.created else {}
        body |= {"subjects": list(what.subjects)} if what.subjects else {}
        body |= {} if self._needs_records else {"entries_only": True}
        body |= {"unchecked": True} if self._needs_records and self._is_checking else {}
        self._asked += 1
        self._is_waiting = True
        subject = f"{self._client.settings.api_prefix}.PYJS.BULK.READ.{what.stream}"
        self._client.publish(
            subject.encode(), json.dumps(body).encode(), b"%b.%d" % (self._inbox, self._asked)
        )

    def _forget(self) -> None:
        """Discard the incomplete answer, so that the next request begins after the last row."""
        self._next_seq = max(self._next_seq, self._decoder.last_seq + 1)
        self._is_waiting = False
        self._chunk = None
        self._kept.clear()

    def _refused(self, error: ApiError) -> None:
        """Handle an error of the server.

        Depending on the error, the corresponding exception is raised, the read waits before a retry, or it ends.
        """
        self._forget()
        if error.err_code == REFUSED:
            raise refused(self._what.stream) from error
        if error.err_code not in (STREAM_NOT_FOUND, OTHER_STREAM):
            self._patience.bear(error)
            return
        info = self._patience.stream_info(self._what.stream)
        self._is_over = not self._losses.of_stream(info, self._next_seq)


def _error_in(payload: bytes) -> ApiError | ProtocolError:
    try:
        error = strict_json.loads(payload)["error"]
        return ApiError(
            int(error["code"]), int(error.get("err_code", 0)), f"bulk read: {error['description']}"
        )
    except (ValueError, KeyError, TypeError):
        return ProtocolError(f"a bulk read was answered with {payload[:200]!r}")
