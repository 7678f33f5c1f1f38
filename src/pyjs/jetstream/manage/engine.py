"""JetStream of one account: its streams and limits, and the parts that all accounts share.

This module holds and finds streams; streams.py creates, updates and deletes them, stream.pyx handles each message. As
long as a server has no streams, it imports only this module and reservations.py from this package; the first stream
imports the rest. API subjects and JSON are not handled here: `observer` is called when streams are opened, updated
and closed.

Source: nats.docs "JetStream".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.base.clock import Clock
from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.base.timers import Timers
from pyjs.config.options import AccountJetStreamOptions, JetStreamOptions
from pyjs.core.account import Account
from pyjs.core.chore import Gates
from pyjs.core.faults import Faults
from pyjs.jetstream.admission import Admission
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.files.metadata import MetadataWriter
from pyjs.jetstream.manage.reservations import HeldStreams
from pyjs.jetstream.stream.features.batches import BatchUsage
from pyjs.jetstream.stream.limits import Usage
from pyjs.subjects.overlap import SubjectTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyjs.jetstream.api.subscriptions import ApiSubscriptions
    from pyjs.jetstream.config.consumer import ConsumerConfig
    from pyjs.jetstream.config.offline import Offline
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.manage.parked import Parked
    from pyjs.jetstream.manage.persist import AccountFiles
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.jetstream.mirror.sourcing import Inflow
    from pyjs.jetstream.replication.streams import ReplicatedStreams
    from pyjs.jetstream.spread.spread_node import SpreadNode
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.subjects.sublist import Subscription


def consumer_gate(stream: str, consumer: str = "") -> str:
    """Return the name of the gate of one consumer; the gate of its stream must be entered first."""
    return f"{stream}.{consumer}"


@dataclass(eq=False, repr=False, slots=True)
class Shared:
    """The parts and totals that all accounts of a server share."""

    options: JetStreamOptions
    max_payload: int  # bytes; used as the limit for sizes that have no other
    ack_v2: bool  # ack subjects have domain and account in them
    server_name: str
    clock: Clock
    timers: Timers
    rng: Rng
    log: Log
    faults: Faults
    metadata: MetadataWriter
    admission: Admission  # the API requests that wait
    member: MemberNode | None = None  # this server's part in a JetStream cluster; None: no cluster
    spread: SpreadNode | None = (
        None  # this worker's part if workers share the streams; None: one process has all
    )
    replicated: ReplicatedStreams | None = None  # the replicated streams of this server; None: no cluster
    usage: dict[str, Usage] = field(init=False)
    batches: BatchUsage = field(default_factory=BatchUsage)
    api_total: int = 0
    api_errors: int = 0
    repaired: int = 0  # number of damaged messages restored from other replicas since the start

    def __post_init__(self) -> None:
        self.usage = {MEMORY: Usage(self.options.max_memory), FILE: Usage(self.options.max_storage)}


class JetStream:
    """The JetStream part of one account: its streams, limits and usage."""

    def __init__(
        self,
        account: Account,
        shared: Shared,
        limits: AccountJetStreamOptions,
        open_files: Callable[[], AccountFiles],
    ) -> None:
        self.account = account
        self.shared = shared
        self.limits = limits
        self.streams: dict[str, Stream] = {}
        self.usage = {MEMORY: Usage(limits.max_memory), FILE: Usage(limits.max_storage)}
        self.api_total = 0
        self.api_errors = 0
        self.observer: ApiSubscriptions | None = None  # called when streams are opened, updated and closed
        self.subjects = SubjectTree()  # subjects of all streams; the owner of a subject is its stream
        self.gates = Gates(account.turn)  # one gate for each stream and consumer
        # by stream: the consumers that are being created
        self.coming: dict[str, dict[str, ConsumerConfig]] = {}
        self.coming_streams: set[str] = set()  # names of streams that are being created
        self.held = HeldStreams(self)  # stored streams that will be opened later
        self.elsewhere: dict[str, StreamConfig] = {}  # streams of other workers by name
        self.parked: dict[str, Parked] = {}  # stored replicas that wait for the metadata of the cluster
        self.inflows: dict[str, Inflow] = {}  # by the copying stream
        self.copied_by: dict[str, set[Inflow]] = {}  # by the origin
        self.subscriptions: dict[str, dict[str, Subscription]] = {}  # by stream, by subject
        self._open_files = open_files
        self._files: AccountFiles | None = None

    @property
    def files(self) -> AccountFiles:
        """The stored streams of the account; their module is imported when this property is first used."""
        if self._files is None:
            self._files = self._open_files()
        return self._files

    def damaged(self) -> list[str]:
        """Return the paths of damaged files that were set aside."""
        return [] if self._files is None else self._files.damaged()

    def unrecovered(self) -> list[str]:
        """Return the file names of stored streams that could not be opened, except those that exist again."""
        if self._files is None:
            return []
        from pyjs.store.format.layout import file_name

        known = {file_name(name) for name in self.streams}
        return [name for name in self._files.unrecovered if name not in known]

    @property
    def options(self) -> JetStreamOptions:
        """The server's options."""
        return self.shared.options

    def stream(self, name: str) -> Stream:
        """Return the stream `name`.

        Raises:
            ApiError: there is no such stream (10059), or the stream is offline (10194).
        """
        stream = self.streams.get(name)
        if stream is None:
            from pyjs.jetstream import errcodes

            if name in self.offline:
                raise errcodes.STREAM_OFFLINE_REASON.error(err=self.offline[name].reason)
            raise errcodes.STREAM_NOT_FOUND.error()
        return stream

    @property
    def offline(self) -> dict[str, Offline]:
        """The stored streams that a newer server wrote, by name."""
        return {} if self._files is None else self._files.offline

    def config_of(self, name: str) -> StreamConfig | None:
        """Return the configuration of a stream, wherever it is open, or None if there is no such stream."""
        if name in self.streams or self.shared.member is None:
            return self.streams[name].config if name in self.streams else self.elsewhere.get(name)
        found = self.shared.member.machine.state.stream(self.account.name, name)
        return None if found is None else found.config

    def num_consumers(self) -> int:
        """Return the number of consumers of all streams."""
        return sum(len(stream.consumers) for stream in self.streams.values())

    def max_consumers_of(self, stream: Stream) -> int:
        """Return the maximum number of consumers of `stream`, or -1 for no limit."""
        if stream.config.max_consumers > 0:
            return stream.config.max_consumers
        if self.limits.max_consumers > 0:
            return self.limits.max_consumers
        return self.options.limits.default_max_consumers

    def change_limits(self, limits: AccountJetStreamOptions) -> None:
        """Apply new limits of the account; existing streams stay even if they exceed the limits."""
        self.limits = limits
        self.usage[MEMORY].max, self.usage[FILE].max = limits.max_memory, limits.max_storage

    def recover_steps(self) -> Iterator[None]:
        """Open every stored stream, in steps."""
        from pyjs.jetstream.manage import streams

        return streams.recover_steps(self)

    def stop(self) -> None:
        """Close every stream and make its messages durable."""
        if self.streams or self.parked or self._files is not None:
            from pyjs.jetstream.manage import streams

            streams.close_all(self)
