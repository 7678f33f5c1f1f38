"""Random histories of three servers that crash: streams are created and deleted, and finally all servers agree."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import LOG_FILE_SIZE, TRIO, JetNet

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.member.member_node import MemberNode

STEPS = 25
NAMES = ("A", "B", "C", "D")


class History:
    """One random history."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.net = JetNet(directory, seed)
        self.rng = Random(seed)
        self.net.trio()
        # name -> whether its last acknowledged request created or deleted it; names with unknown results are left out
        self.created: dict[str, bool] = {}

    def step(self) -> None:
        """Do a random operation."""
        roll, living = self.rng.random(), self.net.living()
        if roll < 0.15 and len(living) > 1:
            self.net.crash(self.rng.choice(living).name)
        elif roll < 0.4 and len(living) < 3:
            self.net.begin(self.rng.choice([name for name in TRIO if name not in self.net.servers]))
        elif roll < 0.75:
            self.create(self.rng.choice(NAMES))
        else:
            self.delete(self.rng.choice(NAMES))
        self.net.run(self.rng.randrange(300) * NS_PER_MS)

    def create(self, name: str) -> None:
        """Create a stream."""
        body = {"name": name, "subjects": [name.lower()], "num_replicas": 3 if name > "B" else 1}
        self.ask(name, f"STREAM.CREATE.{name}", body, created=True)

    def delete(self, name: str) -> None:
        """Delete a stream."""
        self.ask(name, f"STREAM.DELETE.{name}", None, created=False)

    def ask(self, name: str, subject: str, body: object, *, created: bool) -> None:
        """Send a request to a running server, and record the result of its answer."""
        client = self.rng.choice(self.net.living()).client()
        answers = self.net.answers(client, subject, body, wait_ms=self.rng.choice((50, 1000)))
        assert len(answers) <= 1
        if answers and "error" not in answers[0]:
            self.created[name] = created
        elif answers and answers[0]["error"]["err_code"] == 10059:
            self.created[name] = False
        else:
            self.created.pop(name, None)

    def end(self) -> None:
        """Run all servers, and wait until they are idle."""
        for name in TRIO:
            if name not in self.net.servers:
                self.net.begin(name)
        self.net.ready()
        self.net.run(3000 * NS_PER_MS)

    def check(self) -> None:
        """Check that each server has exactly the streams that the metadata assigns to it."""
        servers = self.net.living()
        states = [server.member.machine.state for server in servers]
        known = {each.name: each for each in states[0].streams()}
        assert all({each.name: each for each in state.streams()} == known for state in states)
        for server in servers:
            wanted = sorted(name for name, each in known.items() if server.member.node in each.nodes)
            assert server.streams == wanted, (server.name, server.errors())
        for name, created in self.created.items():
            assert (name in known) == created, name
        for server in servers:
            assert self.net.ask(server.client(), "STREAM.NAMES")["streams"] == (sorted(known) or None)
            for name in known:
                assert self.net.ask(server.client(), f"STREAM.INFO.{name}")["config"]["name"] == name


@pytest.mark.parametrize("seed", range(4))
def test_all_servers_agree_in_the_end(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberNode, "log_file_size", LOG_FILE_SIZE)
    history = History(tmp_path, seed)
    for _ in range(STEPS):
        history.step()
    history.end()
    history.check()
    history.net.stop()
