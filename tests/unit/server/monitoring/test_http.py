import asyncio
import contextlib
import gc
import random
import re
import socket
import weakref

import pytest
from tests.unit.server.monitoring.conftest import Site

from pyjs.server.monitoring import port as monitor_port
from pyjs.server.monitoring.http import (
    BODY_MAX,
    DISCARDED_MAX,
    REQUEST_SIZE_MAX,
)


def body(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


async def test_an_answer_in_pieces_is_one_to_its_reader(site: Site) -> None:
    answer = await site.ask(b"GET /pieces HTTP/1.1\r\nConnection: close\r\n\r\n")

    assert body(answer) == b"one two three"
    assert b"Content-Length: 13\r\n" in answer
    assert body(await site.ask(b"HEAD /pieces HTTP/1.1\r\nConnection: close\r\n\r\n")) == b""


async def test_a_get_is_answered_with_its_length_and_date(site: Site) -> None:
    answer = await site.ask(b"GET /varz?x=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    lines = answer.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    assert b"Content-Length: 9" in lines
    assert any(line.startswith(b"Date: ") and line.endswith(b" GMT") for line in lines)
    assert body(answer) == b"/varz?x=1"


async def test_a_head_has_no_body(site: Site) -> None:
    answer = await site.ask(b"HEAD /varz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert b"Content-Length: 5" in answer
    assert body(answer) == b""


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"OPTIONS"])
async def test_other_methods_are_answered_as_get(site: Site, method: bytes) -> None:
    head = b" / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"

    assert body(await site.ask(method + head)) == b"/"


def post(*headers: bytes, body: bytes = b"{}", end: bool = True) -> bytes:
    lines = [b"POST /a HTTP/1.1", b"Host: h", *headers, *([b"Connection: close"] if end else [])]
    return b"\r\n".join([*lines, b"", body])


async def test_a_post_has_its_body_and_the_headers_that_are_checked(site: Site) -> None:
    kept = (b"ORIGIN: http://h", b"X-Pyjs-Action:  replay ", b"Content-Type: application/json", b"Other: x")

    await site.ask(post(*kept, b"Authorization: secret", b"Content-Length: 2"))

    (found,) = site.posted
    assert found is not None
    assert (found.body, found.peer.rpartition(":")[0]) == (b"{}", "127.0.0.1")
    assert found.headers == {
        "host": "h",
        "origin": "http://h",
        "x-pyjs-action": "replay",
        "content-type": "application/json",
        "content-length": "2",
    }


async def test_a_header_that_occurs_twice_has_both_values(site: Site) -> None:
    await site.ask(post(b"Origin: http://h", b"Origin: http://other", b"Content-Length: 2"))

    assert site.posted[0] is not None
    assert site.posted[0].headers["origin"] == "http://h, http://other"


async def test_posts_of_one_connection_do_not_mix(site: Site) -> None:
    first = post(b"Origin: http://h", b"Content-Length: 3", body=b"one", end=False)
    get = b"GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"

    answer = await site.ask(first + get + post(b"Content-Length: 3", body=b"two"))

    assert answer.count(b"HTTP/1.1 200 OK") == 3
    one, none, two = site.posted
    assert one is not None
    assert two is not None
    assert (one.body, none, two.body, "origin" in two.headers) == (b"one", None, b"two", False)


async def test_a_body_in_chunks_is_read_to_its_end(site: Site) -> None:
    chunks = b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"

    await site.ask(post(b"Transfer-Encoding: chunked", body=chunks))

    assert site.posted[0] is not None
    assert (site.posted[0].body, site.posted[0].headers["transfer-encoding"]) == (b"abc", "chunked")


async def test_a_body_of_the_maximum_size_is_accepted(site: Site) -> None:
    whole = b"x" * BODY_MAX
    answer = await site.ask(post(b"Content-Length: %d" % BODY_MAX, body=whole))

    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert site.posted[0] is not None
    assert site.posted[0].body == whole


@pytest.mark.parametrize("size", [BODY_MAX + 1, 1 << 20, 1 << 63, (1 << 64) - 1])
async def test_a_body_that_is_too_large_is_refused_before_it_comes(site: Site, size: int) -> None:
    answer = await site.ask(post(b"Content-Length: %d" % size, body=b"x"))

    assert answer.startswith(b"HTTP/1.1 413 Content Too Large\r\n")
    assert site.posted == []


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"PUT"])
async def test_the_body_of_another_method_is_discarded_up_to_its_maximum(site: Site, method: bytes) -> None:
    head = method + b" /a HTTP/1.1\r\nHost: x\r\n"
    whole = b"x" * DISCARDED_MAX  # as nats-server 2.15.1: up to here, the next request is answered
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (whole[:40_000], whole[40_000:], b""))
    asked = head + b"Content-Length: %d\r\n\r\n" % DISCARDED_MAX + whole
    asked += head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks

    answer = await site.ask(asked + b"GET /b HTTP/1.1\r\nConnection: close\r\n\r\n")

    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert body(answer).endswith(b"/b")
    assert site.posted == [None] * 3


@pytest.mark.parametrize("size", [DISCARDED_MAX + 1, 999_999, 1 << 40, 1 << 63])
async def test_a_longer_body_of_another_method_is_refused_before_it_comes(site: Site, size: int) -> None:
    answer = await site.ask(b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nx" % size)

    assert answer.startswith(b"HTTP/1.1 413 Content Too Large\r\n")
    assert site.posted == []


async def test_chunks_of_another_method_that_are_too_large_together_are_refused(site: Site) -> None:
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    head = b"GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    answer = await site.ask(head + chunk * 4 + b"0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert site.posted == []


async def test_the_sizes_of_many_small_chunks_count_as_the_request(site: Site) -> None:
    head = b"GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    answer = await site.ask(head + b"1\r\nx\r\n" * 14_000)

    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_refusal_behind_a_queued_request_closes_the_connection_at_once(site: Site) -> None:
    refused = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n"
    answer = await asyncio.wait_for(site.ask(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n" + refused), 4)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"HTTP/1.1 413 " in answer


async def test_a_request_for_an_upgrade_is_answered_and_the_connection_closed(site: Site) -> None:
    asked = b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    answer = await asyncio.wait_for(site.ask(asked), 4)
    assert b"HTTP/1.1 " in answer


async def test_chunks_that_are_too_large_are_refused(site: Site) -> None:
    chunks = b"1000\r\n" + b"x" * 4096 + b"\r\n"

    answer = await site.ask(post(b"Transfer-Encoding: chunked", body=chunks * 4 + b"1\r\nx\r\n0\r\n\r\n"))

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert site.posted == []


@pytest.mark.parametrize(
    "headers",
    [
        [b"Content-Length: 18446744073709551616"],
        [b"Content-Length: -1"],
        [b"Content-Length: 2x"],
        [b"Content-Length: 1", b"Content-Length: 2"],
        [b"Content-Length: 2", b"Transfer-Encoding: chunked"],
    ],
)
async def test_a_length_that_is_wrong_or_ambiguous_is_refused(site: Site, headers: list[bytes]) -> None:
    assert (await site.ask(post(*headers))).startswith(b"HTTP/1.1 400 Bad Request")
    assert site.posted == []


async def test_a_length_with_many_zeros_is_a_length(site: Site) -> None:
    answer = await site.ask(post(b"Content-Length: " + b"0" * 10_000 + b"2"))

    assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_mutated_posts_are_answered_or_refused_and_none_is_broken(site: Site) -> None:
    rng = random.Random(1)
    good = post(b"Content-Length: 4", b"Origin: http://h", body=b"{  }")
    for _ in range(300):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.choice(
                (b"", b"\r\n", b"9" * 20, bytes([rng.randrange(256)]))
            )
        answer = await site.ask_and_end(bytes(data))
        assert not answer or re.match(rb"HTTP/\d\.\d (200|4\d\d) ", answer)

    assert site.log.lines == []
    assert body(await site.ask(good)) == b"/a"


async def test_requests_of_one_connection_are_answered_in_order(site: Site) -> None:
    first = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n"

    answer = await site.ask(first + b"GET /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert [part[-2:] for part in answer.split(b"HTTP/1.1 200 OK")[1:]] == [b"/a", b"/b", b"/c"]
    assert answer.count(b"Connection: close") == 1


async def test_http_1_0_closes_unless_asked_to_stay(site: Site) -> None:
    assert (await site.ask(b"GET /a HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.0 200 OK\r\n")

    stay = b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    answer = await site.ask(stay + b"GET /b HTTP/1.0\r\n\r\n")
    assert answer.count(b"Connection: keep-alive") == 1
    assert answer.endswith(b"/b")


async def test_an_error_status_keeps_the_connection(site: Site) -> None:
    answer = await site.ask(
        b"GET /missing HTTP/1.1\r\nHost: x\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )

    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert answer.endswith(b"/a")


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"NATS / HTTP/1.1\r\n\r\n"])
async def test_what_is_not_http_is_refused(site: Site, garbage: bytes) -> None:
    assert (await site.ask(garbage)).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_endless_headers_are_refused(site: Site) -> None:
    answer = await site.ask(b"GET / HTTP/1.1\r\nX: " + b"x" * (REQUEST_SIZE_MAX + 1))

    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_broken_view_is_said_and_answered(site: Site) -> None:
    answer = await site.ask(b"GET /broken HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert site.log.lines == [("ERR", "Error answering /broken: ZeroDivisionError('broken view')")]


async def test_a_request_in_single_bytes_is_answered_once(site: Site) -> None:
    reader, writer = await site.connect()
    for byte in b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)

    assert body(await asyncio.wait_for(reader.read(), 60)) == b"/slow"
    writer.close()


async def test_open_connections_are_known_and_can_be_closed(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"/a")
    (connection,) = site.connections

    connection.close()

    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    assert not site.connections


async def test_an_answer_that_takes_long_leaves_time_for_others_and_keeps_its_place(site: Site) -> None:
    requests = (
        b"GET /long HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    both = asyncio.create_task(site.ask(requests))
    other = await site.ask(b"GET /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    answer = await both

    assert body(other) == b"/other"
    assert [step for step, _ in site.steps] == [0, 1, 2]
    assert answer.index(b"\r\n/long") < answer.index(b"\r\n/next")


async def test_an_answer_that_nobody_waits_for_ends(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n" + b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
    await reader.readline()
    writer.transport.abort()
    while site.connections:
        await asyncio.sleep(0)
    assert body(await site.ask(b"GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == b"/ok"


async def test_a_peer_is_not_listened_to_while_an_answer_takes_long(site: Site) -> None:
    # given
    asked = b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n" * 50
    with socket.create_connection(("127.0.0.1", site.port)) as peer:
        peer.setblocking(False)
        peer.send(asked)
        while not site.steps:
            await asyncio.sleep(0.001)
        (connection,) = site.connections
        waiting = len(connection._requests)

        # when
        for _ in range(20):
            with contextlib.suppress(BlockingIOError):
                peer.send(asked)
            await asyncio.sleep(0.001)

        # then
        assert len(connection._requests) == waiting
        connection.abort()


async def test_who_sends_no_more_gets_an_answer_that_takes_long(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
    writer.write_eof()

    answer = await asyncio.wait_for(reader.read(), 60)

    assert body(answer) == b"/long"
    writer.close()


async def test_a_connection_that_ends_leaves_nothing_for_the_collector_of_cycles(site: Site) -> None:
    # given
    reader, writer = await site.connect()
    writer.write(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readline()
    gone = weakref.ref(next(iter(site.connections)))
    gc.disable()
    try:
        # when
        writer.close()
        while site.connections:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.001)
        # then
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "half",
    [
        b"G",
        b"GET /varz HT",
        b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b",
        post(b"Content-Length: 4", body=b"{ "),
        post(b"Transfer-Encoding: chunked", body=b"4\r\n{ "),
    ],
)
async def test_a_request_that_is_never_whole_is_refused(site: Site, half: bytes) -> None:
    answer = await site.ask(half)

    assert answer.endswith(b"400 Bad Request")  # after 5 s, as in nats-server 2.15.1
    assert not site.connections


@pytest.mark.usefixtures("hasty")
async def test_bytes_of_a_request_that_trickle_in_do_not_keep_it_open(site: Site) -> None:
    reader, writer = await site.connect()
    refused = asyncio.create_task(reader.readuntil(b"400 Bad Request\r\n"))

    while not refused.done():
        writer.write(b"G")
        await asyncio.sleep(0.001)

    assert (await refused).startswith(b"HTTP/1.1 400")
    writer.close()


async def test_thousands_of_requests_in_one_packet_delay_another_peer_by_one_step_at_a_time(
    site: Site,
) -> None:
    # given
    reader, writer = await site.connect()
    writer.write(b"GET /a HTTP/1.1\r\n\r\n" * 3000)
    await reader.readuntil(b"/a")
    # when
    await site.ask(b"GET /b HTTP/1.1\r\nConnection: close\r\n\r\n")
    # then
    # most requests of the first client are still waiting
    assert len(next(iter(site.connections))._input) > 10_000
    writer.close()


async def test_more_connections_than_there_may_be_are_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor_port, "CONNECTIONS_MAX", 1)
    reader, writer = await site.connect()
    writer.write(b"GET /a HTTP/1.1\r\n\r\n")
    await reader.readuntil(b"/a")

    answer = await site.ask(b"")

    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable")
    assert len(site.connections) == 1
    writer.close()
