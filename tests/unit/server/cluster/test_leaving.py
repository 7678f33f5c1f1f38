"""A server of a JetStream cluster leaves: its clients reconnect to another server, and every request is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from pyjs.base.log import ListLog
from pyjs.cluster.interest import Interest
from pyjs.config.options import ClusterOptions, JetStreamOptions, Options, RouteUrl
from pyjs.server.cluster import leaving
from pyjs.server.connection import Connection
from pyjs.server.server import Server, State

WAIT_S = 60.0
NAMES = ("a", "b", "c")
_numbers = count(1)  # numbers of requests
CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[Server]]:
    """Start three servers of one cluster; each has routes to the earlier ones."""
    started: list[Server] = []
    for name in NAMES:
        ports = [each.node.cluster.port for each in started if each.node.cluster is not None]
        routes = tuple(RouteUrl("127.0.0.1", port, "", "") for port in ports)
        options = Options(host="127.0.0.1", port=-1, server_name=name)
        options.cluster = ClusterOptions(name="T", host="127.0.0.1", port=-1, routes=routes)
        options.jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path / name))
        options.lame_duck_grace_period_ns, options.lame_duck_duration_ns = 1_000_000, 20_000_000
        started.append(Server(options, ListLog()))
        await started[-1].start()
    while not all(map(is_member, started)):
        await asyncio.sleep(0.001)  # no event signals it
    yield started
    for server in started:
        if server.state is not State.STOPPED:
            await asyncio.wait_for(server.stop(), WAIT_S)


def is_member(server: Server) -> bool:
    """Return whether a server sees all servers and the leader of the metadata group."""
    assert server.node.jetstream is not None
    member = server.node.jetstream.shared.member
    assert member is not None
    return (
        member.is_caught_up and member.machine.leader > 0 and len(member.machine.state.servers) == len(NAMES)
    )


class Client:
    """A connection that reads one operation at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def of(cls, server: Server, said: bytes) -> Client:
        """Connect to a server and send `said`; return when the server has handled it."""
        client = cls(*await asyncio.open_connection("127.0.0.1", server.client_port))
        client.writer.write(CONNECT + said)
        await client.fence()
        return client

    async def fence(self) -> None:
        """Wait until the server has handled everything sent so far."""
        self.writer.write(b"PING\r\n")
        while (await self.line()) != b"PONG":
            pass

    async def line(self) -> bytes:
        """Return the next line; b"" at the end."""
        return (await asyncio.wait_for(self.reader.readline(), WAIT_S)).strip()

    async def message(self) -> tuple[bytes, bytes, bytes]:
        """Return the subject, the reply subject and the payload of the next message."""
        while not (line := await self.line()).startswith((b"MSG", b"HMSG")):
            assert line, "the connection has ended"
        words = line.split()
        payload = await asyncio.wait_for(self.reader.readexactly(int(words[-1]) + 2), WAIT_S)
        return words[1], words[3] if len(words) > 4 else b"", payload[:-2]

    async def ask(self, subject: bytes, body: bytes) -> bytes:
        """Return the answer to a request; the client is subscribed to `in.*`."""
        inbox = b"in.%d" % next(_numbers)
        self.writer.write(b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(body), body))
        while True:  # a server that takes over may answer an earlier request again
            found, _, answer = await self.message()
            if found == inbox:
                return answer

    async def ended(self) -> None:
        """Wait until the server closes the connection; close it here too."""
        while await self.line():
            pass
        self.writer.close()


async def known(server: Server, subject: bytes) -> None:
    """Wait until another server knows a subscription, which no event signals."""
    while not server.node.accounts["$G"].has_interest(subject):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("leave", [Server.start_lame_duck, Server.request_stop])
async def test_an_answer_that_comes_between_two_servers_reaches_the_client(
    servers: list[Server], leave: Callable[[Server], None]
) -> None:
    a, b, c = servers
    service = await Client.of(b, b"SUB svc 1\r\n")
    await known(a, b"svc")
    client = await Client.of(a, b"SUB _INBOX.x.* 1\r\nPUB svc _INBOX.x.1 2\r\nhi\r\n")
    _, reply, _ = await service.message()
    leave(a)
    await client.ended()
    service.writer.write(b"PUB %b 6\r\nanswer\r\n" % reply)
    await service.fence()
    again = await Client.of(c, b"")
    again.writer.write(b"SUB _INBOX.x.* 1\r\n")
    assert await again.message() == (b"_INBOX.x.1", b"", b"answer")
    service.writer.close()
    again.writer.close()


async def test_an_answer_that_comes_between_two_servers_reaches_a_watcher_once(servers: list[Server]) -> None:
    a, b, c = servers
    service, watcher = await Client.of(b, b""), await Client.of(c, b"SUB _INBOX.> 1\r\nSUB _INBOX.x.1 2\r\n")
    client = await Client.of(a, b"SUB _INBOX.x.* 1\r\n")
    await known(b, b"_INBOX.x.1")
    a.request_stop()
    await client.ended()
    service.writer.write(b"PUB _INBOX.x.1 _INBOX.y 6\r\nanswer\r\n")
    await service.fence()
    again = await Client.of(c, b"SUB _INBOX.x.* 1\r\nSUB _INBOX.x.1 2\r\nSUB _INBOX.x.* q 3\r\n")
    await asyncio.wait_for(a.wait_stopped(), WAIT_S)
    assert await drained(again) == [b"_INBOX.x.1"]
    assert await drained(watcher) == [b"_INBOX.x.1", b"_INBOX.x.1"]  # for its two subscriptions
    for each in (service, watcher, again):
        each.writer.close()


async def test_a_message_of_a_consumer_that_comes_between_two_servers_is_not_published_again(
    servers: list[Server],
) -> None:
    a, b, c = servers
    create = b'{"name":"S","subjects":["s"],"num_replicas":3}'
    config = b'{"stream_name":"S","config":{"deliver_subject":"_INBOX.d","ack_policy":"none"}}'
    maker = await Client.of(b, b"SUB in.* 1\r\n")
    for subject, body in ((b"STREAM.CREATE.S", create), (b"CONSUMER.CREATE.S", config)):
        assert b"error" not in await maker.ask(b"$JS.API." + subject, body)
    client = await Client.of(a, b"SUB _INBOX.d 1\r\n")
    for server in (b, c):
        await known(server, b"_INBOX.d")
    a.start_lame_duck()
    await client.ended()
    assert json.loads(await maker.ask(b"s", b"hi"))["seq"] == 1
    again = await Client.of(c, b"SUB _INBOX.d 1\r\n")
    await asyncio.wait_for(a.wait_stopped(), WAIT_S)
    assert json.loads(await maker.ask(b"s", b"hi"))["seq"] == 2
    maker.writer.close()
    again.writer.close()


async def test_a_service_that_comes_to_another_server_loses_no_request(servers: list[Server]) -> None:
    a, b, c = servers
    stopping = asyncio.Event()
    begun = {name: asyncio.Event() for name in NAMES}

    async def serve(server: Server) -> None:
        service = await Client.of(server, b"SUB svc group 1\r\n")
        with suppress(AssertionError):
            while True:
                _, reply, _ = await service.message()
                begun[server.node.server_name].set()
                service.writer.write(b"PUB %b 2\r\nok\r\n" % reply)
        service.writer.close()

    async def ask() -> int:
        asker, number = await Client.of(b, b"SUB in.* 1\r\n"), 0
        while not stopping.is_set():
            number += 1
            asker.writer.write(b"PUB svc in.%d 0\r\n\r\n" % number)
            assert await asker.message() == (b"in.%d" % number, b"", b"ok")
        asker.writer.close()
        return number

    services = [asyncio.create_task(serve(server)) for server in (a, c)]
    await known(b, b"svc")
    asking = asyncio.create_task(ask())
    await asyncio.wait_for(asyncio.gather(begun["a"].wait(), begun["c"].wait()), WAIT_S)
    a.start_lame_duck()
    await asyncio.wait_for(a.wait_stopped(), WAIT_S)
    stopping.set()
    assert await asking > 1
    for each in services:
        each.cancel()


async def drained(client: Client) -> list[bytes]:
    """Return the subjects of the messages that a client got before the answer to its own request."""
    client.writer.write(b"SUB end 9\r\nPUB end 0\r\n\r\n")
    found = []
    while (subject := (await client.message())[0]) != b"end":
        found.append(subject)
    return found


async def test_clients_that_leave_together_do_not_multiply_a_message(servers: list[Server]) -> None:
    a, b, c = servers
    clients = [await Client.of(a, b"SUB _INBOX.s.%b 1\r\n" % each) for each in (b">", b">", b"*", b"1")]
    publisher, watcher = await Client.of(b, b""), await Client.of(c, b"SUB _INBOX.> 1\r\n")
    for subject in (b"_INBOX.s.1", b"_INBOX.s.1.2"):
        await known(b, subject)
    a.request_stop()
    for each in clients:
        await each.ended()
    publisher.writer.write(b"PUB _INBOX.s.1 3\r\none\r\n")
    await publisher.fence()
    again = await Client.of(b, b"SUB _INBOX.s.> 1\r\n")
    await asyncio.wait_for(a.wait_stopped(), WAIT_S)
    assert await drained(again) == [b"_INBOX.s.1"]
    assert await drained(watcher) == [b"_INBOX.s.1"]
    for each in (publisher, watcher, again):
        each.writer.close()


async def test_an_inbox_that_the_client_has_again_is_not_held_for_the_sake_of_others(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "LOOK_S", WAIT_S)  # the new subscription ends the pause
    a, _, c = servers
    client = await Client.of(a, b"SUB _INBOX.x.* 1\r\nSUB _INBOX.former 2\r\n")
    a.request_stop()
    await client.ended()
    again = await Client.of(c, b"SUB _INBOX.x.* 1\r\n")
    interest = a.node.accounts["$G"].interest
    assert isinstance(interest, Interest)
    while (b"_INBOX.x.*", b"") in interest.counts:
        await asyncio.sleep(0.001)
    assert (b"_INBOX.former", b"") in interest.counts
    again.writer.close()


async def test_members_of_a_queue_group_that_leave_together_are_not_chosen_any_more(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, _ = servers
    members = [await Client.of(a, b"SUB svc group 1\r\n") for _ in range(2)]
    await known(b, b"svc")
    hang_up, seen = Connection.hang_up, []

    def look(self: Connection) -> None:
        seen.append(b.node.accounts["$G"].has_interest(b"svc"))
        hang_up(self)

    monkeypatch.setattr(Connection, "hang_up", look)
    a.request_stop()
    for each in members:
        await each.ended()
    assert seen == [False, False]
