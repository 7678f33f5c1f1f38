"""The example of docs/cluster.md: three servers with the files of conf/cluster, a stream, and a lost leader."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.cluster import NAMES, WAIT_S, NodeClient
from tests.conformance.harness.process import REPOSITORY, free_port, our_command

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

CONF = REPOSITORY / "conf" / "cluster"
PORTS = [first + at for first in (4222, 6222, 8222) for at in range(3)]


class Recipe:
    """Copies of the configuration files with free ports, and the processes that use them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {port: free_port() for port in PORTS}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for path in CONF.iterdir():
            text = path.read_text()
            for port, free in self.ports.items():
                text = re.sub(rf"\b{port}\b", str(free), text)
            (directory / path.name).write_text(text)

    def start(self, name: str) -> None:
        """Start a server as the page describes."""
        command = [*our_command(), "-c", f"{name}.conf"]
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)

    def wait_healthy(self, name: str) -> None:
        """Poll until a server is healthy: no event signals it."""
        url = f"http://127.0.0.1:{self.ports[8222 + NAMES.index(name)]}/healthz"
        deadline = time.monotonic() + WAIT_S
        while True:
            with suppress(urllib.error.URLError), urllib.request.urlopen(url, timeout=WAIT_S) as page:
                assert json.load(page) == {"status": "ok"}
                return
            assert time.monotonic() < deadline, (self.directory / f"{name}.log").read_text()
            time.sleep(0.05)

    def asker(self, name: str) -> Asker:
        """Return a client of a server."""
        return Asker(NodeClient(self.ports[4222 + NAMES.index(name)]))

    def end(self) -> None:
        """Kill all servers."""
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def recipe(tmp_path: Path) -> Iterator[Recipe]:
    made = Recipe(tmp_path)
    yield made
    made.end()


def test_the_recipe_works_as_written(recipe: Recipe) -> None:
    for name in NAMES:
        recipe.start(name)
    for name in NAMES:
        recipe.wait_healthy(name)

    config = {"name": "ORDERS", "subjects": ["orders.>"], "num_replicas": 3}
    asker = recipe.asker("a")
    info = asker.until("$JS.API.STREAM.CREATE.ORDERS", lambda answer: "error" not in answer, config)
    for number in range(100):
        asker.until("orders.new", lambda ack: "seq" in ack, {"number": number})

    leader = info["cluster"]["leader"]
    recipe.running[leader].kill()
    recipe.running[leader].wait()
    left = next(name for name in NAMES if name != leader)
    found = recipe.asker(left).until(
        "$JS.API.STREAM.INFO.ORDERS",
        lambda answer: answer.get("cluster", {}).get("leader") not in (None, leader),
    )
    assert found["state"]["messages"] == 100
    recipe.start(leader)
    recipe.wait_healthy(leader)
