"""The transport of WebSocket clients: order of input and output, limits before the login, and its end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.websocket import BINARY, CLOSE, DEFLATE, FIN, PING, PONG, RSV1, frame, head_of, packed
from tests.unit.server.websocket.doors import Caller, options_of, port_of, started

from pyjs.config.options import Options, UserOptions
from pyjs.server.server import Server
from pyjs.server.websocket.transport import ENTRY_PACKED_MAX, EVENTS_MAX, HEAD_SIZE_MAX

QUIETLY = b'CONNECT {"verbose":false,"user":"u","pass":"p"}\r\n'
PLAIN_END = frame(b"\x03\xe8", FIN | CLOSE)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    running = await started(options_of(compression=True))
    yield running
    await running.stop()


@pytest.fixture
async def guarded() -> AsyncIterator[Server]:
    options: Options = options_of(compression=True)
    options.authorization.users = (UserOptions(user="u", password="p"),)
    running = await started(options)
    yield running
    await running.stop()


async def test_a_request_may_come_byte_by_byte(server: Server) -> None:
    caller = await Caller.of(server)
    for byte in head_of():
        caller.writer.write(bytes((byte,)))
        await caller.writer.drain()
    assert b" 101 " in await caller.until(b"\r\n\r\n")
    assert port_of(server).held_size == 0
    caller.close()


async def test_a_request_without_end_is_refused_and_forgotten(server: Server) -> None:
    caller = await Caller.of(server)
    caller.writer.write(b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_SIZE_MAX)
    assert (await caller.rest()).startswith(b"HTTP/1.1 431 ")
    assert port_of(server).held_size == 0


async def test_a_part_of_a_request_is_forgotten_when_its_sender_leaves(server: Server) -> None:
    caller = await Caller.of(server)
    caller.writer.write(b"GET / HTTP/1.1\r\n")
    caller.writer.write_eof()
    assert await caller.rest() == b""
    assert port_of(server).held_size == 0


async def test_requests_that_do_not_end_are_refused_when_they_are_too_many(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyjs.server.websocket.port.HELD_SIZE_MAX", 10)
    caller = await Caller.of(server)
    caller.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
    assert (await caller.rest()).startswith(b"HTTP/1.1 503 ")
    whole = await Caller.upgraded(server)  # a request in one piece is processed at once
    whole.close()


async def test_data_before_the_answer_ends_the_connection(server: Server) -> None:
    caller = await Caller.of(server)
    caller.writer.write(head_of() + frame(b"PING\r\n"))
    assert await caller.rest() == b""


async def test_more_frames_than_one_iteration_takes_are_answered_in_their_order(server: Server) -> None:
    caller = await Caller.upgraded(server)
    count = 3 * EVENTS_MAX
    caller.writer.write(b"".join(frame(b"%d" % number, FIN | PING) for number in range(count)))
    found = [await caller.next_frame() for _ in range(count)]
    assert found == [(FIN | PONG, b"%d" % number) for number in range(count)]
    caller.close()


async def test_what_came_before_the_end_of_input_is_answered(server: Server) -> None:
    caller = await Caller.upgraded(server, Sec_WebSocket_Extensions=DEFLATE)
    caller.send(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n')
    publish = frame(packed(b"PUB a 2\r\nhi\r\n"), FIN | RSV1 | BINARY)
    caller.writer.write(publish * 2 * EVENTS_MAX)
    caller.writer.write_eof()
    text = b""
    while text.count(b"hi\r\n") < 2 * EVENTS_MAX:
        text += (await caller.next_frame())[1]
    assert (await caller.next_frame())[0] == FIN | CLOSE
    assert await caller.rest() == b""


async def test_a_close_frame_is_answered_after_the_output_of_what_came_before(server: Server) -> None:
    caller = await Caller.upgraded(server)
    caller.writer.write(frame(b'CONNECT {"verbose":false}\r\nPING\r\n') + PLAIN_END + frame(b"PING\r\n"))
    assert await caller.next_frame() == (FIN | BINARY, b"PONG\r\n")
    assert await caller.next_frame() == (FIN | CLOSE, b"\x03\xe8")
    assert await caller.rest() == b""


async def test_after_a_damaged_message_nothing_more_is_read(server: Server) -> None:
    caller = await Caller.upgraded(server, Sec_WebSocket_Extensions=DEFLATE)
    caller.send(b'CONNECT {"verbose":false}\r\n')
    caller.writer.write(frame(b"\xff\xff", FIN | RSV1 | BINARY) + frame(b"PUB a 0\r\n\r\n"))
    await caller.rest()
    assert server.node.closed[0].closed_reason == "Read Error"
    assert server.node.closed[0].in_msgs == 0


async def test_a_stranger_may_not_fill_the_memory_with_a_compressed_message(guarded: Server) -> None:
    caller = await Caller.upgraded(guarded, Sec_WebSocket_Extensions=DEFLATE)
    caller.send(b"x" * (ENTRY_PACKED_MAX + 1), RSV1 | BINARY)
    await caller.rest()
    assert guarded.node.closed[0].closed_reason == "Read Error"


async def test_a_user_may_send_a_long_compressed_message(guarded: Server) -> None:
    caller = await Caller.upgraded(guarded, Sec_WebSocket_Extensions=DEFLATE)
    caller.send(QUIETLY + b"SUB a 1\r\nPING\r\n")
    assert (await caller.next_frame())[1] == b"PONG\r\n"
    stored = b"".join(  # deflate blocks without compression
        b"\x00" + len(part).to_bytes(2, "little") + (65535 - len(part)).to_bytes(2, "little") + part
        for part in (b"PUB a 100000\r\n", b"x" * 50_000, b"x" * 50_000, b"\r\n")
    )
    caller.send(stored + b"\x00", FIN | RSV1 | BINARY)
    _, text = await caller.next_frame()
    assert text.startswith(b"MSG a 1 100000\r\n")
    caller.close()


async def test_a_stranger_that_is_refused_is_told_so(guarded: Server) -> None:
    caller = await Caller.upgraded(guarded)
    caller.send(b"PUB a 1000000\r\n")  # do not wait for its payload
    assert await caller.next_frame() == (FIN | BINARY, b"-ERR 'Authorization Violation'\r\n")
    first, payload = await caller.next_frame()
    assert (first, payload[:2]) == (FIN | CLOSE, b"\x03\xf0")
