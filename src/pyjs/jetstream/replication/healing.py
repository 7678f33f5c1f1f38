"""Repairs the damaged messages of a replica from other replicas; until then, another replica leads.

A start, a read or the scrub finds the damage. A damaged leader could not serve these messages. If they are lost,
conditions of later publishes could also have other results than on the other replicas. So an elected replica with
damage asks the others until an undamaged one answers, and transfers the leadership to it.

There are two cases. If the catalogue still lists the damaged messages, their contents are fetched from other replicas
while the stream stays open (repairing.py). If a start without index files has found the damage, the catalogue does
not list the messages. Then the stream is closed, and the replica compares itself with an undamaged one (catch_up.py,
restoring.py).

If this replica is elected, and for GIVE_UP_NS no other one is undamaged or has the messages, this replica leads
without them and continues to ask. Replicas that copy from it do not remove the messages that it has lost. It refuses
each publish whose outcome may depend on the lost messages (stream/replicated/gaps.pyx). So when an undamaged replica
returns, both have the same messages in the end, unless an operator has accepted the loss.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.jetstream.replication import copy_batch
from pyjs.jetstream.replication.copy_batch import WHOLE, Ask, Kind
from pyjs.jetstream.replication.repairing import Lacking, repair_steps
from pyjs.store.file.store import FileStore

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeAlias

    from pyjs.core.chore import Step
    from pyjs.jetstream.stream.replicated.replica import Replica
    from pyjs.jetstream.stream.stream import Stream

    Steps: TypeAlias = Generator[Step, None, None]

RETRY_NS = NS_PER_S  # pause between two questions
PAUSE_MAX_NS = 60 * NS_PER_S  # maximum pause between two attempts to write a segment
GIVE_UP_NS = 10 * NS_PER_S
TRANSFER_NS = 500 * NS_PER_MS  # time to wait for the election of another leader


class Damage(Enum):
    """The state of a replica with regard to damaged messages."""

    NONE = 0  # no damage
    FOLLOWS = 1  # another replica should lead
    LAST_RESORT = 2  # this replica leads if it is elected, since no undamaged replica has answered


class Damaged(Lacking, Protocol):
    """The part of `stream_machine.StreamMachine` that this module uses."""

    is_elected: bool
    damage: Damage

    def hand_over(self, node: int) -> None:
        """Transfer the leadership to the replica on another node."""

    def healed(self) -> None:
        """Lead again if this replica is elected."""

    def copy_lost(self) -> object:
        """Copy the lost messages from other replicas; the stream is closed meanwhile."""

    def lead_damaged(self) -> None:
        """Open the stream without the damaged messages, and lead if this replica is elected."""


def is_refused(stream: Stream, question: Ask) -> bool:
    """Return whether `question` requests an undamaged replica, and this one is damaged."""
    return question.have == WHOLE and is_damaged(stream)


def is_damaged(stream: Stream) -> bool:
    """Return whether a stream has lost or damaged messages that are not restored yet."""
    store = stream.store
    return isinstance(store, FileStore) and (
        store.lost is not None or store.mistaken or store.healing or bool(store.examiner.damaged)
    )


def note_gaps(stream: Stream, replica: Replica) -> None:
    """Pass the sequences that may be missing to `replica`, which leads as the last resort."""
    store = stream.store
    assert isinstance(store, FileStore)
    ranges = {number: last for number, _, last in store.ranges()}
    ends = [ranges[number] for number in (*store.damaged_numbers(0), *store.examiner.damaged)]
    replica.note_gaps(store.lost_seqs(), max(ends, default=0))


def heal_steps(machine: Damaged) -> Steps:
    """Repair the damaged messages. If this replica is elected before, make an undamaged replica the leader."""
    stream, at, since_ns = machine.stream, 0, -1
    machine.js.shared.log.error(
        f"The replica of {stream} has damaged messages: another one leads, if there is an undamaged one"
    )
    store = stream.store
    assert isinstance(store, FileStore)
    repairs = Repairs(machine, store)
    while not stream.closed and is_damaged(stream):
        since_ns = -1 if not machine.is_elected else stream.turn.now if since_ns < 0 else since_ns
        is_lossy = store.lost is not None or store.healing
        node = (yield from _whole_node(machine, at)) if machine.is_elected or is_lossy else 0
        at += 1
        if stream.closed:
            return
        if node and machine.is_elected:
            machine.hand_over(node)
            yield from machine.whole.pause(TRANSFER_NS)
        elif node and is_lossy:
            machine.copy_lost()  # the stream is closed
            return
        if (yield from repairs.steps()):
            continue
        is_late = since_ns >= 0 and stream.turn.now - since_ns > GIVE_UP_NS
        if machine.is_elected and is_late and store.examiner.damaged and not stream.closed:
            store.examiner.give_up()
            machine.lead_damaged()
            return
        yield from machine.whole.pause(RETRY_NS)
    if not stream.closed:
        machine.healed()


class Repairs:
    """The repairs of a replica. The pause between two attempts grows while a segment cannot be written."""

    def __init__(self, machine: Damaged, store: FileStore) -> None:
        self._machine = machine
        self._store = store
        self._pause_ns = RETRY_NS
        self._next_ns = 0

    def steps(self) -> Generator[Step, None, bool]:
        """Repair the damaged segments whose messages other replicas have; return whether a segment was repaired.

        Return False without an attempt during the pause after a failed write.
        """
        turn, damaged, is_done, has_failed = (
            self._machine.stream.turn,
            self._store.examiner.damaged,
            False,
            False,
        )
        if turn.now < self._next_ns:
            return False
        for number in sorted(damaged):
            if not self._machine.stream.closed and number in damaged:
                is_done |= yield from repair_steps(self._machine, number)
                has_failed |= self._store.compactor.has_failed(number)
        self._pause_ns = min(2 * self._pause_ns, PAUSE_MAX_NS) if has_failed else RETRY_NS
        self._next_ns = turn.now + self._pause_ns if has_failed else 0
        return is_done


def _whole_node(machine: Damaged, attempt: int) -> Generator[Step, None, int]:
    """Ask one other replica whether it is undamaged; return its node if so, otherwise 0."""
    nodes = machine.sources()
    if not nodes:
        return 0
    node = nodes[attempt % len(nodes)]
    found = yield from machine.whole.steps(partial(_ask, machine, node))
    return node if found is not None and found[0] is Kind.PART else 0


def _ask(machine: Damaged, node: int, number: int) -> None:
    machine.send(node, copy_batch.ask(machine.group, number, WHOLE))
