"""One connection of a running server traced, by request and by `pyjs-server trace`."""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.harness.cluster import NodeClient, ThreeServers
from tests.conformance.harness.process import ServerProcess, our_command
from tests.system.test_workers import Workers

from pyjs.operating.trace import run

CONFIG = """
accounts {
    OPS { users: [{user: ops, password: "word-of-ops"}] }
    APP { users: [{user: app, password: "word-of-app"}] }
}
system_account: OPS
"""
ENVIRONMENT = {"NATS_USER": "ops", "NATS_PASSWORD": "word-of-ops"}
LOG_WAIT_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("traced")
    found = ServerProcess(our_command(), CONFIG, directory, with_http=True, may_fork=True)
    found.start()
    yield found
    found.kill()


def trace(server: ServerProcess, *words: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it printed."""
    out = io.StringIO()
    code = run(["-s", f"127.0.0.1:{server.port}", *words], ENVIRONMENT, out, out)
    return code, out.getvalue().strip()


def app(port: int) -> tuple[NodeClient, str]:
    """Return a client and the id of its connection."""
    client = NodeClient(port, user="app", **{"pass": "word-of-app"})
    return client, str(client.infos[-1]["client_id"])


def lines_of(server: ServerProcess, cid: str) -> list[str]:
    """Return level and text of the lines about a connection, without its name."""
    found = re.findall(rf"\[(\w+)\] \S+ - cid:{cid} - (?:\"APP/user:app\" - )?(.*)", server._log.read_text())
    return [f"{level} {text}" for level, text in found]


def test_one_connection_is_logged_and_no_other(server: ServerProcess) -> None:
    (client, cid), (other, other_cid) = app(server.port), app(server.port)

    code, text = trace(server, "--lines", "6", "--payload", "4", cid)
    for each in (client, other):
        each.send(b"SUB foo 1\r\nPUB foo 5\r\nhello\r\nPING\r\nPING\r\n")
        each.wait_for_any()
        each.fence()

    assert (code, text) == (
        0,
        f"connection {cid} of conformance is traced in the log of that server, for 60 s or 6 lines",
    )
    assert server.logged("Trace ends after 6 lines", LOG_WAIT_S)
    assert lines_of(server, cid) == [
        "INF Trace begins, for 60 s or 6 lines",
        "TRC <<- [SUB foo 1]",
        "TRC <<- [PUB foo 5]",
        'TRC <<- MSG_PAYLOAD: ["hell..."]',
        "TRC <<- [PING]",
        "TRC <<- [PING]",
        "TRC ->> [MSG foo 1 5]",
        "INF Trace ends after 6 lines",
    ]
    assert lines_of(server, other_cid) == []


def test_a_trace_ends_when_its_time_is_over(server: ServerProcess) -> None:
    client, cid = app(server.port)

    trace(server, "--seconds", "1", cid)
    assert server.logged(f'cid:{cid} - "APP/user:app" - Trace ends after 0 lines', LOG_WAIT_S)
    client.fence()

    assert lines_of(server, cid)[1:] == ["INF Trace ends after 0 lines"]


def test_a_trace_ends_with_its_connection(server: ServerProcess) -> None:
    client, cid = app(server.port)
    trace(server, cid)

    client.close()

    assert server.logged(f'cid:{cid} - "APP/user:app" - Trace ends after 0 lines', LOG_WAIT_S)
    assert trace(server, cid) == (
        1,
        f'pyjs-server trace: connection {cid} is closed: CONNZ with "state": 1 shows when and why',
    )


def test_a_trace_is_replaced_and_stopped(server: ServerProcess) -> None:
    client, cid = app(server.port)
    trace(server, cid)
    trace(server, "--seconds", "30", cid)
    client.send(b"PING\r\n")
    client.fence()

    assert trace(server, "--stop", cid) == (0, f"connection {cid} of conformance is no longer traced")
    assert trace(server, "--stop", cid) == (0, f"connection {cid} of conformance was not traced")
    client.fence()

    lines = lines_of(server, cid)
    assert lines[:3] == [
        "INF Trace begins, for 60 s or 1000 lines",
        "INF Trace ends after 0 lines",
        "INF Trace begins, for 30 s or 1000 lines",
    ]
    assert lines[-1].startswith("INF Trace ends after ")


def test_the_login_of_a_traced_connection_is_not_shown(server: ServerProcess) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        cid = str(json.loads(client.recv(65536)[5:])["client_id"])
        trace(server, cid)
        client.sendall(b'CONNECT {"user":"app","pass":"word-of-app","verbose":false}\r\nPING\r\n')
        while b"PONG" not in client.recv(65536):
            pass
        trace(server, "--stop", cid)

    lines = lines_of(server, cid)
    assert 'TRC <<- [CONNECT {"user":"app","pass":"[REDACTED]","verbose":false}]' in lines
    assert "word-of-app" not in server._log.read_text()


def test_one_who_may_not_ask_is_told_what_to_do(server: ServerProcess) -> None:
    out = io.StringIO()
    url = f"127.0.0.1:{server.port}"
    remedy = "log in as a user of the system account: --user NAME and the password in NATS_PASSWORD, or --creds FILE"

    codes = [
        run(["-s", url, "5"], environment, out, out)
        for environment in ({}, {"NATS_USER": "app", "NATS_PASSWORD": "word-of-app"}, {"NATS_TOKEN": "t"})
    ]

    assert codes == [1, 1, 1]
    assert out.getvalue().splitlines() == [
        f"pyjs-server trace: {url} refuses: Authorization Violation: {remedy}",
        f"pyjs-server trace: {url} does not answer this user: {remedy}",
        f"pyjs-server trace: {url} refuses: Authorization Violation: {remedy}",
    ]


def test_a_name_that_no_server_has_is_told(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyjs.operating.trace.TIMEOUT_S", 0.5)

    assert trace(server, "--name", "other", "5") == (
        1,
        "pyjs-server trace: no server is named other: `nats server list` shows the names",
    )


def test_the_program_has_the_command(server: ServerProcess) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyjs", "trace", "-s", f"127.0.0.1:{server.port}", "--user", "ops", "999"],
        env={"NATS_PASSWORD": "word-of-ops"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "pyjs-server trace: conformance has no connection 999: CONNZ lists the ids\n"


def test_a_connection_of_another_worker_is_traced_by_its_name(tmp_path: Path) -> None:
    workers = Workers(tmp_path, CONFIG)
    try:
        first, second = (workers.client(n, user="app", **{"pass": "word-of-app"}) for n in (1, 2))
        ids = [str(each.infos[-1]["client_id"]) for each in (first, second)]

        answers = [trace(workers.process, "--name", f"W-{n}", ids[n - 1]) for n in (1, 2)]
        wrong = trace(workers.process, "--name", "W-1", ids[1])

        assert [code for code, _ in answers] == [0, 0]
        assert wrong == (
            1,
            f"pyjs-server trace: W-1 has no connection {ids[1]}: CONNZ lists the ids; "
            "each worker has its own connections, so ask the others",
        )
        second.fence()
        assert workers.process.logged(f'- cid:{ids[1]} - "APP/user:app" - <<- [PING]', LOG_WAIT_S)
    finally:
        workers.end()


def test_a_connection_of_another_server_of_the_cluster_is_traced_by_its_name(tmp_path: Path) -> None:
    servers = ThreeServers(our_command(), tmp_path, CONFIG, names=("a", "b"))
    servers.start()
    try:
        _client, cid = app(servers.server("b").port)

        assert trace(servers.server("a"), "--name", "b", cid)[0] == 0
        assert servers.server("b").logged(f'cid:{cid} - "APP/user:app" - Trace begins', LOG_WAIT_S)
        code, text = trace(servers.server("a"), "999")
        assert (code, text.rpartition("; ")[2]) == (
            1,
            "each server of a cluster has its own connections, so ask the others",
        )
    finally:
        servers.kill()
