"""A server in a thread, for programs that have no event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.unit.aio.support import Talk, refuses, threads

from pyjs.aio import ConfigError, ServerThread, StartFailed

FORGOTTEN = """
import os, tempfile
tempfile.tempdir = os.getcwd()
from pyjs.aio import ServerThread
server = ServerThread()
server.start()
assert os.listdir(".")
"""


def test_a_server_runs_while_the_program_does_something_else() -> None:
    with ServerThread(http_port=-1) as server:
        url = server.client_url
        assert not refuses(url)
        assert not refuses(str(server.monitor_url))

    assert refuses(url)
    assert threads() == []


def test_a_thread_can_start_its_server_again() -> None:
    server = ServerThread()
    for _ in range(3):
        with server, pytest.raises(RuntimeError, match="runs already"):
            server.start()
        server.stop()
        with pytest.raises(RuntimeError, match="does not run"):
            _ = server.client_url


def test_what_is_wrong_is_raised_where_it_is_started() -> None:
    with pytest.raises(ConfigError):
        ServerThread(port=70000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ServerThread(port=taken.getsockname()[1])
        with pytest.raises(StartFailed, match="address already in use"):
            server.start()
    assert threads() == []
    with server:
        pass


def test_an_exception_in_the_body_stops_the_server() -> None:
    urls = []

    def body() -> None:
        with ServerThread() as server:
            urls.append(server.client_url)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()

    assert refuses(urls[0])


def test_an_interrupt_while_it_starts_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ServerThread()
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "pyjs-server":
            signal.raise_signal(signal.SIGINT)

    # a process that is started in the background ignores the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                server.start()
    finally:
        signal.signal(signal.SIGINT, before)

    assert threads() == []


def test_a_thread_that_the_system_does_not_give_is_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ServerThread()

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            server.start()

    with server:
        assert not refuses(server.client_url)


def test_a_forked_child_leaves_the_server_to_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    with ServerThread() as server:
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: 1)
            server.stop()
        assert not refuses(server.client_url)


def test_a_server_that_is_not_stopped_is_stopped_at_the_exit_of_the_program(tmp_path: Path) -> None:
    began = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORGOTTEN],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
    assert time.monotonic() - began < 30


def test_servers_in_several_threads_do_not_disturb_each_other() -> None:
    async def work(url: str) -> int:
        talk = await Talk.to(url)
        await talk.api("STREAM.CREATE.S", name="S", subjects=["s.>"])
        await talk.api(
            "CONSUMER.DURABLE.CREATE.S.C", stream_name="S", config={"durable_name": "C", "ack_policy": "none"}
        )
        for block in range(20):
            talk.writer.write(b"".join(b"PUB s.%d 100\r\n%b\r\n" % (at, b"x" * 100) for at in range(500)))
            talk.writer.write(b"PING\r\n")
            await talk.until(b"PONG\r\n")
            found = await talk.api("STREAM.MSG.GET.S", seq=block * 500 + 1)
            assert found["message"]["subject"] == "s.0"
        info = await talk.api("STREAM.INFO.S")
        talk.writer.close()
        return int(info["state"]["messages"])

    def use(url: str, into: list[int]) -> None:
        into.append(asyncio.run(work(url)))

    with ServerThread() as one, ServerThread() as two, ServerThread(jetstream={"key": "secret"}) as three:
        counts: list[int] = []
        users = [
            threading.Thread(target=use, args=(server.client_url, counts)) for server in (one, two, three)
        ]
        for user in users:
            user.start()
        for user in users:
            user.join()

    assert counts == [10_000] * 3
