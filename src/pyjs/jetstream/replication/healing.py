"""A replica whose stored messages were damaged: another one leads.

A start, a read or the scrub finds the damage. The replica then lacks messages that the others have. As leader it
would serve without them, and conditions of later publishes could have another result than on the other replicas.
So it asks the others until an undamaged one answers, and makes that one lead. Reads of the damaged messages fail
here meanwhile. If no undamaged replica answers for GIVE_UP_NS, this one leads without the damaged messages, as a
stream with one replica would go on, and the search goes on.

The store stays: it may have messages that are damaged elsewhere. docs/cluster.md says how an operator replaces it.
"""

from __future__ import annotations

from enum import Enum
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
    from pyjs.jetstream.replication.copying import Answer
    from pyjs.jetstream.stream.stream import Stream

    Steps: TypeAlias = Generator[Step, None, None]

RETRY_NS = NS_PER_S  # between two questions
GIVE_UP_NS = 10 * NS_PER_S
TRANSFER_NS = 500 * NS_PER_MS  # for an election


class Damage(Enum):
    """The state of a replica with regard to damaged messages."""

    NONE = 0  # no damage
    FOLLOWS = 1  # another replica should lead
    LAST_RESORT = 2  # leads if it is elected, since no undamaged replica answers


class Damaged(Protocol):
    """The machine of the replica: stream_machine.StreamMachine."""

    js: JetStream
    stream: Stream
    is_elected: bool
    damage: Damage
    whole: Answer

    @property
    def group(self) -> int:
        """The number of the group."""

    def sources(self) -> Sequence[int]:
        """Return the nodes to copy from, the best one first."""

    def hand_over(self, node: int) -> None:
        """Transfer the leadership to the replica on another node."""

    def lead_again(self) -> None:
        """Lead if the group wants it."""

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch to a node."""

    def reopen(self) -> None:
        """Open the stream again from its files, without the damaged messages."""


def is_refused(stream: Stream, question: Ask) -> bool:
    """Return whether a damaged replica asks for an undamaged one, and this one is damaged too."""
    return question.have == WHOLE and is_damaged(stream)


def is_damaged(stream: Stream) -> bool:
    """Return whether a stream lacks messages, or reads of them fail."""
    store = stream.store
    return isinstance(store, FileStore) and (store.lost is not None or store.mistaken)


def leave_lead_steps(machine: Damaged) -> Steps:
    """Make an undamaged replica lead whenever this one should; end when the stream is closed."""
    log, stream, at, since_ns = machine.js.shared.log, machine.stream, 0, -1
    log.error(
        f"The replica of {stream} has damaged messages: another one leads, if there is an undamaged one"
    )
    while not stream.closed and is_damaged(stream):
        if not machine.is_elected:
            machine.damage, since_ns = Damage.FOLLOWS, -1
            yield from machine.whole.pause(RETRY_NS)
            continue
        since_ns = stream.turn.now if since_ns < 0 else since_ns
        nodes = machine.sources()
        node = nodes[at % len(nodes)] if nodes else 0
        at += 1
        if node and (yield from _is_whole(machine, node)):
            machine.hand_over(node)
            yield from machine.whole.pause(TRANSFER_NS)
        is_late = stream.turn.now - since_ns > GIVE_UP_NS
        if machine.is_elected and is_late and machine.damage is Damage.FOLLOWS:
            _lead_without(machine)
        yield from machine.whole.pause(RETRY_NS if machine.is_elected else 0)


def _lead_without(machine: Damaged) -> None:
    """Lead without the damaged messages; if they are still listed, the stream is opened again first."""
    if machine.stream.store.lost is None:
        machine.reopen()
        return
    machine.damage = Damage.LAST_RESORT
    machine.lead_again()


def _is_whole(machine: Damaged, node: int) -> Generator[Step, None, bool]:
    """Return whether the replica on a node answers that it is undamaged."""
    found = yield from machine.whole.steps(partial(_ask, machine, node))
    return found is not None and found[0] is Kind.PART


def _ask(machine: Damaged, node: int, number: int) -> None:
    machine.send(node, copy_batch.ask(machine.group, number, WHOLE))
