"""The cluster as one server sees it: `cluster` of streams and consumers, `meta_cluster` of monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.cluster.reports import (
    Backlog,
    ConsumerName,
    GroupStatus,
    PeerStatus,
    consumer_cluster,
    meta_cluster,
    stream_cluster,
)

if TYPE_CHECKING:
    from typing import Any

    from pyjs.jetstream.consumer.consumer import Consumer
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.jetstream.stream.stream import Stream


class Reports:
    """The reports of one server."""

    def __init__(self, member: MemberNode) -> None:
        self._member = member
        self._traffic = member.options.system_account  # the account that nats-server sends entries in

    def meta(self) -> dict[str, Any]:
        """Return `meta_cluster`."""
        machine, status = self._member.machine, self._member.meta_status()
        replicas = [] if status is None else status.replicas
        peers = tuple(
            PeerStatus(
                each.node,
                each.node in self._member.online and not each.lag,
                self._member.quiet_ns(each.node),
                each.node not in self._member.online,
                each.lag or 0,
            )
            for each in replicas
            if each.node != self._member.node
        )
        voters = sum(each.is_voter for each in replicas)
        backlog = Backlog(voters, machine.pending, machine.entries, machine.size, machine.snapshot_ns)
        group = GroupStatus(machine.leader, 0, peers)
        return meta_cluster(machine.state, self._member.options.cluster.name, group, backlog)

    def stream(self, js: JetStream, stream: Stream) -> dict[str, Any]:
        """Return the `cluster` object of an open stream."""
        name = self._member.options.cluster.name
        assigned = self._member.machine.state.stream(js.account.name, stream.name)
        if assigned is None:
            return {"name": name, "leader": js.shared.server_name}
        replicated = js.shared.replicated
        if replicated is not None and replicated.is_replica(stream):
            fields: dict[str, Any] = replicated.cluster_fields(stream)
            return fields | {"traffic_account": self._traffic}
        return stream_cluster(
            self._member.machine.state, name, assigned, GroupStatus(self._member.node), self._traffic
        )

    def consumer(self, js: JetStream, consumer: Consumer) -> dict[str, Any]:
        """Return the `cluster` object of an open consumer."""
        name = self._member.options.cluster.name
        stream = self._member.machine.state.stream(js.account.name, consumer.stream_name)
        if stream is None:
            return {"name": name, "leader": js.shared.server_name}
        found = ConsumerName(consumer.name, consumer.config.num_replicas)
        return consumer_cluster(
            self._member.machine.state, name, stream, found, GroupStatus(self._member.node), self._traffic
        )
