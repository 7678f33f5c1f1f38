"""Converts a stream whose replicas were reduced to one into a stream without a group.

The leader of the group makes itself the only member (membership.py) and reports this to the metadata. An entry of the
metadata then gives the stream the number of a group that has no log yet. When this server applies this entry, it
converts the replica to a stream as on a single server. The new configuration is written last: if the server restarts
before, it finds the replica and its group, and repeats the conversion. A later group of the stream has another
number, so no server confuses its log with the old one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.base.errors import StoreFailed
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.manage import streams
from pyjs.jetstream.manage.consumers import is_durable, resources_of
from pyjs.jetstream.manage.persist import StoredConsumer
from pyjs.jetstream.manage.replicated_consumers import stored_state
from pyjs.jetstream.mirror.positions import Positions
from pyjs.jetstream.replication.copying import Answer
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.durable import durable_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeAlias

    from pyjs.core.chore import Step
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.replication.catch_up import CatchUp
    from pyjs.jetstream.stream.replicated.replica import Replica
    from pyjs.jetstream.stream.stream import Stream

    Steps: TypeAlias = Generator[Step, None, None]

PAUSE_NS = 20 * NS_PER_MS
LOST = "the log of its group is lost or damaged, and no other replica has its last messages"
LEAD_NS = 5 * NS_PER_S  # time to wait for the election of the only member


class Machine(Protocol):
    """The part of `stream_machine.StreamMachine` that this module uses."""

    js: JetStream
    stream: Stream
    replica: Replica
    leads: bool
    is_adopting: bool
    catch_up: CatchUp | None

    def end(self) -> None:
        """Stop leading and copying."""

    def lead_again(self) -> None:
        """Lead if this replica is elected."""


def finish_steps(machine: Machine, conclude: Callable[[], bool], silence: Callable[[], Steps]) -> Steps:
    """Stop accepting messages with `silence`, then apply all entries in the log of the group.

    The group has no other member, so its whole log is valid. If the replica is not elected, for example because the
    log has lost the removal of the other members, `conclude` applies the log without an election and returns whether
    it has done so.

    Raises:
        ApiError: the outcome of the last proposals is unknown.
        StoreFailed: the replica has failed, or lacks messages.
    """
    turn, pause = machine.stream.turn, Answer(machine.stream.turn, machine.js.shared.timers, 0)
    deadline_ns = turn.now + LEAD_NS
    while (not machine.leads and turn.now < deadline_ns) or machine.is_adopting:
        yield from pause.pause(PAUSE_NS)
    if machine.leads:
        yield from silence()
        yield from machine.replica.operate(operations.nothing())
        return
    machine.js.shared.log.warn(f"The group of {machine.stream} elects no leader: its whole log is applied")
    yield from _applied_steps(machine, conclude)
    if machine.catch_up is not None:
        raise StoreFailed(str(machine.stream), "it lacks messages, and no other replica is left")


def _applied_steps(machine: Machine, is_applied: Callable[[], bool]) -> Steps:
    """Wait until the whole log of the group is applied. Raises StoreFailed if the replica or the log has failed."""
    pause = Answer(machine.stream.turn, machine.js.shared.timers, 0)
    try:
        while not is_applied() or machine.replica.is_working:
            if machine.replica.stopped is not None:
                raise StoreFailed(str(machine.stream), str(machine.replica.stopped))
            yield from pause.pause(PAUSE_NS)
    except KeyError:  # a fault has closed the group
        raise StoreFailed(str(machine.stream), LOST) from None


def single_steps(machine: Machine, is_applied: Callable[[], bool], end_group: Callable[[], None]) -> Steps:
    """Convert a replica to a stream without a group, after `finish_steps`; `end_group` removes the group's log.

    The replica proposes nothing more, and first waits until its proposals (for example acks) are applied.

    Raises:
        StoreFailed: the files of the replica cannot be written, and the replica leads again; or the files cannot be
            read, and stay as they are.
    """
    machine.end()
    try:
        yield from _applied_steps(machine, is_applied)
        memory = yield from _store_steps(machine)
    except BaseException:
        machine.lead_again()
        raise
    end_group()
    yield from streams.make_single(machine.js, machine.stream, memory)


def _store_steps(machine: Machine) -> Generator[Step, None, list[StoredConsumer]]:
    """Make messages, consumers and then the configuration durable; return the consumers that have no files.

    Raises:
        StoreFailed: a file cannot be written.
    """
    js, stream = machine.js, machine.stream
    yield from durable_steps(stream)
    if stream.store.failed:
        raise stream.store.error or StoreFailed(str(stream), "it has failed")
    if stream.config.storage == FILE:
        for _ in js.files.recover_consumers(stream.name):
            yield None  # consumers that an earlier attempt has stored are stored again
    memory = yield from _keep_steps(machine)
    positions = machine.replica.consumers.positions
    if stream.config.storage == FILE and positions:
        file = Positions(partial(js.files.open_positions, stream.name), js.shared.log)
        file.save(stream.store.last_seq, positions)
    if stream.config.storage == FILE:
        single = replace(stream.config, num_replicas=1)
        yield from js.files.change(single, stream.created_ns, stream.store, js.shared.metadata)
    return memory


def _keep_steps(machine: Machine) -> Generator[Step, None, list[StoredConsumer]]:
    """Write the committed consumers to files; return the consumers that have no files.

    Raises:
        StoreFailed: they cannot be written.
    """
    js, stream = machine.js, machine.stream
    memory: list[StoredConsumer] = []
    resources = resources_of(js, stream)._replace(metadata=None)
    for each in list(machine.replica.consumers.committed.values()):
        changes = (bytes(each.changes),)
        found = StoredConsumer(each.name, each.config, each.created_ns, each.state, changes, (), None)
        state = stored_state(stream, found, resources)
        if is_durable(stream, each.config):
            change = js.files.new_consumer(stream.name, each.name, each.config, each.created_ns, state)
            yield from js.shared.metadata.commit(change)
        else:
            memory.append(found._replace(snapshot=state, deltas=()))
    return memory
