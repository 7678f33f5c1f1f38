"""JetStream on three real processes: its metadata, streams on different servers, kill -9 and restarts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.cluster import NAMES, ThreeServers, three
from tests.conformance.harness.process import our_command

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

pytestmark = pytest.mark.timeout(300)  # seconds: servers start many times, on a busy machine
JETSTREAM = 'jetstream { store_dir: "<<store>>", max_file_store: 1GB, max_memory_store: 100MB }'
STREAMS = [f"S{number}" for number in range(6)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServers]:
    with three(our_command(), tmp_path_factory.mktemp("cluster"), JETSTREAM) as running:
        yield running


def leader(servers: ThreeServers, *names: str) -> str:
    """Wait until the named servers follow a leader that is one of them; return its name."""

    def agreed(page: Any) -> bool:
        meta = page["meta_cluster"]
        return meta.get("leader") in names and meta["cluster_size"] == len(NAMES)

    found: set[str] = set()
    while len(found) != 1:
        pages = [servers.wait_page(name, "/jsz", agreed) for name in names]
        found = {page["meta_cluster"]["leader"] for page in pages}
    return found.pop()


def healthy(servers: ThreeServers, *names: str) -> None:
    for name in names:
        servers.wait_page(name, "/jsz?streams=true", lambda page: "meta_cluster" in page)
        servers.wait_healthy(name)


def request(servers: ThreeServers, through: str, subject: str, body: object = None) -> dict[str, Any]:
    """Return the answer to a request; it is repeated if a new leader is elected meanwhile."""
    return Asker(servers.client(through)).until(
        f"$JS.API.{subject}", lambda answer: bool(answer) and "error" not in answer, body
    )


def create(servers: ThreeServers, through: str, name: str) -> dict[str, Any]:
    """Create a stream with one replica, or find it if the first answer was lost."""
    return request(servers, through, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})


def names_at(servers: ThreeServers, name: str) -> list[str]:
    """Return the names of all streams, requested from one server."""
    found: list[str] = request(servers, name, "STREAM.NAMES")["streams"]
    return found


def test_streams_of_one_replica_are_spread_and_outlive_their_leader_and_new_starts(
    servers: ThreeServers,
) -> None:
    first = leader(servers, *NAMES)
    healthy(servers, *NAMES)

    for number, stream in enumerate(STREAMS):
        assert create(servers, NAMES[number % 3], stream)["config"]["name"] == stream
    homes = {stream: request(servers, "a", f"STREAM.INFO.{stream}") for stream in STREAMS}
    by_server = sorted(info["cluster"]["leader"] for info in homes.values())
    assert by_server == ["a", "a", "b", "b", "c", "c"]
    for name in NAMES:
        assert names_at(servers, name) == STREAMS
        listed = request(servers, name, "STREAM.LIST")["streams"]
        assert [each["config"]["name"] for each in listed] == STREAMS
        # A server may not know yet that another server's stream takes the subject.
        Asker(servers.client(name)).until("S1.x", lambda ack: ack.get("stream") == "S1", {"n": 1})

    servers.release()
    servers.server(first).kill()
    left = [name for name in NAMES if name != first]
    leader(servers, *left)
    assert create(servers, left[0], "AFTER")["config"]["name"] == "AFTER"
    servers.server(first).start()
    leader(servers, *NAMES)
    healthy(servers, *NAMES)
    assert names_at(servers, first) == ["AFTER", *STREAMS]

    servers.release()
    for name in NAMES:
        servers.server(name).kill()
    servers.start_processes(*NAMES)
    leader(servers, *NAMES)
    healthy(servers, *NAMES)
    for name in NAMES:
        assert names_at(servers, name) == ["AFTER", *STREAMS]
    state = request(servers, "b", "STREAM.INFO.S1")["state"]
    # a publish with a late answer was repeated and is stored twice
    assert state["messages"] == state["last_seq"] >= 3
    assert request(servers, "c", "STREAM.INFO.S1")["config"] == homes["S1"]["config"]


def stream_leader(servers: ThreeServers, through: str, stream: str) -> str:
    """Wait until a stream has a leader; return its name."""
    asker = Asker(servers.client(through))
    info = asker.until(f"$JS.API.STREAM.INFO.{stream}", lambda answer: "leader" in answer.get("cluster", {}))
    found: str = info["cluster"]["leader"]
    return found


def publish(asker: Asker, numbers: range) -> dict[int, int]:
    """Publish messages in sequence, each until it is acknowledged; return the number by sequence."""
    return {asker.until("r.x", lambda ack: "seq" in ack, {"n": n})["seq"]: n for n in numbers}


def stored(servers: ThreeServers, through: str, seqs: dict[int, int]) -> dict[int, int]:
    """Return the numbers in the messages of a stream, by sequence."""
    found = {}
    for seq in seqs:
        message = request(servers, through, "STREAM.MSG.GET.R", {"seq": seq})["message"]
        found[seq] = json.loads(base64.b64decode(message["data"]))["n"]
    return found


def test_a_replicated_stream_outlives_its_leader_and_new_starts(servers: ThreeServers) -> None:
    leader(servers, *NAMES)
    config = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}
    assert request(servers, "b", "STREAM.CREATE.R", config)["config"]["num_replicas"] == 3

    acked: dict[int, int] = {}
    for at, name in enumerate(NAMES):
        acked |= publish(Asker(servers.client(name)), range(10 * at, 10 * at + 10))
    first = stream_leader(servers, "a", "R")
    servers.release()
    servers.server(first).kill()
    left = [name for name in NAMES if name != first]
    for at, name in enumerate(left, 3):
        acked |= publish(Asker(servers.client(name)), range(10 * at, 10 * at + 10))
    assert stored(servers, left[0], acked) == acked

    servers.release()
    for name in left:
        servers.server(name).kill()
    servers.start_processes(*NAMES)
    leader(servers, *NAMES)
    for name in NAMES:
        stream_leader(servers, name, "R")
        assert stored(servers, name, acked) == acked
