"""A snapshot: an archive of one stream is sent in chunks, as fast as the client acknowledges them.

The archive is created while it is sent: a step reads some messages, and no step runs while a whole window of chunks
is unacknowledged. Messages published after the start are left out; messages removed after the start may be missing.

Source: ADR-63, nats-server's source; tests/conformance/test_archives.py restores archives on both servers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from pyjs.archive.entries import CONSUMER_PREFIX, END, MAGIC, STATE_NAME, encode
from pyjs.archive.frames import FrameWriter
from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NotNow
from pyjs.base.gotext import time_text
from pyjs.base.nuid import nuid
from pyjs.jetstream import advisories
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.transfer.consumer_states import archived
from pyjs.jetstream.transfer.messages import read_messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pyjs.base.timers import Timer
    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Request
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream

CHUNK_DEFAULT, CHUNK_MIN, CHUNK_MAX = 128 * 1024, 1024, 1024 * 1024
WINDOW_DEFAULT, WINDOW_MIN, WINDOW_MAX = 8 << 20, 1024, 32 << 20
STEP_MESSAGES = 4096  # number of messages read in one step: half a millisecond
STEP_SIZE = 256 * 1024  # bytes read and compressed in one step
ACK_TIMEOUT_NS = 5 * NS_PER_S
INTEREST_TIMEOUT_NS = 2 * NS_PER_S


class Ended(Exception):
    """Raised if a snapshot cannot continue.

    `status` is the status that the client gets. The exception's message is the reason that the advisory states.
    """

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Flow:
    """The subject and size of the chunks of a snapshot, and the size of the window of unacknowledged chunks.

    The sizes are in bytes, as requested; 0 means the default.
    """

    subject: bytes
    chunk_size: int
    window_size: int

    def chunk(self) -> int:
        """Return the size of a chunk in bytes."""
        return min(max(self.chunk_size or CHUNK_DEFAULT, CHUNK_MIN), CHUNK_MAX)

    def chunks_max(self) -> int:
        """Return the maximum number of unacknowledged chunks."""
        window = min(max(self.window_size or WINDOW_DEFAULT, WINDOW_MIN), WINDOW_MAX)
        return max(window, self.chunk()) // self.chunk()


class Snapshot:
    """One snapshot that is being sent to a client."""

    def __init__(
        self,
        js: JetStream,
        stream: Stream,
        flow: Flow,
        state: dict[str, Any],
        with_consumers: bool,
        client: dict[str, object] | None,
    ) -> None:
        self._js = js
        self._stream = stream
        self._flow = flow
        self._state = state
        self._with_consumers = with_consumers
        self._client = client
        self._start_ns = js.shared.clock.wall_ns()
        self._first_seq, self._last_seq = stream.store.first_seq, stream.store.last_seq
        self._frames = FrameWriter()
        self._out = bytearray()
        self._ack_subject = f"$JS.SNAPSHOT.ACK.{stream.name}.{nuid(js.shared.rng)}".encode()
        self._slots = flow.chunks_max()
        self._index = 1  # number of the next chunk
        self._acked_ns = 0  # time at which a chunk was last sent or acknowledged
        self._subscribed = False  # whether a subscription with exactly this subject was found
        self._parked: Chore | None = None
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Queue the steps that send the archive. The response to the request is sent before them."""
        self._js.account.turn.go_on(self._steps())

    def _steps(self) -> Iterator[Step]:
        """Send all chunks, then the message that ends them."""
        account, log = self._js.account, self._js.shared.log
        path = f"'{account.name} > {self._stream.name}'"
        log.info(f"Starting snapshot for stream {path}")
        self._tell("create", {"stream": self._stream.name, "state": self._state})
        subscription = account.subscribe_handler(self._ack_subject + b".>", self._on_ack)
        reason = ""
        try:
            yield from self._wait_for_interest()
            yield from self._send_all()
            status = "204" if self._index > 1 else ""  # as in nats-server, not after a single short chunk
        except Ended as ended:
            status, reason = ended.status, str(ended)
        except Exception:  # an error in this program, which the scheduler logs
            self._drop_timer()
            account.unsubscribe(subscription)
            raise
        self._drop_timer()
        account.unsubscribe(subscription)
        header = f"NATS/1.0 {status}\r\n\r\n".encode() if status else b""
        account.send(self._flow.subject, b"", header)
        self._complete(reason)
        if reason:
            log.warn(f"Snapshot for stream {path} failed: {reason}")
        else:
            log.info(f"Completed snapshot for stream {path}")

    # -- the archive ---------------------------------------------------------------------------------------

    def _send_all(self) -> Iterator[Step]:
        for part in self._archive():
            if part:
                self._out += self._frames.add(part)
            while len(self._out) >= self._flow.chunk():
                yield from self._send_chunk()
            yield None
            self._check_open()
        self._out += self._frames.finish()
        while len(self._out) >= self._flow.chunk():
            yield from self._send_chunk()
        if self._out:
            self._js.account.send(self._flow.subject, bytes(self._out))

    def _archive(self) -> Iterator[bytes | bytearray]:
        """Yield the archive in parts, each of which takes one step of work."""
        now_ns = self._start_ns
        consumers = [each for each in self._stream.consumers.values() if isinstance(each, Consumer)]
        consumers = [each for each in consumers if not each.config.direct] if self._with_consumers else []
        state = orjson.dumps(self._state | {"consumer_count": len(consumers)})
        yield MAGIC + encode(STATE_NAME, now_ns, 0, b"", state)
        # one per step: there may be thousands of consumers, and one may have many deliveries
        for each in consumers:
            name = CONSUMER_PREFIX + each.name.encode()
            yield encode(name, now_ns, 0, b"", archived(each, self._last_seq))
        yield from self._messages()
        yield encode(END.name, END.ts, END.seq, END.headers, END.payload)

    def _messages(self) -> Iterator[bytes | bytearray]:
        store, seq = self._stream.store, self._first_seq
        while seq:
            if store.changing:
                yield b""
                continue
            part, seq = read_messages(store, seq, self._last_seq, STEP_MESSAGES, STEP_SIZE)
            if part or not seq:
                yield part
            else:
                yield self._message(seq)
                seq += 1

    def _message(self, seq: int) -> bytes:
        """Return the archive entry of one message.

        Raises:
            Ended: the message cannot be read.
        """
        try:
            message = self._stream.store.get(seq)
        except NotNow as error:
            raise Ended(f"500 {error}", str(error)) from error
        if message is None:
            text = f"couldn't load next message after seq {seq}: it is damaged"
            raise Ended(f"500 {text}", text)
        return encode(message.subject, message.ts, message.seq, message.headers, message.payload)

    def _check_open(self) -> None:
        if self._js.streams.get(self._stream.name) is not self._stream:
            raise Ended("500 stream closed", "stream closed")
        is_gone = self._subscribed and not self._is_subscribed()
        if is_gone or not self._js.account.has_interest(self._flow.subject):
            raise Ended("408 No Interest", "no interest")

    # -- flow control --------------------------------------------------------------------------------------

    def _send_chunk(self) -> Iterator[Step]:
        """Send one chunk as soon as the window allows it.

        Raises:
            Ended: the client did not acknowledge chunks in time, or is gone, or the stream was closed.
        """
        while not self._slots:
            yield from self._wait(self._acked_ns + ACK_TIMEOUT_NS)
            self._check_open()
            if not self._slots and self._now_ns() >= self._acked_ns + ACK_TIMEOUT_NS:
                raise Ended("408 No Flow Response", "no flow response")
        size = self._flow.chunk()
        chunk = bytes(self._out[:size])
        del self._out[:size]
        reply = b"%b.%d.%d" % (self._ack_subject, size, self._index)
        self._slots -= 1
        self._index += 1
        self._acked_ns = self._now_ns()
        self._js.account.send(self._flow.subject, chunk, b"", reply)

    def _on_ack(self, request: Request) -> None:
        self._slots = min(self._slots + 1, self._flow.chunks_max())
        self._acked_ns = self._now_ns()
        self._wake()

    def _wait_for_interest(self) -> Iterator[Step]:
        """Wait up to two seconds for a subscription to exactly the subject for the chunks.

        Raises:
            Ended: no subscription matches the subject, or the stream was closed.
        """
        until_ns = self._now_ns() + INTEREST_TIMEOUT_NS
        account, subject = self._js.account, self._flow.subject
        account.watch_interest(subject, self._wake)
        while not self._is_subscribed() and self._now_ns() < until_ns:
            yield from self._wait(until_ns)
        account.unwatch_interest(subject, self._wake)
        self._subscribed = self._is_subscribed()
        self._check_open()

    def _is_subscribed(self) -> bool:
        """Return whether the account has a subscription to exactly the subject for the chunks."""
        subject = self._flow.subject
        return any(each.subject == subject for each in self._js.account.subs.match(subject))

    def _wait(self, until_ns: int) -> Iterator[Step]:
        """Wait until `_wake` is called, or until the time `until_ns`."""
        self._drop_timer()
        self._timer = self._js.shared.timers.at(until_ns, self._wake)

        def park(chore: Chore) -> None:
            self._parked = chore

        yield park

    def _wake(self) -> None:
        chore, self._parked = self._parked, None
        if chore is not None:
            self._js.account.turn.chores.append(chore)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now_ns(self) -> int:
        return self._js.shared.clock.now_ns()

    # -- advisories ----------------------------------------------------------------------------------------

    def _complete(self, reason: str) -> None:
        start, end = time_text(self._start_ns), time_text(self._js.shared.clock.wall_ns())
        fields: dict[str, object] = {"stream": self._stream.name, "start": start, "end": end}
        self._tell("complete", fields, {"error": reason} if reason else {})

    def _tell(self, what: str, fields: dict[str, object], last: dict[str, object] | None = None) -> None:
        """Publish an advisory, if it has a subscriber."""
        js = self._js
        subject = f"$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_{what.upper()}.{self._stream.name}".encode()
        if js.account.has_interest(subject):
            client = {"client": self._client} if self._client else {}
            kind, now_ns = f"advisory.v1.snapshot_{what}", js.shared.clock.wall_ns()
            fields = fields | client | (last or {})
            advisories.publish(js.account, js.shared.rng, subject, kind, now_ns, fields, js.options.domain)
