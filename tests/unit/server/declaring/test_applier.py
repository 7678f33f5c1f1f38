"""Application of declared assets by a server in this process: at the start, after a reload, again after errors."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.aio.support import Talk

from pyjs.base.log import ListLog
from pyjs.config.load import load_options
from pyjs.declared.asking import Ask
from pyjs.jetstream.server import JetStreamServer
from pyjs.server.declaring import applier, requester
from pyjs.server.declaring.requester import Requester
from pyjs.server.failures import StartFailed
from pyjs.server.server import Server
from pyjs.server.system.config_file import read_file


class Declaring:
    """A server whose file declares streams."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "server.conf"
        self.store = directory / "js"
        self.server: Server

    def write(self, blocks: str) -> None:
        head = f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{self.store}"\n'
        self.path.write_text(f"{head}{blocks} }}\n", "utf-8")

    async def start(self, blocks: str) -> Server:
        self.write(blocks)
        self.server = Server(load_options(str(self.path), read_file, {}, {}), ListLog())
        await self.server.start()
        return self.server

    @property
    def lines(self) -> list[str]:
        assert isinstance(self.server.log, ListLog)
        return [text for _, text in self.server.log.lines if "Declared" in text or "declared" in text]

    async def wait_line(self, holds: Callable[[str], bool]) -> None:
        """Wait for a line of the log, which is written in a turn of this loop."""
        async with asyncio.timeout(30):
            while not any(holds(line) for line in self.lines):
                await asyncio.sleep(0)

    async def api(self, endpoint: str, **request: Any) -> dict[str, Any]:
        talk = await Talk.to(self.server.client_url)
        answer = await talk.api(endpoint, **request)
        talk.writer.close()
        return answer


@pytest.fixture
async def declaring(tmp_path: Path) -> AsyncIterator[Declaring]:
    made = Declaring(tmp_path)
    yield made
    await made.server.stop()


async def test_the_first_client_finds_the_declared_streams(declaring: Declaring) -> None:
    await declaring.start("streams { S { subjects: s } }\nconsumers { S { c {} } }\nkv { b {} }")
    assert (await declaring.api("STREAM.NAMES"))["streams"] == ["KV_b", "S"]
    assert (await declaring.api("CONSUMER.NAMES.S"))["consumers"] == ["c"]
    assert declaring.lines[-1] == "Declared in account $G: 3 created"


async def test_a_second_start_changes_nothing(declaring: Declaring) -> None:
    await (await declaring.start("streams { S { subjects: s } }")).stop()
    await declaring.start("streams { S { subjects: s } }")
    assert declaring.lines == ["Declared in account $G: 1 unchanged"]


async def test_a_reload_applies_an_edit(declaring: Declaring) -> None:
    server = await declaring.start("streams { S { subjects: s } }")
    declaring.write('streams { S { subjects: s, max_age: "1h" }\nT {} }')
    assert await server.reload() == ""
    await declaring.wait_line(lambda line: line.endswith("1 created, 1 updated"))
    assert "Declared in account $G: ~ stream S  updated max_age: 0s -> 1h0m0s" in declaring.lines
    assert (await declaring.api("STREAM.INFO.T"))["config"]["subjects"] == ["T"]


async def test_a_reload_may_declare_the_first_stream_and_none_again(declaring: Declaring) -> None:
    server = await declaring.start("")
    await server.reload()
    declaring.write("streams { S {} }")
    await server.reload()
    await declaring.wait_line(lambda line: line.endswith("1 created"))
    declaring.write("")
    assert await server.reload() == ""
    assert (await declaring.api("STREAM.NAMES"))["streams"] == ["S"]


async def test_reloads_that_follow_each_other_apply_the_last_file(declaring: Declaring) -> None:
    server = await declaring.start("streams { S {} }")
    for number in range(5):
        declaring.write(f'streams {{ S {{ description: "{number}" }} }}')
        await server.reload()
    await declaring.wait_line(lambda line: line.endswith("-> 4") or "0 -> 4" in line)
    assert (await declaring.api("STREAM.INFO.S"))["config"]["description"] == "4"


async def test_a_wrong_file_is_refused_as_a_whole(declaring: Declaring) -> None:
    server = await declaring.start("streams { S {} }")
    declaring.write("streams { S { storag: memory }\nT {} }")
    assert await server.reload() == f'{declaring.path}:3:15: unknown field "storag"; did you mean "storage"?'
    assert (await declaring.api("STREAM.NAMES"))["streams"] == ["S"]


async def test_a_wrong_file_stops_the_start(tmp_path: Path) -> None:
    declaring = Declaring(tmp_path)
    with pytest.raises(StartFailed, match=r"server.conf:3:15: unknown field"):
        await declaring.start("streams { S { storag: memory } }")
    assert not declaring.store.exists()


async def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyjs.declared.reading", None)
    with pytest.raises(StartFailed, match=r"not installed: pyjs.declared.reading; pip install"):
        await Declaring(tmp_path).start("streams { S {} }")


async def test_what_cannot_be_changed_does_not_stop_the_start(declaring: Declaring) -> None:
    await (await declaring.start("streams { S { max_msgs: 5 } }")).stop()
    await declaring.start("streams { S { storage: memory }\nT {} }")
    assert (await declaring.api("STREAM.NAMES"))["streams"] == ["S", "T"]
    assert declaring.lines[0] == (
        "Declared in account $G: ! stream S  cannot change max_msgs: 5 -> -1, storage: file -> memory"
        " (stream configuration update can not change storage type)"
    )
    assert declaring.lines[-1] == "Declared in account $G: 1 created, 1 failed"


async def full(declaring: Declaring) -> JetStreamServer:
    """Start without room, declare a stream, and wait until it is refused."""
    server = await declaring.start("streams {}")
    jetstream = server.node.jetstream
    assert jetstream is not None
    jetstream.storage.max = 0
    declaring.write("streams { S {} }")
    await server.reload()
    jetstream.storage.max = 0  # the reload has set it
    await declaring.wait_line(lambda line: line.endswith("1 failed"))
    return jetstream


async def test_a_request_that_the_server_refuses_is_an_error(declaring: Declaring) -> None:
    await full(declaring)
    line = "Declared in account $G: + stream S  create: insufficient storage resources available"
    assert declaring.lines[-2:] == [line, "Declared in account $G: 1 failed"]


async def test_a_temporary_error_is_tried_again(
    declaring: Declaring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applier, "RETRY_FIRST_S", 0.001)
    monkeypatch.setattr(applier, "RETRY_LAST_S", 0.002)
    monkeypatch.setattr("pyjs.declared.asking.TEMPORARY", (10047,))
    jetstream = await full(declaring)
    refused = jetstream.shared.api_errors
    async with asyncio.timeout(30):
        while jetstream.shared.api_errors < refused + 3:
            await asyncio.sleep(0)
    jetstream.storage.max = -1
    await declaring.wait_line(lambda line: line.endswith("1 created"))
    assert sum("insufficient" in line for line in declaring.lines) == 1


async def test_a_stop_ends_the_attempts(declaring: Declaring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyjs.declared.asking.TEMPORARY", (10047,))
    await full(declaring)
    server = declaring.server
    await server.stop()
    server._jetstream.declared.reloaded(server.driver, ())
    assert declaring.lines[-1] == "Declared in account $G: 1 failed"


async def test_a_stop_does_not_wait_for_the_streams(tmp_path: Path) -> None:
    declaring = Declaring(tmp_path)
    declaring.write("streams {\n" + "\n".join(f"S{number} {{}}" for number in range(500)) + " }")
    server = declaring.server = Server(load_options(str(declaring.path), read_file, {}, {}), ListLog())
    starting = asyncio.ensure_future(server.start())
    while not (declaring.store / "jetstream/$G/streams").exists():
        await asyncio.sleep(0)

    server.request_stop()
    await starting
    await server.wait_stopped()

    assert declaring.lines == []


async def test_clients_do_not_wait_forever(declaring: Declaring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applier, "START_S", 0.0)
    await declaring.start("streams { S {} }")
    assert declaring.lines == []
    await declaring.wait_line(lambda line: line.endswith("1 created"))


async def test_a_request_without_an_answer_ends_after_some_time(
    declaring: Declaring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requester, "WAIT_NS", 1_000_000)
    server = await declaring.start("streams {}")
    answers: list[Any] = []
    done = asyncio.Event()

    def exchange() -> Any:
        answers.extend((yield [Ask("NOTHING.HERE", {}), Ask("STREAM.NAMES", {})]))
        done.set()

    server.node.turn_state.go_on(Requester(server.node, server.node.accounts["$G"]).run(exchange()))
    server.driver.wake()
    async with asyncio.timeout(30):
        await done.wait()
    assert answers[0] is None
    assert answers[1]["type"].endswith("stream_names_response")


async def test_answers_of_a_client_are_ignored(declaring: Declaring) -> None:
    server = await declaring.start("streams {}")
    account, clients = server.node.accounts["$G"], Requester(server.node, server.node.accounts["$G"])
    answers: list[Any] = []
    done = asyncio.Event()

    def exchange() -> Any:
        for forged in (b"x", b"", b"9" * 30, b"-1", b"7"):
            account.send(f"{clients._inbox}.".encode() + forged, b"{}")
        account.send(f"{clients._inbox}.1".encode(), b"[1")
        answers.extend((yield [Ask("STREAM.NAMES", {})]))
        answers.extend((yield [Ask("STREAM.NAMES", {})]))
        done.set()

    server.node.turn_state.go_on(clients.run(exchange()))
    server.driver.wake()
    async with asyncio.timeout(30):
        await done.wait()
    assert answers[-1]["type"].endswith("stream_names_response")


async def test_a_thousand_streams_leave_time_for_clients(declaring: Declaring) -> None:
    await declaring.start("streams {}")
    talk = await Talk.to(declaring.server.client_url)
    declaring.write(
        "streams {\n" + "\n".join(f"S{number} {{ storage: memory }}" for number in range(1000)) + " }"
    )
    await declaring.server.reload()
    longest = 0.0
    loop = asyncio.get_running_loop()
    while not any(line.endswith("1000 created") for line in declaring.lines):
        before = loop.time()
        talk.writer.write(b"PING\r\n")
        await talk.until(b"PONG\r\n")
        longest = max(longest, loop.time() - before)
    assert longest < 1.0
    talk.writer.close()
