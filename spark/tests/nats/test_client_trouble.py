"""The client with a server that sends invalid data, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from spark.tests.support.scripted import ScriptedServer

from pyjs_spark.decode.wire import NEED_MORE, Decoder
from pyjs_spark.errors import (
    AccessDenied,
    ConnectionLost,
    ProtocolError,
    PublishFailed,
    RequestTimeout,
    ServerUnreachable,
)
from pyjs_spark.nats.client import LINE_MAX, Client
from pyjs_spark.nats.settings import ConnectSettings

Say = Callable[..., Client]


@pytest.fixture
def say() -> Iterator[Say]:
    """Return a function that makes a client whose server answers the first request with given bytes."""
    made: list[tuple[ScriptedServer, Client]] = []

    def client(said: bytes, **script: bytes) -> Client:
        server = ScriptedServer(b"PUB ", said, **script)
        made.append((server, Client(ConnectSettings((f"127.0.0.1:{server.port}",), timeout_s=0.2))))
        return made[-1][1]

    yield client
    for server, one in made:
        one.close()
        server.close()


def test_what_comes_before_the_answer_is_taken(say: Say) -> None:
    client = say(b'+OK\r\n\r\nINFO {"x": 1}\r\nPING\r\nMSG other 9 0\r\n\r\nMSG {inbox} 1 2\r\n{}\r\n')

    assert client.request("a").payload == b"{}"
    assert client.info == {"x": 1}


def test_the_info_behind_connect_counts(say: Say) -> None:
    assert say(b"", pong=b'INFO {"x": 2}\r\nPONG\r\n').info == {"x": 2}


def test_an_error_that_ends_the_connection_is_told(say: Say) -> None:
    with pytest.raises(ConnectionLost, match="the server ended the connection: Stale Connection"):
        say(b"-ERR 'Stale Connection'\r\n").request("a")


@pytest.mark.parametrize("said", [b"Maximum Control Line Exceeded", b"Maximum Payload Violation"])
def test_a_message_that_no_try_brings_through_is_refused(say: Say, said: bytes) -> None:
    with pytest.raises(PublishFailed, match="the server takes no such message: Maximum"):
        say(b"-ERR '%b'\r\n" % said).request("a")


def test_what_a_server_quotes_is_told_in_part(say: Say) -> None:
    long = b"x" * 60_000

    with pytest.raises(AccessDenied) as caught:
        say(b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n" % long).request("a")

    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "which is no NATS protocol"),
        (b"MSG a 1 x\r\n", "the server sent b'MSG a 1 x'"),
        (b"MSG 5\r\n", "the server sent b'MSG 5'"),
        (b"MSG a 1 -5\r\n", "the server sent b'MSG a 1 -5'"),
        (b"MSG a b c d e 1\r\n", "the server sent b'MSG a b c d e 1'"),
        (b"MSG a 1 9999999999\r\n", "the server sent b'MSG a 1 9999999999'"),
        (b"HMSG {inbox} 1 20 12\r\nNATS/1.0\r\n\r\n\r\n", "the server sent b'HMSG "),
        (b"INFO {\r\n", "the server sent b'{', which is no JSON object"),
        (b"x" * (LINE_MAX + 2), "a protocol line of more than"),
    ],
)
def test_what_is_no_protocol_is_told(say: Say, said: bytes, told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        say(said).request("a")


@pytest.mark.parametrize("answer", [b"{..", b"[1]", b"\xff"])
def test_an_answer_of_the_api_that_is_no_json_object_is_told(say: Say, answer: bytes) -> None:
    with pytest.raises(ProtocolError, match="which is no JSON object"):
        say(b"MSG {inbox} 1 %d\r\n%b\r\n" % (len(answer), answer)).api("INFO")


def test_silence_is_told(say: Say) -> None:
    with pytest.raises(ConnectionLost, match=r"no answer to a PING in 0.05 s"):
        say(b"").ping(0.05)
    with pytest.raises(ConnectionLost, match="fell silent inside a message"):
        say(b"MSG {inbox} 1 100\r\nabc").request("a")
    with pytest.raises(RequestTimeout, match="no answer from a"):
        say(b"MSG {inbox} 1").request("a")


def test_many_answers_without_an_end_are_told(say: Say) -> None:
    message = b"MSG {inbox} 1 0\r\n\r\n"

    with pytest.raises(RequestTimeout, match="a did not end its answer after 1 messages"):
        say(b"MSG other 1 0\r\n\r\n" + message).request_many("a", b"", 5, 0.05)
    with pytest.raises(RequestTimeout, match="a did not end its answer after 3 messages"):
        say(message * 4).request_many("a", b"", 2, 0.05)


def test_a_decoder_is_told_that_nothing_came(say: Say) -> None:
    client = say(b"MSG {inbox} 1 0\r\n\r\n")
    decoder = Decoder(("seq",), "map", 10, 1000)
    decoder.listen(client.subscribe(b"x"), 100, 1)
    decoder.expect(5)
    client.publish(b"a", reply=b"r")

    assert client.pump(decoder, time.monotonic() + 0.1) is None
    assert decoder.state == NEED_MORE


def test_what_is_said_before_tls_is_never_taken_for_what_came_by_it() -> None:
    server = ScriptedServer(b"CONNECT", b"", info=b'{"tls_required": true}\r\nPONG')

    with pytest.raises(ServerUnreachable, match="it said more than INFO before TLS began"):
        Client(ConnectSettings((f"127.0.0.1:{server.port}",), timeout_s=5))
    server.close()


def test_a_greeting_that_is_no_json_object_is_told() -> None:
    server = ScriptedServer(b"CONNECT", b"", info=b"[]")

    with pytest.raises(ServerUnreachable, match=r"it greets with b'\[\]', which is no NATS server"):
        Client(ConnectSettings((f"127.0.0.1:{server.port}",), timeout_s=5))
    server.close()


def test_a_view_of_more_bytes_than_any_message_has_is_refused(say: Say) -> None:
    client = say(b"MSG x 2 99999999999999\r\n")
    client.publish(b"a", reply=b"r")

    with pytest.raises(ProtocolError, match="the server sent b'MSG x 2 99999999999999'"):
        client.next_view(client.subscribe(b"x"), time.monotonic() + 5)


def test_a_login_without_end_is_told() -> None:
    server = ScriptedServer(b"CONNECT", b"", pong=b"x" * (LINE_MAX + 2))

    with pytest.raises(ServerUnreachable, match=r"a protocol line of more than .* is the port right"):
        Client(ConnectSettings((f"127.0.0.1:{server.port}",), timeout_s=5))
    server.close()
