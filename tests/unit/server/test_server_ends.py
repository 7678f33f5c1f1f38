"""Starts that are interrupted, and stops that no task waits for."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.server.test_server import Peer, quiet_options, stopped

from pyjs.base.log import ListLog
from pyjs.config.options import JetStreamOptions, MonitoringOptions, Options
from pyjs.server.failures import StartFailed
from pyjs.server.server import Server, State
from pyjs.server.system.scratch import ScratchStore

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def stored(directory: Path, **values: object) -> Options:
    """Return options with JetStream in `directory`."""
    return quiet_options(jetstream=JetStreamOptions(enabled=True, store_dir=str(directory)), **values)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pyjs-")]


@pytest.mark.parametrize("steps", range(1, 8))
async def test_a_start_that_is_cancelled_leaves_nothing_open(tmp_path: Path, steps: int) -> None:
    (await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)).close()
    await asyncio.sleep(0)
    before = descriptors()  # uvloop keeps one descriptor since its first listening socket
    server = Server(stored(tmp_path, monitoring=MonitoringOptions(http_port=-1)), ListLog())
    starting = asyncio.create_task(server.start())
    for _ in range(steps):
        await asyncio.sleep(0)

    starting.cancel()
    await asyncio.wait([starting])
    if not starting.cancelled():  # the cancellation may come after the last steps
        await stopped(server)

    assert server.state is State.STOPPED
    for port in (server.client_port, server.monitor_port):
        if port > 0:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert descriptors() <= before
    assert threads() == []


async def test_a_server_that_never_started_can_be_stopped() -> None:
    server = Server(quiet_options(), ListLog())

    await stopped(server)
    server.abort()

    assert server.state is State.STOPPED


async def test_an_end_that_is_cancelled_closes_the_rest_at_once(tmp_path: Path) -> None:
    server = Server(stored(tmp_path), ListLog())
    await server.start()
    peer = await Peer.of(server)
    ending = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    assert server._stopping is not None

    server._stopping.cancel()
    await asyncio.wait_for(ending, 60)

    assert await peer.rest() == b""
    again = Server(stored(tmp_path), ListLog())
    await again.start()
    await stopped(again)
    peer.writer.close()


async def test_an_abort_needs_no_turn_of_the_loop(tmp_path: Path) -> None:
    server = Server(stored(tmp_path), ListLog())
    await server.start()
    peer = await Peer.of(server)

    server.abort()
    server.abort()

    again = Server(stored(tmp_path), ListLog())
    await again.start()
    assert await peer.rest() == b""
    await stopped(again)
    peer.writer.close()


async def test_the_scratch_store_goes_with_the_server() -> None:
    for end in ("stop", "abort", "failure"):
        scratch = ScratchStore()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1] if end == "failure" else -1
            server = Server(stored(Path(scratch.path), port=port), ListLog(), scratch)
            if end == "failure":
                with pytest.raises(StartFailed, match="in use"):
                    await server.start()
            else:
                await server.start()
        assert os.path.exists(scratch.path) == (end != "failure")
        if end == "stop":
            await stopped(server)
        server.abort()
        assert not os.path.exists(scratch.path)


async def test_a_port_is_free_again_although_a_forked_child_lives(tmp_path: Path) -> None:
    server = Server(stored(tmp_path), ListLog())
    await server.start()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # the process has threads, but the child calls no Python
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)

    await stopped(server)

    again = Server(stored(tmp_path, port=server.client_port), ListLog())
    await again.start()
    await stopped(again)
    os.close(writing)
    os.close(reading)
    os.waitpid(child, 0)


async def test_a_forked_child_does_not_touch_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(quiet_options(), ListLog())
    await server.start()

    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 1)
        server.abort()
        server.__del__()

    assert server.state is State.RUNNING
    await stopped(server)


def test_a_server_whose_loop_was_closed_is_told_and_gives_everything_back(
    tmp_path: Path, new_loop: NewLoop
) -> None:
    before = descriptors()
    loop = new_loop()
    server = Server(stored(tmp_path, monitoring=MonitoringOptions(http_port=-1)), ListLog())
    loop.run_until_complete(server.start())
    loop.run_until_complete(Peer.of(server))
    loop.close()
    kept = weakref.ref(server)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del server, loop
        gc.collect()
        gc.collect()

    assert kept() is None
    assert any("was not stopped before its event loop ended" in str(one.message) for one in said)
    assert threads() == []
    assert descriptors() <= before
    loop = new_loop()
    again = Server(stored(tmp_path), ListLog())
    loop.run_until_complete(again.start())
    loop.run_until_complete(stopped(again))
    loop.close()
