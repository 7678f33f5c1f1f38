"""/raftz: the replicated groups of this server.

Only a server in a JetStream cluster has groups. Without `acc`, the answer has the only group of the system account,
the metadata group. A consumer belongs to the group of its stream and is not listed. Where nats-server shows the
lengths of its queues of proposals and of entries to apply, this server shows the number of proposals without a result
and the number of committed entries that are not applied yet. The log does not store the times of its entries, so
`wal` shows no times.

Source: monitoring section of nats.docs; fields, their order and texts as a cluster of nats-server 2.15.1 answers,
tests/conformance/test_cluster_answers.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.gotext import ZERO_TIME, duration_text, time_text
from pyjs.base.nuid import short_hash
from pyjs.jetstream.cluster.reports import name_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.consensus.status import GroupStatus, Replica
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.jetstream.replication.stream_machine import StreamMachine
    from pyjs.monitor.json_text import JsonDict
    from pyjs.monitor.state import Monitored

    Fields = dict[str, Any]

NO_NODES = "No Raft nodes registered"
META = "_meta_"  # nats-server's name of the metadata group
STEP = 64  # groups described in one turn, in about a millisecond
# roles with the same names in nats-server; any other role is shown as CANDIDATE
SETTLED = ("LEADER", "FOLLOWER")


def has_groups(monitored: Monitored) -> bool:
    """Return whether this server has replicated groups."""
    jetstream = monitored.node.jetstream
    return jetstream is not None and jetstream.shared.member is not None


def raftz(monitored: Monitored, account: str, group: str) -> Generator[None, None, JsonDict]:
    """Return the replicated groups by account and name; yield between steps.

    `account` and `group` select groups. If `account` is empty, it is the system account; if `group` is empty, all
    groups of the account are selected. Return {} if no group matches.
    """
    jetstream = monitored.node.jetstream
    member = None if jetstream is None else jetstream.shared.member
    if member is None:
        return {}
    wanted = account or monitored.options.system_account
    found = yield from _Groups(member).of_account(wanted, group)
    return {wanted: found} if found else {}


class _Groups:
    """The replicated groups of one server, in the form of /raftz."""

    def __init__(self, member: MemberNode) -> None:
        self._member = member

    def of_account(self, account: str, group: str = "") -> Generator[None, None, Fields]:
        """Return the groups of an account by name, or only the group `group`; yield between steps."""
        member, found = self._member, {}
        if account == member.options.system_account and group in ("", META):
            found[META] = self._metadata()
        replicated = member.replicated
        for at, machine in enumerate([] if replicated is None else replicated.machines(account)):
            if at % STEP == STEP - 1:
                yield
            name = machine.assignment.raft_group
            if group in ("", name):
                found[name] = self._stream(machine)
        return {name: fields for name, fields in found.items() if fields is not None}

    def _metadata(self) -> Fields | None:
        member = self._member
        status = member.meta_status()
        if status is None:
            return None
        term = member.last_term(member.meta_group, status.last)
        fields = self._fields(status, member.machine.leader_since_ns, term, is_behind=not member.is_caught_up)
        return fields | self._waits(member.meta_group)

    def _stream(self, machine: StreamMachine) -> Fields | None:
        status = self._member.status_of(machine.group)
        if status is None:  # the group was closed because of damage
            return None
        term = self._member.last_term(machine.group, status.last)
        fields = self._fields(status, machine.leader_since_ns, term, is_behind=machine.catch_up is not None)
        return fields | self._waits(machine.group)

    def _waits(self, group: int) -> Fields:
        """Return the field with the servers for which a group in doubt is waiting, or {} if there are none."""
        missing = self._member.missing(group)
        return {"waits_for": missing} if missing else {}

    def _fields(self, status: GroupStatus, since_ns: int, last_term: int, *, is_behind: bool) -> Fields:
        member, voters = self._member, sum(each.is_voter for each in status.replicas)
        is_learner = any(each.node == member.node and not each.is_voter for each in status.replicas)
        out: Fields = {
            "id": self._peer_id(member.node),
            "state": "CLOSED"
            if status.is_stopped
            else status.role.name
            if status.role.name in SETTLED
            else "CANDIDATE",
            "size": len(status.replicas),
            "quorum_needed": voters // 2 + 1,
        }
        out |= {"observer": True} if is_learner else {}
        out |= {"committed": status.committed, "applied": status.applied}
        out |= {"catching_up": True} if is_behind else {}
        out |= {"leader": self._peer_id(status.leader)} if status.leader else {}
        out |= {"leader_since": time_text(since_ns)} if status.leader == member.node else {}
        out |= {"ever_had_leader": bool(status.leader or status.committed), "term": status.term}
        out |= {"voted_for": self._peer_id(status.voted_for)} if status.voted_for else {}
        return out | {
            "pterm": last_term,
            "pindex": status.last,
            "system_account": True,
            "traffic_account": member.options.system_account,
            "ipq_proposal_len": status.proposals,
            "ipq_entry_len": 0,  # entries are handled as soon as they are read
            "ipq_resp_len": 0,
            "ipq_apply_len": status.queued,
            "wal": _log(status),
            "peers": {
                self._peer_id(each.node): self._peer(status, each)
                for each in status.replicas
                if each.node != member.node
            },
        }

    def _peer(self, status: GroupStatus, replica: Replica) -> Fields:
        state, quiet_ns = self._member.machine.state, self._member.quiet_ns(replica.node)
        out: Fields = {"name": self._name(replica.node), "known": replica.node in state.servers}
        if replica.lag is not None and status.last > replica.lag:
            out["last_replicated_index"] = status.last - replica.lag
        return out | ({"last_seen": duration_text(quiet_ns)} if quiet_ns else {})

    def _name(self, node: int) -> str:
        member = self._member
        return member.server_name if node == member.node else name_of(member.machine.state, node)

    def _peer_id(self, node: int) -> str:
        """Return the id of a peer in the form of nats-server: a digest of the name of its server."""
        return short_hash(self._name(node))


def _log(status: GroupStatus) -> Fields:
    """Return the state of a group's log in the form of a stream's state."""
    return {
        "messages": status.last - status.start,
        "bytes": status.log_size,
        "first_seq": status.start + 1,
        "first_ts": ZERO_TIME,
        "last_seq": status.last,
        "last_ts": ZERO_TIME,
        "consumer_count": 0,
    }
