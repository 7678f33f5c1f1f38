"""Requests of operators: to transfer a leadership, remove or evacuate a server, accept a loss, or purge an account.

The leader of the metadata answers these requests. But `stream_steps_down` is answered by the stream's leader, and
`accept_loss` by the named server. On every other server, the methods return None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS
from pyjs.base.nuid import short_hash
from pyjs.jetstream import errcodes
from pyjs.jetstream.cluster.entries import AccountPurged, ServerEvacuating, ServerRemoved, StreamMoved
from pyjs.jetstream.cluster.moves import by_group, may_move, moves
from pyjs.jetstream.cluster.placement import successor
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.config.declared import from_json
from pyjs.jetstream.config.stream import Placement
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.why.replicas import IN_DOUBT

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import TypeAlias

    from pyjs.base.log import Log
    from pyjs.consensus.status import GroupStatus
    from pyjs.core.chore import Step
    from pyjs.jetstream.api.endpoint import ApiCall, MaybeSteps
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.entries import Entry
    from pyjs.jetstream.config.json_strict import Struct
    from pyjs.jetstream.member.member_node import MemberNode

    Answer: TypeAlias = Generator[Step, None, dict[str, object] | None]


STEP = 100  # streams examined in one turn, which takes 0.2 ms if none moves
DOUBT_NS = 1_000 * NS_PER_MS  # pause between two checks of groups in doubt
PAUSE_NS = 250 * NS_PER_MS  # pause between two examinations of all streams


class Operators:
    """The handlers of operators' requests on one server."""

    def __init__(self, member: MemberNode, log: Log) -> None:
        self._member = member
        self._log = log

    def step_down(self, body: bytes) -> Answer:
        """Transfer the leadership of the metadata to another server, if one is online.

        Return None if this server does not lead.

        Raises:
            ApiError: no server fits the requested placement, or the request is invalid.
        """
        member, machine = self._member, self._member.machine
        status = member.meta_status()
        if not machine.leads or status is None:
            return None
        heir = self._heir(body, status)
        if heir:
            member.hand_over(member.meta_group, heir)
        yield None
        return {"success": True}

    def stream_steps_down(self, call: ApiCall) -> MaybeSteps:
        """Transfer the leadership of a stream from this server to another replica, if one is online.

        Raises:
            ApiError: the stream or consumer does not exist, no server fits the requested placement, or the request is
                invalid.
        """
        member, stream = self._member, call.stream()
        errcodes.CONSUMER_NOT_FOUND.raise_if(len(call.args) > 1 and call.args[1] not in stream.consumers)
        assigned = member.machine.state.stream(call.js.account.name, stream.name)
        if assigned is None:
            raise errcodes.STREAM_NOT_FOUND.error()
        if assigned.config.num_replicas > 1:
            status = member.status_of(assigned.group)
            heir = 0 if status is None else self._heir(call.body, status)
            machine = None if member.replicated is None else member.replicated.machine_of(stream)
            if heir and machine is not None and member.replicated is not None:
                yield from member.replicated.resign_steps(machine, heir)
        yield None
        return {"success": True}

    def _heir(self, body: bytes, status: GroupStatus) -> int:
        """Return the number of the server that should lead a group next, or 0 if none is online. Raises ApiError."""
        member = self._member
        is_read = body.strip()[:1] in (b"{", b"[")  # nats-server ignores any other body
        given = stream_requests.read(body, stream_requests.STEPDOWN_REQUEST, True) if is_read else {}
        wanted = given.get("placement")
        placement = from_json(Placement, wanted) if wanted else None
        voters = [each.node for each in status.replicas if each.is_voter]
        there = member.online | {member.node}
        node = successor(member.machine.state.servers, voters, member.node, placement, there)
        others = sorted((each.lag or 0, each.node) for each in status.replicas if each.is_voter)
        heirs = [each for _, each in others if each != member.node and each in member.online]
        return node or next(iter(heirs), 0)

    def remove_server(self, body: bytes) -> Answer:
        """Remove a server that will not come back; return None if this server does not lead.

        If this server is to be removed, the next leader completes the removal.

        Raises:
            ApiError: the server is unknown, it is the last one, the only replica of a stream is being moved away from
                it, or the request is invalid.
        """
        if not self._member.machine.leads:
            return None
        node, state = self._named(body, stream_requests.SERVER_REMOVE_REQUEST), self._member.machine.state
        if len(state.servers) == 1:
            raise errcodes.BAD_REQUEST.detailed("the last server of a cluster cannot be removed")
        for stream in state.moving.values():
            if node == stream.origin:
                raise self.moves_already(stream)
        name = state.servers[node].name
        answer = yield from self._done(ServerRemoved(node), "success")
        if answer is not None:
            self._member.announcer.removed_server(name)
        return answer

    def moves_already(self, stream: Assignment) -> ApiError:
        """Return the error for a request to change a stream whose only replica is being moved.

        If the server of this replica is offline, the error message suggests remedies.
        """
        member, servers = self._member, self._member.machine.state.servers
        name = servers[stream.origin].name if stream.origin in servers else f"number {stream.origin}"
        if stream.origin in member.online | {member.node}:
            return errcodes.STREAM_MOVE_IN_PROGRESS.error()
        what = f"server {name}, from which stream {stream.name} of account {stream.account} moves, is away"
        return errcodes.STREAM_MOVE_IN_PROGRESS.detailed(f"{what}: start it, or cancel the move")

    def cancel_move(self, account: str, name: str) -> Answer:
        """Cancel the move of a stream with one replica, and return a report about the stream.

        Return None if this server does not lead, or if the outcome is unknown. Raises ApiError.
        """
        member = self._member
        if not member.machine.leads:
            return None
        errcodes.NO_ACCOUNT.raise_if(account not in member.accounts)
        applied = yield from member.requests.cancel_move(account, name)
        if applied is None or applied.stream is None:
            return None
        report = yield from member.report_of(applied.stream, applied.stream.nodes[0])
        now_ns = member.accounts[account].shared.clock.wall_ns()
        return report or member.reports.away(applied.stream, now_ns)

    def evacuate_server(self, body: bytes) -> Answer:
        """Begin to move all streams of a server to others; return None if this server does not lead.

        Raises:
            ApiError: the server is unknown, or the request is invalid.
        """
        if not self._member.machine.leads:
            return None
        node = self._named(body, stream_requests.SERVER_EVACUATE_REQUEST)
        return (yield from self._done(ServerEvacuating(node, True), "success"))

    def accept_loss(self, body: bytes) -> Answer:
        """Make groups on this server continue without the replicas or messages that they wait for.

        The field `peer` names the server that handles the request; on every other server, return None. The request
        also names a stream, or none for the group of the metadata. If the field `lost` names a server instead, all
        groups that wait only for that server continue.

        Raises:
            ApiError: no such group is waiting, the server or stream is unknown, or the request is invalid.
        """
        member, state = self._member, self._member.machine.state
        errcodes.BAD_REQUEST.raise_if(not body)
        given = stream_requests.read(body, stream_requests.ACCEPT_LOSS_REQUEST, True)
        peer, name = given.get("peer", ""), given.get("stream", "")
        if peer != member.server_name:
            is_known = any(each.name == peer for each in state.servers.values())
            errcodes.CLUSTER_SERVER_NOT_MEMBER.raise_if(member.machine.leads and not is_known)
            return None
        account, lost = given.get("account", ""), given.get("lost", "")
        if bool(account) != bool(name):
            raise errcodes.BAD_REQUEST.detailed("account and stream are named together, or neither")
        if lost:
            if name:
                raise errcodes.BAD_REQUEST.detailed("it names a lost server, or one stream")
            return (yield from self._accept_lost(lost))
        stream = state.stream(account, name) if name else None
        errcodes.STREAM_NOT_FOUND.raise_if(bool(name) and stream is None)
        if not member.accept_loss(member.meta_group if stream is None else stream.group):
            raise errcodes.BAD_REQUEST.detailed("the group waits for nothing that may be lost")
        yield None
        return {"success": True}

    def _accept_lost(self, name: str) -> Answer:
        """Make all groups on this server that wait only for the server `name` continue. Raises ApiError."""
        member, state, count = self._member, self._member.machine.state, 0
        nodes = {each.name: each.node for each in state.removed.values()}
        nodes |= {each.name: each.node for each in state.servers.values()}
        node = nodes.get(name, 0)
        errcodes.CLUSTER_SERVER_NOT_MEMBER.raise_if(not node)
        assert member.consensus is not None
        doubts = member.consensus.doubts
        for number, group in enumerate(doubts.groups()):
            if number % STEP == STEP - 1:
                yield None
            now_ns = member.waiters.now_ns
            if doubts.missing(group, now_ns) == [node] and doubts.accept(group, now_ns):
                count += 1
        if not count:
            raise errcodes.BAD_REQUEST.detailed(f"no group on this server waits for {name} alone")
        self._log.warn(f"An operator accepts that what {name} had of {count} groups is lost")
        return {"success": True, "groups": count}

    def doubt_steps(self) -> Generator[Step, None, None]:
        """Log the servers for which groups in doubt wait; never ends."""
        member, told = self._member, dict[int, str]()
        assert member.consensus is not None
        doubts = member.consensus.doubts
        while True:
            yield from member.waiters.until(lambda: not doubts.is_idle)
            yield from member.waiters.until(lambda: False, DOUBT_NS)
            waiting = {group: missing for group in doubts.groups() if (missing := member.missing(group))}
            for missing in sorted(set(waiting.values())):
                groups = [each for each, text in waiting.items() if text == missing != told.get(each)]
                if groups:
                    self._log.warn(f"{self._told_groups(groups)} {IN_DOUBT.format(missing)}")
            told = waiting

    def _told_groups(self, groups: Sequence[int]) -> str:
        """Return the beginning of a log message about groups: the name of one, the number of others, and a verb."""
        member, (first, *others) = self._member, sorted(groups, reverse=True)
        found = next((each for each in member.machine.state.streams() if each.group == first), None)
        name = "The metadata" if first == member.meta_group else f"Group {first}"
        if found is not None:
            name = f"Stream {found.name!r} of account {found.account!r}"
        if not others:
            return f"{name} is"
        return f"{name} and {len(others)} other group{'s' if len(others) > 1 else ''} are"

    def _named(self, body: bytes, request: Struct) -> int:
        """Return the number of the server whose name or peer id is in the request. Raises ApiError."""
        errcodes.BAD_REQUEST.raise_if(not body)
        given = stream_requests.read(body, request, True)
        name, peer_id = given.get("peer", ""), given.get("peer_id", "")  # the id takes precedence
        servers = self._member.machine.state.servers.values()
        if peer_id:
            found = next((each.node for each in servers if short_hash(each.name) == peer_id), 0)
        else:
            found = next((each.node for each in servers if each.name == name), 0)
        errcodes.CLUSTER_SERVER_NOT_MEMBER.raise_if(not found)
        return found

    def move_steps(self) -> Generator[Step, None, None]:
        """While this server leads, move streams away from removed or evacuated servers; never ends."""
        member, seen = self._member, None
        while True:
            yield from member.waiters.until(lambda seen=seen: self._moves_from(seen))  # type: ignore[misc]
            seen = self._situation()
            field, streams = member.requests.field(), by_group(member.machine.state)
            for at in range(0, len(streams), STEP):
                for entry in list(moves(field, streams[at : at + STEP])):
                    yield from member.propose(entry)
                yield None
            yield from member.waiters.until(lambda: False, PAUSE_NS)

    def end_move_steps(self) -> Generator[Step, None, None]:
        """While this server leads, end the moves of single replicas whose copies are complete; never ends."""
        member, machine = self._member, self._member.machine
        while True:
            yield from member.waiters.until(lambda: machine.leads and machine.state.moving)
            for stream in list(machine.state.moving.values()):
                if not stream.is_built and (yield from self._is_copied(stream)):
                    place = stream.account, stream.name, stream.group, stream.revision
                    yield from member.propose(StreamMoved(*place, (stream.target,)))
            yield from member.waiters.until(lambda: False, PAUSE_NS)

    def _is_copied(self, stream: Assignment) -> Generator[Step, None, bool]:
        """Return whether the leader of a moving stream reports the other replica as current."""
        member, servers = self._member, self._member.machine.state.servers
        for node in stream.nodes:
            report = yield from member.report_of(stream, node)
            cluster = report.get("cluster", {})
            if node in servers and cluster.get("leader") == servers[node].name:
                rows = cluster.get("replicas", ())
                return len(rows) == 1 and rows[0]["current"]
        return False

    def _moves_from(self, seen: object) -> bool:
        """Return whether this server leads and streams may have to move because the situation differs from `seen`."""
        machine = self._member.machine
        return machine.leads and self._situation() != seen and may_move(machine.state)

    def _situation(self) -> object:
        return self._member.machine.state.index, frozenset(self._member.online)

    def purge_account(self, account: str) -> Answer:
        """Remove all streams of an account; return None if this server does not lead. Raises ApiError."""
        if not self._member.machine.leads:
            return None
        return (yield from self._done(AccountPurged(account), "initiated"))

    def _done(self, entry: Entry, word: str) -> Answer:
        """Propose an entry; return the answer `{word: True}`, or None if the result is unknown. Raises ApiError."""
        applied = yield from self._member.propose(entry)
        if applied is None:
            return None
        if applied.error is not None:
            raise applied.error
        return {word: True}
