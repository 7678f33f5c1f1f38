"""A server inside a program: its results, its effects on the process, and its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.aio.support import Talk, descriptors, refuses, threads

from pyjs.aio import ConfigError, Server, StartFailed
from pyjs.aio.keys import JetStreamKeys

NewLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(autouse=True)
def scratch_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put temporary stores below a directory of the test."""
    root = tmp_path / "scratch"
    root.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    return root


async def test_a_server_alone_stores_messages_and_leaves_nothing_behind(scratch_root: Path) -> None:
    async with Server() as server:
        talk = await Talk.to(server.client_url)
        await talk.api("STREAM.CREATE.S", name="S", subjects=["s.>"])
        stored = await talk.ask("s.1", b"hello")
        kept = list(scratch_root.iterdir())
        url = server.client_url

    assert stored == {"stream": "S", "seq": 1}
    assert url.startswith("nats://127.0.0.1:")
    assert len(kept) == 1
    assert list(scratch_root.iterdir()) == []
    assert await talk.rest() == b""
    assert refuses(url)
    assert threads() == []
    talk.writer.close()


async def test_a_program_declares_its_streams() -> None:
    streams = {"S": {"subjects": ["s.>"], "max_age": "1h"}}
    async with Server(jetstream={"streams": streams, "consumers": {"S": {"c": {}}}}) as server:
        talk = await Talk.to(server.client_url)
        info = await talk.api("STREAM.INFO.S")
        consumers = await talk.api("CONSUMER.NAMES.S")
        talk.writer.close()

    assert info["config"]["max_age"] == 3_600_000_000_000
    assert consumers["consumers"] == ["c"]


async def test_a_wrong_declared_stream_fails_the_start() -> None:
    with pytest.raises(StartFailed, match='options: unknown field "subject"; did you mean "subjects"'):
        await Server(jetstream={"streams": {"S": {"subject": "s"}}}).start()


async def test_a_store_directory_that_is_named_stays(tmp_path: Path) -> None:
    keys: JetStreamKeys = {"store_dir": tmp_path / "store"}
    async with Server(jetstream=keys) as server:
        talk = await Talk.to(server.client_url)
        await talk.api("STREAM.CREATE.S", name="S", subjects=["s.>"])
        await talk.ask("s.1", b"hello")
        talk.writer.close()

    async with Server(jetstream=keys) as server:
        talk = await Talk.to(server.client_url)
        info = await talk.api("STREAM.INFO.S")
        talk.writer.close()

    assert info["state"]["messages"] == 1


async def test_what_was_not_synced_is_there_after_a_stop(tmp_path: Path) -> None:
    keys: JetStreamKeys = {"store_dir": tmp_path, "sync_interval": "1h"}
    server = Server(jetstream=keys)
    await server.start()
    talk = await Talk.to(server.client_url)
    await talk.api("STREAM.CREATE.S", name="S", subjects=["s.>"])
    talk.writer.write(b"PUB s.1 5\r\nhello\r\n" * 1000 + b"PING\r\n")
    await talk.until(b"PONG\r\n")

    await server.stop()

    assert await talk.rest() == b""
    await server.start()
    again = await Talk.to(server.client_url)
    assert (await again.api("STREAM.INFO.S"))["state"]["messages"] == 1000
    await server.stop()
    for each in (talk, again):
        each.writer.close()


async def test_a_server_starts_and_stops_again() -> None:
    server = Server(http_port=-1)
    for _ in range(3):
        async with server:
            (await Talk.to(server.client_url)).writer.close()
            assert not refuses(str(server.monitor_url))
        await server.stop()
        assert repr(server) == "<pyjs.aio.Server not running>"


async def test_a_server_that_runs_is_not_started_again() -> None:
    async with Server(jetstream=False) as server:
        assert server.monitor_url is None
        with pytest.raises(RuntimeError, match=r"<pyjs.aio.Server nats://127.0.0.1:\d+> runs already"):
            await server.start()
        (await Talk.to(server.client_url)).writer.close()


def test_a_server_that_does_not_run_has_no_url() -> None:
    for attribute in ("client_url", "monitor_url"):
        with pytest.raises(RuntimeError, match="the server does not run"):
            getattr(Server(), attribute)


async def test_several_servers_run_on_one_loop(tmp_path: Path) -> None:
    async with Server() as one, Server() as two, Server(jetstream={"store_dir": tmp_path}) as three:
        assert len({one.client_url, two.client_url, three.client_url}) == 3
        talks = [await Talk.to(each.client_url) for each in (one, two, three)]
        for talk in talks:
            await talk.api("STREAM.CREATE.S", name="S", subjects=["s"])
        await talks[0].ask("s", b"only here")
        counts = [(await talk.api("STREAM.INFO.S"))["state"]["messages"] for talk in talks]

    assert counts == [1, 0, 0]
    for talk in talks:
        talk.writer.close()


async def test_a_start_among_a_thousand_tasks_lets_them_go_on() -> None:
    rounds = [0] * 1000

    async def busy(at: int) -> None:
        while True:
            rounds[at] += 1
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(busy(at)) for at in range(len(rounds))]
    async with Server() as server:
        (await Talk.to(server.client_url)).writer.close()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert min(rounds) > 1
    assert all(task.cancelled() for task in tasks)


# Errors


async def test_a_port_in_use_is_an_exception_and_leaves_nothing(scratch_root: Path) -> None:
    before = descriptors()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server(port=port)
        at = f"127.0.0.1:{port}"
        text = f'Error listening on port: {at}, "listen tcp {at}: bind: address already in use"'
        with pytest.raises(StartFailed) as told:
            await server.start()

    remedy = f"another process listens there (ss -ltnp | grep :{port}): stop it, or change `port`"
    assert str(told.value) == f"{text}\n-> {remedy}"
    assert (descriptors(), threads(), list(scratch_root.iterdir())) == (before, [], [])
    async with server:
        assert server.client_url == f"nats://127.0.0.1:{port}"


async def test_a_store_of_another_server_is_an_exception(tmp_path: Path) -> None:
    async with Server(jetstream={"store_dir": tmp_path}):
        with pytest.raises(StartFailed, match="is in use by another server"):
            await Server(jetstream={"store_dir": tmp_path}).start()


def test_a_wrong_configuration_is_an_exception() -> None:
    with pytest.raises(ConfigError, match="unknown field"):
        Server(prot=4222)  # type: ignore[call-arg]


async def test_a_log_file_that_cannot_be_opened_is_an_exception(tmp_path: Path, scratch_root: Path) -> None:
    server = Server(log_file=tmp_path / "none" / "log")

    for _ in range(2):
        with pytest.raises(StartFailed, match=r"error opening file: open .*/none/log: no such file"):
            await server.start()
    assert list(scratch_root.iterdir()) == []


async def test_a_temporary_directory_that_cannot_be_made_is_an_exception(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    before = descriptors()
    server = Server()

    for _ in range(2):
        with pytest.raises(StartFailed, match="no store directory: /nowhere"):
            await server.start()

    assert descriptors() == before


async def test_an_exception_in_the_body_stops_the_server_and_goes_on() -> None:
    urls = []

    async def body() -> None:
        async with Server() as server:
            urls.append(server.client_url)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()

    assert refuses(urls[0])


@pytest.mark.parametrize("steps", range(1, 6))
async def test_a_cancelled_start_leaves_nothing_and_can_be_repeated(steps: int, scratch_root: Path) -> None:
    server = Server()
    starting = asyncio.create_task(server.start())
    for _ in range(steps):
        await asyncio.sleep(0)

    starting.cancel()
    await asyncio.wait([starting])

    if starting.cancelled():
        assert (threads(), list(scratch_root.iterdir())) == ([], [])
        await server.start()
    await server.stop()


async def test_a_cancelled_body_stops_the_server() -> None:
    entered = asyncio.Event()
    urls = []

    async def body() -> None:
        async with Server() as server:
            urls.append(server.client_url)
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert refuses(urls[0])


async def test_a_cancelled_stop_goes_on_without_who_asked() -> None:
    server = Server()
    await server.start()
    url = server.client_url
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)

    stopping.cancel()
    await asyncio.wait([stopping])
    await server.stop()

    assert refuses(url)
    assert threads() == []


# Effects on the process


@pytest.fixture
def thawed_heap() -> Iterator[None]:
    """Let the garbage collector see objects that the suite froze (some may be freed), and freeze them again."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()  # otherwise each collection in later tests examines all of it, for a fifth of a second


@pytest.mark.usefixtures("thawed_heap")
async def test_the_process_of_the_program_is_left_alone() -> None:
    def found() -> list[object]:
        # SIGBUS is the only signal with a handler, in C, which calls the earlier handler: for unreadable pages of
        # maps.
        handlers = [signal.getsignal(number) for number in signal.valid_signals()]
        loggers = [
            (logger.level, tuple(logger.handlers)) for logger in (logging.root, logging.getLogger("pyjs"))
        ]
        collector = (gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks), gc.isenabled())
        switching_s = sys.getswitchinterval()
        hooks = (sys.excepthook, sys.unraisablehook, threading.excepthook)
        loop = asyncio.get_running_loop()
        policy = asyncio.get_event_loop_policy()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        return [
            handlers,
            loggers,
            collector,
            switching_s,
            hooks,
            loop.get_exception_handler(),
            policy,
            limits,
            os.getcwd(),
        ]

    before = found()

    async with Server(http_port=-1) as server:
        talk = await Talk.to(server.client_url)
        await talk.api("STREAM.CREATE.S", name="S", subjects=["s"])
        during = found()
        talk.writer.close()

    assert during == before
    assert found() == before


async def test_the_log_goes_to_logging_and_says_nothing_more_than_warnings_unasked(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyjs.server")
    async with Server():
        pass

    assert "Server is ready" in caplog.messages
    assert capfd.readouterr() == ("", "")


async def test_the_log_goes_to_the_logger_that_is_given(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("mine")
    caplog.set_level(logging.INFO, "mine")

    async with Server(logger=logger):
        pass

    assert {record.name for record in caplog.records} == {"mine"}


async def test_the_log_goes_to_the_log_file_that_is_configured(tmp_path: Path) -> None:
    async with Server():
        pass
    before = descriptors()

    for _ in range(3):
        async with Server(log_file=tmp_path / "log"):
            pass

    assert (tmp_path / "log").read_text().count("Server is ready") == 3
    assert descriptors() == before


async def test_warnings_of_the_configuration_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with Server(jetstream={"cipher": "aes"}):
        pass

    assert any('"cipher" changes nothing without "key"' in text for text in caplog.messages)


# Loops


def test_the_same_server_runs_on_one_loop_after_another(new_loop: NewLoop) -> None:
    server = Server()

    async def main() -> str:
        async with server:
            (await Talk.to(server.client_url)).writer.close()
            return server.client_url

    for _ in range(2):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            assert refuses(runner.run(main()))


def test_a_server_is_stopped_on_its_own_loop_only(new_loop: NewLoop) -> None:
    server, other = Server(), new_loop()

    async def main() -> None:
        await server.start()
        stopping = asyncio.run_coroutine_threadsafe(server.stop(), other)
        with pytest.raises(RuntimeError, match="runs on another event loop"):
            await asyncio.wrap_future(stopping)
        await server.stop()

    thread = threading.Thread(target=other.run_forever)
    thread.start()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    other.call_soon_threadsafe(other.stop)
    thread.join()
    other.close()


def test_a_stop_after_the_loop_was_closed_warns_and_gives_everything_back(
    new_loop: NewLoop, scratch_root: Path
) -> None:
    server = Server()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(server.start())

    with asyncio.Runner(loop_factory=new_loop) as runner:
        with pytest.warns(ResourceWarning, match="was closed before the server was stopped"):
            runner.run(server.stop())
        assert (threads(), list(scratch_root.iterdir())) == ([], [])
        runner.run(server.start())
        runner.run(server.stop())


def test_a_server_that_is_forgotten_with_its_loop_warns_and_gives_everything_back(
    new_loop: NewLoop, scratch_root: Path
) -> None:
    async def main() -> None:
        server = Server()
        await server.start()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())
        gc.collect()
        gc.collect()

    assert any("was not stopped before its event loop ended" in str(one.message) for one in said)
    assert (threads(), list(scratch_root.iterdir())) == ([], [])


async def test_fifty_starts_and_stops_leave_no_descriptor_and_no_thread(scratch_root: Path) -> None:
    async def life() -> None:
        async with Server(http_port=-1) as server:
            talk = await Talk.to(server.client_url)
            await talk.api("STREAM.CREATE.S", name="S", subjects=["s"])
            await talk.ask("s", b"x")
            talk.writer.close()

    await life()
    before = descriptors()
    for _ in range(50):
        await life()

    await asyncio.sleep(0)
    assert (descriptors(), threads(), list(scratch_root.iterdir())) == (before, [], [])


def test_workers_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="workers are processes of the command pyjs-server"):
        Server(workers=2)
