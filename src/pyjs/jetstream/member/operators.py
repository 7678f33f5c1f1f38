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

    from pyjs.core.chore import Step
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
        given = stream_requests.read(body, stream_requests.STEPDOWN_REQUEST, True) if body else {}
        wanted = given.get("placement")
        placement = from_json(Placement, wanted) if wanted else None
        there = member.online | {member.node}
        voters = [each.node for each in status.replicas if each.is_voter]
        node = successor(machine.state.servers, voters, member.node, placement, there)
        heirs = [each for each in voters if each != member.node and each in member.online]
        if node or heirs:
            member.hand_over(node or heirs[0])
        yield None
        return {"success": True}

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
