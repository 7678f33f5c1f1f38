"""CONNECT and INFO as data."""

from __future__ import annotations

import pytest

from pyjs.core.auth.handshake import BadConnect, ConnectOptions, info_line, parse_connect

INFO = {"server_id": "N1", "server_name": 'the "first" \u00e9', "port": 4222, "headers": True}


@pytest.mark.parametrize(
    "line",
    [
        b'{"verbose":false,"PASS":"secret","protocol":1,"lang":null,"unknown":{"a":[1.5]}}',
        b'{"verbose":false, "pass":"secret", "protocol":1}',
    ],
)
def test_a_connect_changes_what_it_names(line: bytes) -> None:
    options = parse_connect(line, ConnectOptions(user="u", lang="go"))

    assert options == ConnectOptions(verbose=False, password="secret", protocol=1, user="u", lang="go")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "^CONNECT needs one JSON object, not 0$"),
        (b"{}{}", "^CONNECT needs one JSON object, not 2$"),
        (b"{", "unexpected|EOF|key"),
        (b"[]", "^CONNECT needs a JSON object$"),
        (b'{"verbose":1}', "^CONNECT key verbose needs a bool in range, not a int$"),
        (b'{"protocol":true}', "^CONNECT key protocol needs a int in range, not a bool$"),
        (b'{"user":7}', "^CONNECT key user needs a str in range, not a int$"),
        (b'{"protocol":9223372036854775808}', "^CONNECT key protocol needs a int in range"),
        (b'{"protocol":%b}' % (b"9" * 4_000), "^CONNECT key protocol needs a int in range"),
        (b'{"import":1}', "^CONNECT key import needs a dict"),
        (b"[" * 20_000, "^exceeded max depth"),
    ],
)
def test_a_connect_that_cannot_be_read_is_refused(line: bytes, reason: str) -> None:
    with pytest.raises(BadConnect, match=reason):
        parse_connect(line, ConnectOptions())


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b'{"x":%b%b}' % (b"[" * 2_000, b"]" * 2_000),
        b'{"x":%b}' % (b"9" * 4_000),
        b'{"x":1e999,"export":null}',
    ],
)
def test_what_the_peer_reads_is_read_whatever_else_is_in_it(line: bytes) -> None:
    assert parse_connect(line, ConnectOptions(user="u")) == ConnectOptions(user="u")


@pytest.mark.parametrize("name", [b"\xff", b"\\ud800"])
def test_a_name_that_is_no_text_gets_replacement_characters(name: bytes) -> None:
    assert parse_connect(b'{"name":"%b"}' % name, ConnectOptions()).name == "\ufffd"


def test_info_is_one_line_with_a_space_before_its_end() -> None:
    text = '{"server_id":"N1","server_name":"the \\"first\\" \u00e9","port":4222,"headers":true}'

    assert info_line(dict(INFO)) == f"INFO {text} \r\n".encode()
