"""What operators ask of the cluster as a whole: another leader, a server less, an account without streams.

The leader of the metadata answers, and every other server is silent: it returns None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.jetstream.cluster.entries import AccountPurged, ServerRemoved
from pyjs.jetstream.cluster.placement import successor
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.config.declared import from_json
from pyjs.jetstream.config.stream import Placement

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeAlias

    from pyjs.consensus.status import GroupStatus
    from pyjs.core.chore import Step
    from pyjs.jetstream.api.endpoint import ApiCall, MaybeSteps
    from pyjs.jetstream.cluster.entries import Entry
    from pyjs.jetstream.member.member_node import MemberNode

    Answer: TypeAlias = Generator[Step, None, dict[str, object] | None]


class Operators:
    """The requests of operators to one server."""

    def __init__(self, member: MemberNode) -> None:
        self._member = member

    def step_down(self, body: bytes) -> Answer:
        """Let another server lead the metadata.

        Raises:
            ApiError: no other server can, or the request is invalid.
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
        """Let another replica lead a stream that is led here; the only replica of a stream stays its leader.

        Raises:
            ApiError: no other server can, or the request is invalid.
        """
        member, stream = self._member, call.stream()
        errcodes.CONSUMER_NOT_FOUND.raise_if(len(call.args) > 1 and call.args[1] not in stream.consumers)
        assigned = member.machine.state.stream(call.js.account.name, stream.name)
        if assigned is None:
            raise errcodes.STREAM_NOT_FOUND.error()
        if len(assigned.replicas) > 1:
            heir = self._heir(call.body, member.status_of(assigned.group))
            if heir:
                member.hand_over(assigned.group, heir)
        yield None
        return {"success": True}

    def _heir(self, body: bytes, status: GroupStatus) -> int:
        """Return the server that shall lead a group after this one; 0: there is none."""
        member = self._member
        given = stream_requests.read(body, stream_requests.STEPDOWN_REQUEST, True) if body.strip() else {}
        wanted = given.get("placement")
        placement = from_json(Placement, wanted) if wanted else None
        voters = [each.node for each in status.replicas if each.is_voter]
        there = member.online | {member.node}
        node = successor(member.machine.state.servers, voters, member.node, placement, there)
        others = sorted((each.lag or 0, each.node) for each in status.replicas if each.is_voter)
        heirs = [each for _, each in others if each != member.node and each in member.online]
        return node or next(iter(heirs), 0)

    def remove_server(self, body: bytes) -> Answer:
        """Remove a server that will not come back.

        Raises:
            ApiError: there is no such server, or the request is invalid.
        """
        machine = self._member.machine
        if not machine.leads:
            return None
        errcodes.BAD_REQUEST.raise_if(not body)
        name = stream_requests.read(body, stream_requests.SERVER_REQUEST, True).get("peer", "")
        found = next((each.node for each in machine.state.servers.values() if each.name == name), 0)
        errcodes.CLUSTER_SERVER_NOT_MEMBER.raise_if(not found)
        return (yield from self._done(ServerRemoved(found), "success"))

    def purge_account(self, account: str) -> Answer:
        """Remove all streams of an account. Raises ApiError."""
        if not self._member.machine.leads:
            return None
        return (yield from self._done(AccountPurged(account), "initiated"))

    def _done(self, entry: Entry, word: str) -> Answer:
        """Propose an entry; return the fields of the answer."""
        applied = yield from self._member.propose(entry)
        if applied is None:
            return None
        if applied.error is not None:
            raise applied.error
        return {word: True}
