"""Repairs damaged messages from other replicas, while the stream stays open.

The catalogue of a replica still lists its damaged messages (store/file/examiner), so the replica requests exactly
those that are still in the stream. A message never changes, so a replica that is ahead or behind may also answer. A
replica that has removed the message sends nothing; when this replica has applied the removal too, it no longer
requests the message. A received message must have the time, size and subject that the catalogue has.

When all messages of a segment have arrived, the segment is rewritten with them, as in a compaction: a new file is
written next to the old one, synced, and renamed over it. A crash leaves one of the two files. Counts, consumers and
the applied entry do not change.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.jetstream.replication import copy_batch
from pyjs.jetstream.replication.copy_batch import SEQS_MAX, BadCopy, Kind
from pyjs.jetstream.replication.copying import RATE, is_there, readable, removed_in
from pyjs.store.file.store import FileStore
from pyjs.store.segment.rewrite import record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import TypeAlias

    from pyjs.core.chore import Step
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.replication.copying import Answer
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.store.store import StoredMessage

    Steps: TypeAlias = Generator[Step, None, None]
    Found: TypeAlias = dict[int, StoredMessage]

WRITTEN_NS = 50 * NS_PER_MS  # time between two checks whether a segment was written


class Lacking(Protocol):
    """The part of `stream_machine.StreamMachine` that this module uses."""

    js: JetStream
    stream: Stream
    whole: Answer

    @property
    def group(self) -> int:
        """The number of the group."""

    def sources(self) -> Sequence[int]:
        """Return the nodes from which this replica can copy, in order of preference."""

    def name_of(self, node: int) -> str:
        """Return the name of a server."""

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch to a node."""

    def sync(self) -> None:
        """Begin to sync the store."""


def told(senders: Mapping[str, int]) -> str:
    """Return a string that lists how many messages each server sent."""
    counts = (f"{count} message{'' if count == 1 else 's'} from {name}" for name, count in senders.items())
    return ", ".join(counts) or "no message was lost"


def repair_steps(machine: Lacking, number: int) -> Generator[Step, None, bool]:
    """Repair the damaged segment `number` with messages from other replicas; return whether it was repaired."""
    stream = machine.stream
    store = stream.store
    assert isinstance(store, FileStore)
    found: Found = {}
    senders: dict[str, int] = {}
    for node in machine.sources():
        lacking = [seq for seq in store.examiner.wanted(number) if seq not in found]
        came = yield from fetch_steps(machine, node, lacking, machine.whole, store.examiner.fits)
        if stream.closed:
            return False
        if came:
            senders[machine.name_of(node)] = len(came)
            found |= came
    if any(seq not in found for seq in store.examiner.wanted(number)) or not store.seal_damaged(number):
        return False
    ids = yield from _ids_steps(machine, store, number)
    if stream.closed:
        return False
    yield from _written_steps(machine, store, number, found, ids)
    if stream.closed or number in store.examiner.damaged:
        return False
    machine.js.shared.log.warn(f"The replica of {stream} has repaired a damaged segment: {told(senders)}")
    machine.js.shared.repaired += len(found)
    return True


def _ids_steps(machine: Lacking, store: FileStore, number: int) -> Generator[Step, None, Found]:
    """Return those ids of removed messages of a segment that still count as duplicates on other replicas.

    Each id is returned as a message without payload. If a start found the damage, this replica may lack these ids.
    """
    found: Found = {}
    base, last = store.range_of(number)
    behind = readable(store, store.catalogue.next_match(last + 1, store.make_filter(())))
    if behind is not None and behind.ts < store.ids_from:
        return found
    for node in machine.sources():
        dead = [seq for seq in range(base, last + 1) if seq not in found and not is_there(store, seq)]
        found |= yield from fetch_steps(machine, node, dead, machine.whole, ids=True)
    return found


def _written_steps(machine: Lacking, store: FileStore, number: int, found: Found, ids: Found) -> Steps:
    """Rewrite a segment with the received messages, and wait until that is done or has failed."""
    stream = machine.stream
    base, last = store.range_of(number)
    records = {seq: record_of(message) for seq, message in ids.items() if not is_there(store, seq)}
    records |= {each.seq: record_of(each) for each in removed_in(stream, base, last)}
    # without messages that were removed since they were requested
    wanted = set(store.examiner.wanted(number))
    records |= {seq: record_of(message) for seq, message in found.items() if seq in wanted}
    store.compactor.repair(number, records)
    while not stream.closed and store.compactor.is_repairing(number):
        if store.wants_upkeep and store not in stream.turn.upkeep:
            stream.turn.upkeep.append(store)
        machine.sync()
        yield from machine.whole.pause(WRITTEN_NS)


def fetch_steps(
    machine: Lacking,
    node: int,
    seqs: Sequence[int],
    answer: Answer,
    is_right: Callable[[StoredMessage], bool] = bool,
    *,
    size_max: int = 1 << 62,
    ids: bool = False,
) -> Generator[Step, None, Found]:
    """Return the messages `seqs` (ascending) that the replica on `node` can read and that `is_right` accepts.

    With `ids`, return removed messages instead, each with only its id. No further request is sent after
    `size_max` bytes have arrived, or if the replica does not answer.
    """
    found: Found = {}
    at, size = 0, 0
    while at < len(seqs) and size < size_max:
        part = seqs[at : at + SEQS_MAX]
        came = yield from answer.steps(partial(_ask, machine, node, part, ids))
        if came is None or came[0] is not Kind.PART:
            break
        try:
            messages = list(copy_batch.records_of(came[2]))
        except BadCopy as error:
            machine.js.shared.log.error(f"A copy from node {node} is refused: {error}")
            break
        wanted = set(part)
        found |= {each.seq: each for each in messages if each.seq in wanted and is_right(each)}
        size += len(came[2])
        done = bisect_right(part, came[1])
        if not done:
            break
        at += done
        yield from answer.pause(len(came[2]) * NS_PER_S // RATE)
    return found


def _ask(machine: Lacking, node: int, seqs: Sequence[int], ids: bool, number: int) -> None:
    machine.send(node, copy_batch.ask_these(machine.group, number, seqs, ids=ids))
