"""A replica whose stored messages were damaged: it is replaced by a copy of an undamaged replica.

A start, a read or the scrub finds the damage. The replica then lacks messages that the others have. As leader it
would serve without them, and conditions of later publishes could have another result than on the other replicas.
So it asks the others until an undamaged one answers, makes that one lead if it leads itself, and copies the whole
stream (catch_up.py). Reads of the damaged messages wait meanwhile. If no undamaged replica answers for GIVE_UP_NS,
the stream is reopened without them, as a stream with one replica, and the search goes on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.jetstream.replication import copy_batch
from pyjs.jetstream.replication.copy_batch import WHOLE, Ask, Kind
from pyjs.store.file.store import FileStore

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import TypeAlias

    from pyjs.core.chore import Step
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.replication.catch_up import CatchUp
    from pyjs.jetstream.replication.copying import Answer
    from pyjs.jetstream.stream.stream import Stream

    Steps: TypeAlias = Generator[Step, None, None]

RETRY_NS = NS_PER_S  # after the others were asked in vain
GIVE_UP_NS = 10 * NS_PER_S
TRANSFER_NS = 500 * NS_PER_MS  # for an election


class Damaged(Protocol):
    """The machine of the replica: stream_machine.StreamMachine."""

    js: JetStream
    stream: Stream
    is_elected: bool
    catch_up: CatchUp | None
    whole: Answer

    @property
    def group(self) -> int:
        """The number of the group."""

    def sources(self) -> Sequence[int]:
        """Return the nodes to copy from, the best one first."""

    def hand_over(self, node: int) -> None:
        """Transfer the leadership to the replica on another node."""

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch to a node."""

    def copy_afresh(self) -> None:
        """Replace the store by a copy of another replica."""

    def reopen(self) -> None:
        """Open the stream again from its files, without the damaged messages."""


def is_refused(stream: Stream, question: Ask) -> bool:
    """Return whether a damaged replica asks for an undamaged one, and this one is damaged too."""
    return question.have == WHOLE and is_damaged(stream)


def is_damaged(stream: Stream) -> bool:
    """Return whether a stream lacks messages, or reads of them wait."""
    store = stream.store
    return isinstance(store, FileStore) and (store.lost is not None or store.mistaken)


def heal_steps(machine: Damaged) -> Steps:
    """Begin to copy the stream when an undamaged replica answers; end early if the stream is closed."""
    log, stream, at = machine.js.shared.log, machine.stream, 0
    until_ns = stream.turn.now + GIVE_UP_NS
    while not stream.closed and machine.catch_up is None:
        nodes = machine.sources()
        node = nodes[at % len(nodes)] if nodes else 0
        if not (node and (yield from _is_whole(machine, node))):
            at += 1
            if stream.store.lost is None and stream.turn.now > until_ns:
                machine.reopen()
                return
            yield from machine.whole.pause(RETRY_NS)
        elif machine.is_elected:
            machine.hand_over(node)
            yield from machine.whole.pause(TRANSFER_NS)
        elif not stream.closed and machine.catch_up is None:
            log.warn(f"The replica of {stream} has damaged messages and copies it from another server")
            machine.copy_afresh()


def _is_whole(machine: Damaged, node: int) -> Generator[Step, None, bool]:
    """Return whether the replica on a node answers that it is undamaged."""
    found = yield from machine.whole.steps(partial(_ask, machine, node))
    return found is not None and found[0] is Kind.PART


def _ask(machine: Damaged, node: int, number: int) -> None:
    machine.send(node, copy_batch.ask(machine.group, number, WHOLE))
