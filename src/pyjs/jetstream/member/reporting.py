"""Reports about the cluster: the field `cluster` of streams and consumers, and `meta_cluster` of monitoring pages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyjs.jetstream.cluster.reports import (
    Backlog,
    ConsumerName,
    GroupStatus,
    PeerStatus,
    away_cluster,
    consumer_cluster,
    meta_cluster,
    name_of,
    stream_cluster,
)

if TYPE_CHECKING:
    from typing import Any

    from pyjs.jetstream.admission import Admission
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.consumer.consumer import Consumer
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.jetstream.stream.stream import Stream


class Reports:
    """The cluster reports of one server, each composed when it is requested."""

    def __init__(self, member: MemberNode) -> None:
        self._member = member
        self._traffic = member.options.system_account  # the account in which nats-server sends entries

    def meta(self, admission: Admission | None = None) -> dict[str, Any]:
        """Return the value of `meta_cluster` in the answer of /jsz; `admission` has the waiting API requests."""
        member, machine = self._member, self._member.machine
        status = member.meta_status()
        replicas = [] if status is None else [(each, status.lag_of(each)) for each in status.replicas]
        peers = tuple(self._peer(each.node, lag) for each, lag in replicas if each.node != member.node)
        voters = sum(each.is_voter for each, _ in replicas)
        waiting = (0, 0) if admission is None else (admission.changes.total, admission.infos.total)
        backlog = Backlog(voters, *waiting, machine.entries, machine.size, machine.snapshot_ns)
        group = GroupStatus(machine.leader, 0, peers)
        return meta_cluster(machine.state, member.options.cluster.name, group, backlog)

    def _peer(self, node: int, lag: int) -> PeerStatus:
        is_online = node in self._member.online
        return PeerStatus(node, is_online and not lag, self._member.quiet_ns(node), not is_online, lag)

    def stream(self, js: JetStream, stream: Stream) -> dict[str, Any]:
        """Return the `cluster` object of an open stream."""
        name, state = self._member.options.cluster.name, self._member.machine.state
        assigned = state.stream(js.account.name, stream.name)
        if assigned is None:
            return {"name": name, "leader": js.shared.server_name}
        return stream_cluster(state, name, assigned, self._status(js, stream), self._traffic)

    def led_by(self, js: JetStream, stream: Stream) -> tuple[str, str]:
        """Return the names of an open stream's leader and of its group, which is "" for a single replica."""
        state, replicated = self._member.machine.state, js.shared.replicated
        assigned = state.stream(js.account.name, stream.name)
        if assigned is None:
            return js.shared.server_name, ""
        machine = None if replicated is None else replicated.machine_of(stream)
        leader = self._member.node if machine is None else machine.leader
        return name_of(state, leader), assigned.raft_group if len(assigned.replicas) > 1 else ""

    def shown_config(self, js: JetStream, stream: Stream) -> StreamConfig:
        """Return the configuration of an open stream, with the number of replicas that clients have requested."""
        assigned = self._member.machine.state.stream(js.account.name, stream.name)
        wanted = stream.config.num_replicas if assigned is None else assigned.shown_config.num_replicas
        return (
            stream.config
            if wanted == stream.config.num_replicas
            else replace(stream.config, num_replicas=wanted)
        )

    def away(self, stream: Assignment, now_ns: int) -> dict[str, Any]:
        """Return the info of a stream whose servers are all offline; `now_ns` is the time of the wall clock."""
        from pyjs.jetstream.manage.stream_info import away_info  # imported with the first stream

        member = self._member
        cluster = away_cluster(member.machine.state, member.options.cluster.name, stream)
        return away_info(stream.shown_config, stream.created_ns, cluster, now_ns)

    def alternates(self, js: JetStream, stream: Stream) -> dict[str, Any]:
        """Return the field `alternates`, which lists a stream and its mirrors, or {} if there are no mirrors."""
        streams = self._member.machine.state.accounts.get(js.account.name)
        mirrors = [] if streams is None else streams.mirrors(stream.name)
        domain = {"domain": js.options.domain} if js.options.domain else {}
        place = {**domain, "cluster": self._member.options.cluster.name}
        return (
            {"alternates": [{"name": each, **place} for each in (stream.name, *mirrors)]} if mirrors else {}
        )

    def consumer(self, js: JetStream, consumer: Consumer) -> dict[str, Any]:
        """Return the `cluster` object of an open consumer, which is in the group of its stream."""
        name, state = self._member.options.cluster.name, self._member.machine.state
        assigned, stream = (
            state.stream(js.account.name, consumer.stream_name),
            js.streams.get(consumer.stream_name),
        )
        if assigned is None or stream is None:
            return {"name": name, "leader": js.shared.server_name}
        found = ConsumerName(consumer.name, consumer.config.num_replicas)
        return consumer_cluster(state, name, assigned, found, self._status(js, stream), self._traffic)

    def _status(self, js: JetStream, stream: Stream) -> GroupStatus:
        """Return the status of a stream's group; for a stream without a group, this server counts as the leader."""
        replicated, member = js.shared.replicated, self._member
        machine = None if replicated is None else replicated.machine_of(stream)
        if replicated is None or machine is None:
            return GroupStatus(member.node)
        found = replicated.group_status(machine)
        peers = [replace(each, active_ns=member.quiet_ns(each.node)) for each in found.peers]
        return replace(found, peers=tuple(peers))
