"""One server's part in a JetStream cluster: its log, its consensus, the metadata, and the assigned streams.

A start reads the identity of the store, recovers the log in steps, and creates the consensus. Then it opens the
streams of the store as on a single server. Last, it opens the metadata group, or agrees on one with the other
servers. A stop ends the consensus first, so that no server relies on this one any more; then it closes the streams,
and last the log.

The node uses connections only through `Carrier`. Steady work is done by chores that wait for each other's changes
(`waiters`), so an idle server does nothing.
Long because the start, the stop, the notes of other servers and the reports use the same parts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from pyjs import __version__
from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.config.ports.replicated import expected_servers
from pyjs.consensus.consensus import Consensus, Tuning
from pyjs.consensus.engine import RaftError, Refused
from pyjs.consensus.log.node_log import FILE_SIZE, NodeLog
from pyjs.consensus.names import number_of
from pyjs.consensus.seams import Peers
from pyjs.jetstream.cluster.entries import VERSION, GroupEnded, ReplicaLost, StreamOpened, encode
from pyjs.jetstream.cluster.fields import BadRow
from pyjs.jetstream.cluster.servers import Server
from pyjs.jetstream.member import notes
from pyjs.jetstream.member.announcing import Announcer
from pyjs.jetstream.member.answering import Desk
from pyjs.jetstream.member.identity import StoreIdentity
from pyjs.jetstream.member.keeper import Keeper
from pyjs.jetstream.member.losses import Losses
from pyjs.jetstream.member.meta_group import MetaGroup
from pyjs.jetstream.member.meta_machine import MetaMachine, Proposal
from pyjs.jetstream.member.meta_requests import PASSED_ON, MetaRequests
from pyjs.jetstream.member.operators import Operators
from pyjs.jetstream.member.orders import Orders
from pyjs.jetstream.member.questions import Questions, members_of, streams_report
from pyjs.jetstream.member.reporting import Reports
from pyjs.jetstream.member.restores import WORDS, Restores
from pyjs.jetstream.member.waiters import LOOK_NS, Waiters
from pyjs.jetstream.names import stream_in
from pyjs.jetstream.replication.departing import FLUSH_NS, Departure, Interests
from pyjs.jetstream.replication.streams import ReplicatedStreams

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from pyjs.base.disk import Disk
    from pyjs.config.options import Options
    from pyjs.consensus.status import GroupStatus
    from pyjs.core.chore import Step
    from pyjs.core.host import Host
    from pyjs.core.sink import Turn
    from pyjs.jetstream.api.router import Router
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.entries import Entry
    from pyjs.jetstream.cluster.state import Applied
    from pyjs.jetstream.manage.engine import JetStream, Shared
    from pyjs.jetstream.member.notes import Note

LOG_DIRECTORY = ".raft"
MEET_NS = 3 * NS_PER_S
READ_NS = NS_PER_S  # maximum wait for the confirmation that this server still leads
MOVE_NS = 300 * NS_PER_MS  # maximum time for one attempt to transfer all leaderships
MOVES = 6
AGAIN_NS = 50 * NS_PER_MS  # pause if the confirmation cannot be requested now


class Carrier(Peers, Interests, Protocol):
    """The connections to the other servers, for batches and notes (cluster.replication.Replication)."""

    def send_note(self, node: int, note: bytes) -> None:
        """Send a note, or drop it if there is no connection."""

    def begin(self, consensus: MemberNode, notes: MemberNode, frames: Consensus | None) -> None:
        """Register the receivers of batches and notes; this must be called before the first connection.

        `frames` gets the batches with frames of the engine.
        """

    def own_routes(self) -> int:
        """Return the number of configured routes that lead to this server itself."""

    def hold_messages(self, is_awaited: Callable[[str, bytes], bool]) -> None:
        """Hold each message that has no receiver if `is_awaited(account, subject)` returns True."""

    def quiet_ns(self, node: int) -> int:
        """Return the time in ns since the last bytes from a server, or 0 if the time is unknown."""

    def reached(self) -> set[int]:
        """Return the numbers of the servers that get messages from here, because their subscriptions are known."""


class MemberNode:
    """One server as a member of a JetStream cluster: the owner of its log, its consensus and its metadata."""

    log_file_size = FILE_SIZE  # tests use smaller files

    def __init__(self, host: Host, options: Options, carrier: Carrier) -> None:
        self.options = options  # the effective options at the start
        self.server_name = host.server_name
        self.node = number_of(host.server_name)
        self.online: set[int] = set()  # other servers that respond
        self._silent: dict[int, int] = {}  # servers that stopped responding -> since when
        self.accounts: dict[str, JetStream] = {}  # of the server's JetStream
        self._host = host
        self._carrier = carrier
        self._turn = host.turn_state
        self.waiters = Waiters(host.turn_state, host.timers)
        self.machine = MetaMachine(self.waiters, host.turn_state)
        self._losses = Losses(self.node, self.machine, self.waiters, self._tell_leader)
        self._keeper = Keeper(
            self.node,
            self.machine,
            self.accounts,
            self.waiters,
            self._losses,
            host.turn_state,
            host.log,
            host.faults,
        )
        self.questions = Questions(self.accounts, self.waiters, host.turn_state, self.tell, self.online)
        self.orders = Orders(
            self.node,
            self.machine,
            self._keeper,
            self.accounts,
            self.waiters,
            host.turn_state,
            self.questions,
            self.tell,
        )
        self.reports, self.operators = Reports(self), Operators(self, host.log)
        self.restores = Restores(self, self._keeper, self._tell_restored)
        self.requests = MetaRequests(self)
        self.desk = Desk(
            self.node,
            self.machine,
            self._keeper,
            self.requests,
            self.waiters,
            host.turn_state,
            self.tell,
            self.questions,
            carrier.reached,
        )
        self.announcer = Announcer(self, host)
        self._led_metadata = False  # whether the leadership of the metadata was announced for this server
        self._log: NodeLog | None = None  # None: not recovered yet, or closed
        self.consensus: Consensus | None = None
        self.group: MetaGroup | None = None
        self.replicated: ReplicatedStreams | None = None

    # -- start and end -----------------------------------------------------------------------------------------

    def recover_steps(self, disk: Disk, shared: Shared, accounts: dict[str, JetStream]) -> Iterator[None]:
        """Read the log and the identity of the locked store, in steps; `accounts` may be filled later.

        Raises:
            OSError, PyjsError: the log or the identity cannot be read or written.
        """
        host, jetstream = self._host, self.options.jetstream
        identity = StoreIdentity(disk, jetstream.store_dir, host.log, host.rng)
        incarnation = int.from_bytes(host.rng.randbytes(8), "little")
        directory = f"{jetstream.store_dir}/{LOG_DIRECTORY}"
        interval_ns = 0 if jetstream.sync_always else jetstream.sync_interval_ns
        machine = None if interval_ns else 0
        log = NodeLog(disk, directory, host.log, incarnation, file_size=self.log_file_size, machine=machine)
        yield from log.recover_steps()
        self._log = self._losses.log = log
        consensus = Consensus(host, self.node, log, self._carrier, Tuning(sync_interval_ns=interval_ns))
        self.consensus = consensus
        self.group = self._group_of(identity, consensus)
        name = self.options.cluster.name
        self.replicated = shared.replicated = ReplicatedStreams(
            self.node, name, shared, consensus, log, self._carrier, self.machine
        )
        self._share(accounts)

    def _group_of(self, identity: StoreIdentity, consensus: Consensus) -> MetaGroup:
        return MetaGroup(
            self._describe(identity.store),
            self,
            identity,
            consensus,
            self.machine,
            self.waiters,
            self._host.log,
            self._expected,
        )

    def _share(self, accounts: dict[str, JetStream]) -> None:
        """Pass the accounts of the server to the parts that need them."""
        self.accounts = accounts
        for part in (self._keeper, self.questions, self.orders):
            part.accounts = accounts

    def _describe(self, store: int) -> Server:
        options = self.options
        return Server(
            self.node,
            self._host.server_name,
            options.cluster.name,
            tuple(tag.lower() for tag in options.server_tags),
            store,
            __version__,
            VERSION,
            options.jetstream.max_memory,
            options.jetstream.max_storage,
        )

    def _expected(self) -> int:
        return expected_servers(self.options, self._carrier.own_routes())

    def begin(self) -> None:
        """Join the cluster. Call this after the streams of the store were opened, and before the first connection."""
        assert self.group is not None
        assert self._log is not None
        is_known = self.group.open_stored(self._log, self._host.rng)
        self._carrier.begin(self, self, self.consensus)
        self._carrier.hold_messages(self._is_awaited)
        group = self.group
        steady = [
            self._keeper.steps(),
            self._catch_up_steps(),
            self._losses.tell_steps(),
            self._losses.doubt_steps(self._keeper.is_idle),
            group.describe_steps(),
            group.follow_steps(),
            group.rejoin_steps(self._log, self._host.rng),
            self.operators.move_steps(),
            self.operators.end_move_steps(),
            self.operators.doubt_steps(),
        ]
        if not is_known:
            steady.append(group.found_steps())
        for steps in steady:
            self._turn.go_on(steps)

    def trouble(self, stream: Assignment) -> str:
        """Return the error that keeps a stream of this server from matching the metadata, or "" if there is none."""
        return self._keeper.trouble(stream.account, stream.name)

    @property
    def is_caught_up(self) -> bool:
        """Whether this server has applied every entry committed before its start."""
        return self._keeper.is_caught_up

    def sync_log(self) -> None:
        """Begin to sync the log. Call this whenever the streams are synced.

        Otherwise an entry could be lost although its effects are durable.
        """
        if self.consensus is not None:
            self.consensus.durability.hurry()

    @property
    def is_busy(self) -> bool:
        """Whether a thread uses the log."""
        return self._log is not None and self._log.is_syncing

    def leave_steps(self, pause: Callable[[], None]) -> Generator[Step, None, None]:
        """Transfer all leaderships of this server; `pause` is called to make the clients of this server wait.

        This takes some milliseconds, or some seconds if no other server can lead.
        """
        assert self.replicated is not None
        departure = Departure(self.replicated, self.waiters, self._turn, self._carrier)
        yield from departure.begin_steps(pause)
        yield from self.waiters.until(lambda: not self.machine.pending, FLUSH_NS)
        for _ in range(MOVES):
            departure.move()
            self._move_metadata()
            is_over = yield from self.waiters.until(
                lambda: not (departure.leads or self.machine.leads), MOVE_NS
            )
            if is_over or not self.online:
                break
        yield from self.waiters.until(
            lambda: False, LOOK_NS
        )  # so that waiting requests notice that this server no longer leads
        yield from self.waiters.until(lambda: not self.desk.is_passing, FLUSH_NS)

    def _move_metadata(self) -> None:
        status = self.meta_status()
        if self.machine.leads and status is not None:
            heirs = [each for each in status.replicas if each.is_voter and each.node in self.online]
            if heirs:
                self.hand_over(self.meta_group, min(heirs, key=lambda each: each.lag or 0).node)

    def _is_awaited(self, account: str, subject: bytes) -> bool:
        """Return whether a subject belongs to a stream that may get a leader soon, or to one of its consumers."""
        text = subject.decode("utf-8", "surrogateescape")
        streams = self.machine.state.accounts.get(account)
        if streams is None:
            return False
        name = stream_in(text, self.options.jetstream.domain)
        if not name:
            return streams.has_taker(text, self._may_come)
        found = streams.get(name)
        if found is None or not self._may_come(found):
            return False
        # A stream that has a leader has all its consumers, so no receiver will appear for this message.
        return not (found.config.subjects and self._has_interest(account, found.config.subjects[0]))

    def _may_come(self, stream: Assignment) -> bool:
        """Return whether a stream may get a leader soon: it has several replicas, or one of its servers is online."""
        return stream.config.num_replicas > 1 or not self.are_away(stream.nodes)

    def _has_interest(self, account: str, subject: str) -> bool:
        js = self.accounts.get(account)
        return js is not None and js.account.has_interest(subject.encode())

    def begin_stop(self) -> None:
        """Leave all groups; call `stop` as soon as `is_busy` is False."""
        if self.consensus is not None:
            self.consensus.stop()

    def stop(self) -> None:
        """Close the log, unless a thread uses it. The streams must be closed already."""
        self.begin_stop()
        log, self._log = self._log, None
        if log is not None and not log.is_syncing:
            log.close()

    # -- steady work -------------------------------------------------------------------------------------------

    def _catch_up_steps(self) -> Generator[Step, None, None]:
        """Start the keeper as soon as every entry committed before the start of this server has been applied."""
        self.machine.begin()
        while not (yield from self.confirm(wait=True)):
            pass
        self._keeper.begin()

    def confirm(self, *, wait: bool = False) -> Generator[Step, None, bool]:
        """Wait until this server has applied every entry committed before the call; return False after a time limit.

        With `wait`, wait for a leader first.
        """
        assert self.consensus is not None
        assert self.group is not None
        if wait:
            yield from self.waiters.until(lambda: self.machine.leader)
        reached: list[bool] = []

        def reach() -> None:
            reached.append(True)
            self.waiters.notify()

        is_asked = self.consensus.read_index(self.group.group, reach)
        return (yield from self.waiters.until(lambda: reached, READ_NS if is_asked else AGAIN_NS))

    def end_turn(self) -> None:
        """Announce the leaderships that this server has gained or lost, and report its lost replicas."""
        if self.machine.leads != self._led_metadata:
            self._led_metadata = self.machine.leads
            if self._led_metadata:
                self.announcer.leads_metadata()
        replicated = self.replicated
        if replicated is None:
            return
        if replicated.lost_replicas or replicated.ended:
            for gone in replicated.take_lost_replicas():
                self._losses.add(gone)
            for alone in replicated.take_ended():
                self._losses.end_group(alone)
        if not (replicated.led or replicated.lost):
            return
        led, replicated.led[:] = replicated.led[:], []
        lost, replicated.lost[:] = replicated.lost[:], []
        for stream in lost:
            self.announcer.lost_stream(stream)
        for stream in led:
            self.announcer.leads_stream(stream)
        self.waiters.notify()

    # -- proposals ---------------------------------------------------------------------------------------------

    def propose(self, entry: Entry) -> Generator[Step, None, Applied | None]:
        """Propose an entry of the metadata, and wait for its result.

        Return the result, or None if it is unknown or this server does not lead.

        Raises:
            BadRow: no server would accept the entry.
        """
        assert self.consensus is not None
        assert self.group is not None
        proposal = Proposal()
        if not self.consensus.propose(self.group.group, encode(entry), proposal):
            return None
        self.machine.pending += 1
        yield from self.waiters.until(lambda: proposal.is_over)
        self.machine.pending -= 1
        return proposal.applied

    def meet(self) -> Generator[Step, None, None]:
        """Wait until all members of the metadata group are online and have described themselves, up to MEET_NS.

        The time is measured from the election of this server. Without this wait, a stream that is created right after
        the start of all servers could be refused for too few servers.
        """
        wait_ns = self.machine.leads_since_ns + MEET_NS - self._turn.now
        if wait_ns > 0:
            yield from self.waiters.until(self._is_complete, wait_ns)

    def _is_complete(self) -> bool:
        status, there = self.meta_status(), self.online | {self.node}
        nodes = [] if status is None else [each.node for each in status.replicas]
        return all(node in there and node in self.machine.state.servers for node in nodes)

    def hand_over(self, group: int, node: int) -> None:
        """Transfer the leadership of a group to another server, if that is possible now."""
        assert self.consensus is not None
        with suppress(Refused):
            self.consensus.transfer(group, node)

    def missing(self, group: int) -> str:
        """Return the names of the servers whose answers a group in doubt is waiting for, or "" if there are none."""
        nodes = [] if self.consensus is None else self.consensus.doubts.missing(group, self._turn.now)
        return ", ".join(map(self._told_missing, nodes))

    def _told_missing(self, node: int) -> str:
        known = self.machine.state.servers
        name = known[node].name if node in known else f"number {node}"
        return f"{name} (which runs, but does not answer for that replica)" if node in self.online else name

    def accept_loss(self, group: int) -> bool:
        """Make a group continue without the replicas or messages it is waiting for; return whether it was waiting."""
        if self.replicated is not None and self.replicated.accept_loss(group):
            return True
        missing = self.missing(group)
        if not missing or self.consensus is None:
            return False
        self._host.log.warn(f"An operator accepts that what {missing} had of group {group} is lost")
        return self.consensus.doubts.accept(group, self._turn.now)

    # -- other servers -----------------------------------------------------------------------------------------

    def tell(self, node: int, note: Note) -> None:
        """Send a note to another server; it is lost if there is no connection."""
        self._carrier.send_note(node, notes.encode(note))

    def _tell_leader(self, note: notes.Loss | notes.Ended | notes.Opened) -> None:
        """Send a report to the leader of the metadata. If this server leads, propose the entry for the report."""
        if not self.machine.leads:
            self.tell(self.machine.leader, note)
            return
        entry: Entry
        place = note.account, note.stream, note.group
        if isinstance(note, notes.Opened):
            entry = StreamOpened(*place, note.is_there)
        elif isinstance(note, notes.Loss):
            entry = ReplicaLost(*place, note.revision, note.node)
        else:
            entry = GroupEnded(*place, note.revision)
        self._turn.go_on(self.propose(entry))

    def _tell_restored(self, note: notes.Restored) -> None:
        """Report to the leader of the metadata, which may be this server, that a stream was built from an archive."""
        if self.machine.leads:
            self.restores.take(note)
        else:
            self.tell(self.machine.leader, note)

    @property
    def turn(self) -> Turn:
        """The turn, which runs the chores of this server."""
        return self._turn

    @property
    def rests(self) -> bool:
        """Whether all replicated groups are idle."""
        return self.replicated is None or self.replicated.rests

    def receive(self, node: int, data: bytes) -> None:
        """Handle a batch of replicated groups from the server `node`. Raises ValueError if it is damaged."""
        assert self.replicated is not None
        self.replicated.receive(node, data)

    def take_note(self, node: int, data: bytes) -> None:
        """Handle a note from the server `node`. Raises ValueError if it is damaged."""
        try:
            note = notes.decode(data)
        except BadRow as error:
            raise ValueError(str(error)) from None
        assert self.group is not None
        if isinstance(note, notes.Saying):
            self.group.hear(node, note.word)
        elif isinstance(note, notes.Description) and note.server.node == node:
            self.group.described(note.server)
        elif isinstance(note, notes.Order):
            self._take_order(note)
        elif isinstance(note, notes.Forwarded):
            router = self._router(note.account)
            if router is not None:
                self._turn.go_on(self.desk.forwarded(router, note))
        elif isinstance(note, notes.Restored) and self.machine.leads:
            self.restores.take(note)
        elif isinstance(note, notes.Refused):
            self.restores.refused(note)
        elif isinstance(note, notes.Answered):
            self.orders.answered(note)
        elif (isinstance(note, notes.Loss) and note.node == node and self.machine.leads) or (
            isinstance(note, (notes.Ended, notes.Opened)) and self.machine.leads
        ):
            self._tell_leader(note)
        elif isinstance(note, notes.Question):
            self.questions.asked(node, note)
        elif isinstance(note, notes.Welcome):
            self.group.welcomed(note.incarnation)
        elif isinstance(note, notes.Reply):
            self.questions.came(note)

    def _take_order(self, order: notes.Order) -> None:
        """Carry out an order: build a stream from an archive, or answer the request in the order."""
        if order.words == WORDS:
            self.restores.begin(order)
        elif order.words in PASSED_ON:
            self.orders.take(order)
        elif (router := self._router(order.account)) is not None:
            self._turn.go_on(self.desk.passed(router, order))

    def _router(self, account: str) -> Router | None:
        """Return a router for requests of an account, or None if this server does not have the account."""
        from pyjs.jetstream.api.router import Router  # imported with the first request

        js = self.accounts.get(account)
        return None if js is None else Router(js.account, js.shared, js)

    def node_silent(self, node: int) -> None:
        """Record that a server no longer responds."""
        assert self.replicated is not None
        if node in self.online:
            self.desk.lost(node, self._carrier.quiet_ns(node))
        self.online.discard(node)
        self._silent.setdefault(node, self._turn.now)
        self.replicated.node_silent(node)
        self.waiters.notify()

    def node_heard(self, node: int) -> None:
        """Record that a server responds."""
        assert self.replicated is not None
        self.online.add(node)
        self.machine.met_server()
        self._silent.pop(node, None)
        self.replicated.node_heard(node)
        self.waiters.notify()

    # -- reports -----------------------------------------------------------------------------------------------

    def are_away(self, nodes: tuple[int, ...]) -> bool:
        """Return whether all servers in `nodes` are offline; this server counts as online."""
        return self.node not in nodes and self.questions.are_away(nodes)

    def report_of(self, stream: Assignment, node: int) -> Generator[Step, None, dict[str, Any]]:
        """Return the report of the server `node` about a stream, or {} if the server does not send one in time."""
        js = self.accounts.get(stream.account)
        if node == self.node and js is not None:
            found = [(yield from streams_report(js, (stream.name,)))]
        else:
            asked = {node: [stream.name]} if node in self.online else {}
            found = yield from self.questions.gather(stream.account, asked)
        return next((each[stream.name] for each in found if stream.name in each), {})

    def members_of(self, stream: Assignment, node: int) -> Generator[Step, None, list[int]]:
        """Return the numbers of the servers in a stream's group, as reported by the server `node`.

        The list is empty if that server does not answer.
        """
        js = self.accounts.get(stream.account)
        if node == self.node and js is not None:
            return members_of(js, stream.name)
        return (yield from self.questions.members(stream.account, stream.name, node))

    def assigned_here(self, account: str = "", stream: str = "") -> list[Assignment]:
        """Return the streams assigned to this server.

        If `account` or `stream` is not empty, return only streams of this account or with this name; if both are
        given, both must match.
        """
        found = self.machine.state.streams() if not account else self.machine.state.accounts.get(account, ())
        return [each for each in found if self.node in each.nodes and stream in ("", each.name)]

    def meta_status(self) -> GroupStatus | None:
        """Return the status of the metadata group on this server, or None if the group is not open."""
        return self.status_of(self.meta_group) if self.meta_group else None

    @property
    def meta_group(self) -> int:
        """The number of the metadata group, or 0 if it is not open."""
        return 0 if self.group is None else self.group.group

    def status_of(self, group: int) -> GroupStatus | None:
        """Return the status of a group on this server, or None if the group is not open."""
        assert self.consensus is not None
        with suppress(KeyError, RaftError):
            return self.consensus.status(group)
        return None

    @property
    def log_damages(self) -> int:
        """The number of damaged places that were found in the log since the start."""
        return 0 if self._log is None else self._log.damages

    def last_term(self, group: int, last: int) -> int:
        """Return the term of the entry with index `last` in a group's log, or 0 if the log does not have it."""
        stored = None if self._log is None else self._log.groups.get(group)
        return 0 if stored is None else stored.term_at(last)

    def quiet_ns(self, node: int) -> int:
        """Return the time in ns since a server stopped responding or, if it responds, since its last bytes."""
        since_ns = self._silent.get(node)
        return self._carrier.quiet_ns(node) if since_ns is None else max(0, self._turn.now - since_ns)
