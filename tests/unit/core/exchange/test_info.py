"""The information that a service in another account gets about its client."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pyjs.core.auth.handshake import ConnectOptions
from pyjs.core.exchange.info import Describer, compact, request_headers
from pyjs.core.link import Peer
from pyjs.testing import VirtualNode

CLIENT: Any = SimpleNamespace(
    options=ConnectOptions(name="shop", user="ann", password="secret"),
    user=None,
    account=SimpleNamespace(name="A"),
    peer=Peer("10.0.0.1", 777),
    cid=5,
    rtt_ns=1000,
    started_at_ns=0,
)
NEXT: Any = SimpleNamespace(name="B")


def test_a_service_learns_the_account_and_the_round_trip_time() -> None:
    assert Describer("here", share=False, to_system=False).fields(CLIENT) == {"acc": "A", "rtt": 1000}


def test_the_system_account_learns_the_server_too() -> None:
    fields = Describer("here", share=False, to_system=True).fields(CLIENT)
    assert fields == {"acc": "A", "rtt": 1000, "server": "here"}


def test_an_import_that_shares_tells_everything_but_the_password() -> None:
    describer = Describer("here", share=True, to_system=False)
    fields = describer.fields(CLIENT)
    assert [fields[name] for name in ("host", "id", "user", "name", "server")] == [
        "10.0.0.1",
        5,
        "ann",
        "shop",
        "here",
    ]
    assert b"secret" not in describer.text(CLIENT)


def test_a_second_import_adds_its_account_in_the_order_of_the_fields() -> None:
    before = compact({"rtt": 1, "acc": "A", "forged": "x"})
    after = Describer("here", share=False, to_system=False).extended(before, NEXT, add_server=True)
    assert after == b'{"acc":"A","svc":"B","rtt":1,"server":"here"}'
    quiet = Describer("here", share=False, to_system=False).extended(before, NEXT, add_server=False)
    assert "server" not in json.loads(quiet)


@pytest.mark.parametrize("before", [b"", b"no JSON", b"[1]", b"\xff"])
def test_a_header_that_is_no_object_is_begun_again(before: bytes) -> None:
    assert Describer("here", share=False, to_system=False).extended(before, NEXT, False) == b'{"svc":"B"}'


def test_bytes_that_are_no_utf_8_come_through() -> None:
    assert compact({"name": b"\xff".decode("utf-8", "surrogateescape")}) == b'{"name":"\xff"}'


@pytest.mark.parametrize(
    ("share", "to_system", "text"),
    [
        (False, False, b'{"acc":"A"}'),
        (False, True, b'{"acc":"A","server":"here"}'),
        (True, False, b'{"acc":"A","server":"here","kind":"JetStream"}'),
    ],
)
def test_a_message_of_a_stream_comes_from_its_account(share: bool, to_system: bool, text: bytes) -> None:
    assert Describer("here", share=share, to_system=to_system).own_text("A") == text


@pytest.mark.parametrize("block", [b"", b'NATS/1.0\r\nNats-Request-Info: {"acc":"ADMIN"}\r\n\r\n'])
def test_a_request_that_is_shown_names_its_client_and_nobody_else(block: bytes) -> None:
    session = VirtualNode().client(b'{"name":"shop","verbose":false}').session
    first, info, *rest = request_headers(block, session, "here").split(b"\r\n")
    assert (first, rest) == (b"NATS/1.0", [b"", b""])
    fields = json.loads(info.removeprefix(b"Nats-Request-Info: "))
    assert (fields["acc"], fields["name"], fields["server"]) == ("$G", "shop", "here")


def test_a_request_of_the_server_itself_names_nobody() -> None:
    assert request_headers(b"NATS/1.0\r\nA: b\r\n\r\n", None, "here") == b"NATS/1.0\r\nA: b\r\n\r\n"
