"""Declared streams of a server with workers: the first worker applies them, wherever the streams are."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conformance.harness.process import our_command
from tests.system.test_workers import Workers
from tests.system.test_workers_streams import api, back

COUNT = 120
KINDS = {"alone": "", "spread": ", spread_workers: true"}


def config(kind: str, blocks: str) -> str:
    return f'jetstream {{ store_dir: "<<store>>"{KINDS[kind]}\n{blocks}\n}}'


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Workers]]:
    started: list[Workers] = []

    def begin(text: str) -> Workers:
        started.append(Workers(tmp_path, text, 2))
        return started[-1]

    yield begin
    for each in started:
        each.end()


def edit(server: Workers, text: str) -> None:
    """Write another file, with the ports of the running server."""
    path = server.process.config_path
    lines = path.read_text("utf-8").splitlines()
    head = lines[: next(at for at, line in enumerate(lines) if line.startswith("jetstream"))]
    changed = text.replace("<<store>>", str(server.directory / "store"))
    path.write_text("\n".join([*head, changed]) + "\n", "utf-8")


def plan(server: Workers) -> tuple[int, list[str]]:
    command = [*our_command(), "plan", "-c", str(server.process.config_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_worker_applies_the_file_at_the_start_and_at_a_reload(
    start: Callable[[str], Workers], kind: str
) -> None:
    blocks = "streams {{ S {{ subjects: s, description: {0} }}, T {{}} }}\nconsumers {{ S {{ c {{}} }} }}"
    server = start(config(kind, blocks.format("first")))
    clients = [server.client(number) for number in (1, 2)]
    for client in clients:
        assert api(client, "STREAM.NAMES")["streams"] == ["S", "T"]
        assert api(client, "CONSUMER.NAMES.S")["consumers"] == ["c"]
    assert plan(server) == (0, ["= stream S", "= stream T", "= consumer S > c"])

    edit(server, config(kind, blocks.format("second")))
    code, lines = plan(server)
    assert (code, lines[0]) == (2, "~ stream S  update description: first -> second")
    assert [each["name"] for each in server.page("/declaredz?all=true")["assets"]] == ["S", "T", "S > c"]
    server.process.signal("HUP")
    assert server.process.logged("~ stream S  updated description: first -> second", 30)
    assert server.process.logged("1 updated, 2 unchanged", 30)
    assert api(clients[1], "STREAM.INFO.S")["config"]["description"] == "second"

    edit(server, config(kind, "streams { S { storag: memory }, U {} }"))
    server.process.signal("HUP")
    assert server.process.logged('unknown field "storag"; did you mean "storage"?', 30)
    assert api(clients[1], "STREAM.NAMES")["streams"] == ["S", "T"]
    assert server.log().count("Declared in account $G: 3 created") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_is_killed_in_the_middle_finishes_after_its_restart(
    start: Callable[[str], Workers], kind: str
) -> None:
    server = start(config(kind, ""))
    entries = "\n".join(f'S{number} {{ description: "{number}" }}' for number in range(COUNT))
    edit(server, config(kind, f"streams {{ {entries} }}"))
    client = server.client(2)
    server.process.signal("HUP")
    deadline = time.monotonic() + 60
    while (before := api(client, "STREAM.NAMES")["total"]) < 10:
        assert time.monotonic() < deadline
    os.kill(server.pids()[0], signal.SIGKILL)
    assert before < COUNT

    back(server, 1)

    listed = api(client, "STREAM.LIST")["streams"]
    found = {each["config"]["name"]: each["config"]["description"] for each in listed}
    assert found == {f"S{number}": str(number) for number in range(COUNT)}
