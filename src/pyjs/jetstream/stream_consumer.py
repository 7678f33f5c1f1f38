"""What a stream and its consumers expect of each other.

A consumer does not hold its stream: it gets the store, and two hooks that the stream sets when the consumer is
added. A consumer of an interest or workqueue stream appends to `settled` the sequences that it needs no more
(acknowledged, terminated, delivered without ack policy) and, at the end of a pump or ack batch that appended
something, calls `settle()` once. A consumer that has caught up calls `wait()`; `wake()` then puts it into
Turn.consumers when messages come, and each wait is good for one wake. Drops are reported to every consumer, also
to the one whose settling caused them. Only Python calls, none per message.

For type checkers alone: nothing imports this module when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyjs.jetstream.consumer_config import ConsumerConfig


class StreamConsumer(Protocol):
    """A consumer, as its stream sees it."""

    settle: Callable[[], None] | None  # None on limits streams
    wait: Callable[[], None] | None

    @property
    def name(self) -> str:
        """Its key in Stream.consumers."""

    @property
    def config(self) -> ConsumerConfig:
        """Its configuration."""

    @property
    def filters(self) -> tuple[bytes, ...]:
        """What it wants; empty: everything."""

    @property
    def settled(self) -> list[int]:
        """Sequences that it needs no more; the stream clears it."""

    def wake(self) -> None:
        """There are new messages."""

    def needs(self, seq: int) -> bool:
        """Tell whether the stored message is matched by its filters and not settled yet."""

    def on_drops(self, dropped: list[tuple[int, bytes]]) -> None:
        """Messages are gone: sequence and subject of each."""

    def on_purge(self, first_seq: int) -> None:
        """Everything below `first_seq` is gone, and perhaps more."""

    def stop(self, reason: str) -> None:
        """The stream closes; `reason` is "deleted" or "shutdown"."""


class Follower(Protocol):
    """A cursor that copies from a stream into another one, as the stream sees it that is copied from."""

    @property
    def name(self) -> str:
        """What tells it from consumers and from other followers."""

    @property
    def filters(self) -> tuple[bytes, ...]:
        """What it wants; empty: everything."""

    def wake(self) -> None:
        """There are new messages."""

    def needs(self, seq: int) -> bool:
        """Tell whether the stored message is matched by its filters and not safely copied yet."""


class Inflow(Protocol):
    """What a stream copies from others, as it sees it itself."""

    def committed(self) -> None:
        """What was copied is kept, or something else has changed in the stream."""

    def lost(self) -> None:
        """What was copied since the last commit is not kept."""
