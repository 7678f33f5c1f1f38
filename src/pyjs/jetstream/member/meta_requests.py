"""Requests that the leader of the metadata handles; they create, change, delete and list streams.

A handler checks the configuration as a single server does, chooses servers and proposes an entry. The result is known
when the entry is applied. If the metadata changes before that, the handler starts again. After a change, a server of
the stream answers. If this server stops leading the metadata group before the result is known, the handler sends no
answer (member/answering.py).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.base.nuid import short_hash
from pyjs.jetstream import errcodes
from pyjs.jetstream.api.account import info as account_info
from pyjs.jetstream.api.endpoint import Counted, Replacements
from pyjs.jetstream.api.streams import LIST_PAGE, NAMES_PAGE, page_of
from pyjs.jetstream.cluster.answers import list_plan, matching
from pyjs.jetstream.cluster.assignments import Assignment, stored_config, with_replicas
from pyjs.jetstream.cluster.entries import Bounds, StreamCreated, StreamDeleted, StreamMoved, StreamUpdated
from pyjs.jetstream.cluster.moves import field_of, updated_nodes, without_replica
from pyjs.jetstream.cluster.placement import Rules
from pyjs.jetstream.cluster.state import Applied, Outcome
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.member.notes import Order
from pyjs.jetstream.member.questions import streams_report, usage_report
from pyjs.jetstream.member.restores import WORDS
from pyjs.jetstream.member.waiters import LOOK_NS, OFFLINE_NS
from pyjs.jetstream.rules import dead_letters as dead_letter_rules
from pyjs.jetstream.rules import sources as source_rules
from pyjs.jetstream.rules import stream as stream_rules
from pyjs.subjects.overlap import first_overlap

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from pyjs.core.chore import Step
    from pyjs.jetstream.api.endpoint import ApiCall, JsonDict, MaybeSteps
    from pyjs.jetstream.cluster.entries import Entry
    from pyjs.jetstream.cluster.moves import Field
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.member_node import MemberNode

LEAVE_NS = 4 * NS_PER_S  # time to wait until a server has removed its old replica, before it gets a new one
PASSED_ON = ("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.RESTORE", "STREAM.CANCEL_MOVE")
SUMMED = ("memory", "storage", "reserved_memory", "reserved_storage", "consumers")


class _Changed(Exception):
    """Raised if a stream has changed since its group was examined."""


class MetaRequests:
    """The handlers of API requests on the leader of the metadata."""

    def __init__(self, member: MemberNode) -> None:
        self._member = member
        handlers = {
            "INFO": self._info,
            "STREAM.CREATE": self._create,
            "STREAM.UPDATE": self._update,
            "STREAM.DELETE": self._delete,
            "STREAM.NAMES": self._names,
            "STREAM.LIST": self._list,
            "STREAM.RESTORE": self._restore,
            "STREAM.PEER.REMOVE": self._remove_replica,
            "STREAM.CANCEL_MOVE": self._cancel_move,
            "STREAM.LEADER.STEPDOWN": member.operators.stream_steps_down,
            "CONSUMER.LEADER.STEPDOWN": member.operators.stream_steps_down,
        }
        # The server that answers counts the request.
        self.endpoints = Replacements(handlers, dict.fromkeys(PASSED_ON, Counted.ERRORS))

    # -- changes -----------------------------------------------------------------------------------------------

    def _create(self, call: ApiCall) -> MaybeSteps:
        """Create a stream, or confirm an existing stream with the same configuration."""
        js, account = call.js, call.js.account.name
        request = stream_requests.read_stream(call.body, js.options.strict)
        errcodes.STREAM_MISMATCH.raise_if(request.config.name != call.args[0])
        config = request.config.with_required_level()
        stream_rules.check_create(config)
        _check_tier(js, config)
        config = yield from self._checked(js, config, request.pedantic)
        dead_letter_rules.check_stream(config, js.config_of, js.config_of(config.name))
        if config.mirror or config.sources:
            source_rules.check_filters(config)
        stored, bounds = stored_config(config), bounds_of(js, config)

        def decide() -> Entry | Assignment:
            existing = self._member.machine.state.check_create(account, stored, bounds)
            if existing is not None:
                return existing
            nodes = self.field().place(config)
            first = len(self._member.machine.state.accounts.get(account, ())) % len(nodes)
            # The first server is the first leader, so the order differs for each stream.
            return StreamCreated(account, stored, nodes[first:] + nodes[:first], bounds)

        try:
            applied = yield from self._agree(decide)
        except ApiError as error:
            if error.err_code != errcodes.CLUSTER_NO_PEERS.err_code:
                raise
            yield from self._member.meet()  # after a start, some servers may not have connected yet
            applied = yield from self._agree(decide)
        return self._pass_on(call, "STREAM.CREATE", applied)

    def _update(self, call: ApiCall) -> MaybeSteps:
        """Update the configuration of a stream, and move the stream if its new placement requires other servers."""
        js, account = call.js, call.js.account.name
        request = stream_requests.read_stream(call.body, js.options.strict)
        config = request.config.with_required_level()
        config = yield from self._checked(js, config, request.pedantic)
        errcodes.STREAM_MISMATCH.raise_if(config.name != call.args[0])
        dead_letter_rules.check_stream(config, js.config_of, js.config_of(config.name))
        bounds = bounds_of(js, config)
        errcodes.STREAM_OFFLINE.raise_if(not (yield from self._is_reachable(account, config.name)))

        def decide(revision: int = 0) -> StreamUpdated:
            old = self._assigned(account, config.name)
            if revision not in (0, old.revision):
                raise _Changed
            new = stored_config(stream_rules.check_update(old.shown_config, config))
            self._member.machine.state.check_update(account, new, bounds)
            nodes, target = self._updated_nodes(js, old, new.config)
            stored = with_replicas(new, len(nodes)) if target else new
            return StreamUpdated(account, old.group, old.revision, stored, nodes, bounds, target)

        while True:
            revision = yield from self._until_left(js, decide)
            with suppress(_Changed):
                applied = yield from self._agree(partial(decide, revision))
                return self._pass_on(call, "STREAM.UPDATE", applied)

    def _updated_nodes(
        self, js: JetStream, old: Assignment, config: StreamConfig
    ) -> tuple[tuple[int, ...], int]:
        """Return the servers of a stream after an update to `config`, and the target of its move, as numbers.

        If the stream does not move, the target is 0.

        Raises:
            ApiError: no servers fit, or another move is under way.
        """
        if old.target:
            is_move = config.placement is not None and config.placement != old.config.placement
            if is_move or config.num_replicas != 1:
                raise self._member.operators.moves_already(old)
            return old.nodes, old.target
        nodes = updated_nodes(self.field(), old, config, self._leader_of(js, old))
        if len(old.nodes) == len(nodes) == 1 and nodes != old.nodes:
            return old.nodes + nodes, nodes[0]
        return nodes, 0

    def _until_left(self, js: JetStream, decide: Callable[[], StreamUpdated]) -> Generator[Step, None, int]:
        """Wait until the servers that an update adds to a stream are no longer members of the stream's group.

        Such a server replaces its old replica with a new one, and a group of two replicas removes a member only if
        both agree. Return the revision of the stream on which the update is based.

        Raises:
            ApiError: a server has not left in time, or the update is refused.
        """
        member = self._member
        for _ in range(LEAVE_NS // LOOK_NS + 1):
            entry = decide()
            old = self._assigned(js.account.name, entry.stored.config.name)
            added = set(entry.nodes).difference(old.nodes)
            if not added or added.isdisjoint((yield from member.members_of(old, self._leader_of(js, old)))):
                return old.revision
            yield from member.waiters.until(lambda: False, LOOK_NS)
        raise errcodes.STREAM_RECONFIGURE_IN_PROGRESS.error()

    def _is_reachable(self, account: str, name: str) -> Generator[Step, None, bool]:
        """Wait up to OFFLINE_NS until a server of a stream is online; return False if none comes online.

        Return True if there is no such stream.
        """
        member = self._member

        def is_so() -> bool:
            stream = member.machine.state.stream(account, name)
            return stream is None or not member.are_away(stream.nodes)

        return (yield from member.waiters.until(is_so, OFFLINE_NS))

    def _delete(self, call: ApiCall) -> MaybeSteps:
        """Delete a stream. Raises ApiError."""
        call.require_empty()
        account, name = call.js.account.name, call.args[0]

        def decide() -> Entry:
            return StreamDeleted(account, name, self._assigned(account, name).group)

        applied = yield from self._agree(decide)
        return self._pass_on(call, "STREAM.DELETE", applied)

    def _remove_replica(self, call: ApiCall) -> MaybeSteps:
        """Move a replica of a stream away from a server. Raises ApiError."""
        given = call.read_required(stream_requests.PEER_REMOVE_REQUEST)
        account, name, wanted = call.js.account.name, call.args[0], given.get("peer", "")
        errcodes.BAD_REQUEST.raise_if(not wanted)

        def decide() -> Entry:
            servers = self._member.machine.state.servers.values()
            node = next((each.node for each in servers if wanted in (each.name, short_hash(each.name))), 0)
            return without_replica(self.field(), self._assigned(account, name), node)

        applied = yield from self._agree(decide)
        return None if applied is None else {"success": True}

    def _cancel_move(self, call: ApiCall) -> MaybeSteps:
        """Cancel the move of a stream with one replica: the replica stays on its server. Raises ApiError."""
        applied = yield from self.cancel_move(call.js.account.name, call.args[0])
        return self._pass_on(call, "STREAM.CANCEL_MOVE", applied)

    def cancel_move(self, account: str, name: str) -> Generator[Step, None, Applied | None]:
        """Cancel the move of a stream with one replica; return the result, or None if it is unknown.

        Raises:
            ApiError: there is no such stream, or it is not being moved.
        """

        def decide() -> Entry:
            stream = self._assigned(account, name)
            errcodes.STREAM_MOVE_NOT_IN_PROGRESS.raise_if(not stream.target)
            return StreamMoved(account, name, stream.group, stream.revision, (stream.origin,))

        return (yield from self._agree(decide))

    def _restore(self, call: ApiCall) -> MaybeSteps:
        """Order a server to receive an archive and to answer the request. Raises ApiError."""
        member, request = self._member, call.request
        node = yield from member.restores.place(call)
        subject = request.subject.decode("utf-8", "replace")
        place = call.args[0], member.machine.state.next_group, 0, 1
        sent = subject, request.reply, request.payload, request.number
        order = Order(call.js.account.name, WORDS, *place, *sent)
        if node == member.node:
            member.restores.begin(order)
        else:
            member.tell(node, order)
        return None

    def check_restored(self, js: JetStream, config: StreamConfig) -> Generator[Step, None, StreamConfig]:
        """Check the configuration of a stream to restore, and return it with defaults. Raises ApiError."""
        account, state = js.account.name, self._member.machine.state
        config = yield from self._checked(js, config.with_required_level(), False)
        _check_tier(js, config)
        existing = state.stream(account, config.name)
        errcodes.STREAM_NAME_EXIST_RESTORE_FAILED.raise_if(existing is not None)
        state.check_create(account, stored_config(config), bounds_of(js, config))
        return config

    def bounds(self, account: str, config: StreamConfig) -> Bounds:
        """Return the limits of an account that apply to a stream, or no limits if the account is unknown."""
        js = self._member.accounts.get(account)
        return Bounds() if js is None else bounds_of(js, config)

    def _checked(
        self, js: JetStream, config: StreamConfig, pedantic: bool
    ) -> Generator[Step, None, StreamConfig]:
        """Check a configuration, and return it with defaults. Raises ApiError."""
        account, state = js.account.name, self._member.machine.state

        def find(name: str) -> StreamConfig | None:
            stream = state.stream(account, name)
            return stream.config if stream is not None else None

        within = yield from first_overlap(stream_rules.valid_subjects(config))
        config = stream_rules.check(config, js.options, js.limits, pedantic, find, within)
        if config.num_replicas > 1 and js.shared.replicated is None:
            raise errcodes.STREAM_CREATE.error(err="this version has no streams with more than one replica")
        return config

    def field(self) -> Field:
        """Return the servers, their load and the rules for placing streams."""
        member = self._member
        options = member.options.jetstream
        online, most = member.online | {member.node}, options.limits.max_ha_assets
        rules = Rules(online, options.unique_tag.lower(), most)
        return field_of(member.machine.state, member.options.cluster.name, rules)

    def _assigned(self, account: str, name: str) -> Assignment:
        stream = self._member.machine.state.stream(account, name)
        if stream is None:
            raise errcodes.STREAM_NOT_FOUND.error()
        return stream

    def _leader_of(self, js: JetStream, stream: Assignment) -> int:
        """Return the number of the server that leads a stream or, if that is unknown, of its first server."""
        opened, replicated = js.streams.get(stream.name), js.shared.replicated
        if stream.config.num_replicas == 1 or replicated is None or opened is None:
            return stream.nodes[0]
        return replicated.leader_of(opened) or stream.nodes[0]

    def _agree(self, decide: Callable[[], Entry | Assignment]) -> Generator[Step, None, Applied | None]:
        """Propose entries from `decide` until one is applied; return its result, or None if it is unknown.

        If `decide` returns an assignment, return it as an existing stream, without a proposal.

        Raises:
            ApiError: the entry is refused.
        """
        while True:
            wanted = decide()
            if isinstance(wanted, Assignment):
                return Applied(Outcome.EXISTS, stream=wanted)
            applied = yield from self._member.propose(wanted)
            if applied is None or applied.outcome in (Outcome.DONE, Outcome.EXISTS):
                return applied
            if applied.error is not None:
                raise applied.error

    def _pass_on(self, call: ApiCall, words: str, applied: Applied | None) -> JsonDict | None:
        """Order the online servers of a stream to answer a request, and return None.

        If none is online, return the answer to a deletion or to the cancellation of a move. Send no order if the
        outcome `applied` is unknown.
        """
        if applied is None or applied.stream is None:
            return None
        member, stream = self._member, applied.stream
        there = [node for node in stream.nodes if node == member.node or node in member.online]
        if words == "STREAM.DELETE":
            if not there:
                return {"success": True}
            there = there[:1]
        if words == "STREAM.CANCEL_MOVE" and not there:
            return member.reports.away(stream, call.js.shared.clock.wall_ns())
        order = self._order(call, words, applied, stream)
        for node in there:
            if node == member.node:
                member.orders.take(order)
            else:
                member.tell(node, order)
        return None

    def _order(self, call: ApiCall, words: str, applied: Applied, stream: Assignment) -> Order:
        """Return the order to answer a request after its entry was applied."""
        request, index = call.request, stream.revision if applied.outcome is Outcome.DONE else 0
        if words == "STREAM.DELETE":
            index = self._member.machine.state.index
        return Order(
            call.js.account.name,
            words,
            stream.name,
            stream.group,
            index,
            stream.config.num_replicas,
            request.subject.decode("utf-8", "replace"),
            request.reply,
            request.payload,
            request.number,
        )

    # -- reports -----------------------------------------------------------------------------------------------

    def _names(self, call: ApiCall) -> MaybeSteps:
        """Return a page of the names of streams, or None if this server no longer leads."""
        given = call.read_optional(stream_requests.NAMES_REQUEST)
        if not (yield from self._confirmed(call)):
            return None
        found = self._matching(call, given)
        page, offset = page_of([each.name for each in found], given.get("offset", 0), NAMES_PAGE)
        return {"total": len(found), "offset": offset, "limit": NAMES_PAGE, "streams": page or None}

    def _list(self, call: ApiCall) -> MaybeSteps:
        """Return a page of the infos of streams, or None if this server no longer leads."""
        given = call.read_optional(stream_requests.LIST_REQUEST)
        if not (yield from self._confirmed(call)):
            return None
        member, js = self._member, call.js
        found = self._matching(call, given)
        page, offset = page_of(found, given.get("offset", 0), LIST_PAGE)
        leaders = {each.group: self._leader_of(js, each) for each in page}
        plan = list_plan(page, member.node, leaders, member.online)
        infos = yield from streams_report(js, tuple(plan.here))
        for report in (yield from member.questions.gather(js.account.name, plan.elsewhere)):
            infos |= report
        names, now_ns = [each.name for each in page], js.shared.clock.wall_ns()
        missing = [name for name in names if name not in infos]
        infos |= {
            each.name: member.reports.away(each, now_ns) for each in page if member.are_away(each.nodes)
        }
        out: JsonDict = {"total": len(found), "offset": offset, "limit": LIST_PAGE}
        out["streams"] = [infos[name] for name in names if name in infos]
        if missing:
            out["missing"] = missing
        return out | ({"offline": plan.offline} if plan.offline else {})

    def _confirmed(self, call: ApiCall) -> Generator[Step, None, bool]:
        """Return whether a quorum has confirmed that the metadata on this server is up to date.

        Raises:
            ApiError: no leader is known (error 10008), and the client is connected to this server.
        """
        if (yield from self._member.confirm()):
            return True
        is_here = call.request.session is not None
        errcodes.CLUSTER_NOT_AVAILABLE.raise_if(is_here and not self._member.machine.leader)
        return False

    def _matching(self, call: ApiCall, given: dict[str, Any]) -> list[Assignment]:
        return matching(self._member.machine.state, call.js.account.name, given.get("subject", ""))

    def _info(self, call: ApiCall) -> MaybeSteps:
        """Return the limits of an account and the sum of its usage on the servers that answer in time.

        Return None if this server no longer leads.
        """
        if not (yield from self._confirmed(call)):
            return None
        member, account = self._member, call.js.account.name
        reports: list[dict[str, Any]] = yield from member.questions.gather(
            account, {node: [] for node in sorted(member.online)}
        )
        reports.append(usage_report(call.js))
        out = account_info(call)
        out |= {name: sum(each.get(name, 0) for each in reports) for name in SUMMED}
        out["streams"] = len(member.machine.state.accounts.get(account, ()))
        out["api"] |= {name: sum(each.get(name, 0) for each in reports) for name in ("total", "errors")}
        return out


def bounds_of(js: JetStream, config: StreamConfig) -> Bounds:
    """Return the limits of an account that apply to a stream with the configuration `config`."""
    limits = js.limits
    most = limits.max_storage if config.storage == FILE else limits.max_memory
    return Bounds(limits.max_streams, most, bool(limits.tiers))


def _check_tier(js: JetStream, config: StreamConfig) -> None:
    """Raise ApiError if the account has tiers, but none for the stream's number of replicas."""
    errcodes.NO_LIMITS.raise_if(bool(js.limits.tiers) and f"R{config.num_replicas}" not in js.limits.tiers)
