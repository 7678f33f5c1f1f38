"""Advisories of groups: their subjects, and their fields in nats-server's order."""

from __future__ import annotations

from pyjs.jetstream.cluster.advisories import (
    consumer_leader,
    meta_leader,
    server_removed,
    stream_leader,
    stream_quorum_lost,
)


def test_each_advisory_has_its_subject_its_kind_and_its_fields() -> None:
    found = [
        stream_leader("S", "n1", [], "A"),
        stream_quorum_lost("S", [], "A"),
        consumer_leader("S", "C", "n1", [], "A"),
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
            "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.S.C",
            "advisory.v1.consumer_leader_elected",
            ["account", "stream", "consumer", "leader", "replicas"],
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


def test_its_own_account_gets_an_advisory_without_the_account() -> None:
    assert list(stream_leader("S", "n1", []).fields) == ["stream", "leader", "replicas"]
