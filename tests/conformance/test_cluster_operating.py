"""Unreachable streams and streams that move: three of our servers answer like three nats-servers.

A stream is out of reach if all of its servers are offline, or if a newer server has created it. The second case is
produced on nats-servers by a proposal for the metadata, and in our servers, on a simulated network, by an entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.conformance.harness.asker import Asker
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.cluster import ThreeServers
from tests.conformance.harness.scenes import Scene, Stage
from tests.conformance.test_cluster_streams import COMMON, acks, api, error, led, ready
from tests.support.jetnet import JetNet

from pyjs.base.nuid import short_hash
from pyjs.jetstream.cluster.assignments import StoredConfig
from pyjs.jetstream.cluster.entries import StreamCreated
from pyjs.jetstream.config.stream import StreamConfig

pytestmark = [needs_peer, pytest.mark.timeout(300)]

TAGS = {"a": '"az:a", "front"', "b": '"az:b", "front", "back"', "c": '"az:c", "back"'}
SYSTEM = {"user": "s", "pass": "s"}
ASSIGN_STREAM = b"\x00"  # the type of this proposal in nats-server
NEWER = {"name": "NEWER", "subjects": ["newer"], "num_replicas": 1, "retention": "limits", "storage": "file"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    own = {name: f"server_tags: [{tags}]" for name, tags in TAGS.items()}
    made = Stage(Path(__file__), tmp_path_factory.mktemp("scenes"), COMMON, ready, own)
    yield made
    made.close()


# -- out of reach ------------------------------------------------------------------------------------------------


def a_stream_without_its_server(servers: ThreeServers) -> Any:
    """Kill the only server of a stream; return the reports about the stream, and the result of its deletion."""
    asker = Asker(servers.client("a"))
    for name in ("AWAY", "GONE"):
        config = {"name": name, "subjects": [name], "placement": {"tags": ["az:c"]}}
        api(asker, f"STREAM.CREATE.{name}", config)
        led(asker, name)
    consumer = {"stream_name": "AWAY", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    api(asker, "CONSUMER.CREATE.AWAY.C", consumer)
    acks(asker, "AWAY", 2)
    servers.server("c").stop()
    for name in ("a", "b"):
        servers.wait_page(name, "/varz", lambda page: page["remotes"] == 1)
    asker.until("$JS.API.STREAM.INFO.AWAY", lambda answer: "error" in answer)
    found: list[object] = []
    for name in ("a", "b"):
        client = Asker(servers.client(name))
        found.append(error(api(client, "STREAM.INFO.AWAY")))
        found.append(error(api(client, "CONSUMER.INFO.AWAY.C")))
        update = {"name": "AWAY", "subjects": ["AWAY"], "max_msgs": 7, "placement": {"tags": ["az:c"]}}
        found.append(error(api(client, "STREAM.UPDATE.AWAY", update)))
        found.append(_listed(api(client, "STREAM.LIST", {"subject": "AWAY"})))
        found.append([each for each in api(client, "STREAM.NAMES")["streams"] if each in ("AWAY", "GONE")])
    found.append(error(api(asker, "STREAM.DELETE.GONE")))
    found.append(error(api(asker, "STREAM.INFO.GONE")))
    servers.server("c").start()
    back = asker.until("$JS.API.STREAM.INFO.AWAY", lambda answer: "state" in answer)
    found.append([back["state"]["messages"], back["config"].get("max_msgs")])
    return found


def _listed(answer: dict[str, Any]) -> object:
    """Return a list without times and the random name of the group."""
    rows = []
    for info in answer["streams"]:
        cluster = info["cluster"]
        rows.append([[*info], [*info["state"].items()], [*cluster], cluster["name"], cluster.get("replicas")])
    return [answer["total"], rows, answer.get("missing"), answer.get("offline")]


def a_newer_server(servers: ThreeServers) -> Any:
    """Assign a stream with an option that no server knows; return the reports about it, and its deletion's result."""
    system = Asker(servers.client("a", **SYSTEM))
    group = {"name": "S-R1F-00000000", "peers": [short_hash("b")], "store": "file", "cluster": "TRIO"}
    assigned = {
        "client": {"acc": "A", "cluster": "TRIO"},
        "created": "2026-01-01T00:00:00Z",
        "stream": {**NEWER, "newest_option": True},
        "group": group,
        "sync": "_INBOX.newer",
    }
    data = ASSIGN_STREAM + json.dumps(assigned).encode()
    system.client.send(b"PUB $NRG.P._meta_ %d\r\n%b\r\n" % (len(data), data))
    asker = Asker(servers.client("c"))
    asker.until("$JS.API.STREAM.NAMES", lambda answer: "NEWER" in (answer["streams"] or ()))
    asker.until("$JS.API.STREAM.INFO.NEWER", lambda answer: "error" in answer)
    return _of_newer(lambda subject, body=None: api(asker, subject, body))


def _of_newer(ask: Any) -> Any:
    found: list[object] = [error(ask("STREAM.INFO.NEWER"))]
    listed = ask("STREAM.LIST", {"subject": "newer"})
    found.append([listed["streams"], listed.get("missing"), listed.get("offline")])
    found.append(error(ask("STREAM.DELETE.NEWER")))
    found.append(error(ask("STREAM.INFO.NEWER")))
    return found


def _newer_here(directory: Path) -> Any:
    """Return the same of our servers."""
    net = JetNet(directory)
    try:
        net.trio()
        values = {**NEWER, "subjects": ["newer"], "newest_option": True}
        stored = StoredConfig(values, StreamConfig(name="NEWER", subjects=("newer",)))
        leader = net.leader().member
        other = next(node for node in leader.machine.state.servers if node != leader.node)
        leader.turn.go_on(leader.propose(StreamCreated("$G", stored, (other,))))
        client = net.jet("c").client()
        net.run_until(lambda: bool(net.ask(client, "STREAM.NAMES")["streams"]))
        return _of_newer(lambda subject, body=None: net.answers(client, subject, body, wait_ms=2000)[0])
    finally:
        net.stop()


# -- moves -------------------------------------------------------------------------------------------------------


def _moved(asker: Asker, name: str, *wanted: str) -> dict[str, Any]:
    """Wait until only certain servers have a stream and their replicas are current; return its info."""

    def is_there(info: dict[str, Any]) -> bool:
        cluster = info.get("cluster", {})
        rows = cluster.get("replicas", ())
        names = sorted([cluster.get("leader", ""), *(row["name"] for row in rows)])
        return names == sorted(wanted) and all(row["current"] for row in rows)

    return asker.until(f"$JS.API.STREAM.INFO.{name}", is_there)


MOVES = (  # name, replicas, tag before and after, servers after
    ("ONE", 1, "az:a", "az:c", ("c",)),
    ("MEM", 1, "az:b", "az:a", ("a",)),
    ("TWO", 2, "front", "back", ("b", "c")),
    ("NOT", 1, "az:a", "!front", ("c",)),
)


def streams_move_to_other_tags(servers: ThreeServers) -> Any:
    """Change the placement of streams with one and two replicas: they move with their messages and consumers."""
    asker, other = Asker(servers.client("a")), Asker(servers.client("c"))
    found: list[object] = []

    def config(name: str, replicas: int, tag: str) -> dict[str, object]:
        storage = {"storage": "memory"} if name == "MEM" else {}
        place = {"placement": {"cluster": "TRIO", "tags": [tag]}}
        return {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas, **storage, **place}

    for name, replicas, old, _, _ in MOVES:
        found.append(error(api(asker, f"STREAM.CREATE.{name}", config(name, replicas, old))))
        led(asker, name)
        acks(asker, f"{name}.x", 3)
        consumer = {"stream_name": name, "config": {"durable_name": "C", "ack_policy": "explicit"}}
        found.append(error(api(asker, f"CONSUMER.CREATE.{name}.C", consumer)))
    for name, replicas, _, new, _ in MOVES:
        answer = api(other, f"STREAM.UPDATE.{name}", config(name, replicas, new))
        found.append([error(answer), answer.get("config", {}).get("num_replicas")])
    for name, _, _, _, wanted in MOVES:
        info = _moved(asker, name, *wanted)
        found.append([info["state"]["messages"], info["config"]["num_replicas"], info["config"]["placement"]])
        found.append(other.until(f"{name}.x", lambda ack: "seq" in ack, {"n": 4})["stream"])
        pending = asker.until(f"$JS.API.CONSUMER.INFO.{name}.C", lambda info: "num_pending" in info)
        found.append(pending["num_pending"])
    return found


def _sorted_tags(refusal: object) -> object:
    """Return an error whose tags are sorted: nats-server lists them in any order."""
    if not isinstance(refusal, list):
        return refusal
    tags = r"\[([^]]*)\]"
    text = re.sub(tags, lambda found: f"[{', '.join(sorted(found[1].split(', ')))}]", refusal[2])
    return [*refusal[:2], text]


def moves_that_no_server_fits(servers: ThreeServers) -> Any:
    """Request placements that are refused; the stream stays unchanged."""
    asker = Asker(servers.client("b"))
    config = {"name": "STAY", "subjects": ["stay"], "num_replicas": 2, "placement": {"tags": ["front"]}}
    api(asker, "STREAM.CREATE.STAY", config)
    led(asker, "STAY")
    found: list[object] = []
    for change in (
        {"placement": {"tags": ["gpu"]}},
        {"placement": {"tags": ["az:a", "gpu"]}},
        {"placement": {"tags": ["back", "!az:c"]}},
        {"placement": {"tags": ["!front", "!back"]}},
        {"placement": {"cluster": "OTHER"}},
        {"placement": {"tags": ["back"]}, "num_replicas": 1},
        {"placement": {"tags": ["back"]}, "num_replicas": 3},
        {"num_replicas": 3},
        {"num_replicas": 5},
        {"placement": None},
        {"placement": {"tags": ["FRONT"]}},
    ):
        answer = api(asker, "STREAM.UPDATE.STAY", {**config, **change})
        found.append([_sorted_tags(error(answer)), answer.get("config", {}).get("placement")])
        cluster = _moved(asker, "STAY", "a", "b")["cluster"]
        found.append(len(cluster["replicas"]))
    return found


def a_server_is_evacuated(servers: ThreeServers) -> Any:
    """Evacuate a server: streams with one replica move with their messages, or stay if they fit nowhere else."""
    asker, system = Asker(servers.client("a")), Asker(servers.client("a", **SYSTEM))
    for name in api(asker, "STREAM.NAMES")["streams"] or ():
        api(asker, f"STREAM.DELETE.{name}")
    for name, tag in (("GOES", "back"), ("ALSO", "back"), ("FAST", "az:c")):
        config = {"name": name, "subjects": [name], "placement": {"tags": [tag]}}
        api(asker, f"STREAM.CREATE.{name}", config)
        for number in range(2):
            asker.until(name, lambda ack, seq=number + 1: ack.get("seq") == seq, {"n": number})  # type: ignore[misc]
    found: list[object] = [error(api(system, "SERVER.EVACUATE", {"peer": "c"}))]
    for name, server in (("GOES", "b"), ("ALSO", "b"), ("FAST", "c")):
        info = _moved(asker, name, server)
        found.append([info["state"]["messages"], info["config"]["num_replicas"]])
    return found


def moves_that_are_not_there_are_cancelled(servers: ThreeServers) -> Any:
    """Cancel the move of a stream that is not moving, of a missing stream, and of a stream in a missing account."""
    asker, system = Asker(servers.client("b")), Asker(servers.client("b", **SYSTEM))
    api(asker, "STREAM.CREATE.RESTS", {"name": "RESTS", "subjects": ["rests"]})
    led(asker, "RESTS")
    found: list[object] = [api(asker, f"STREAM.CANCEL_MOVE.{name}", {}) for name in ("RESTS", "NONE")]
    found += [api(asker, "STREAM.CANCEL_MOVE.RESTS", {"unknown": 1})]
    for place in ("A.RESTS", "A.NONE", "NONE.RESTS"):
        found.append(api(system, f"ACCOUNT.STREAM.CANCEL_MOVE.{place}"))
    return found


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        a_stream_without_its_server,
        streams_move_to_other_tags,
        moves_that_no_server_fits,
        moves_that_are_not_there_are_cancelled,
        a_server_is_evacuated,
    )
}


@pytest.mark.parametrize("name", SCENES)
def test_operators_and_clients_see_the_same(stage: Stage, name: str) -> None:
    ours, peer = stage.both(SCENES[name], name)
    assert ours == peer


def test_a_stream_of_a_newer_server_is_refused_alike(stage: Stage, tmp_path: Path) -> None:
    assert _newer_here(tmp_path) == stage.peer(a_newer_server, "a_newer_server")
