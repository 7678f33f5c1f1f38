"""Messages of one range of sequences as Arrow batches, read by a pull consumer that exists only for the read.

The consumer is ephemeral, has ack policy none, and begins at the range's first sequence; so the read changes
nothing on the server and can be repeated. At most one request is open, and none while the caller processes a batch.
So even if a caller is slow for minutes, no bytes wait on the server, which would otherwise close the connection.

The read ends at the last sequence of the range, or when the stream has no more messages in the range. Messages are
not counted, since some may be deleted. A consumer without pending messages does not prove the end of the range: in a
cluster the consumer may be on a replica that lags behind, and nats-server (2.15.1) sometimes counts too few pending
messages while messages are deleted. So the read asks the stream's leader whether there are more messages, and waits
for them if there are. If sequences have no message, the stream's first sequence shows whether messages were removed
at the beginning of the stream during the read (ranges.Losses). After a lost connection, a lost consumer or a missing
delivery, a new consumer continues after the last row.

Source: ADR-13 (pull requests and their statuses); both servers are checked in spark/tests/read/test_pull.py.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyjs_spark import fast
from pyjs_spark.decode.wire import DONE, ENOUGH, FULL, GAP, NEED_MORE, TOO_LARGE
from pyjs_spark.errors import (
    AccessDenied,
    ApiError,
    ConnectionLost,
    OptionError,
    ProtocolError,
    ReadStalled,
    SeqTooLarge,
    SparkError,
    no_consumer,
)
from pyjs_spark.nats.client import Client, Reply
from pyjs_spark.read import direct, lookup
from pyjs_spark.read.batches import BatchMaker, decoded_columns
from pyjs_spark.read.ranges import BATCH_SIZE_MAX, LOG, Losses, Patience, ReadRange, Report

if fast.IS_THERE:
    from pyjs_spark_fast.wire import Decoder
else:
    from pyjs_spark.decode.wire import Decoder  # type: ignore[assignment]

__all__ = ["PullRead", "ReadRange", "Report", "read_range"]

INACTIVE_THRESHOLD_NS = 30_000_000_000
CONSUMER_GONE = (10014, 10059)  # error codes of the server: consumer or stream not found
NO_CONSUMER = (10026, 10138)  # error codes of the server: too many consumers; filters that partly overlap
MESSAGE_SIZE_MAX = 1 << 30  # bytes; far above the limit of any server
OVERHEAD = 1024  # maximum bytes that a server counts for a message in addition to its size: the reply subject


def read_range(client: Client, what: ReadRange, report: Report | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the range in order, in batches of at most `batch_rows` rows and 32 MiB.

    Workqueue and interest streams are read by direct get (direct.py). So are streams for which no consumer can be
    created, because they have too many consumers or the subjects overlap. If the mode is `consumer`, such a range is
    refused.

    Raises:
        OptionError: no consumer can read the range, and the mode allows no other way.
        DataLoss: messages of the range no longer exist (with fail_on_data_loss; otherwise `report` counts them).
        ReadStalled, ServerUnreachable and other SparkErrors: the server makes no progress.
    """
    report = report or Report()
    if what.low >= what.high:
        return
    info = Patience(client, report).stream_info(what.stream)
    if info is not None and info["config"]["retention"] != "limits":
        # The driver has already refused such streams, but this one may have been re-created since then.
        if what.mode == "consumer":
            raise no_consumer(what.stream)
        yield from direct.read_range(client, what, report)
        return
    read = PullRead(client, what, report, inactive_ns(info))
    try:
        yield from read.batches()
    except ApiError as error:
        if error.err_code not in NO_CONSUMER:
            raise
        if what.mode == "consumer":
            said = f"option readMode=consumer: stream {what.stream} cannot have one more consumer: {error}"
            raise OptionError(f"{said}; remove some, or use readMode=auto") from error
        yield from direct.read_range(client, replace(what, low=read.next_seq), report)
    finally:
        read.close()


def inactive_ns(info: dict[str, Any] | None) -> int:
    """Return the inactive threshold for the consumer in ns.

    The threshold is lower than usual if the stream's configuration has a lower limit for it.
    """
    limits = info["config"].get("consumer_limits") or {} if info is not None else {}
    return min(INACTIVE_THRESHOLD_NS, limits.get("inactive_threshold") or INACTIVE_THRESHOLD_NS)


class _Consumer:
    """The consumer that a read currently uses."""

    def __init__(self, client: Client, name: str, pending: int) -> None:
        self.name = name
        self.pending = pending  # number of messages to deliver when the consumer was created
        self._inbox = client.new_inbox()
        self.sid = client.subscribe(self._inbox + b".*")
        self.connection = client.connections  # number of the connection that has the subscription
        self.reply = b""  # reply subject of the current request; its statuses arrive there
        self._asked = 0

    def next_reply(self) -> bytes:
        """Return the reply subject for a new request."""
        self._asked += 1
        self.reply = b"%b.%d" % (self._inbox, self._asked)
        return self.reply


class PullRead:
    """One read of a range by a pull consumer; also the base class of the read in latest.py."""

    def __init__(
        self, client: Client, what: ReadRange, report: Report, inactive_ns: int = INACTIVE_THRESHOLD_NS
    ) -> None:
        self._client = client
        self._what = what
        self._report = report
        self._inactive_ns = inactive_ns
        self._losses = Losses(what, report)
        self._patience = Patience(client, report)
        self._maker = BatchMaker(what)
        self._decoder = Decoder(decoded_columns(what.columns), what.headers, what.batch_rows, BATCH_SIZE_MAX)
        self.next_seq = what.low  # the sequence after the last yielded row
        self._decoder.listen(0, what.high, what.low)
        self._consumer: _Consumer | None = None
        self._waits = False  # whether the next request waits for messages, since the last one found none
        self._oversize = 0  # bytes to request for a message that is larger than a batch
        # time of the last message, or of the moment when the caller asked for more
        self._heard_at_s = time.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the range in batches."""
        has_more = True
        while has_more:
            has_more = self._fill()
            has_more = self._check_gaps(has_more) and has_more
            if self._decoder.rows:
                self._report.rows += self._decoder.rows
                yield self._maker.make(self._decoder.take())
                self._heard_at_s = time.monotonic()

    def close(self) -> None:
        """Delete the consumer.

        If that fails, the server deletes the consumer after its inactive threshold, at most 30 s later.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(SparkError):
                self._client.unsubscribe(consumer.sid)
                self._client.api(f"CONSUMER.DELETE.{self._what.stream}.{consumer.name}")

    def _fill(self) -> bool:
        """Read until the batch is full; return False if the range ends first."""
        while True:
            before = self._decoder.last_seq
            try:
                if not self._is_listening() and not self._open():
                    return False
                has_more = self._pull()
            except (SparkError, Broken) as error:
                if self._decoder.last_seq > before:
                    self._patience.progress()
                if isinstance(error, Broken):
                    self.close()
                    self._patience.bear(ApiError(503, 0, f"stream {self._what.stream}: {error}"))
                else:
                    self._patience.bear(error)
                    self._consumer = None  # the consumer was lost with the connection, or will expire
            else:
                self._patience.progress()
                return has_more

    def _is_listening(self) -> bool:
        """Return whether there is a consumer whose subscription belongs to the current connection."""
        return self._consumer is not None and self._consumer.connection == self._client.connections

    def _open(self) -> bool:
        """Create a consumer that starts after the last row.

        Returns False if no messages are left to read.
        """
        what, next_seq = self._what, self._decoder.last_seq + 1
        made = self._create({"deliver_policy": "by_start_sequence", "opt_start_seq": next_seq})
        if made is None:
            return self._losses.of_stream(None, next_seq)
        self._decoder.listen(made.sid, what.high, next_seq)
        # Requested after the creation: if the stream is unchanged now, the consumer belongs to it.
        is_there = self._losses.of_stream(lookup.stream_info(self._client, what.stream), next_seq)
        return is_there and (made.pending > 0 or self._is_pending())

    def _create(self, start: dict[str, object]) -> _Consumer | None:
        """Create a consumer; return None if the stream does not exist."""
        what = self._what
        name = f"pyjs-spark-{random.getrandbits(64):016x}"
        config = {
            "name": name,
            **start,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": self._inactive_ns,
        }
        if what.subjects:
            config["filter_subjects"] = list(what.subjects)
        if not what.has_bodies:
            config["headers_only"] = True
        body = {"stream_name": what.stream, "config": config}
        try:
            made = self._client.api(f"CONSUMER.CREATE.{what.stream}.{name}", body)
        except ApiError as error:
            if error.err_code not in CONSUMER_GONE:
                raise
            return None
        self._consumer = _Consumer(self._client, name, int(made["num_pending"]))
        return self._consumer

    def _pull(self) -> bool:
        """Send requests until the batch is full; return False if the range ends first."""
        while self._decoder.rows < self._what.batch_rows and self._decoder.size < BATCH_SIZE_MAX:
            before = self._decoder.delivered
            self._request()
            end = self._receive()
            if end == FULL:
                return True
            if self._decoder.delivered > before:
                self._heard_at_s = time.monotonic()
                self._waits = False
                if end == DONE and self._is_reached():
                    return False
            elif end == NEED_MORE and not self._is_pending():
                return False
        return True

    def _request(self) -> None:
        """Request as many messages as fit into the batch."""
        what, decoder, consumer = self._what, self._decoder, self._consumer
        assert consumer is not None
        left = what.high - decoder.last_seq - 1
        count = 1 if self._oversize else min(what.fetch_batch, what.batch_rows - decoder.rows, left)
        size = self._oversize or BATCH_SIZE_MAX - decoder.size
        request: dict[str, object] = {"batch": count, "max_bytes": size}
        request |= {"expires": int(what.fetch_expires_s * 1e9)} if self._waits else {"no_wait": True}
        decoder.expect(count)
        subject = f"{self._client.settings.api_prefix}.CONSUMER.MSG.NEXT.{what.stream}.{consumer.name}"
        self._client.publish(subject.encode(), json.dumps(request).encode(), consumer.next_reply())

    def _receive(self) -> int:
        """Read until the request ends.

        Return DONE or ENOUGH, or FULL if the batch is full, or NEED_MORE if the request ended early.
        """
        wait_s = self._client.settings.timeout_s + (self._what.fetch_expires_s if self._waits else 0)
        deadline_s, before = time.monotonic() + wait_s, self._progress()
        while True:
            status = self._client.pump(self._decoder, deadline_s)
            if status is not None and (end := self._ended(status)) is not None:
                return end
            if before != (before := self._progress()):
                deadline_s = time.monotonic() + wait_s
            elif time.monotonic() > deadline_s:  # PINGs and heartbeats do not count as progress
                self._failed(NEED_MORE, wait_s)
            if status is not None:
                continue
            state = self._decoder.state
            if state == ENOUGH:
                self._oversize = 0
            if state in (DONE, ENOUGH, FULL):
                return state
            if state != NEED_MORE:
                self._failed(state, wait_s)

    def _progress(self) -> tuple[int, int]:
        """Return a value that changes when a delivery, or a part of one, arrives."""
        return self._decoder.delivered, self._client.begun

    def _failed(self, state: int, wait_s: float) -> None:
        """Raise the error for a state in which the decoder cannot continue."""
        seq = self._decoder.last_seq
        if state == TOO_LARGE:
            text = f"stream {self._what.stream}: the sequence after {seq} is above 2^63-1, which Spark cannot hold"
            raise SeqTooLarge(text)
        if state == GAP:
            raise Broken(f"a delivery after sequence {seq} is missing")
        raise ConnectionLost(f"{self._client.address}: nothing came for {wait_s:g} s, not even a status")

    def _ended(self, status: Reply) -> int | None:
        """Return the state of the read if a status ends the request, or None if the request continues.

        Raises:
            Broken: the consumer is gone.
            ProtocolError: the status is unknown.
        """
        assert self._consumer is not None
        code, text = status.status, status.description
        if code and status.subject != self._consumer.reply:
            return None  # the end of an earlier request: with max_bytes, a server sends "409 Batch Completed"
        if code == 100:  # a heartbeat, or a flow control message, which needs an answer
            if status.reply:
                self._client.publish(status.reply)
            return None
        if code in (404, 408):
            return NEED_MORE
        if code == 409 and "maxbytes" in text.lower():
            return self._at_size_limit()
        if code in (409, 503):
            raise Broken(f"the consumer is gone ({code} {text or 'No Responders'})")
        said = f"{code} {text}" if code else f"a message on {status.subject[:60]!r} that is no delivery"
        raise ProtocolError(f"{self._client.address}: the server answered a pull request with {said}")

    def _at_size_limit(self) -> int:
        """Handle a message that does not fit in the batch, or is larger than any batch.

        Returns the state of the read.

        Raises:
            ProtocolError: the message is larger than any server sends.
        """
        if self._decoder.rows:
            return FULL
        if self._oversize > MESSAGE_SIZE_MAX:
            raise ProtocolError(f"{self._client.address}: a message does not fit into {self._oversize} bytes")
        self._oversize = 2 * (self._oversize or BATCH_SIZE_MAX) + OVERHEAD
        return ENOUGH

    def _is_reached(self) -> bool:
        """Return whether the delivery at which the decoder stopped ends the range.

        Raises:
            Broken: the consumer ended, and the stream has more messages.
        """
        last_seq = self._decoder.last_seq
        if last_seq >= self._what.high - 1 or self._decoder.pending:
            return True  # all pending messages are after the range
        if self._is_pending():  # the request may still be open, but its deliveries are not read now
            raise Broken(f"the consumer ended after sequence {last_seq}, and the stream has more")
        return True

    def _is_pending(self) -> bool:
        """Return whether the stream has more messages of the range although the consumer has none to deliver.

        Raises:
            Broken: the stream is gone.
            ReadStalled: there are more messages, and none has arrived within the idle timeout.
        """
        what, low = self._what, self._decoder.last_seq + 1
        try:
            is_left = lookup.has_message(self._client, what.stream, low, what.high, what.subjects)
        # without the permission for this request, the read relies on the consumer
        except AccessDenied as error:
            LOG.warning("stream %s: its end is where the consumer says, since %s", what.stream, error)
            return False
        except ApiError as error:
            if error.err_code in CONSUMER_GONE:
                raise Broken("the stream is gone") from error
            raise
        if is_left:
            self._check_idle("the stream has some")
        self._waits = True
        return is_left

    def _check_idle(self, there: str) -> None:
        """Raise ReadStalled if nothing arrived within the idle timeout.

        `there` is the reason why a message is expected.
        """
        idle_s = time.monotonic() - self._heard_at_s
        if idle_s > self._what.idle_timeout_s:
            raise ReadStalled(
                f"stream {self._what.stream}: no message after sequence {self._decoder.last_seq} for "
                f"{idle_s:.0f} s, though {there}; raise idleTimeout, or look at the server"
            )

    def _check_gaps(self, has_more: bool) -> bool:
        """Check whether sequences without a message were trimmed; return False if the read must end."""
        low = self.next_seq
        self.next_seq = high = self._decoder.last_seq + 1 if has_more else self._what.high
        missing = high - low - self._decoder.rows
        if not missing:
            return True
        info = self._patience.stream_info(self._what.stream)
        return self._losses.of_batch(info, low, high, missing)


class Broken(Exception):
    """Raised when the consumer is unusable, but the connection still works."""
