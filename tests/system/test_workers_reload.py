"""Reloads of a server with workers: all of them, those that start or are stopped meanwhile, and refused changes."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.test_workers import WAIT_S, Workers

# The server, whose log names a worker that does not confirm a reload after 0.2 s instead of 5 s.
HASTY = (
    "import sys; from pyjs.cli import main; from pyjs.server.workers import process;"
    " process.CONFIRM_S = 0.2; sys.exit(main())"
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path, "max_payload: 1000", 2, [sys.executable, "-c", HASTY])
    yield started
    started.end()


def test_a_reload_reaches_all_workers(server: Workers) -> None:
    clients = server.clients()
    config = server.directory / "server.conf"
    config.write_text(config.read_text().replace("max_payload: 1000", "max_payload: 2000"))
    server.process.signal("HUP")
    assert server.process.logged(
        "[INF] Reloaded server configuration (", WAIT_S
    )  # not the line of one worker
    for client in clients:
        client.send(b"PUB x 1500\r\n" + b"a" * 1500 + b"\r\n")
        client.fence()
        assert client.errors == []
    for number in (1, 2):
        assert server.client(number).infos[0]["max_payload"] == 2000


def test_a_worker_that_is_starting_gets_the_reload_when_it_is_ready(server: Workers) -> None:
    first, second = server.pids()
    os.kill(first, signal.SIGSTOP)  # a replacement of the second worker waits for it before it is ready
    os.kill(second, signal.SIGKILL)
    server.wait_log(lambda log: log.count("Starting as W-2") == 2)  # it has read the file
    config = server.directory / "server.conf"
    config.write_text(config.read_text().replace("max_payload: 1000", "max_payload: 2000"))
    server.process.signal("HUP")
    server.wait_log(lambda log: "Reloaded: max_payload = 2000" in log)
    os.kill(first, signal.SIGCONT)
    server.wait_log(lambda log: log.count("worker 2: Reloaded: max_payload = 2000") == 1)
    assert server.client(2).infos[0]["max_payload"] == 2000


def test_a_worker_that_does_not_confirm_a_reload_is_named_and_the_reloads_go_on_when_it_answers(
    server: Workers,
) -> None:
    _, second = server.pids()
    config = server.directory / "server.conf"
    late = (
        f"[WRN] worker 2 (pid {second}) has not confirmed the reload after 0.2 s; later reloads wait until it"
    )
    os.kill(second, signal.SIGSTOP)
    for size in (2000, 3000):
        text = re.sub("max_payload: .*", f"max_payload: {size}", config.read_text())
        config.write_text(text)
        server.process.signal("HUP")
        server.wait_log(lambda log: late in log)
    server.wait_log(lambda log: log.count('Trapped "hangup" signal') == 2)
    assert "[INF] Reloaded server configuration (" not in server.log()

    os.kill(second, signal.SIGCONT)

    server.wait_log(lambda log: log.count("[INF] Reloaded server configuration (") == 2)
    assert server.client(2).infos[0]["max_payload"] == 3000


def test_reloads_that_wait_are_one_reload(server: Workers) -> None:
    first, _ = server.pids()
    os.kill(first, signal.SIGSTOP)  # the first reload does not end
    for number in range(1, 5):
        server.process.signal("HUP")
        server.wait_log(lambda log, number=number: log.count('Trapped "hangup" signal') == number)
    os.kill(first, signal.SIGCONT)
    server.wait_log(lambda log: log.count("[INF] Reloaded server configuration (") == 2)
    server.process.signal("INT")
    assert server.process.logged("Server Exiting..", WAIT_S)
    assert server.log().count("[INF] Reloaded server configuration (") == 2


def test_a_reload_of_what_cannot_change_is_refused(server: Workers) -> None:
    config = server.directory / "server.conf"
    config.write_text(config.read_text().replace("workers: 2", "workers: 3"))
    server.process.signal("HUP")
    assert server.process.logged("config reload not supported for workers: old=2, new=3", WAIT_S)
    assert [each["state"] for each in server.page("/varz")["pyjs_workers"]] == ["ready", "ready"]
