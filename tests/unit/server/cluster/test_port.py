"""Servers of one cluster in one process, on real sockets: when they open their ports for clients."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from pyjs.base.log import ListLog
from pyjs.config.load import load_options
from pyjs.config.options import ClusterOptions, Options, RouteUrl
from pyjs.server.cluster import port as port_module
from pyjs.server.server import Server
from pyjs.server.system.config_file import read_file

WAIT_S = 60.0
Start = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[Server] = []

    async def begin(name: str, *routes: int) -> Server:
        urls = tuple(RouteUrl("127.0.0.1", port, "", "") for port in routes)
        cluster = ClusterOptions(name="T", host="127.0.0.1", port=-1, routes=urls)
        server = Server(Options(host="127.0.0.1", port=-1, server_name=name, cluster=cluster), ListLog())
        started.append(server)
        await server.start()
        return server

    yield begin
    for server in started:
        await asyncio.wait_for(server.stop(), WAIT_S)


def route_port(server: Server) -> int:
    assert server.node.cluster is not None
    return server.node.cluster.port


async def client(
    server: Server, said: bytes, protocol: int = 0
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection that has sent `said` and received its PONG."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    writer.write(b'CONNECT {"verbose":false,"protocol":%d}\r\n%bPING\r\n' % (protocol, said))
    await asyncio.wait_for(reader.readuntil(b"PONG\r\n"), WAIT_S)
    return reader, writer


async def test_the_first_message_of_the_first_client_reaches_the_other_servers(start: Start) -> None:
    one = await start("one")
    reader, writer = await client(one, b"SUB x 1\r\n")
    two = await start("two", route_port(one))
    _, other = await client(two, b"PUB x 2\r\nhi\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"hi\r\n"), WAIT_S) == b"MSG x 1 2\r\nhi\r\n"
    writer.close()
    other.close()


async def test_a_server_learns_of_all_others_from_one_before_it_takes_clients(start: Start) -> None:
    one = await start("one")
    two = await start("two", route_port(one))
    three = await start("three", route_port(two))
    assert three.node.cluster is not None
    assert len(three.node.cluster.routes) == 2


async def test_a_server_whose_routes_lead_nowhere_takes_clients_at_once(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = free.getsockname()[1]
    began = time.monotonic()
    alone = await start("alone", nobody)
    assert time.monotonic() - began < port_module.KNOWN_S
    _, writer = await client(alone, b"")
    writer.close()


async def test_a_server_that_others_do_not_answer_takes_clients_after_a_while(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_module, "KNOWN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        alone = await start("alone", silent.getsockname()[1])
        _, writer = await client(alone, b"")
        writer.close()


async def test_a_cluster_port_that_the_system_chose_is_told_with_the_advertised_host() -> None:
    cluster = ClusterOptions(name="T", host="127.0.0.1", port=-1, advertise="localhost")
    server = Server(Options(host="127.0.0.1", port=-1, cluster=cluster), ListLog())
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", route_port(server))
    hello = await asyncio.wait_for(reader.readline(), WAIT_S)
    told = json.loads(hello.removeprefix(b"INFO "))
    assert (told["host"], told["port"]) == ("localhost", route_port(server))
    writer.close()
    await asyncio.wait_for(server.stop(), WAIT_S)


async def test_a_reload_tells_the_clients_of_all_servers_the_new_address(
    start: Start, tmp_path: Path
) -> None:
    config = tmp_path / "server.conf"
    text = 'listen: "127.0.0.1:-1"\ncluster { name: T, listen: "127.0.0.1:-1" }\n'
    config.write_text(f"{text}client_advertise: before")
    one = Server(load_options(str(config), read_file, {}, {}), ListLog())
    await one.start()
    two = await start("two", route_port(one))
    assert two.node.cluster is not None
    assert f"before:{one.client_port}" in two.node.cluster.client_urls()
    clients = [await client(server, b"", protocol=1) for server in (one, two)]

    config.write_text(f"{text}client_advertise: after")
    assert await one.reload() == ""

    for reader, writer in clients:
        info = await asyncio.wait_for(reader.readuntil(b'"after:%d"' % one.client_port), WAIT_S)
        assert b'"before:' not in info.rpartition(b"INFO ")[2]
        writer.close()
    assert f"before:{one.client_port}" not in two.node.cluster.client_urls()
    await asyncio.wait_for(one.stop(), WAIT_S)
