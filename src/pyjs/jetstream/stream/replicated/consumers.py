"""The consumers of a replicated stream: their committed states, which every replica has.

An entry creates, configures or deletes a consumer. Other entries have the changes of a turn, in the encoding of a
consumer's log, or the whole state of a consumer. A whole state is proposed after a purge or a reset, after proposed
changes were lost, and when the changes have become larger than a state. A replica stores these bytes without decoding
them. So all replicas have the same bytes after the same entry, whatever their stores contain, and applying entries
again after a restart has the same result. This holds for all consumers of the stream, even those with `num_replicas`
1, memory storage or an `inactive_threshold`.

On the leader, each consumer is open. As on a single server, it delivers and handles acks before they are stored, but
it proposes its changes instead of writing a file (proposed_state.py). On followers, a `CommittedConsumer` takes its
place in the stream: its filters decide which messages an interest stream stores.

The leader proposes the removal of acknowledged messages from an interest or workqueue stream after the acks of these
messages. So a committed removal implies that the acks are committed, and every replica removes the same messages.

A new leader opens each consumer with its committed state. If a newer server has committed changes that this server
does not know, the consumer is offline, and its messages stay, until a server that knows these changes leads.
Otherwise:

- No message is skipped. If the delivery of a message was not committed, the message is delivered as if for the first
  time. If the ack of a message was not committed, the message is still pending.
- A pending message is delivered again as soon as its ack wait is over; it keeps its committed number of deliveries. A
  message is also delivered again if the old leader could not commit its delivery or ack. A double ack is answered
  only after its commit.
- Waiting pull requests are lost: they get 409 Leadership Change. The pin of a priority group is lost, so the next
  request gets a new one. The time of the last activity is lost, so the `inactive_threshold` restarts.

This module also handles the positions of the stream's sources, which are committed and restored in the same way.

This module knows nothing of the meaning of changes and states; jetstream/manage/replicated_consumers.py opens
consumers.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Protocol

import msgpack
import orjson

from pyjs.jetstream import errcodes
from pyjs.jetstream.config.consumer import ConsumerConfig, from_json
from pyjs.jetstream.config.declared import as_json
from pyjs.jetstream.stream.replicated.applied_index import AppliedIndex
from pyjs.jetstream.stream.replicated.payload import items_of, operation
from pyjs.jetstream.stream.stream_consumer import StreamConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from pyjs.jetstream.stream.stream import Stream

VERSION = 1  # version of a dump
OPENED_PER_STEP = 16  # number of consumers opened in one step, which takes about a millisecond
CREATED = Struct("<q")
_CREATION = Struct("<qI")


# -- payloads ---------------------------------------------------------------------------------------------------


def creation(name: str, created_ns: int, config: ConsumerConfig, state: bytes) -> bytes:
    """Return the payload that creates a consumer with its first state."""
    shown = orjson.dumps(as_json(config))
    return operation(
        "consumer created", _CREATION.pack(created_ns, len(shown)) + shown + state, name.encode()
    )


def configuration(name: str, created_ns: int, config: ConsumerConfig) -> bytes:
    """Return the payload that replaces the configuration of a consumer."""
    return operation(
        "consumer configured", CREATED.pack(created_ns) + orjson.dumps(as_json(config)), name.encode()
    )


def deletion(name: str, created_ns: int) -> bytes:
    """Return the payload that deletes a consumer."""
    return operation("consumer deleted", CREATED.pack(created_ns), name.encode())


def pack_positions(positions: dict[bytes, tuple[int, bytes]]) -> bytes:
    """Return the body of an item that has the positions of sources."""
    packed: bytes = msgpack.packb(
        [part for name, (seq, ident) in positions.items() for part in (name, seq, ident)]
    )
    return packed


def read_positions(body: bytes) -> dict[bytes, tuple[int, bytes]]:
    """Return the positions of sources in the body of an item."""
    parts = iter(msgpack.unpackb(body))
    return {name: (seq, ident) for name, seq, ident in zip(parts, parts, parts, strict=True)}


# -- the consumers ----------------------------------------------------------------------------------------------


class CommittedConsumer(StreamConsumer):
    """The committed state of one consumer, and its substitute in the stream while the consumer is not open."""

    def __init__(self, name: str, created_ns: int, config: bytes, state: bytes) -> None:
        self.created_ns = created_ns
        self.state = state
        self.changes = bytearray()  # changes since `state`
        self.problem = ""  # why this server, the leader, cannot open it
        self.configure(config)
        super().__init__(name, self.filters)

    def configure(self, config: bytes) -> None:
        """Replace the configuration with the JSON text `config`."""
        self.config_json = config
        self.config = from_json(orjson.loads(config))
        self.filters = tuple(subject.encode() for subject in self.config.filters)

    def needs(self, seq: int) -> bool:
        """Return True: it is unknown which messages a consumer still needs while it is not open."""
        return True


class Opener(Protocol):
    """The interface through which a leading replica opens its consumers."""

    def prepare_steps(self, consumer: CommittedConsumer) -> Generator[None, None, None]:
        """Do the long part of opening a consumer, in steps."""

    def open(self, consumer: CommittedConsumer) -> StreamConsumer | None:
        """Open a consumer with its committed state, add it to the stream, start it, and return it.

        If a newer server has committed that state, change nothing, and return None.
        """

    def configure(self, consumer: StreamConsumer, config: ConsumerConfig) -> None:
        """Apply a changed configuration to an open consumer."""

    def rewrite(self, consumer: StreamConsumer) -> None:
        """Make an open consumer propose its whole state with its next changes."""


class ReplicatedConsumers(AppliedIndex):
    """The consumers of one replica: their committed states and, on the leader, the open consumers."""

    def __init__(self, stream: Stream) -> None:
        self.committed: dict[str, CommittedConsumer] = {}
        # By source: (last copied sequence of the origin, identity of the origin).
        self.positions: dict[bytes, tuple[int, bytes]] = {}
        self.open: dict[str, StreamConsumer] = {}  # open consumers; empty unless this replica leads
        self.opener: Opener | None = None  # set before the replica becomes leader
        self._stream = stream
        self._leads = False

    # -- entries ---------------------------------------------------------------------------------------------

    def apply(self, kind: str, name: bytes, body: bytes) -> None:
        """Apply one item of a checked payload, unless its entry was applied already.

        Raises:
            ApiError: 10148 if a consumer of that name exists, 10014 if there is no such consumer.
        """
        if self.has_entry:
            return
        if kind == "positions":
            self.positions |= read_positions(body)
            return
        if kind == "consumer created":
            self._create(name.decode(), body)
            return
        consumer = self.committed.get(name.decode("utf-8", "replace"))
        if consumer is None or consumer.created_ns != CREATED.unpack_from(body)[0]:
            errcodes.CONSUMER_NOT_FOUND.raise_if(kind not in _CHANGES)
            return  # the leader proposed the item before it applied the deletion
        _APPLY[kind](self, consumer, body[CREATED.size :])

    def apply_again(self, index: int, payload: bytes) -> None:
        """Apply those items of an entry that are about consumers or positions; the store already has the messages."""
        if index <= self.index:
            return
        self.begin(index)
        for kind, name, _, body in items_of(payload):
            if kind == "positions" or kind.startswith("consumer"):
                try:
                    self.apply(kind, name, body)
                except errcodes.ApiError:
                    pass  # the creation was refused the first time too

    def _create(self, name: str, body: bytes) -> None:
        errcodes.CONSUMER_ALREADY_EXISTS.raise_if(name in self.committed)
        created_ns, size = _CREATION.unpack_from(body)
        config, state = body[_CREATION.size :][:size], body[_CREATION.size + size :]
        self._place(CommittedConsumer(name, created_ns, config, state))

    def _place(self, consumer: CommittedConsumer) -> None:
        """Add a consumer to the stream; if this replica is the leader, open it."""
        self.committed[consumer.name] = consumer
        self._stream.add_consumer(consumer)
        if self._leads:
            self.open_one(consumer)

    def _configure(self, consumer: CommittedConsumer, config: bytes) -> None:
        name, filters = consumer.name, consumer.filters
        consumer.configure(config)
        opened = self.open.get(name)
        if opened is not None and self.opener is not None:
            self.opener.configure(opened, consumer.config)
            if opened.filters != filters:
                self._stream.update_interest(opened)
        elif consumer.filters != filters:
            self._stream.remove_consumer(name, for_good=False)
            self._stream.add_consumer(consumer)

    def _delete(self, consumer: CommittedConsumer, _body: bytes) -> None:
        del self.committed[consumer.name]
        opened = self.open.pop(consumer.name, None)
        self._stream.remove_consumer(consumer.name, for_good=self._leads)
        if opened is not None:
            opened.stop("deleted")

    def _change(self, consumer: CommittedConsumer, changes: bytes) -> None:
        consumer.changes += changes

    def _replace(self, consumer: CommittedConsumer, state: bytes) -> None:
        consumer.state, consumer.changes = state, bytearray()

    # -- roles -----------------------------------------------------------------------------------------------

    def lead_steps(self) -> Generator[None, None, None]:
        """Open every consumer, then propose removals that the former leader may have lost."""
        self._leads = True
        for number, consumer in enumerate(list(self.committed.values())):
            if number % OPENED_PER_STEP == OPENED_PER_STEP - 1:
                yield
            if self.opener is not None and self._may_open(consumer):
                yield from self.opener.prepare_steps(consumer)
                self.open_one(consumer)
        if self._leads and self._stream.consumers and not self._stream.closed:
            self._stream.sweep()

    def open_one(self, consumer: CommittedConsumer) -> None:
        """Open a consumer, if this replica is still the leader and the consumer is not open."""
        if self.opener is not None and self._may_open(consumer):
            self._stream.remove_consumer(consumer.name, for_good=False)
            opened = self.opener.open(consumer)
            if opened is None:
                self._stream.add_consumer(consumer)  # its messages stay
            else:
                self.open[consumer.name] = opened

    def close_one(self, name: str, reason: str) -> CommittedConsumer:
        """Stop an open consumer without storing its last changes; its committed state replaces it."""
        opened, consumer = self.open.pop(name), self.committed[name]
        self._stream.remove_consumer(name, for_good=False)
        opened.stop(reason)
        self._stream.add_consumer(consumer)
        return consumer

    def _may_open(self, consumer: CommittedConsumer) -> bool:
        """Return whether this replica leads, and the consumer is in the stream and not open."""
        return (
            self._leads and not self._stream.closed and self._stream.consumers.get(consumer.name) is consumer
        )

    def follow(self) -> None:
        """Stop all open consumers; changes that are not committed are lost."""
        self._leads = False
        if not self._stream.closed:
            for name in list(self.open):
                self.close_one(name, "leadership")

    def lost(self, names: Iterable[str]) -> None:
        """Make the open consumers in `names` propose their whole states, since proposed changes may be lost."""
        for name in names:
            if name in self.open and self.opener is not None:
                self.opener.rewrite(self.open[name])

    # -- snapshots -------------------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """Return all consumers, as of the last applied entry, as bytes for `load`."""
        consumers = [
            (each.name, each.created_ns, each.config_json, each.state, bytes(each.changes))
            for each in self.committed.values()
        ]
        data: bytes = msgpack.packb((VERSION, self.index, consumers, pack_positions(self.positions)))
        return data

    def load(self, data: bytes) -> None:
        """Replace all consumers with those in a dump; the caller must then apply the entries after the dump.

        The store may be ahead of the dump, but must not be behind it: an interest stream stores only the messages
        that its consumers at that moment need.

        Raises:
            ValueError: `data` is not a dump, or a newer version wrote it.
        """
        version, *rest = msgpack.unpackb(data)
        if version != VERSION:
            raise ValueError(f"the consumers have version {version}, and this server knows {VERSION}")
        index, consumers, positions = rest
        self.follow()
        for name in list(self.committed):
            self._stream.remove_consumer(name, for_good=False)
        self.committed.clear()
        self.positions = read_positions(positions)
        self.index = index
        for name, created_ns, config, state, changes in consumers:
            consumer = CommittedConsumer(name, created_ns, config, state)
            consumer.changes += changes
            self._place(consumer)


_CHANGES = ("consumer changes", "consumer state")
_APPLY: dict[str, Callable[[ReplicatedConsumers, CommittedConsumer, bytes], None]] = {
    "consumer configured": ReplicatedConsumers._configure,
    "consumer deleted": ReplicatedConsumers._delete,
    "consumer changes": ReplicatedConsumers._change,
    "consumer state": ReplicatedConsumers._replace,
}
