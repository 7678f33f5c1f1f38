"""One worker's part in a server whose workers share the streams.

The node owns the directory of the other workers' streams and the desk for requests. Workers report every change to
the first worker, which informs the others. The first worker uses the same connections to pass requests on, so a
worker that is to create a stream already knows all earlier streams.

The node uses connections only through `Carrier`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_S
from pyjs.consensus.names import number_of
from pyjs.jetstream import errcodes
from pyjs.jetstream.cluster.assignments import stored_config
from pyjs.jetstream.cluster.fields import BadRow
from pyjs.jetstream.member import notes as member_notes
from pyjs.jetstream.member.questions import Questions
from pyjs.jetstream.member.waiters import Waiters
from pyjs.jetstream.spread import notes
from pyjs.jetstream.spread.directory import Directory
from pyjs.jetstream.spread.notes import (
    Did,
    Holding,
    Holdings,
    Passed,
    Settled,
    Streams,
    Turn,
    Used,
)
from pyjs.jetstream.spread.placing import DIRECTOR, is_bound, least_loaded, origins_in, related
from pyjs.jetstream.spread.usage import SharedUsage

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.config.options import Worker
    from pyjs.core.chore import Step
    from pyjs.core.host import Host
    from pyjs.core.sink import Sink
    from pyjs.core.sink import Turn as NodeTurn
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.manage.engine import JetStream, Shared
    from pyjs.jetstream.spread.desk import Desk
    from pyjs.jetstream.spread.reports import Reports
    from pyjs.jetstream.stream.stream import Stream

EMPTY_NS = 10 * NS_PER_S  # time to wait until other workers have deleted their streams of an account
COMPLETE_NS = 5 * NS_PER_S  # time to wait for workers that have not reported their streams yet


class Carrier(Protocol):
    """The connections to the other workers, implemented by cluster.replication.Replication."""

    def begin(self, consensus: SpreadNode, notes: SpreadNode) -> None:
        """Register the receivers of notes and of changes of connections; called before the first connection."""

    def send_note(self, node: int, note: bytes) -> None:
        """Send a note, or drop it if there is no connection."""

    def send_request(self, node: int, note: bytes, session: Sink | None) -> bool:
        """Send a note that arrives after all messages that were sent to the node; return False if it cannot be sent.

        The client `session` is slowed down if too many bytes wait to be sent to the node.
        """


class SpreadNode:
    """The part of a worker that exchanges reports about streams with the other workers."""

    def __init__(self, host: Host, server_name: str, worker: Worker, carrier: Carrier) -> None:
        """Initialize a worker without connections to the others.

        The name of each worker is `server_name`, a hyphen and the number of the worker.
        """
        self.number = worker.number
        self.turn: NodeTurn = host.turn_state
        self.turn.reports = True  # every turn may change the used bytes
        self.waiters = Waiters(host.turn_state, host.timers)
        self.online: set[int] = set()  # other workers that answer
        self.breaks: dict[
            int, int
        ] = {}  # by worker: number of times that a connection to it has ended or begun
        # other workers that have closed their streams and will not open them again
        self.closed: set[int] = set()
        self._workers = range(1, worker.count + 1)
        self._nodes = {each: number_of(f"{server_name}-{each}") for each in self._workers}
        self._numbers = {node: each for each, node in self._nodes.items()}
        self._carrier = carrier
        self._has_begun = False
        self._host = host
        self.accounts: dict[str, JetStream] = {}
        self.shared: Shared
        self.directory: Directory
        self.questions: Questions
        self.usage: SharedUsage
        self._desk: Desk | None = None  # None: no request so far
        self._reports: Reports | None = None

    def begin(self, shared: Shared, accounts: dict[str, JetStream]) -> None:
        """Begin to collect reports of other workers.

        Called before the streams are opened, and again after JetStream was off.
        """
        self.shared, self.accounts = shared, accounts
        self.directory = Directory(accounts, self._host.log)
        self.questions = Questions(accounts, self.waiters, self.turn, self._ask, self.online)
        others = self.usage.others if self._has_begun else {}
        self.usage = SharedUsage(shared.usage)
        for worker, used in others.items():
            self.usage.take(worker, used)
        if not self._has_begun:
            self._has_begun = True
            self._carrier.begin(self, self)

    def opened(self) -> None:
        """Inform the connected workers that this worker has opened all its streams."""
        for worker in sorted(self.online):
            if self.number == DIRECTOR:
                self._introduce(worker)
            else:
                self.tell(worker, Did(Streams.OPENED))

    def end_turn(self) -> None:
        """Report the bytes that the streams of this worker use, if they have changed much since the last report."""
        used = self.usage.news()
        for worker in sorted(self.online) if used is not None else ():
            assert used is not None
            self.tell(worker, used)
        self.turn.reports = True

    @property
    def desk(self) -> Desk:
        """The component that decides which requests this worker answers, created at its first use."""
        if self._desk is None:
            from pyjs.jetstream.spread.desk import Desk  # imported with the first request

            self._desk = Desk(self)
        return self._desk

    @property
    def reports(self) -> Reports:
        """The handlers of requests about the streams of all workers, created at their first use."""
        if self._reports is None:
            from pyjs.jetstream.spread.reports import Reports  # imported with the first request

            self._reports = Reports(self)
        return self._reports

    # -- the first worker ----------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether every other worker has reported its streams."""
        return len(self.directory.reported) == len(self._workers) - 1

    @property
    def has_met(self) -> bool:
        """Whether this worker has a full report from the first worker or, if it is the first, from all others."""
        return self.is_complete if self.number == DIRECTOR else DIRECTOR in self.directory.reported

    def complete_steps(self) -> Generator[Step, None, None]:
        """Wait until every other worker has reported its streams, up to COMPLETE_NS."""
        yield from self.waiters.until(lambda: self.is_complete, COMPLETE_NS)

    def emptied_steps(self, account: str) -> Generator[Step, None, bool]:
        """On the first worker, wait until no other worker has streams of an account.

        Returns:
            True on the first worker; False on any other worker, without a wait.

        Raises:
            ApiError: after EMPTY_NS, another worker still has streams of the account.
        """
        if self.number != DIRECTOR:
            return False
        is_empty = yield from self.waiters.until(lambda: not self.directory.streams(account), EMPTY_NS)
        errcodes.STREAM_DELETE.raise_if(not is_empty, err="another worker is not available")
        return True

    def place(self, js: JetStream, name: str, body: bytes) -> int:
        """Return the number of the worker for a new stream.

        `body` is the JSON body of the request to create the stream.
        """
        if is_bound(js.limits):
            return DIRECTOR
        elsewhere = self.directory.streams(js.account.name)
        configs: dict[str, tuple[int, StreamConfig]]
        configs = {each.name: (DIRECTOR, each.config) for each in js.streams.values()}
        configs |= {each: (found.worker, found.config) for each, found in elsewhere.items()}
        worker = related(name, origins_in(body), configs)
        if worker in {DIRECTOR} | self.online:
            return worker
        counts = self.directory.counts()
        counts[DIRECTOR] = sum(len(each.streams) for each in self.accounts.values())
        return least_loaded(counts, [DIRECTOR, *self.online])

    # -- own streams ---------------------------------------------------------------------------------------------

    def holds(self, js: JetStream, stream: Stream) -> None:
        """Report a new or changed stream to the other workers."""
        held = Holding(js.account.name, stored_config(stream.config), stream.created_ns)
        self._tell_all(Holdings(self.number, False, streams=(held,)))

    def gone(self, account: str, name: str) -> None:
        """Report to the other workers that a stream is no longer here."""
        self._tell_all(Holdings(self.number, False, gone=((account, name),)))

    def lost(self, js: JetStream, stream: Stream) -> None:
        """Report to the other workers that a stream is being deleted, and delete its consumers on its origins."""
        self.gone(js.account.name, stream.name)
        if stream.config.mirror or stream.config.sources:
            from pyjs.jetstream.mirror import sourcing  # imported with the first copy

            sourcing.leave(js, stream.name, stream.created_ns, sourcing.sources_of(stream.config))

    def _whole(self) -> Holdings:
        """Return a report of all streams of this worker, open or not."""
        found: list[Holding] = []
        for account, js in self.accounts.items():
            opened = [(each.config, each.created_ns) for each in js.streams.values()]
            others = [(each.config, 0) for each in js.offline.values()]
            others += [(each, 0) for each in js.held.configs() if each.name not in js.offline]
            found += [Holding(account, stored_config(config), made) for config, made in opened + others]
        return Holdings(self.number, True, streams=tuple(found))

    def _tell_all(self, note: Holdings) -> None:
        """Send a report to the first worker; the first worker sends it to all but the worker that it is about."""
        for worker in sorted(self.online) if self.number == DIRECTOR else [DIRECTOR]:
            if worker != note.worker:
                self.tell(worker, note)

    def closed_all(self) -> None:
        """Report to the others that this worker has closed its streams and sends no more messages from them."""
        for worker in sorted(self.online):
            self.tell(worker, Did(Streams.CLOSED))

    def have_all_closed(self) -> bool:
        """Return whether all other workers that answer have closed their streams."""
        return self.online <= self.closed

    # -- other workers -------------------------------------------------------------------------------------------

    def tell(self, worker: int, note: notes.Note) -> None:
        """Send a note to another worker; it is lost if there is no connection."""
        self._carrier.send_note(self._nodes[worker], notes.encode(note))

    def tell_in_order(self, worker: int, note: Passed, session: Sink | None) -> bool:
        """Send a request of the client `session` to another worker, after all messages of the client.

        Return False if there is no connection, or the note is too large.
        """
        return self._carrier.send_request(self._nodes[worker], notes.encode(note), session)

    def _ask(self, worker: int, note: member_notes.Note) -> None:
        self._carrier.send_note(self._nodes[worker], member_notes.encode(note))

    @property
    def rests(self) -> bool:
        """Whether all replicated groups are idle: always, since workers have none."""
        return True

    def receive(self, node: int, data: bytes) -> None:
        """Raise ValueError: workers have no replicated groups, so a batch is not expected."""
        raise ValueError("workers have no replicated groups")

    def take_note(self, node: int, data: bytes) -> None:
        """Handle a note from another worker.

        Raises:
            ValueError: the note is damaged, or `node` is not a worker of this server.
        """
        worker = self._numbers.get(node)
        if worker is None:
            raise ValueError("it is from no worker of this server")
        try:
            if data.startswith(notes.HEAD):
                self._take(worker, notes.decode(data))
                return
            note = member_notes.decode(data)
        except BadRow as error:
            raise ValueError(str(error)) from None
        if isinstance(note, member_notes.Question):
            self.questions.asked(worker, note)
        elif isinstance(note, member_notes.Reply):
            self.questions.came(note)

    def _take(self, worker: int, note: notes.Note) -> None:
        if isinstance(note, Holdings):
            self._take_holdings(worker, note)
        elif isinstance(note, Passed):
            self._take_passed(worker, note)
            return  # nothing waits for requests
        elif isinstance(note, Settled):
            self.desk.settled(note)
        elif isinstance(note, Turn):
            self.desk.take_turn(worker, note)
        elif isinstance(note, Used):
            self.usage.take(worker, note)
        elif note.streams is Streams.OPENED:
            self._introduce(worker)
        else:
            self.closed.add(worker)
        self.waiters.notify()

    def _take_holdings(self, worker: int, note: Holdings) -> None:
        if note.worker == self.number or worker not in (note.worker, DIRECTOR):
            return
        self.directory.take(note)
        self._move_origins()
        if self.number == DIRECTOR:
            self._tell_all(note)
        elif note.is_whole and note.worker == DIRECTOR:
            self.tell(DIRECTOR, self._whole())

    def _move_origins(self) -> None:
        """Inform the mirrors and sources of this worker whose origins were added, changed or removed elsewhere."""
        changed, self.directory.changed = self.directory.changed, []
        for account, name in changed:
            js = self.accounts.get(account)
            for inflow in [] if js is None else list(js.copied_by.get(name, ())):
                inflow.origin_moved(name)

    def _take_passed(self, worker: int, note: Passed) -> None:
        js, account = self.accounts.get(note.account), self._host.accounts.get(note.account)
        if js is not None:
            from pyjs.jetstream.api.router import Router  # imported with the first request

            self.desk.take(worker, Router(js.account, self.shared, js), note)
        elif note.number:  # during a reload; the first worker refuses the request
            self.tell(DIRECTOR, Settled(note.number, False))
        elif account is not None:
            self.desk.refuse(account, note.reply)

    def node_heard(self, node: int) -> None:
        """Record that a worker is connected, and send it the reports that it may have missed."""
        worker = self._numbers.get(node)
        if worker is None:
            return
        self.online.add(worker)
        self._note_break(worker)
        self.closed.discard(worker)
        self._introduce(worker)
        self.waiters.notify()

    def _introduce(self, worker: int) -> None:
        """Send a worker the reports that it may lack.

        The first worker also sends its own streams and those that other workers have reported to it.
        """
        self.tell(worker, self.usage.own())
        if self.number == DIRECTOR:
            self.tell(worker, self._whole())
            for other in sorted(self.directory.reported - {worker}):
                self.tell(worker, self.directory.whole(other))

    def node_silent(self, node: int) -> None:
        """Record that a worker no longer answers."""
        worker = self._numbers.get(node)
        if worker is not None:
            self.online.discard(worker)
            self._note_break(worker)
            self.waiters.notify()

    def _note_break(self, worker: int) -> None:
        self.breaks[worker] = self.breaks.get(worker, 0) + 1
