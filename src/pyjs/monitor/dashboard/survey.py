"""The survey: numbers of all connections, streams and consumers, which all open dashboards share.

Lists are sorted and filtered by the numbers of a survey; then the rows of the requested page are read again. Since
the survey is shared, its cost does not depend on the number of dashboards. Surveys take at most a twentieth of the
time, because the next survey begins later if the last one took long. The requests that wait for a survey make it,
step by step; if one of these requests ends early, the others continue the survey.

Rates are differences from the previous survey.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.why.consumers import why_consumer
from pyjs.jetstream.why.streams import why_away, why_stream
from pyjs.monitor.dashboard.levels import Level, consumer_level, stream_level
from pyjs.monitor.own.consumer_reading import is_searched, prepare

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.base.clock import Clock
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.monitor.state import Monitored

    Steps = Generator[None, None, None]

REST_NS = 500 * NS_PER_MS  # minimum time between two surveys
ABANDONED_NS = 5 * NS_PER_S  # a survey that was not continued for so long is begun again
SHARE = 20  # a survey takes at most one part in this many of the time
STEP = 16  # streams and consumers read between two yields: about half a millisecond
SESSIONS_STEP = 1_000  # connections read between two yields: about half a millisecond


class StreamRow(NamedTuple):
    """One stream, as found by a survey."""

    account: str
    name: str
    msgs: int
    size: int  # bytes
    last_seq: int
    num_consumers: int
    num_pending: int  # of its consumers, added up
    num_ack_pending: int  # of its consumers, added up
    rate: float  # messages stored per second
    level: Level
    kind: str  # of the reason to show; "": none


class ConsumerRow(NamedTuple):
    """One consumer that is open on this server, as found by a survey."""

    account: str
    stream: str
    name: str
    num_pending: int
    num_ack_pending: int
    num_redelivered: int
    rate: float  # deliveries per second
    level: Level
    kind: str


class Traffic(NamedTuple):
    """Messages and bytes of all clients since the start of the server."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0


class Snapshot(NamedTuple):
    """The result of a survey."""

    at_ns: int  # when it began; `traffic` is of that time
    took_ns: int
    traffic: Traffic
    num_connections: int
    pending_size: int  # bytes of output that wait for clients
    streams: list[StreamRow]
    consumers: list[ConsumerRow]


class Counters(NamedTuple):
    """The numbers of one survey from which the next one computes rates."""

    at_ns: int
    stored: dict[tuple[str, str], int]  # last sequence, by account and stream
    delivered: dict[tuple[str, str, str], int]  # deliveries, by account, stream and consumer


EMPTY = Snapshot(0, 0, Traffic(), 0, 0, [], [])


class Survey:
    """The surveys of one server; `latest` is the result of the last complete survey."""

    def __init__(self, monitored: Monitored, clock: Clock) -> None:
        self._monitored = monitored
        self._clock = clock
        self._steps: Steps | None = None  # the survey that is being made
        self._continued_ns = 0  # time of its last step
        self._due_ns = 0  # time from which the next one may begin
        self._counters = Counters(0, {}, {})  # of the last survey
        self.latest = EMPTY

    def fresh(self) -> Generator[None, None, Snapshot]:
        """Return the newest snapshot; yield between steps.

        If a survey is in progress or due, complete it first.
        """
        now_ns = self._clock.now_ns()
        if self._steps is not None and now_ns - self._continued_ns > ABANDONED_NS:
            self._steps = None
        if self._steps is None and now_ns >= self._due_ns:
            self._steps = self._make()
        while self._steps is not None:
            self._advance(self._steps)
            yield
        return self.latest

    def _advance(self, steps: Steps) -> None:
        self._continued_ns = self._clock.now_ns()
        try:
            next(steps)
        except StopIteration:
            self._steps = None
        except BaseException:
            self._steps = None
            raise

    def _make(self) -> Steps:
        started_ns = self._clock.now_ns()
        walk = _Walk(self._monitored, self._counters, started_ns)
        for _ in walk.steps():
            walk.busy_ns += self._clock.now_ns() - started_ns
            yield
            started_ns = self._clock.now_ns()
        now_ns = self._clock.now_ns()
        walk.busy_ns += now_ns - started_ns
        self.latest, self._counters = walk.snapshot(), walk.counters
        self._due_ns = now_ns + max(REST_NS, walk.busy_ns * SHARE)


class _Walk:
    """One survey in progress."""

    def __init__(self, monitored: Monitored, before: Counters, now_ns: int) -> None:
        self._monitored = monitored
        self._now_ns = now_ns
        self._before = before
        self.counters = Counters(now_ns, {}, {})
        self._traffic = Traffic()
        self._num_connections = 0
        self._pending_size = 0
        self._streams: list[StreamRow] = []
        self._consumers: list[ConsumerRow] = []
        self._weight = 0  # weight of the reads since the last yield
        self.busy_ns = 0

    def steps(self) -> Steps:
        """Read all connections, streams and consumers; yield between steps."""
        yield from self._sessions()
        jetstream = self._monitored.node.jetstream
        for js in [] if jetstream is None else list(jetstream.accounts.values()):
            for name in dict.fromkeys((*js.streams, *js.offline, *js.unrecovered())):
                yield from self._rest(1)
                yield from self._stream(js, name)

    def snapshot(self) -> Snapshot:
        """Return the result of the survey."""
        found = self._traffic, self._num_connections, self._pending_size, self._streams, self._consumers
        return Snapshot(self._now_ns, self.busy_ns, *found)

    def _rest(self, weight: int) -> Steps:
        self._weight += weight
        if self._weight >= STEP:
            self._weight = 0
            yield

    def _sessions(self) -> Steps:
        node = self._monitored.node
        # Both at one moment: a client that closes during the walk is counted once.
        closed, sessions = node.closed_counters(), iter(list(node.sessions.values()))
        totals = [sum(column) for column in zip((0, 0, 0, 0), *closed.values(), strict=True)]
        while some := list(islice(sessions, SESSIONS_STEP)):
            for session in some:
                totals[0] += session.in_msgs
                totals[1] += session.in_bytes
                totals[2] += session.out_msgs
                totals[3] += session.out_bytes
                self._pending_size += session.pending_size()
            self._num_connections += len(some)
            yield
        self._traffic = Traffic(*totals)

    def _stream(self, js: JetStream, name: str) -> Steps:
        account, stream = js.account.name, js.streams.get(name)
        if stream is None:
            reasons = why_away(js, name)
            kind = reasons[0].kind.value if reasons else ""
            self._streams.append(StreamRow(account, name, 0, 0, 0, 0, 0, 0, 0.0, Level.STOPPED, kind))
            return
        level, reason = stream_level(why_stream(js, stream))
        pending, ack_pending = yield from self._consumers_of(js, stream)
        store = stream.store
        self.counters.stored[account, name] = store.last_seq
        self._streams.append(
            StreamRow(
                account,
                name,
                store.msgs,
                store.bytes,
                store.last_seq,
                len(stream.consumers),
                pending,
                ack_pending,
                self._rate(self._before.stored.get((account, name)), store.last_seq),
                level,
                reason.kind.value if reason else "",
            )
        )

    def _consumers_of(self, js: JetStream, stream: Stream) -> Generator[None, None, tuple[int, int]]:
        """Read the open consumers of a stream; return the sums of their num_pending and num_ack_pending."""
        pending = ack_pending = 0
        for consumer in list(stream.consumers.values()):
            if not isinstance(consumer, Consumer):
                continue  # only the leader of the stream has it open
            if is_searched(consumer):
                yield from prepare(consumer)
                yield from self._rest(STEP)
            else:
                yield from self._rest(1)
            reasons = None if consumer.closed else (yield from why_consumer(consumer, js.account.turn.now))
            if reasons is None:
                continue
            level, reason = consumer_level(reasons)
            key = js.account.name, stream.name, consumer.name
            self.counters.delivered[key] = consumer.acks.delivered_cseq
            row = ConsumerRow(
                *key,
                consumer.cursor.num_pending(),
                consumer.acks.pending.count,
                consumer.acks.pending.redelivered + len(consumer.acks.exhausted),
                self._rate(self._before.delivered.get(key), consumer.acks.delivered_cseq),
                level,
                reason.kind.value if reason else "",
            )
            self._consumers.append(row)
            pending += row.num_pending
            ack_pending += row.num_ack_pending
        return pending, ack_pending

    def _rate(self, before: int | None, now: int) -> float:
        """Return the growth per second since the previous survey, or 0 if there is no previous value."""
        passed_ns = self._now_ns - self._before.at_ns
        if before is None or passed_ns <= 0:
            return 0.0
        return round(max(now - before, 0) * NS_PER_S / passed_ns, 1)
