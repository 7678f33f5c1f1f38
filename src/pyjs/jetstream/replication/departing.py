"""Transfers the leadership of all streams before this server stops, or of a single one, while clients work.

First, the other servers stop sending messages for its streams, and make their publishers wait (cluster.awaited). Then
this server stores and answers the messages that it has received. Then it transfers the leaderships. So no message is
lost in transit. The clients of this server wait too: if it stops, their input is not read; otherwise their publishes
wait like those on other servers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.manage import streams
from pyjs.jetstream.names import DIRECT_QUEUE
from pyjs.jetstream.replication.copying import Answer
from pyjs.jetstream.stream.replicated import operations

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import TypeAlias

    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.waiters import Waiters
    from pyjs.jetstream.replication.stream_machine import StreamMachine
    from pyjs.jetstream.replication.streams import ReplicatedStreams
    from pyjs.jetstream.stream.stream import Stream

    Steps: TypeAlias = Generator[Step, None, None]
    Key: TypeAlias = tuple[bytes, bytes]  # subject and queue group

FENCE_NS = 500 * NS_PER_MS
LOOK_NS = 2 * NS_PER_MS  # time between two checks of a condition that another server must fulfil
TRANSFER_NS = 500 * NS_PER_MS  # time to wait for the election of another leader
FLUSH_NS = 1_000 * NS_PER_MS


class Interests(Protocol):
    """The interest of this server, as announced to the other servers (cluster.replication.Replication)."""

    def withdraw(self, account: Account, keys: Iterable[Key]) -> None:
        """Make the other servers stop sending messages for these subscriptions."""

    def fence(self, passed: Callable[[], None]) -> None:
        """Call `passed` when all messages that other servers sent before they processed `withdraw` have arrived."""


class Departure:
    """The transfer of all stream leaderships of this server before it stops."""

    def __init__(
        self, streams: ReplicatedStreams, waiters: Waiters, turn: Turn, interests: Interests
    ) -> None:
        self._streams = streams
        self._waiters = waiters
        self._turn = turn
        self._interests = interests
        self._led = [machine for machine in streams.machines() if machine.leads]
        self._flushing = 0  # number of streams whose accepted messages are not all answered yet

    @property
    def leads(self) -> bool:
        """Whether this server still leads a stream."""
        return any(machine.leads for machine in self._led)

    def begin_steps(self, pause: Callable[[], None]) -> Steps:
        """Make the other servers stop sending, call `pause`, then store and answer all messages received before."""
        for machine in self._streams.machines():
            stream, keys = machine.stream, [*direct_keys_of(machine.js, machine.stream)]
            keys += keys_of(stream) if machine.leads else ()
            self._interests.withdraw(machine.js.account, keys)
        pause()
        passed: list[bool] = []

        def pass_on() -> None:
            passed.append(True)
            self._waiters.notify()

        self._interests.fence(pass_on)
        yield from self._waiters.until(lambda: passed, FENCE_NS)
        self._flushing = len(self._led)
        for machine in self._led:
            self._turn.go_on(self._flush_steps(machine))
        yield from self._waiters.until(lambda: not self._flushing, FLUSH_NS)

    def _flush_steps(self, machine: StreamMachine) -> Steps:
        """Wait until all messages that the leader of a stream has accepted are stored and answered."""
        if machine.replica.in_flight or machine.replica.collects:
            with suppress(ApiError):  # this server no longer leads the stream
                yield from machine.replica.operate(operations.nothing())
        self._flushing -= 1
        self._waiters.notify()

    def move(self) -> None:
        """Transfer the leadership of each stream that this server still leads."""
        for machine in self._led:
            if machine.leads:
                self._streams.hand_over(machine)


class Resignation:
    """The end or the interruption of this server's leadership of one stream, while clients continue to work."""

    def __init__(self, js: JetStream, stream: Stream, interests: Interests) -> None:
        self._js = js
        self._stream = stream
        self._interests = interests
        self._pause = Answer(stream.turn, js.shared.timers, 0)

    def transfer_steps(self, machine: StreamMachine, transfer: Callable[[], None]) -> Steps:
        """Call `transfer` as soon as no message for the leader is in transit; lead again if the transfer fails."""
        yield from self.silence_steps()
        with suppress(ApiError):  # this server no longer leads the stream
            yield from machine.replica.operate(operations.nothing())
        transfer()
        yield from self._until(lambda: not machine.leads, TRANSFER_NS)
        if machine.leads:
            machine.follow()
            machine.lead_again()

    def silence_steps(self) -> Steps:
        """Make all publishers wait, and handle the messages and acknowledgements that are in transit."""
        yield from self.withdraw_steps(keys_of(self._stream))
        streams.listen(self._js, self._stream, on=False)
        for consumer in self._stream.consumers.values():
            if isinstance(consumer, Consumer):
                for subscription in consumer.subscriptions:
                    self._js.account.unsubscribe(subscription)
        yield None  # messages received in this turn are stored or proposed at its end

    def withdraw_steps(self, keys: Iterable[Key]) -> Steps:
        """Make the other servers stop sending messages for these subscriptions; wait for messages in transit."""
        passed: list[bool] = []
        self._interests.withdraw(self._js.account, keys)
        self._interests.fence(lambda: passed.append(True))
        yield from self._until(lambda: bool(passed), FENCE_NS)

    def _until(self, holds: Callable[[], bool], wait_ns: int) -> Steps:
        for _ in range(wait_ns // LOOK_NS):
            if holds():
                return
            yield from self._pause.pause(LOOK_NS)


def direct_keys_of(js: JetStream, stream: Stream) -> Iterator[Key]:
    """Yield the announced subject and queue group of each subscription of a replica to direct gets."""
    domain = js.options.domain
    for api in ("$JS.API", f"$JS.{domain}.API") if domain else ("$JS.API",):
        yield f"{api}.DIRECT.GET.{stream.name}".encode(), DIRECT_QUEUE
        yield f"{api}.DIRECT.GET.{stream.name}.>".encode(), DIRECT_QUEUE


def keys_of(stream: Stream) -> Iterator[Key]:
    """Yield subject and queue group of the subscriptions of a leader: to messages, acks, pulls and flow control."""
    for subject in stream.config.subjects:
        yield subject.encode(), b""
    for consumer in stream.consumers.values():
        if isinstance(consumer, Consumer):
            subjects = consumer.subjects
            for each in (*subjects.acks(), *subjects.pulls(), subjects.flow("*")):
                yield each, b""
