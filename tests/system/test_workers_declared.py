"""Declared streams of a server with workers: the first worker applies them, wherever the streams are."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from tests.conformance.harness.process import our_command
from tests.system.test_workers import Workers, wait_gone
from tests.system.test_workers_streams import api, back

COUNT = 250  # streams; one answer lists 256
KINDS = {"alone": "", "spread": ", spread_workers: true"}


def config(kind: str, blocks: str) -> str:
    return f'jetstream {{ store_dir: "<<store>>"{KINDS[kind]}\n{blocks}\n}}'


BLOCKS = "streams {{ S {{ subjects: s, description: {0} }}, T {{}} }}\nconsumers {{ S {{ c {{}} }} }}"


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, kind: str) -> Iterator[Workers]:
    started = Workers(tmp_path_factory.mktemp(kind), config(kind, BLOCKS.format("first")), 2)
    yield started
    started.end()


def edit(server: Workers, text: str) -> None:
    """Write another file, with the ports of the running server."""
    path = server.process.config_path
    lines = path.read_text("utf-8").splitlines()
    head = lines[: next(at for at, line in enumerate(lines) if line.startswith("jetstream"))]
    changed = text.replace("<<store>>", str(server.directory / "store"))
    path.write_text("\n".join([*head, changed]) + "\n", "utf-8")


def made(server: Workers) -> int:
    """Return the number of directories of new streams in the stores of all workers."""
    found = os.walk(
        server.directory / "store"
    )  # in contrast to rglob, passes over directories that are renamed meanwhile
    return sum(
        name.startswith("N") for place, names, _ in found if place.endswith("$G/streams") for name in names
    )


def plan(server: Workers) -> tuple[int, list[str]]:
    command = [*our_command(), "plan", "-c", str(server.process.config_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines()


def test_the_first_worker_applies_the_file_at_the_start_and_at_a_reload(server: Workers, kind: str) -> None:
    clients = [server.client(number) for number in (1, 2)]
    for client in clients:
        assert api(client, "STREAM.NAMES")["streams"] == ["S", "T"]
        assert api(client, "CONSUMER.NAMES.S")["consumers"] == ["c"]
    assert plan(server) == (0, ["= stream S", "= stream T", "= consumer S > c"])

    edit(server, config(kind, BLOCKS.format("second")))
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


def test_a_worker_that_is_killed_in_the_middle_finishes_after_its_restart(server: Workers, kind: str) -> None:
    entries = "\n".join(f'N{number} {{ description: "{number}" }}' for number in range(COUNT))
    edit(server, config(kind, f"streams {{ {entries} }}"))
    pid = server.pids()[0]
    server.process.signal("HUP")
    deadline = time.monotonic() + 60
    while made(server) < 20:
        assert time.monotonic() < deadline
        time.sleep(0.001)  # a directory has no event to wait for
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    assert made(server) < COUNT

    back(server, 1)

    listed = api(server.client(2), "STREAM.LIST")["streams"]
    found = {
        name: config["description"]
        for config in (each["config"] for each in listed)
        if (name := config["name"]).startswith("N")
    }
    assert found == {f"N{number}": str(number) for number in range(COUNT)}
