"""The `nats` command with three servers of each kind: what it shows about a cluster, and what it changes.

Leaders are elected at random, so only the headers of tables are compared: each command must succeed on our servers
and on nats-servers, and must show or do what an operator expects.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness import cli
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.cluster import NAMES, ThreeServers, three
from tests.conformance.harness.process import our_command, peer_command
from tests.conformance.test_cluster_answers import COMMON, ready

NATS = cli.program()
if NATS is None or not is_here():
    pytest.skip("the nats command or the consensus engine is not here", allow_module_level=True)
SYSTEM = ("--user", "s", "--password", "s")
R = {"name": "R", "subjects": ["r"], "num_replicas": 3}
TWO = {"name": "TWO", "subjects": ["two"], "num_replicas": 2}
CONSUMERS = ("C", "D")  # nats-server counts each of these consumers as a replicated asset
WAIT_S = 60
REPORTS = {  # commands, and whether they need the system account
    "server list": True,
    "server report jetstream": True,
    "server report health": True,
    "server report routes": True,
    "stream report": False,
    "consumer report R": False,
    "stream ls": False,
}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ThreeServers]]:
    """Three servers of each kind, with two streams and three consumers."""
    peer = peer_command()
    if peer is None:
        pytest.skip("nats-server is not here")
    with ExitStack() as stack:
        found = {
            kind: stack.enter_context(three(command, tmp_path_factory.mktemp(kind), COMMON))
            for kind, command in (("ours", our_command()), ("peer", peer))
        }
        for running in found.values():
            fill(running)
        yield found


def fill(servers: ThreeServers) -> None:
    """Create the streams and consumers, and wait for their leaders."""
    ready(servers)
    asker = Asker(servers.client("a"))
    for config in (R, TWO):
        name = config["name"]
        asker.ask(f"$JS.API.STREAM.CREATE.{name}", config)
        asker.until(f"$JS.API.STREAM.INFO.{name}", is_led)
    for name in CONSUMERS:
        body = {"stream_name": "R", "config": {"name": name, "durable_name": name}}
        asker.ask(f"$JS.API.CONSUMER.CREATE.R.{name}", body)
        asker.until(f"$JS.API.CONSUMER.INFO.R.{name}", is_led)


def is_led(info: dict[str, Any]) -> bool:
    return bool(info.get("cluster", {}).get("leader"))  # replicas of an idle consumer may never be current


@pytest.fixture(params=["ours", "peer"])
def servers(request: pytest.FixtureRequest, clusters: dict[str, ThreeServers]) -> ThreeServers:
    return clusters[request.param]


def nats(servers: ThreeServers, tmp_path: Path, words: str, *login: str, status: int = 0) -> str:
    """Run the command on server b; return its output."""
    assert NATS is not None
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TZ": "UTC",
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
    url = f"nats://127.0.0.1:{servers.server('b').port}"
    done = subprocess.run(
        [NATS, "--server", url, *login, *words.split()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def leader_of(servers: ThreeServers, stream: str) -> str:
    asker = Asker(servers.client("a"))
    return str(asker.until(f"$JS.API.STREAM.INFO.{stream}", is_led)["cluster"]["leader"])


def meta_leader(servers: ThreeServers) -> str:
    page = servers.wait_page("a", "/jsz", lambda page: page["meta_cluster"].get("leader"))
    return str(page["meta_cluster"]["leader"])


def test_reports_show_all_servers_and_who_leads(servers: ThreeServers, tmp_path: Path) -> None:
    report = nats(servers, tmp_path, "server report jetstream", *SYSTEM)
    summary, group = report.split("RAFT Meta Group Information")
    leader = meta_leader(servers)
    assert f"{leader}*" in summary
    rows = re.findall(r"^│ (\w)\s+│ \w+\s+│ (yes|)\s+│ (\w+)\s+│ (\w+)\s+│", group, re.MULTILINE)
    assert sorted(rows) == sorted((name, "yes" if name == leader else "", "true", "true") for name in NAMES)
    listed = nats(servers, tmp_path, "server list", *SYSTEM)
    assert all(re.search(rf"│ {name} +│ TRIO ", listed) for name in NAMES)
    assert "│ R " in nats(servers, tmp_path, "stream report")
    account = nats(servers, tmp_path, "server report jetstream --account A", *SYSTEM)
    assert "JetStream Summary for Account A" in account


def headers(text: str) -> list[str]:
    """Return the titles and headers of tables, without the spaces that depend on the width of the values."""
    found = re.findall(r"^╭[^\n]*\n(.*?)^├[^\n]*\n(?:(│[^\n]*)\n├)?", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+", " ", line) for title in found for line in title if line]


@pytest.mark.parametrize("words", REPORTS)
def test_reports_have_the_same_tables(clusters: dict[str, ThreeServers], tmp_path: Path, words: str) -> None:
    login = SYSTEM if REPORTS[words] else ()
    found = {kind: headers(nats(each, tmp_path, words, *login)) for kind, each in clusters.items()}
    assert found["ours"] == found["peer"]
    assert found["ours"]


def test_checks_find_a_healthy_cluster(servers: ThreeServers, tmp_path: Path) -> None:
    meta = "server check meta --expect 3 --lag-critical 10 --seen-critical 5s"
    assert nats(servers, tmp_path, meta, *SYSTEM).startswith("OK")
    stream = "server check stream --stream R --peer-expect 3 --peer-lag-critical 10 --peer-seen-critical 5s"
    assert nats(servers, tmp_path, stream).startswith("OK")
    assert nats(servers, tmp_path, "server check jetstream").startswith("OK")
    assert "OK" in nats(servers, tmp_path, "server report health", *SYSTEM).upper()


def test_the_leader_of_the_metadata_steps_down(servers: ThreeServers, tmp_path: Path) -> None:
    before = meta_leader(servers)
    told = nats(servers, tmp_path, "server raft step-down", *SYSTEM)
    assert f'step down of "{before}" in a 3 peer RAFT group' in told
    assert "New leader elected" in told
    other = next(name for name in NAMES if name != meta_leader(servers))
    assert f'New leader elected "{other}"' in nats(
        servers, tmp_path, f"server cluster step-down --host {other}", *SYSTEM
    )


def test_servers_that_are_not_there_are_refused(servers: ThreeServers, tmp_path: Path) -> None:
    for words, login, text in (
        ("server cluster step-down --host zz", SYSTEM, 'preferred server "zz" not known'),
        ("server raft peer-remove zz --force", SYSTEM, "did not find a replica named zz"),
        ("stream cluster step-down R --preferred zz", (), 'preferred server "zz" not known'),
        ("consumer cluster step-down R C --preferred zz", (), 'preferred server "zz" not known'),
        ("stream cluster step-down NONE", (), "could not pick a Stream"),
        ("consumer cluster step-down R NONE", (), "nats: error"),
    ):
        assert text in nats(servers, tmp_path, words, *login, status=1), words


def test_the_leader_of_a_stream_and_of_a_consumer_steps_down(servers: ThreeServers, tmp_path: Path) -> None:
    before = leader_of(servers, "R")
    other = next(name for name in NAMES if name != before)
    told = nats(servers, tmp_path, f"stream cluster step-down R --preferred {other}")
    assert f'New leader elected "{other}"' in told
    assert leader_of(servers, "R") == other
    assert "New leader elected" in nats(servers, tmp_path, "consumer cluster step-down R C")
    asker = Asker(servers.client("a"))
    before = asker.until("$JS.API.CONSUMER.INFO.R.C", is_led)["cluster"]["leader"]
    other = next(name for name in NAMES if name != before)
    told = nats(servers, tmp_path, f"consumer cluster step-down R C --preferred {other}")
    assert f'New leader elected "{other}"' in told


def test_leaders_are_spread_over_the_servers(servers: ThreeServers, tmp_path: Path) -> None:
    assert "Balanced" in nats(servers, tmp_path, "stream cluster balance")
    leader_of(servers, "R")
    assert "Balanced" in nats(servers, tmp_path, "consumer cluster balance R")
    leader_of(servers, "R")


def test_connections_are_spread_over_the_servers(servers: ThreeServers, tmp_path: Path) -> None:
    assert "Balanced" in nats(servers, tmp_path, "server cluster balance 1s --force", *SYSTEM)
    servers.release()  # the clients that were disconnected


def test_a_replica_of_a_stream_moves_to_another_server(servers: ThreeServers, tmp_path: Path) -> None:
    asker = Asker(servers.client("a"))
    cluster = asker.ask("$JS.API.STREAM.INFO.TWO")["cluster"]
    gone = cluster["replicas"][0]["name"]
    assert "Requested removal" in nats(servers, tmp_path, f"stream cluster peer-remove TWO {gone}")
    wanted = sorted({*NAMES} - {gone})

    def moved(info: dict[str, object]) -> bool:
        found = info.get("cluster", {})
        assert isinstance(found, dict)
        return (
            sorted([found.get("leader", ""), *(row["name"] for row in found.get("replicas", ()))]) == wanted
        )

    asker.until("$JS.API.STREAM.INFO.TWO", moved)
    refused = nats(servers, tmp_path, "stream cluster peer-remove R a", status=1)
    assert "peer remap failed" in refused
    nats(servers, tmp_path, "stream cluster peer-remove R zz", status=1)


def test_a_server_that_will_not_come_back_is_removed(servers: ThreeServers, tmp_path: Path) -> None:
    lost = next(name for name in NAMES if name not in (meta_leader(servers), "b"))
    servers.server(lost).kill()
    left = [name for name in NAMES if name != lost]
    for name in left:
        servers.wait_page(name, "/varz", lambda page: page["remotes"] == 1)
    nats(servers, tmp_path, f"server raft peer-remove {lost} --force", *SYSTEM)
    for name in left:
        servers.wait_page(name, "/jsz", lambda page: page["meta_cluster"]["cluster_size"] == 2)
    assert f"│ {lost} " not in nats(servers, tmp_path, "server report jetstream", *SYSTEM)
