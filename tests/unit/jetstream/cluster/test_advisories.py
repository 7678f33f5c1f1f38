"""Advisories of groups: their subjects, and their fields in nats-server's order."""

from __future__ import annotations

from pyjs.jetstream.cluster.advisories import meta_leader, server_removed, stream_leader, stream_quorum_lost


def test_each_advisory_has_its_subject_its_kind_and_its_fields() -> None:
    found = [
        stream_leader("A", "S", "n1", []),
        stream_quorum_lost("A", "S", []),
        meta_leader("n1", [], "TRIO"),
        server_removed("n1", "NABC", "TRIO"),
    ]
    assert [(each.subject, each.kind, list(each.fields)) for each in found] == [
        (
            "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.S",
            "advisory.v1.stream_leader_elected",
            ["account", "stream", "leader", "replicas"],
        ),
        (
            "$JS.EVENT.ADVISORY.STREAM.QUORUM_LOST.S",
            "advisory.v1.stream_quorum_lost",
            ["account", "stream", "replicas"],
        ),
        (
            "$JS.EVENT.ADVISORY.DOMAIN.LEADER_ELECTED",
            "advisory.v1.domain_leader_elected",
            ["leader", "replicas", "cluster"],
        ),
        (
            "$JS.EVENT.ADVISORY.SERVER.REMOVED",
            "advisory.v1.server_removed",
            ["server", "server_id", "cluster"],
        ),
    ]
