"""The first lines of a route."""

from __future__ import annotations

import json

import pytest

from pyjs.cluster.hello import BadHello, PeerInfo, connect_line, info_line, read_hello, read_sender, shown

ME = PeerInfo("NID", "name", "EAST", "", 6222, ("10.0.0.1:4222",), True, "0.1.0")


def test_what_one_side_says_the_other_reads() -> None:
    assert read_hello(info_line(ME).strip(), "INFO") == ME


def test_the_login_is_only_in_connect() -> None:
    login = PeerInfo("NID", "name", "EAST", "", 6222, user="u", password="p")
    assert b'"pass":"p"' in connect_line(login)
    assert b"pass" not in info_line(login)
    assert read_hello(connect_line(login).strip(), "CONNECT") == login


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pyjs_route": None}, "is a nats-server"),
        ({"pyjs_route": 7}, "route protocol '7' instead of 4"),
        ({"port": True}, "the field port is no port number"),
        ({"port": 70_000}, "the field port is no port number"),
        (
            {"server_name": "x" * 5000},
            "the field server_name is no printable text of at most 4096 characters",
        ),
        ({"connect_urls": "x"}, "the field connect_urls is no list of at most 128 addresses"),
        ({"connect_urls": ["x"] * 129}, "the field connect_urls is no list of at most 128 addresses"),
        ({"connect_urls": ["x" * 301]}, "the field connect_urls is no list of at most 128 addresses"),
        ({"connect_urls": ["x\n"]}, "the field connect_urls is no list of at most 128 addresses"),
        ({"server_name": "n1\n[INF] forged"}, "the field server_name is no printable text"),
        ({"cluster": "EAST\r"}, "the field cluster is no printable text"),
        ({"purpose": "tea"}, "a connection for 'tea' is not known here"),
        ({"server_id": ""}, "the field server_id is missing"),
        ({"rid": -1}, "the field rid is no number"),
        ({"beside": True}, "the field beside is no number"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], text: str) -> None:
    line = b"INFO " + json.dumps(ME.fields() | change).encode()
    with pytest.raises(BadHello, match=text):
        read_hello(line, "INFO")


def test_what_the_other_side_sent_is_shown_short_and_printable() -> None:
    assert shown(b"\x1b[31m\xff" + b"x" * 1000) == "'\\x1b[31m\\\\xff" + "x" * 91 + "'"


def test_a_sender_is_a_json_object() -> None:
    assert read_sender(b'{"user":"u"}').fields == {"user": "u"}


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'"u"'])
def test_a_sender_that_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(BadHello, match=r"the sender of a message is not (a )?JSON"):
        read_sender(text)
