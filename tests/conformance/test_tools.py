"""Monitoring tools show the same for both servers: the exporter, nats-top, reports of `nats`.

Each query of the official Grafana dashboards finds series on /metrics. `make tools` builds the programs with Go;
without one of them, its test is skipped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conformance.harness import cli
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.cluster import NodeClient
from tests.conformance.harness.process import ServerProcess, free_port, our_command, peer_command

TOOLS = Path(os.environ.get("PYJS_TOOLS", "/nowhere"))
DASHBOARDS = Path(os.environ.get("PYJS_DASHBOARDS", "/nowhere"))
PEER = peer_command()
REQUIRED = "tools" in os.environ.get("PYJS_REQUIRE", "").split(",")
MISSING = [
    *([] if PEER else ["nats-server"]),
    *(each for each in ("prometheus-nats-exporter", "nats-top", "promql") if not (TOOLS / each).exists()),
    *([] if cli.program() or (TOOLS / "nats").exists() else ["nats"]),
    *([] if DASHBOARDS.is_dir() else ["the dashboards"]),
]
if MISSING and not REQUIRED:
    reason = f"nothing watched by other programs: {', '.join(MISSING)} not here (make tools)"
    pytest.skip(reason, allow_module_level=True)

WAIT_S = 30.0
CONFIG = """
jetstream { store_dir: "<<store>>", max_file_store: 1GB, max_memory_store: 100MB }
accounts { A { users: [{user: a, password: a}], jetstream: enabled }, SYS { users: [{user: s, password: s}] } }
no_auth_user: a
system_account: SYS
"""
EXPORTED = "varz connz connz_detailed subz routez healthz accstatz accountz gatewayz leafz jsz=all"
REPORTS = (
    "jetstream",
    "connections --account A",
    "accounts A",
    "health",
    "jsz",
    "routes",
    "gateways",
    "leafnodes",
)


class Watched(NamedTuple):
    """A server under a load of one client, and its pages for Prometheus before and after a part of it."""

    server: ServerProcess
    metrics: list[Path]


def page(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_S) as answer:
        found: bytes = answer.read()
    return found


def watched(command: list[str], directory: Path) -> Iterator[Watched]:
    directory.mkdir()
    server = ServerProcess(command, CONFIG, directory, with_http=True, name="N")
    server.start()
    try:
        client = NodeClient(server.port, name="app", lang="python", version="1.0")
        asker = Asker(client)
        asker.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        consumer = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
        asker.ask("$JS.API.CONSUMER.CREATE.S.C", consumer)
        metrics = []
        for name in ("before", "after") if command == our_command() else ():
            for number in range(10):
                asker.ask("s.a", {"n": number})
            metrics.append(directory / name)
            metrics[-1].write_bytes(page(server.http_port, "/metrics"))
        for number in range(0 if metrics else 20):
            asker.ask("s.a", {"n": number % 10})
        client.send(b"SUB in 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.C in 1\r\n3\r\n")
        client.wait_for_messages(3)
        yield Watched(server, metrics)
        client.close()
    finally:
        server.kill()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    yield from watched(our_command(), tmp_path_factory.mktemp("watched") / "ours")


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    assert PEER is not None, "nats-server is not here"
    yield from watched(PEER, tmp_path_factory.mktemp("watched") / "peer")


def exported(server: ServerProcess) -> set[tuple[str, str]]:
    """Return the names and labels that the exporter makes of a server's pages."""
    port = free_port()
    flags = [f"-{each}" for each in EXPORTED.split()]
    command = [
        str(TOOLS / "prometheus-nats-exporter"),
        *flags,
        "-use_internal_server_name",
        "-addr",
        "127.0.0.1",
    ]
    process = subprocess.Popen([*command, "-port", str(port), f"http://127.0.0.1:{server.http_port}"])
    try:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                text = page(port, "/metrics").decode()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)  # the exporter says nothing when it listens
    finally:
        process.kill()
        process.wait()
    # the last of these depend on the order in which the exporter asks for the pages
    others = "#", "go_", "process_", "promhttp_", "gnatsd_varz_http_req_stats"
    lines = [line for line in text.splitlines() if not line.startswith(others)]
    return {(re.split(r"[{ ]", line)[0], ",".join(re.findall(r'(\w+)="', line))) for line in lines}


def test_the_exporter_makes_the_same_metrics_of_both_servers(ours: Watched, peer: Watched) -> None:
    found = exported(ours.server)

    assert found == exported(peer.server)
    assert len(found) > 100


def top(server: ServerProcess) -> list[str]:
    flags = ["-s", "127.0.0.1", "-m", str(server.http_port), "-r", "1", "-d", "1", "-o", "-"]
    done = subprocess.run(
        [str(TOOLS / "nats-top"), *flags], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    shown = re.sub(r"uptime: \w+|CPU: .*?Mem.*?M |(?<=:)\d+ +\d+ ", "<differs>", done.stdout)
    return [" ".join(line.split()[:13]) for line in cli.masked(shown)]


def test_nats_top_shows_the_same_of_both_servers(ours: Watched, peer: Watched) -> None:
    found = top(ours.server)

    assert found == top(peer.server)
    assert any("app" in line for line in found)


def report(server: ServerProcess, words: str, directory: Path) -> list[str]:
    program = cli.program() or str(TOOLS / "nats")
    url = f"nats://s:s@127.0.0.1:{server.port}"
    environment = {**os.environ, "NATS_URL": url, "HOME": str(directory), "NO_COLOR": "1"}
    command = [program, "server", "report", *words.split()]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_S, env=environment, check=False
    )
    shown = re.sub(r"│ \d+ +│ app", "│ <cid> │ app", done.stdout + done.stderr)
    return [f"exit {done.returncode}", *(re.sub(r"\d+s +│", "<age> │", line) for line in cli.masked(shown))]


@pytest.mark.parametrize("words", REPORTS)
def test_a_report_of_the_nats_command_is_the_same_of_both_servers(
    ours: Watched, peer: Watched, words: str, tmp_path: Path
) -> None:
    found = report(ours.server, words, tmp_path)

    assert found == report(peer.server, words, tmp_path)
    assert found[0] == "exit 0" or words in ("gateways", "leafnodes", "routes", "jsz")


def expressions(value: object) -> Iterator[str]:
    """Yield the queries of a dashboard, with its variables as they are for `All`."""
    if isinstance(value, dict):
        if isinstance(value.get("expr"), str) and value["expr"]:
            yield re.sub(r"\$\w+", ".*", value["expr"].replace("$__rate_interval", "1m"))
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from expressions(each)


@pytest.mark.parametrize("name", ["nats", "jetstream"])
def test_each_query_of_a_dashboard_finds_series(ours: Watched, name: str) -> None:
    dashboard = json.loads((DASHBOARDS / f"grafana-{name}-dash.json").read_text())
    queries = list(expressions(dashboard))
    command = [str(TOOLS / "promql"), "15", *map(str, ours.metrics)]
    done = subprocess.run(
        command, input="\n".join(queries), capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]

    assert len(answers) == len(queries) > 5
    assert [query for query, answer in zip(queries, answers, strict=True) if not answer["series"]] == []
