"""kill -9 while consumers are created and deleted: everything that was answered survives, and nothing is damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

StartServer = Callable[..., ServerProcess]
CYCLES = int(os.environ.get("PYJS_KILL_CYCLES", "20")) // 4
CONSUMERS = 300


def change_until_killed(server: ServerProcess, cycle: int, kill_after: int) -> tuple[set[str], set[str]]:
    """Create CONSUMERS consumers and delete every third; return those whose creation, and deletion, was answered.

    The server is killed after `kill_after` answers.
    """
    client = RawClient(server.port)
    made, removed = set(), set()
    for number in range(CONSUMERS):
        name = f"c{cycle}-{number}"
        config = {"durable_name": name, "ack_policy": "explicit"}
        _ask(client, f"CONSUMER.CREATE.S.{name}", f"+{name}", {"stream_name": "S", "config": config})
        if number % 3 == 0:
            _ask(client, f"CONSUMER.DELETE.S.{name}", f"-{name}")
    try:
        for answered, (subject, _, _, payload) in enumerate(client.frames(), 1):
            assert "error" not in json.loads(payload), payload
            what = subject.decode().rpartition(".")[2]
            (made if what[0] == "+" else removed).add(what[1:])
            if answered == kill_after:
                server.kill()
    except OSError:
        client.close()
    return made, removed


def _ask(client: RawClient, endpoint: str, reply: str, body: object = None) -> None:
    payload = b"" if body is None else json.dumps(body).encode()
    head = f"PUB $JS.API.{endpoint} {client.inbox.decode()}.{reply} {len(payload)}\r\n"
    client.send(head.encode() + payload + b"\r\n")


def consumers(server: ServerProcess) -> set[str]:
    """Return the names of all consumers."""
    client = RawClient(server.port)
    names = client.api("CONSUMER.NAMES.S", offset=0)
    found = set(names["consumers"])
    while len(found) < names["total"]:
        found.update(client.api("CONSUMER.NAMES.S", offset=len(found))["consumers"])
    client.close()
    return found


@pytest.mark.timeout(300)
def test_answered_changes_of_consumers_survive_kill_9_and_others_are_whole_or_absent(
    start_server: StartServer, tmp_path: Path
) -> None:
    # given
    server = start_server()
    client = RawClient(server.port)
    client.api("STREAM.CREATE.S", name="S", subjects=["s"], max_consumers=100_000)
    client.close()
    for cycle in range(CYCLES):
        # when
        before = consumers(server)
        made, removed = change_until_killed(server, cycle, 20 + 90 * (cycle % 4))
        server.start()

        # then
        found = consumers(server)
        assert before - found == set()
        assert made - removed - found <= {f"c{cycle}-{number}" for number in range(0, CONSUMERS, 3)}
        assert found & removed == set()
        assert not list(tmp_path.rglob(".damaged-*"))
        assert not list(tmp_path.rglob(".deleting-*"))
