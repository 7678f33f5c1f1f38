"""Reloads in a thread: one at a time, in order, none after a stop; clients are served meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.aio.support import Talk

from pyjs.base.log import ListLog
from pyjs.config.load import load_options
from pyjs.server.server import Server
from pyjs.server.system.config_file import read_file
from pyjs.server.threads import reloads
from pyjs.server.threads.reloads import STOPPING, Reloads


class Reading:
    """Readings that wait until the test lets them go on."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.applied: list[int | Exception] = []
        self._count = 0

    def read(self) -> int:
        self._count += 1
        count = self._count
        self.begun.release()
        self.go_on.acquire()
        if count == 2:
            raise ValueError("the second file is wrong")
        return count

    def apply(self, found: int | Exception) -> str:
        self.applied.append(found)
        return str(found) if isinstance(found, Exception) else ""

    async def wait_begun(self) -> None:
        await asyncio.to_thread(self.begun.acquire)


def made(reading: Reading, apply: Callable[[int | Exception], str] | None = None) -> Reloads[int]:
    return Reloads(asyncio.get_running_loop(), reading.read, apply or reading.apply)


async def test_reloads_during_a_reload_share_the_next_one() -> None:
    reading = Reading()
    all_reloads = made(reading)
    first = all_reloads.ask()
    await reading.wait_begun()
    second, third = all_reloads.ask(), all_reloads.ask()
    assert reading.applied == []
    reading.go_on.release(2)
    assert await first == ""
    assert await second == await third == "the second file is wrong"
    reading.go_on.release()
    assert await all_reloads.ask() == ""
    assert [str(each) for each in reading.applied] == ["1", "the second file is wrong", "3"]
    await all_reloads.close()


async def test_nothing_is_applied_after_a_stop() -> None:
    reading = Reading()
    all_reloads = made(reading)
    first = all_reloads.ask()
    await reading.wait_begun()
    second = all_reloads.ask()
    all_reloads.stop()
    reading.go_on.release()
    assert [await each for each in (first, second, all_reloads.ask())] == [STOPPING] * 3
    assert reading.applied == []
    await all_reloads.close()


async def test_a_stop_does_not_wait_long_for_a_file_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reloads, "CLOSE_S", 0.01)
    reading = Reading()
    all_reloads = made(reading)
    first = all_reloads.ask()
    all_reloads.stop()
    await all_reloads.close()
    reading.go_on.release()
    assert await first == STOPPING


async def test_an_error_in_the_server_ends_only_its_reload() -> None:
    reading = Reading()

    def apply(found: int | Exception) -> str:
        raise RuntimeError("a fault")

    all_reloads = made(reading, apply)
    first = all_reloads.ask()
    await reading.wait_begun()
    second = all_reloads.ask()
    reading.go_on.release(2)
    for each in (first, second):
        assert await each == "a fault of the server: RuntimeError('a fault')"
    await all_reloads.close()


async def test_a_caller_may_stop_to_wait() -> None:
    reading = Reading()
    all_reloads = made(reading)
    all_reloads.ask().cancel()
    reading.go_on.release()
    await all_reloads.close()
    assert reading.applied == [1]


async def test_clients_are_served_while_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_read = threading.Event()

    def read_later(path: str) -> str:
        may_read.wait()
        return read_file(path)

    monkeypatch.setattr("pyjs.server.reload.read_file", read_later)
    path = tmp_path / "server.conf"
    path.write_text('listen: "127.0.0.1:-1"\nmax_connections: 10\n', "utf-8")
    server = Server(load_options(str(path), read_file, {}, {}), ListLog())
    await server.start()
    path.write_text('listen: "127.0.0.1:-1"\nmax_connections: 11\n', "utf-8")
    asked = server.reload()
    talk = await Talk.to(server.client_url)
    assert not asked.done()

    may_read.set()

    assert await asked == ""
    assert server.options.limits.max_connections == 11
    talk.writer.close()
    await server.stop()
