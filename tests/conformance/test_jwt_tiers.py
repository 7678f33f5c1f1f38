"""JetStream limits of an account by tier: the tier of one replica counts, other tiers permit nothing."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.jwt_clients import TokenClient, World

from pyjs.testing.jwt import Key, user_token

pytestmark = needs_peer
R1 = {"mem_storage": 1000, "disk_storage": 4000, "streams": 2, "consumer": 1}
R3 = {"mem_storage": 1 << 20, "disk_storage": 1 << 20, "streams": 9, "consumer": 9}


def stream(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    return f"STREAM.CREATE.{name}", {"name": name, "subjects": [name.lower()], **config}


def consumer(name: str) -> tuple[str, dict[str, Any]]:
    config = {"durable_name": name, "ack_policy": "explicit"}
    return f"CONSUMER.CREATE.A.{name}", {"stream_name": "A", "config": config}


REQUESTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "streams": [stream("A"), stream("B"), stream("C")],
    "bytes of files": [stream("A", max_bytes=3000), stream("B", max_bytes=2000)],
    "bytes of memory": [stream("A", max_bytes=2000, storage="memory"), stream("B", max_bytes=900)],
    "consumers": [stream("A"), consumer("a"), consumer("b")],
    "replicas": [stream("A", num_replicas=3), stream("B", num_replicas=7)],
    "an update of replicas": [stream("A"), ("STREAM.UPDATE.A", {"name": "A", "num_replicas": 3})],
    "an update": [stream("A", max_bytes=1000), ("STREAM.UPDATE.A", {"name": "A", "max_bytes": 5000})],
}
TIERS = {"R1 and R3": {"R1": R1, "R3": R3}, "R1": {"R1": R1}, "an unknown one": {"R7": R3}}
CASES = [(name, tiers) for name in REQUESTS for tiers in TIERS]


@pytest.mark.parametrize(("name", "tiers"), CASES)
def test_the_limits_of_one_replica_count(tmp_path: Path, name: str, tiers: str) -> None:
    world, account, user = World(), Key("account"), Key("user")
    world.add(account, "A", limits={"tiered_limits": TIERS[tiers]})

    def look(server: ServerProcess) -> Any:
        with closing(TokenClient(server.port, user_token(account, user), user)) as client:
            answers = [ask(client, subject, body).get("error") for subject, body in REQUESTS[name]]
            stored = [json.loads(client.request(b"a", b"x" * 1500) or b"{}").get("error") for _ in range(3)]
            return answers, stored

    peer, ours = of_both(tmp_path, world.config('jetstream { store_dir: "<<store>>" }'), look)
    assert ours == peer


def ask(client: TokenClient, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        client.request(b"$JS.API." + subject.encode(), json.dumps(body).encode())
    )
    return answer
