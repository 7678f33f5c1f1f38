"""Random histories of a stream that moves and is scaled while servers crash: acknowledged messages are not lost."""

from __future__ import annotations

import json
from base64 import b64decode
from itertools import count
from pathlib import Path
from random import Random

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import LOG_FILE_SIZE, TRIO, JetNet, JetServer
from tests.unit.jetstream.member.test_scaling import groups

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.member.member_node import MemberNode

STEPS = 20
PATIENCE = 300  # polls, 100 ms apart


class History:
    """One random history."""

    def __init__(self, directory: Path, seed: int, *, is_scaled: bool) -> None:
        self.is_scaled = is_scaled
        self.net = JetNet(directory, seed)
        self.net.tags = {name: (name,) for name in TRIO}
        self.rng = Random(seed)
        self.net.trio()
        self.acked: dict[int, str] = {}  # sequence -> payload
        self._sids = count(5000)
        assert "error" not in self.net.ask(self.net.jet("a").client(), "STREAM.CREATE.R", self.body("a"))

    def body(self, place: str) -> dict[str, object]:
        return {"name": "R", "subjects": ["r"], "placement": {"tags": [place]}}

    def step(self) -> None:
        """Do a random operation."""
        roll, living = self.rng.random(), self.net.living()
        if roll < 0.15 and len(living) > 1:
            self.net.crash(self.rng.choice(living).name)
        elif roll < 0.4 and len(living) < 3:
            self.net.begin(self.rng.choice([name for name in TRIO if name not in self.net.servers]))
        elif roll < 0.6:
            body = self.body(self.rng.choice(TRIO))
            if self.is_scaled and self.rng.random() < 0.5:
                body = {"name": "R", "subjects": ["r"], "num_replicas": self.rng.randrange(1, 4)}
            client, wait_ms = self.rng.choice(living).client(), self.rng.choice((10, 1000))
            self.net.answers(client, "STREAM.UPDATE.R", body, wait_ms)
        else:
            self.publish(self.rng.choice(living).name)
        self.net.run(self.rng.randrange(300) * NS_PER_MS)

    def publish(self, server: str) -> None:
        """Publish some messages through a server; remember those that are acknowledged."""
        client, sid = self.net.jet(server).client(), next(self._sids)
        sent = {}
        for number in range(self.rng.randrange(1, 20)):
            inbox = f"in.{sid}.{number}"
            sent[inbox] = text = f"{sid} {number}"
            head = f"NATS/1.0\r\nNats-Msg-Id: {text}\r\n\r\n"
            size = len(head) + len(text)
            client.send(f"HPUB r {inbox} {len(head)} {size}\r\n{head}{text}\r\n".encode())
        client.send(b"SUB in.%d.* %d\r\n" % (sid, sid))
        self.net.run(self.rng.choice((0, 100, 2500)) * NS_PER_MS)
        for frame in client.frames():
            if frame.payload[:1] == b"{":
                self.acked[json.loads(frame.payload)["seq"]] = sent[frame.subject.decode()]

    def end(self) -> None:
        """Run all servers, and wait until the stream is idle."""
        for name in TRIO:
            if name not in self.net.servers:
                self.net.begin(name)
        self.net.ready()
        for _ in range(PATIENCE):
            self.net.run(100 * NS_PER_MS)
            if self._is_at_rest():
                return
        raise AssertionError([(server.name, server.streams, groups(server)) for server in self.net.living()])

    def _is_at_rest(self) -> bool:
        servers = self.net.living()
        (stream,) = servers[0].member.machine.state.streams()
        places = [server.name for server in servers if server.member.node in stream.nodes]
        holders = [server.name for server in servers if server.streams]
        is_single = stream.config.num_replicas == 1
        of_group = [server.name for server in servers if groups(server)]
        is_whole = is_single or all(map(self._is_whole, servers))
        return (
            not stream.target and holders == places and of_group == ([] if is_single else places) and is_whole
        )

    @staticmethod
    def _is_whole(server: JetServer) -> bool:
        """Return whether each replica of a server has a leader, and none is being copied."""
        assert server.member.replicated is not None
        machines = server.member.replicated.machines()
        return all(each.leader and each.catch_up is None for each in machines)

    def check(self) -> None:
        """Check that every acknowledged message is stored under its sequence."""
        client = self.net.jet("a").client()
        for seq, text in self.acked.items():
            message = self.net.ask(client, "STREAM.MSG.GET.R", {"seq": seq})["message"]
            assert b64decode(message["data"]) == text.encode(), seq


@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_stream_that_moves_loses_nothing(
    seed: int, is_scaled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemberNode, "log_file_size", LOG_FILE_SIZE)
    history = History(tmp_path, seed, is_scaled=is_scaled)
    for _ in range(STEPS):
        history.step()
    history.end()
    history.check()
    history.net.stop()
