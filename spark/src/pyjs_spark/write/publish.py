"""Publishing with acknowledgements. A window of many messages is in flight; each is identified by its row.

There is no thread: while the window has room, frames are sent; otherwise acknowledgements are read. If a row
is not acknowledged in time, or before its connection ends, it is published again with its message id. If the
server already has the message, the answer is "duplicate". The duplicate window may be too short for this answer, so
`stored` can first search the stream. Messages are in the order of the rows, unless some have to be published again.

Source: nats.docs "JetStream Publish"; the answers of both servers are checked in spark/tests/write/test_publish.py.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyjs_spark import fast
from pyjs_spark.decode.frames import NEED_MORE, Frames, PubAck, pub_ack
from pyjs_spark.errors import (
    ConnectionLost,
    NoResponders,
    NotAcknowledged,
    ProtocolError,
    PublishFailed,
    RequestTimeout,
    ServerUnreachable,
    SparkError,
)
from pyjs_spark.nats import retry
from pyjs_spark.nats.client import NOBODY, Client, Reply
from pyjs_spark.options.writing import SinkOptions

if fast.IS_THERE:
    from pyjs_spark_fast.frames import Acks
else:
    from pyjs_spark.decode.frames import Acks  # type: ignore[assignment]

WRONG_LAST_SEQ = 10071  # err_code of the server
# maximum bytes without acknowledgement, which a worker keeps in order to publish them again
SIZE_MAX = 64 << 20
PASSING = (429, 503)  # error codes of temporary refusals: overloaded, no leader
CATCH_UP_S = 1.0  # seconds between two reads of acknowledgements while the window has room
GLANCE_S = 0.01
LOST = (ConnectionLost, RequestTimeout, NoResponders, ServerUnreachable)
ADVICE = {
    10060: "the option expectedStream is set, and another stream has the subject",
    10054: "raise max_msg_size of the stream, or send less",
    10077: "a limit of the stream is reached: raise it, or remove messages",
    10047: "the store of the server is full",
    10023: "the store of the server is full",
}

# A function that returns which rows of unacknowledged frames the stream already has.
Stored = Callable[[Iterable[Frames]], Iterable[int]]


class Publisher:
    """A publisher of the frames of one partition, over its own connection."""

    def __init__(self, client: Client, options: SinkOptions) -> None:
        self.inbox = b"_INBOX.%016x." % random.getrandbits(64)
        self.stored: Stored | None = None  # called after a lost connection; None: message ids are sufficient
        self._client = client
        self._options = options
        self._failures = 0  # consecutive failures without an acknowledgement in between
        self._acks = Acks(self.inbox)
        self._under_way: deque[Frames] = deque()
        self._size = 0  # total bytes of the unacknowledged frames
        self._refused: set[int] = set()  # temporarily refused rows, which wait until the others are done
        self._listening = 0  # number of the connection that has the subscription; 0: none
        self._heard_at_s = time.monotonic()  # time at which input was last read

    @property
    def last_seq(self) -> int:
        """The highest acknowledged sequence."""
        return self._acks.last_seq

    @property
    def duplicates(self) -> int:
        """The number of messages that the stream already had."""
        return self._acks.duplicates

    def publish(self, frames: Frames) -> None:
        """Send frames when the window has room.

        The row numbers of the frames must be higher than all earlier ones.

        Raises:
            PublishFailed, AccessDenied: a message of this or an earlier call was not stored.
        """
        count = len(frames.numbers)
        if not count:
            return
        self._catch_up()
        self._wait(max(0, self._options.max_in_flight - count))
        while self._under_way and self._size + len(frames.data) > SIZE_MAX:
            self._wait(max(0, self._acks.waiting - len(self._under_way[0].numbers)))
        self._acks.add(frames.numbers)
        self._under_way.append(frames)
        self._size += len(frames.data)
        with self._enduring():
            self._listen()
            self._client.send(frames.data)

    def flush(self) -> None:
        """Wait for all acknowledgements. Raises the errors of publish()."""
        self._wait(0)

    def _listen(self) -> None:
        if self._listening != self._client.connections:
            self._acks.listen(self._client.subscribe(self.inbox + b"*"))
            self._listening = self._client.connections

    def _wait(self, target: int) -> None:
        """Read acknowledgements until at most `target` rows are unacknowledged."""
        acks = self._acks
        while acks.waiting > target:
            acks.enough = target
            with self._enduring():
                if acks.waiting <= len(self._refused):
                    self._send_refused()
                else:
                    self._hear()
        while self._under_way and not self._is_waiting(self._under_way[0]):
            done = self._under_way.popleft()
            self._size -= len(done.data)
            acks.forget_before(done.numbers[-1] + 1)

    def _catch_up(self) -> None:
        """Handle input that arrived while rows came slowly.

        A server closes connections that do not answer its PINGs.
        """
        if time.monotonic() < self._heard_at_s + CATCH_UP_S:
            return
        self._acks.enough = 0
        with self._enduring():
            while (answer := self._client.pump(self._acks, time.monotonic() + GLANCE_S)) is not None:
                self._answered(answer)
        self._heard_at_s = time.monotonic()

    @contextmanager
    def _enduring(self) -> Iterator[None]:
        """Reset the count of failures if acknowledgements arrive in the `with` block.

        If the connection is lost in the block, publish the unacknowledged messages again.
        """
        before = self._acks.waiting
        lost: SparkError | None = None
        try:
            yield
        except LOST as error:
            lost = error
        if self._acks.waiting < before:
            self._failures = 0
        if lost is not None:
            self._again(lost)

    def _hear(self) -> None:
        before, wait_s = self._acks.waiting, self._options.ack_timeout_s
        self._heard_at_s = time.monotonic()
        answer = self._client.pump(self._acks, self._heard_at_s + wait_s)
        if answer is not None:
            self._answered(answer)
        elif self._acks.state == NEED_MORE and self._acks.waiting == before:
            raise ConnectionLost(
                f"{self._client.address}: no acknowledgement for {wait_s:g} s (option ackTimeout)"
            )

    def _is_waiting(self, frames: Frames) -> bool:
        return any(self._acks.is_waiting(number) for number in reversed(frames.numbers))

    def _answered(self, answer: Reply) -> None:
        """Handle an answer other than an ordinary acknowledgement.

        Raises:
            ProtocolError: the answer is not valid.
            PublishFailed: the server refused the message, or another stream stored it.
        """
        number = answer.subject[len(self.inbox) :]
        if not answer.subject.startswith(self.inbox) or not number.isdigit():
            raise ProtocolError(f"{self._client.address}: a message came on {answer.subject[:60]!r}")
        row = int(number)
        if answer.status == NOBODY:
            self._refuse(row, "no stream takes its subject any more (503 No Responders)")
            return
        said = pub_ack(answer.payload)
        if said is None:
            raise ProtocolError(
                f"{self._client.address}: a publish was answered with {answer.payload[:100]!r}"
            )
        if said.code:
            self._failed(row, said)
        elif said.stream != self._options.stream:
            raise PublishFailed(
                f"row {row} was stored by stream {said.stream} and not by {self._options.stream}: the subjects "
                "of the streams were changed meanwhile"
            )
        else:
            self._acks.settle(row, said.seq, said.is_duplicate)
            self._acks.learn(answer.payload)

    def _failed(self, row: int, said: PubAck) -> None:
        text = f"{said.text} (code {said.code}, err_code {said.err_code})"
        if said.code in PASSING and said.err_code not in ADVICE:
            self._refuse(row, text)
            return
        advice = ADVICE.get(said.err_code)
        raise PublishFailed(
            f"stream {self._options.stream} does not take row {row}: {text}{'; ' + advice if advice else ''}"
        )

    def _refuse(self, row: int, why: str) -> None:
        if self._acks.is_waiting(row):
            self._refused.add(row)
            self._why = why

    def _send_refused(self) -> None:
        """Publish the temporarily refused messages again."""
        self._count_failure(self._why, PublishFailed)
        self._refused.clear()
        self._send_waiting()

    def _again(self, error: SparkError) -> None:
        """Connect again, and publish the unacknowledged messages again."""
        while True:
            self._count_failure(str(error), NotAcknowledged)
            try:
                self._client.reconnect()
                if self.stored is not None:
                    for row in self.stored(self._under_way):
                        self._acks.settle(row, 0, False)
                self._refused.clear()
                self._listen()
                self._send_waiting()
                return
            except LOST as worse:
                error = worse

    def _count_failure(self, why: str, failed: type[PublishFailed]) -> None:
        """Wait longer than after the last failure; after too many failures, raise `failed`."""
        self._failures += 1
        if self._failures > self._options.retries:
            raise failed(
                f"stream {self._options.stream}: {self._acks.waiting} messages are not acknowledged, after "
                f"{self._options.retries} retries (option retries): {why}"
            )
        retry.pause(self._failures - 1)

    def _send_waiting(self) -> None:
        for frames in self._under_way:
            start, view = 0, memoryview(frames.data)
            parts = []
            for number, end in zip(frames.numbers, frames.ends, strict=True):
                if self._acks.is_waiting(number):
                    parts.append(view[start:end])
                start = end
            if parts:
                self._client.send(b"".join(parts))


T = TypeVar("T")


def patiently(retries: int, act: Callable[[], T], client: Client | None = None) -> T:
    """Return the result of `act`, which is called again after a lost connection, at most `retries` times.

    If there is a `client`, it is reconnected before each repetition.
    """
    failures = 0
    while True:
        try:
            return act()
        except LOST as lost:
            if failures == retries:
                raise
            error = lost
        retry.pause(failures)
        failures += 1
        if client is not None:
            _reconnect(client, error)


def publish_one(client: Client, subject: str, payload: bytes, headers: bytes, retries: int) -> PubAck:
    """Publish one message, and return the server's answer, which may be an error.

    Retries may store the message twice.

    Raises:
        PublishFailed: the message is not acknowledged after all retries.
        ProtocolError: the answer is not an acknowledgement.
    """
    for failures in range(retries + 1):
        try:
            answer = client.request(subject, payload, headers=headers)
            said = pub_ack(answer.payload)
            if said is None:
                raise ProtocolError(f"{client.address}: {subject} was answered with {answer.payload[:100]!r}")
            if said.code not in PASSING or said.err_code in ADVICE:
                return said
            error: SparkError = PublishFailed(f"{said.text} (code {said.code}, err_code {said.err_code})")
            failed = PublishFailed
        except LOST as lost:
            error, failed = lost, NotAcknowledged
        if failures < retries:
            retry.pause(failures)
            _reconnect(client, error)
    raise failed(f"{subject} is not acknowledged, after {retries} retries (option retries): {error}")


def _reconnect(client: Client, error: SparkError) -> None:
    if isinstance(error, ConnectionLost | RequestTimeout | ServerUnreachable):
        try:
            client.reconnect()
        except ServerUnreachable:
            pass  # the next attempt will report it
