import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.log import ListLog
from pyjs.config.load import load_options
from pyjs.config.options import ConnectionLimits, JetStreamOptions, MonitoringOptions, Options
from pyjs.node import Node
from pyjs.server import server as server_module
from pyjs.server.connection import BUFFER_HIGH
from pyjs.server.server import Server, StartFailed
from pyjs.server.system.config_file import read_file
from pyjs.server.system.files import ports_path

CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n'
Start = Callable[..., Awaitable[Server]]


def quiet_options(**values: object) -> Options:
    """Return options for a server on a free local port."""
    options = Options(host="127.0.0.1", port=-1)
    for name, value in values.items():
        setattr(options, name, value)
    return options


async def stopped(server: Server) -> None:
    """Stop the server, and wait until it has stopped."""
    await asyncio.wait_for(server.stop(), 60)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[Server] = []

    async def begin(**values: object) -> Server:
        server = Server(quiet_options(**values), ListLog())
        await server.start()
        started.append(server)
        return server

    yield begin
    for server in started:
        await stopped(server)


class Peer:
    """A client of a server in the same process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def of(cls, server: Server) -> "Peer":
        peer = cls(*await asyncio.open_connection("127.0.0.1", server.client_port))
        peer.writer.write(CONNECT)
        await peer.until(b"PONG\r\n")
        return peer

    async def until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(end), 60)

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 60)


async def test_messages_go_from_client_to_client(start: Start) -> None:
    server = await start()
    a, b = await Peer.of(server), await Peer.of(server)
    a.writer.write(b"SUB foo 1\r\nPING\r\n")
    await a.until(b"PONG\r\n")

    b.writer.write(b"PUB foo 5\r\nhello\r\n")

    assert await a.until(b"hello\r\n") == b"MSG foo 1 5\r\nhello\r\n"
    a.writer.close()
    b.writer.close()


async def test_nagle_is_off(start: Start) -> None:
    server = await start()
    peer = await Peer.of(server)

    (connection,) = server.connections
    sock = connection.transport.get_extra_info("socket")

    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    peer.writer.close()


async def test_what_came_before_the_end_of_input_is_answered(start: Start) -> None:
    server = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)

    writer.write(b"CONNECT {}\r\nSUB foo 1\r\nPUB foo 2\r\nhi\r\nPING\r\n")
    writer.write_eof()

    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.endswith(b"+OK\r\n+OK\r\n+OK\r\nMSG foo 1 2\r\nhi\r\nPONG\r\n")
    assert server.node.closed[0].closed_reason == "Client Closed"
    writer.close()


async def test_a_reset_connection_is_forgotten(start: Start) -> None:
    server = await start()
    peer = await Peer.of(server)
    raw = peer.writer.get_extra_info("socket")

    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.writer.transport.abort()
    async with asyncio.timeout(10):
        while server.connections or server.node.sessions:
            await asyncio.sleep(0.001)

    assert len(server.node.closed) == 1


async def test_a_connection_that_ended_is_freed_without_the_collector_of_cycles(start: Start) -> None:
    server = await start()
    peer = await Peer.of(server)
    (connection,) = [weakref.ref(each) for each in server.connections]

    gc.disable()
    try:
        peer.writer.write(b"PUB foo 1000\r\nnot all of it")
        peer.writer.transport.abort()
        async with asyncio.timeout(10):
            while connection() is not None:
                await asyncio.sleep(0.001)
    finally:
        gc.enable()


async def test_a_reader_that_stops_makes_the_session_keep_its_output(start: Start) -> None:
    server = await start()
    slow, fast = await Peer.of(server), await Peer.of(server)
    slow.writer.write(b"SUB foo 1\r\nPING\r\n")
    await slow.until(b"PONG\r\n")
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    session = next(iter(server.node.sessions.values()))
    payload = b"x" * 100_000

    sent = 0
    while session.pending_size() < 4 * BUFFER_HIGH:
        fast.writer.write(b"PUB foo 100000\r\n" + payload + b"\r\nPING\r\n")
        await fast.until(b"PONG\r\n")
        sent += 1
    slow.writer.transport.resume_reading()  # type: ignore[attr-defined]

    for _ in range(sent):
        assert len(await asyncio.wait_for(slow.reader.readexactly(100_020), 60)) == 100_020
    assert session.pending_size() == 0
    slow.writer.close()
    fast.writer.close()


async def test_a_client_that_sends_without_end_leaves_time_for_others(start: Start) -> None:
    # given
    server = await start()
    busy, quiet = await Peer.of(server), await Peer.of(server)
    message = b"PUB foo 1000\r\n" + b"x" * 1000 + b"\r\n"
    busy.writer.write(message * 40_000)
    session = next(iter(server.node.sessions.values()))
    while session.in_msgs == 0:
        await asyncio.sleep(0)
    # when
    quiet.writer.write(b"PING\r\n")
    await quiet.until(b"PONG\r\n")
    # then
    assert session.in_msgs < 40_000
    busy.writer.write(b"PING\r\n")
    await busy.until(b"PONG\r\n")
    assert session.in_msgs == 40_000
    busy.writer.close()
    quiet.writer.close()


async def test_more_than_max_connections_are_refused(start: Start) -> None:
    server = await start(limits=ConnectionLimits(max_connections=1))
    peer = await Peer.of(server)

    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)

    assert (await asyncio.wait_for(reader.read(), 60)).endswith(b"-ERR 'maximum connections exceeded'\r\n")
    writer.close()
    peer.writer.close()


async def test_stopping_closes_every_connection(start: Start) -> None:
    server = await start(monitoring=MonitoringOptions(http_port=-1))
    peer = await Peer.of(server)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.monitor_port)

    await stopped(server)
    await stopped(server)

    assert await peer.rest() == b""
    assert await asyncio.wait_for(reader.read(), 60) == b""
    assert server.node.closed[0].closed_reason == "Server Shutdown"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.client_port)
    writer.close()
    peer.writer.close()


async def test_stopping_in_the_middle_of_entering_lame_duck_mode_waits_for_the_streams(
    start: Start, tmp_path: Path
) -> None:
    server = await start(jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)))
    peer = await Peer.of(server)
    peer.writer.write(b'SUB i 1\r\nPUB $JS.API.STREAM.CREATE.S i 29\r\n{"name":"S","subjects":["s"]}\r\n')
    await peer.until(b"}\r\n")
    peer.writer.write(b"PUB s 5\r\nhello\r\nPING\r\n")
    await peer.until(b"PONG\r\n")

    server.start_lame_duck()
    assert server.node.jetstream is None
    await stopped(server)

    assert isinstance(server.log, ListLog)
    said = [text for _, text in server.log.lines]
    assert said.index("JetStream Shutdown") < said.index("Server Exiting..")
    assert said.count("JetStream Shutdown") == 1


async def test_a_reload_gives_no_jetstream_back_to_a_lame_duck(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text(f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{tmp_path}/js" }}\n')
    server = Server(load_options(str(config), read_file, {}, {}), ListLog())
    await server.start()
    peer = await Peer.of(server)

    server.start_lame_duck()
    await server.reload()

    assert server.node.jetstream is None
    server.request_stop()
    await server.reload()
    assert server.node.jetstream is None
    await stopped(server)
    peer.writer.close()


async def test_a_key_that_is_set_twice_is_a_warning_at_the_start_and_at_a_reload(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text('listen: "127.0.0.1:-1"\nping_max: 3\nping_max: 4\n')
    server = Server(load_options(str(config), read_file, {}, {}), ListLog())
    await server.start()
    config.write_text('listen: "127.0.0.1:-1"\n\nping_max: 3\nping_max: 5\n')

    await server.reload()

    assert server.options.limits.ping_max == 5
    assert isinstance(server.log, ListLog)
    noted = [text.partition(", and")[0] for level, text in server.log.lines if level == "WRN"]
    said = '"ping_max" is set twice in this block, first at'
    assert noted == [f"{config}:3:1: {said} {config}:2:1", f"{config}:4:1: {said} {config}:3:1"]
    await stopped(server)


async def test_a_probable_mistake_is_a_warning_at_a_reload(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text('listen: "127.0.0.1:-1"\n')
    server = Server(load_options(str(config), read_file, {}, {}), ListLog())
    await server.start()
    config.write_text('listen: "127.0.0.1:-1"\nping_interval: 60\n')

    await server.reload()

    assert isinstance(server.log, ListLog)
    warned = [text for level, text in server.log.lines if level == "WRN"]
    assert [text.partition(" is a ")[0] for text in warned] == [f'{config}:2:16: "ping_interval"']
    await stopped(server)


async def test_a_reload_that_cannot_start_jetstream_leaves_the_store_alone(
    start: Start, tmp_path: Path
) -> None:
    owner = await start(jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path / "js")))
    config = tmp_path / "server.conf"
    config.write_text('listen: "127.0.0.1:-1"\n')
    server = Server(load_options(str(config), read_file, {}, {}), ListLog())
    await server.start()
    config.write_text(f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{tmp_path}/js" }}\n')

    for _ in range(2):
        await server.reload()
        assert server.node.jetstream is None
        assert all(account.jetstream is None for account in server.node.accounts.values())
    await stopped(owner)
    await server.reload()

    assert server.node.jetstream is not None
    assert isinstance(server.log, ListLog)
    assert len([text for _, text in server.log.lines if "in use by another server" in text]) == 2
    await stopped(server)


@pytest.mark.parametrize("step", ["jetstream", "node", "turn", "ports file"])
async def test_a_step_of_the_end_that_fails_is_logged_and_keeps_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path / "js"))
    server = Server(quiet_options(jetstream=jetstream, ports_file_dir=str(tmp_path)), ListLog())
    await server.start()
    peer = await Peer.of(server)

    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    if step == "jetstream":
        monkeypatch.setattr(server.node.jetstream, "stop", broken)
    elif step == "node":
        monkeypatch.setattr(server.node, "stop", broken)
    elif step == "turn":
        monkeypatch.setattr(server.node, "turn", broken)
    else:
        Path(ports_path(str(tmp_path))).unlink()
        Path(ports_path(str(tmp_path))).mkdir()
    await stopped(server)

    assert isinstance(server.log, ListLog)
    assert any("OSError" in text or "Error" in text for level, text in server.log.lines if level == "ERR")
    assert await peer.rest() == b""
    peer.writer.close()


async def test_two_servers_live_in_one_process(start: Start) -> None:
    one, two = await start(), await start()
    a, b = await Peer.of(one), await Peer.of(two)

    assert one.client_port != two.client_port
    assert one.client_url == f"nats://127.0.0.1:{one.client_port}"
    assert one.monitor_port == 0
    a.writer.close()
    b.writer.close()


async def test_a_start_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = quiet_options(port=taken.getsockname()[1], monitoring=MonitoringOptions(http_port=-1))
        server = Server(options, ListLog())

        with pytest.raises(StartFailed, match="Error listening on port"):
            await server.start()

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.monitor_port)


async def test_a_failure_in_the_input_of_a_connection_ends_that_connection_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start()
    bad, good = await Peer.of(server), await Peer.of(server)

    with monkeypatch.context() as patch:
        patch.setattr(server.node, "_entrance", None)
        bad.writer.write(b"CONNECT {}\r\n")
        answer = await bad.rest()
    good.writer.write(b"PING\r\n")

    assert answer == b"-ERR 'Internal Server Error'\r\n"
    assert (await good.until(b"PONG\r\n")).endswith(b"PONG\r\n")
    assert isinstance(server.log, ListLog)
    (text,) = [text for level, text in server.log.lines if level == "ERR"]
    assert "AttributeError" in text
    assert [closed.closed_reason for closed in server.node.closed] == ["Internal Error"]
    good.writer.close()


@pytest.fixture
def stored(tmp_path: Path) -> JetStreamOptions:
    """Return the options for a store of three streams."""
    js = JetStreamFixture(
        Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path / "jetstream")))
    )
    for name in ("A", "B", "C"):
        js.add(name, subjects=[name], storage="file")
        js.publish(name)
    js.node.stop()
    return JetStreamOptions(enabled=True, store_dir=str(tmp_path))


async def test_a_stop_is_heard_while_streams_are_recovered(
    monkeypatch: pytest.MonkeyPatch, stored: JetStreamOptions
) -> None:
    # given
    monkeypatch.setattr(server_module, "RECOVERY_S", 0.0)
    server = Server(quiet_options(jetstream=stored), ListLog())
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0)
    assert not starting.done()
    # when
    await stopped(server)
    # then
    with pytest.raises(StartFailed, match="stopped before the streams were recovered"):
        await starting
    assert server.node.jetstream is None


async def test_a_start_that_was_stopped_leaves_every_stream_to_the_next(
    monkeypatch: pytest.MonkeyPatch, start: Start, stored: JetStreamOptions
) -> None:
    monkeypatch.setattr(server_module, "RECOVERY_S", 0.0)
    first = Server(quiet_options(jetstream=stored), ListLog())
    starting = asyncio.create_task(first.start())
    await asyncio.sleep(0)
    first.request_stop()
    with pytest.raises(StartFailed):
        await starting

    second = await start(jetstream=stored)

    assert second.node.jetstream is not None
    streams = second.node.jetstream.accounts["$G"].streams
    assert {name: stream.store.last_seq for name, stream in streams.items()} == {"A": 1, "B": 1, "C": 1}


async def test_monitoring_answers_while_streams_are_recovered(
    monkeypatch: pytest.MonkeyPatch, stored: JetStreamOptions
) -> None:
    # given
    monkeypatch.setattr(server_module, "RECOVERY_S", 0.0)
    server = Server(quiet_options(jetstream=stored, monitoring=MonitoringOptions(http_port=-1)), ListLog())
    steps = iter(range(10**9))

    def endless(_: object) -> Iterator[None]:
        for _ in steps:
            yield

    monkeypatch.setattr(Node, "start_jetstream_steps", endless)
    starting = asyncio.create_task(server.start())
    while not server.monitor_port:
        await asyncio.sleep(0)
    # when
    reader, writer = await asyncio.open_connection("127.0.0.1", server.monitor_port)
    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 60)
    # then
    assert answer.endswith(b'"error":"server is not ready for connections"}')
    server.request_stop()
    with pytest.raises(StartFailed):
        await starting
    writer.close()


async def test_traced_protocol_is_in_the_log(start: Start) -> None:
    server = await start()
    server.log.trace_on = True
    peer = await Peer.of(server)
    assert isinstance(server.log, ListLog)

    texts = [text.partition(" - cid:5 - ")[2] for level, text in server.log.lines if level == "TRC"]

    assert texts[0].startswith("<<- [CONNECT {")
    assert "<<- [PING]" in texts
    assert "->> [PONG]" in texts
    peer.writer.close()


async def test_clients_that_come_all_at_once_wait_in_the_backlog(start: Start) -> None:
    server = await start()
    await Peer.of(server)  # so that the loop has created its listening socket

    # The loop is blocked meanwhile; a connect that the kernel refused would only be repeated after a second.
    for _ in range(300):
        socket.create_connection(("127.0.0.1", server.client_port), timeout=0.5).close()
