"""The departure of this server from the groups of streams: it transfers their leadership before it stops.

First, the other servers stop sending messages for its streams, and make their publishers wait (cluster.awaited). Then
this server stores and answers the messages that it has received. Then it transfers the leaderships. So no message is
lost in transit.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.names import DIRECT_QUEUE
from pyjs.jetstream.stream.replicated.payload import operation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import TypeAlias

    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.member.waiters import Waiters
    from pyjs.jetstream.replication.stream_machine import StreamMachine
    from pyjs.jetstream.replication.streams import ReplicatedStreams

    Steps: TypeAlias = Generator[Step, None, None]
    Key: TypeAlias = tuple[bytes, bytes]  # subject and queue group

FENCE_NS = 500 * NS_PER_MS
FLUSH_NS = 1_000 * NS_PER_MS


class Interests(Protocol):
    """The interest of this server, as others know it: cluster.replication.Replication."""

    def withdraw(self, account: Account, keys: Iterable[Key]) -> None:
        """Make the other servers stop sending messages for these subscriptions."""

    def fence(self, passed: Callable[[], None]) -> None:
        """Call `passed` when all messages that the others sent before they learned of the withdrawal have arrived."""


class Departure:
    """Moves the leaderships of one server."""

    def __init__(
        self, streams: ReplicatedStreams, waiters: Waiters, turn: Turn, interests: Interests
    ) -> None:
        self._streams = streams
        self._waiters = waiters
        self._turn = turn
        self._interests = interests
        self._led = [machine for machine in streams.machines() if machine.leads]
        self._flushing = 0  # streams

    @property
    def leads(self) -> bool:
        """Whether this server still leads a stream."""
        return any(machine.leads for machine in self._led)

    def begin_steps(self, pause: Callable[[], None]) -> Steps:
        """Stop messages from other servers, and from own clients by `pause`; answer those that have arrived."""
        for machine in self._streams.machines():
            self._interests.withdraw(machine.js.account, keys_of(machine))
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
                yield from machine.replica.operate(operation("expiry"))  # an entry that follows all others
        self._flushing -= 1
        self._waiters.notify()

    def move(self) -> None:
        """Transfer the leadership of each stream that this server still leads."""
        for machine in self._led:
            if machine.leads:
                self._streams.hand_over(machine)


def keys_of(machine: StreamMachine) -> Iterator[Key]:
    """Yield the subscriptions of a replica, as other servers know them."""
    stream, domain = machine.stream, machine.js.options.domain
    for api in ("$JS.API", f"$JS.{domain}.API") if domain else ("$JS.API",):
        yield f"{api}.DIRECT.GET.{stream.name}".encode(), DIRECT_QUEUE
        yield f"{api}.DIRECT.GET.{stream.name}.>".encode(), DIRECT_QUEUE
    if machine.leads:
        for subject in stream.config.subjects:
            yield subject.encode(), b""
        for consumer in stream.consumers.values():
            if isinstance(consumer, Consumer):
                subjects = consumer.subjects
                for each in (*subjects.acks(), *subjects.pulls(), subjects.flow("*")):
                    yield each, b""
