"""CONNECT and INFO as data."""

from __future__ import annotations

import pytest

from pyjs.core.handshake import BadConnect, ConnectOptions, info_line, parse_connect

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
        (b"", "unexpected|empty|EOF"),
        (b"{", "unexpected|EOF|key"),
        (b"[]", "^CONNECT needs a JSON object$"),
        (b'{"verbose":1}', "^CONNECT key verbose needs a bool, not 1$"),
        (b'{"protocol":true}', "^CONNECT key protocol needs a int, not True$"),
        (b'{"user":7}', "^CONNECT key user needs a str, not 7$"),
    ],
)
def test_a_connect_that_cannot_be_read_is_refused(line: bytes, reason: str) -> None:
    with pytest.raises(BadConnect, match=reason):
        parse_connect(line, ConnectOptions())


def test_info_is_one_line_with_a_space_before_its_end() -> None:
    text = '{"server_id":"N1","server_name":"the \\"first\\" \u00e9","port":4222,"headers":true}'

    assert info_line(dict(INFO)) == f"INFO {text} \r\n".encode()
