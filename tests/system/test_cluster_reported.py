"""Faults that users of nats-server have reported, played on three or five of our servers.

Each scene returns what was lost or stuck. With PYJS_REPORTED_PEER=1 nats-servers play the scenes too, and both
results are printed (-s): docs/cluster.md has the table. `make cluster-jetstream` plays them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.cluster import NAMES, NodeClient, ThreeServers, three
from tests.conformance.harness.process import ServerFailed, our_command, peer_command

if not (is_here() and os.environ.get("PYJS_CLUSTER_PROCESSES")):
    pytest.skip("many real processes: make cluster-jetstream", allow_module_level=True)

pytestmark = pytest.mark.timeout(600)  # seconds: servers start many times
COMMON = """
jetstream { store_dir: "<<store>>", max_file_store: 1GB, max_memory_store: 100MB, sync_interval: always }
accounts { A { users: [{user: a, password: a}], jetstream: enabled }, SYS { users: [{user: s, password: s}] } }
no_auth_user: a
system_account: SYS
"""
FIVE = ("a", "b", "c", "d", "e")
PATIENCE_S = 30.0  # time in which the cluster must recover by itself
Outcome = dict[str, Any]
KINDS = ["ours", "peer"] if os.environ.get("PYJS_REPORTED_PEER") else ["ours"]


class Scene:
    """Servers, and clients that continue when a server is lost."""

    def __init__(self, servers: ThreeServers, directory: Path) -> None:
        self.servers = servers
        self.directory = directory
        self.acked: dict[int, int] = {}  # sequence -> number of the message

    def asker(self, name: str) -> Asker:
        """Return a client of a server."""
        return Asker(self.servers.client(name))

    def ask(self, name: str, subject: str, body: object = None, **login: object) -> dict[str, Any]:
        """Send a request once and wait for two seconds; return the answer, or an empty one."""
        with suppress(OSError):
            asker = Asker(self.servers.client(name, **login))
            found = asker._answers([asker._send(subject, body)], time.monotonic() + 2)
            return found[0] if found else {}
        return {}

    def until(
        self, name: str, subject: str, holds: Callable[[dict[str, Any]], object], body: object = None
    ) -> Any:
        """Repeat a request until its answer is right; return it, or None after a time limit."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self.ask(name, subject, body)
            if answer and holds(answer):
                return answer
            time.sleep(0.1)  # polling: no event signals the requested state
        return None

    def create(self, replicas: int = 3, **options: object) -> None:
        """Create the stream R with a consumer."""
        for name in self.servers.names:
            self.servers.wait_healthy(name)
        config = {"name": "R", "subjects": ["r.>"], "num_replicas": replicas, **options}
        assert self.until("a", "$JS.API.STREAM.CREATE.R", lambda answer: "config" in answer, config)
        body = {
            "stream_name": "R",
            "config": {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 10**9},
        }
        assert self.until("a", "$JS.API.CONSUMER.CREATE.R.C", lambda answer: "config" in answer, body)

    def publish(self, through: str, count: int, subject: str = "r.x") -> None:
        """Publish messages, and record the acknowledged ones."""
        for _ in range(count):
            number = len(self.acked)
            ack = self.ask(through, subject, {"n": number})
            if "seq" in ack:
                self.acked[ack["seq"]] = number
        self.servers.release()

    def leader(self, through: str, *not_these: str) -> str:
        """Wait for a leader of the stream; return its name, or "" if there is none in time."""
        found = self.until(
            through,
            "$JS.API.STREAM.INFO.R",
            lambda info: info.get("cluster", {}).get("leader") not in (None, "", *not_these),
        )
        return str(found["cluster"]["leader"]) if found else ""

    def lost(self, through: str) -> int:
        """Return the number of acknowledged messages that a client does not find."""
        client = self.asker(through)
        count = 0
        for seq in self.acked:
            inbox = client._send("$JS.API.STREAM.MSG.GET.R", {"seq": seq})
            found = client._answers([inbox], time.monotonic() + 5)
            count += not (found and "message" in found[0])
        self.servers.release()
        return count

    def restart(self, *names: str) -> bool:
        """Start servers; return whether they become healthy in time."""
        try:
            self.servers.start_processes(*names)
        except ServerFailed:
            return False
        return self.well(*names)

    def well(self, *names: str) -> bool:
        """Return whether servers become healthy in time."""
        deadline = time.monotonic() + PATIENCE_S
        for name in names:
            while True:
                with suppress(OSError):
                    self.servers.page(name, "/healthz")
                    break
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.05)
        return True

    def move_to(self, name: str) -> bool:
        """Make a server the leader of the stream; return whether it is."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self.leader(name) == name:
                return True
            wanted = {"placement": {"preferred": name}}
            self.ask(name, "$JS.API.STREAM.LEADER.STEPDOWN.R", wanted)
            time.sleep(0.2)  # the time of an election
        return False

    def states(self) -> list[Any]:
        """Return the state of the stream on each server."""
        found = []
        for name in self.servers.names:
            page = self.servers.page(name, "/jsz?streams=1&acc=A")
            for account in page.get("account_details", ()):
                for each in account.get("stream_detail", ()):
                    state = each["state"]
                    found.append([state["messages"], state["first_seq"], state["last_seq"]])
        return found

    def contents(self, name: str) -> list[Any]:
        """Return a server's message for each sequence, while it is the leader."""
        if not self.move_to(name):
            return [f"{name} does not lead"]
        client, found = self.asker(name), []
        for seq in self.acked:
            inbox = client._send("$JS.API.STREAM.MSG.GET.R", {"seq": seq})
            answers = client._answers([inbox], time.monotonic() + 5)
            found.append(answers[0].get("message") if answers else None)
        self.servers.release()
        return found

    def alike(self) -> bool:
        """Return whether all replicas have the same state after a while."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            states = self.states()
            if len(states) == len(self.servers.names) and all(each == states[0] for each in states):
                return True
            time.sleep(0.1)
        return False

    def consumes(self, through: str) -> bool:
        """Return whether the consumer delivers a new message in time and accepts its acknowledgement."""
        self.publish(through, 1)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            client = self.servers.client(through)
            body = b'{"batch": 500, "expires": 1000000000}'
            subject = b"$JS.API.CONSUMER.MSG.NEXT.R.C"
            client.send(b"SUB _INBOX.c 1\r\nPUB %b _INBOX.c %d\r\n%b\r\n" % (subject, len(body), body))
            until_s = time.monotonic() + 1.5
            while time.monotonic() < until_s:
                if len(self.acked) - 1 in self._acknowledged(client):
                    return True
                time.sleep(0.02)
        return False

    def _acknowledged(self, client: NodeClient) -> list[int]:
        """Acknowledge the messages that a client received; return their numbers."""
        client.fence()
        got = [frame for frame in client.take() if frame[2]]
        for frame in got:
            client.send(b"PUB %b 0\r\n\r\n" % frame[2])
        client.fence()
        return [json.loads(frame[4])["n"] for frame in got]


def flip(path: Path, at: int, count: int = 1) -> None:
    """Flip a bit in each of `count` bytes of a file: the one at offset `at`, and others 97 bytes apart."""
    with path.open("r+b") as file:
        for n in range(count):
            file.seek(at + 97 * n)
            byte = file.read(1)
            file.seek(at + 97 * n)
            file.write(bytes([byte[0] ^ 4]))


def damaged_messages(scene: Scene, *, killed: bool = False) -> Outcome:
    """Flip a bit in the messages of one server while it is down; then make it the leader."""
    scene.create()
    scene.publish("a", 200)
    victim = next(name for name in NAMES if name != scene.leader("a"))
    (scene.servers.server(victim).kill if killed else scene.servers.server(victim).stop)()
    store = scene.directory / victim / "store"
    files = [path for path in store.rglob("*") if path.is_file() and is_of_messages(path)]
    path = max(files, key=lambda path: path.stat().st_size)
    data = path.read_bytes()
    flip(path, data.index(b'{"n": 100}') + 7)
    is_well = scene.restart(victim)
    told = scene.servers.server(victim).logged("1 message from ", PATIENCE_S)
    is_well &= scene.well(victim)
    leads = scene.move_to(victim)
    lost = scene.lost(victim)
    page = scene.servers.page(victim, "/jsz?scrub=1")
    counted = page.get("repaired_msgs", 0), page.get("lost_msgs", 0)
    contents = [scene.contents(name) for name in NAMES]
    scene.servers.release()
    for name in NAMES:
        scene.servers.server(name).stop()
    return {
        "well": is_well,
        "leads": leads,
        "lost": lost,
        "told": told,
        "counted": counted,
        "alike": all(each == contents[0] for each in contents),
        "clean": is_clean(store),
    }


def damaged_after_kill(scene: Scene) -> Outcome:
    """Do the same to a server that was killed: no index file shows what was damaged."""
    return damaged_messages(scene, killed=True)


def is_clean(store: Path) -> bool:
    """Return whether fsck finds nothing in a store."""
    found = subprocess.run([*our_command(), "fsck", str(store)], capture_output=True, check=False)
    return found.returncode == 0


def is_of_messages(path: Path) -> bool:
    """Return whether a file contains messages of a stream, and is not the log of a group."""
    return not {"_js_", ".raft"} & set(path.parts) and b'{"n": 100}' in path.read_bytes()


def damaged_metadata(scene: Scene) -> Outcome:
    """Flip bits in the metadata of one server while it is down."""
    scene.create()
    scene.publish("a", 50)
    for name in NAMES:  # a stop writes snapshots
        scene.servers.server(name).stop()
    victim = "c"
    store = scene.directory / victim / "store"
    hit = 0
    for path in store.rglob("*"):
        is_meta = path.parts[-3:-1] == ("_meta_", "snapshots") or path.parent.name == ".raft"
        if is_meta and path.is_file() and path.stat().st_size and path.suffix not in (".spare",):
            flip(path, min(40, path.stat().st_size // 2), 1)
            hit += 1
    is_well = scene.restart(*NAMES)
    if not is_well:
        return {"files": hit > 0, "well": False}
    names = [sorted(scene.ask(name, "$JS.API.STREAM.NAMES").get("streams") or ()) for name in NAMES]
    return {
        "files": hit > 0,
        "well": is_well,
        "names": names,
        "alike": scene.alike(),
        "lost": scene.lost("a"),
    }


def many_kills(scene: Scene) -> Outcome:
    """Kill one to three servers, six times, while clients publish messages."""
    scene.create()
    rng = random.Random(1)
    for _ in range(6):
        scene.publish(rng.choice(NAMES), 20)
        lost = rng.sample(NAMES, rng.randint(1, 3))
        for name in lost:
            scene.servers.server(name).kill()
        scene.restart(*lost)
    is_well = scene.well(*NAMES)
    names = [scene.ask(name, "$JS.API.STREAM.NAMES").get("streams") for name in NAMES]
    return {"well": is_well, "names": names, "lost": scene.lost("b"), "alike": scene.alike()}


def leader_restarts(scene: Scene) -> Outcome:
    """Stop the server that leads all groups, and restart it; a consumer continues."""
    scene.create()
    scene.publish("a", 20)
    found = []
    for _ in range(3):
        victim = scene.leader("a") or "a"
        scene.servers.release()
        scene.servers.server(victim).stop()
        other = next(name for name in NAMES if name != victim)
        scene.leader(other, victim)
        found.append(scene.consumes(other))
        scene.restart(victim)
        found.append(scene.consumes(victim))
    return {"consumes": found, "lost": scene.lost("a")}


def all_are_replaced(scene: Scene) -> Outcome:
    """Replace all servers, one at a time, by new ones with other names and empty stores."""
    scene.create()
    scene.publish("a", 20)
    servers, found = scene.servers, []
    login = {"user": "s", "pass": "s"}
    for name in NAMES:
        others = [other for other in NAMES if other != name]
        server = servers.server(name)
        old = server.name
        servers.release()
        server.kill()
        shutil.rmtree(scene.directory / name / "store")
        server.name = f"{name}2"
        server.start()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if scene.ask(others[0], "$JS.API.SERVER.REMOVE", {"peer": old}, **login).get("success"):
                break
            time.sleep(0.2)
        found.append(
            bool(scene.until(others[0], "$JS.API.STREAM.INFO.R", lambda info, old=old: has_all(info, old)))
        )
    return {"replicas": found, "consumes": scene.consumes("a"), "lost": scene.lost("a")}


def has_all(info: dict[str, Any], old: str) -> bool:
    """Return whether a stream has three complete replicas, none of them on an old server."""
    cluster = info.get("cluster", {})
    rows = cluster.get("replicas", ())
    names = {cluster.get("leader"), *(row["name"] for row in rows)}
    return old not in names and len(rows) == 2 and all(row["current"] for row in rows)


def one_falls_behind(scene: Scene) -> Outcome:
    """Publish with expected sequences while a server is down; after its restart it must get all messages."""
    scene.create(max_msgs_per_subject=1)
    scene.publish("a", 50)
    victim = next(name for name in NAMES if name != scene.leader("a"))
    other = next(name for name in NAMES if name != victim)
    found = []
    for _ in range(3):
        scene.servers.server(victim).kill()
        asker = scene.asker(other)
        asker.until("r.x", lambda ack: "seq" in ack, {"n": 0})
        info = asker.ask("$JS.API.STREAM.INFO.R")
        last = info["state"]["last_seq"]
        for n in range(300):
            head = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % last
            asker.client.send(b"SUB _INBOX.w 1\r\nUNSUB 1 1\r\n")
            body = b'{"n": %d}' % n
            asker.client.send(
                b"HPUB r.x _INBOX.w %d %d\r\n%b%b\r\n" % (len(head), len(head) + len(body), head, body)
            )
            asker.client.wait_for_any()
            last = json.loads(asker.client.take()[0][4]).get("seq", last)
        scene.servers.release()
        scene.restart(victim)
        found.append(scene.alike())
    return {"alike": found}


def limits_and_kills(scene: Scene) -> Outcome:
    """Kill leaders of a stream that discards old messages, is purged and loses messages; replicas must stay equal."""
    scene.create(max_msgs=30, retention="limits")
    for round_ in range(4):
        scene.publish(NAMES[round_ % 3], 40)
        scene.ask("b", "$JS.API.STREAM.MSG.DELETE.R", {"seq": max(scene.acked) - 5})
        scene.ask("c", "$JS.API.STREAM.PURGE.R", {"keep": 20})
        victim = scene.leader("a") or "a"
        scene.servers.release()
        scene.servers.server(victim).kill()
        other = next(name for name in NAMES if name != victim)
        scene.publish(other, 20)
        scene.restart(victim)
    return {"alike": scene.alike(), "states": len({str(state) for state in scene.states()})}


def removal_during_faults(scene: Scene) -> Outcome:
    """Pause one of five servers, kill three, request the removal of another; then all come back."""
    scene.create(replicas=5)
    scene.publish("e", 30)
    scene.servers.server("a").signal("STOP")
    scene.publish("e", 30)
    for name in ("b", "c"):
        scene.servers.server(name).kill()
    scene.ask("e", "$JS.API.SERVER.REMOVE", {"peer": "d"}, user="s", **{"pass": "s"})
    scene.servers.server("a").kill()
    scene.publish("e", 3)
    scene.servers.start_processes("a", "b", "c")
    scene.well("a", "b", "c", "e")
    scene.leader("e")
    scene.publish("e", 20)
    return {"published": len(scene.acked) >= 60, "lost": scene.lost("e")}


def power_cut_and_pauses(scene: Scene) -> Outcome:
    """Make a server lose its unsynced data, as a power cut does, and form a majority with paused servers.

    Our servers treat their log as doubtful only after a power loss of the machine, which a test cannot simulate for
    another process: tests/unit/consensus/test_doubt.py plays this scene.
    """
    scene.create(replicas=5)
    scene.publish("e", 20)
    for name in ("a", "b"):
        scene.servers.server(name).signal("STOP")
    store, copy = scene.directory / "c" / "store", scene.directory / "c" / "copy"
    scene.servers.server("c").signal("STOP")
    shutil.copytree(store, copy)
    scene.servers.server("c").signal("CONT")
    scene.leader("e", "a", "b")
    scene.publish("e", 20)
    acked = len(scene.acked)
    scene.servers.server("c").kill()
    shutil.rmtree(store)
    copy.rename(store)
    for name in ("d", "e"):
        scene.servers.server(name).signal("STOP")
    for name in ("a", "b"):
        scene.servers.server(name).signal("CONT")
    scene.servers.start_processes("c")
    scene.leader("a", "d", "e")
    scene.publish("a", 20)
    for name in ("d", "e"):
        scene.servers.server(name).signal("CONT")
    is_alike = scene.alike()
    return {"acked": acked, "lost": scene.lost("a"), "alike": is_alike}


WELL = {"well": True, "lost": 0}
SAME = [["R"], ["R"], ["R"]]
REPAIRED = {**WELL, "leads": True, "told": True, "counted": (1, 0), "alike": True, "clean": True}
SCENES: list[tuple[Callable[[Scene], Outcome], Outcome, tuple[str, ...]]] = [
    (damaged_messages, REPAIRED, NAMES),
    (damaged_after_kill, REPAIRED, NAMES),
    (damaged_metadata, {**WELL, "files": True, "names": SAME, "alike": True}, NAMES),
    (many_kills, {**WELL, "names": SAME, "alike": True}, NAMES),
    (leader_restarts, {"consumes": [True] * 6, "lost": 0}, NAMES),
    (all_are_replaced, {"replicas": [True] * 3, "consumes": True, "lost": 0}, NAMES),
    (one_falls_behind, {"alike": [True] * 3}, NAMES),
    (limits_and_kills, {"alike": True, "states": 1}, NAMES),
    (removal_during_faults, {"published": True, "lost": 0}, FIVE),
    (power_cut_and_pauses, {}, FIVE),
]
ONLY_PEER = (power_cut_and_pauses,)


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    kind, names = request.param
    command = our_command() if kind == "ours" else peer_command()
    if command is None:
        pytest.skip("nats-server is not here")
    with three(command, tmp_path, COMMON, names=names) as servers:
        yield Scene(servers, tmp_path)


@pytest.mark.parametrize(
    ("scene", "play", "wanted"),
    [
        pytest.param((kind, names), play, wanted, id=f"{play.__name__}-{kind}")
        for play, wanted, names in SCENES
        for kind in KINDS
        if kind == "peer" or play not in ONLY_PEER
    ],
    indirect=["scene"],
)
def test_a_reported_fault(scene: Scene, play: Callable[[Scene], Outcome], wanted: Outcome) -> None:
    found = play(scene)
    print(f"\n{play.__name__}: {found}", flush=True)
    if scene.servers.server("a")._command == our_command():
        assert found == wanted
