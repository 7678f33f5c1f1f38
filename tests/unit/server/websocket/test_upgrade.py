"""Upgrade requests, parsed without a connection."""

from __future__ import annotations

import gc
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.support.websocket import DEFLATE, head_of
from websockets.server import ServerProtocol

from pyjs.config.options import WebSocketOptions
from pyjs.core.link import Credentials
from pyjs.server.websocket.upgrade import NotHttp, Upgrade, UpgradeRefused, upgrade

PLAIN = WebSocketOptions(port=1, no_tls=True)


def accepted(head: bytes, options: WebSocketOptions = PLAIN, encrypted: bool = False) -> Upgrade:
    return upgrade(head, options, encrypted=encrypted)


def refused(head: bytes, options: WebSocketOptions = PLAIN) -> tuple[int, str]:
    with pytest.raises(UpgradeRefused) as info:
        upgrade(head, options, encrypted=False)
    return info.value.status, str(info.value)


@pytest.mark.parametrize(
    "head",
    [
        head_of(Sec_WebSocket_Extensions=DEFLATE),
        head_of(Sec_WebSocket_Version="12"),
        b"GET / HTTP/1.1\r\nx\r\n\r\n",
    ],
    ids=["accepted", "refused", "no HTTP"],
)
def test_a_request_leaves_no_cycle(head: bytes) -> None:
    gc.collect()
    gc.disable()
    try:
        with suppress(UpgradeRefused, NotHttp):
            upgrade(head, replace(PLAIN, compression=True), encrypted=False)
        assert not any(isinstance(each, ServerProtocol) for each in gc.get_objects())
    finally:
        gc.enable()


def test_the_key_is_answered_as_in_the_standard() -> None:
    found = accepted(head_of())
    assert found.answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in found.answer
    assert found.terms.masked
    assert not found.terms.window_bits
    assert not found.is_leafnode


def test_compression_needs_both_sides() -> None:
    both = replace(PLAIN, compression=True)
    assert accepted(head_of(Sec_WebSocket_Extensions=DEFLATE), both).terms.window_bits == 15
    smaller = "permessage-deflate; server_max_window_bits=10"
    assert accepted(head_of(Sec_WebSocket_Extensions=smaller), both).terms.window_bits == 10
    assert not accepted(head_of(Sec_WebSocket_Extensions=DEFLATE)).terms.window_bits
    assert not accepted(head_of(), both).terms.window_bits


def test_browsers_have_other_frames() -> None:
    assert accepted(head_of(User_Agent="Mozilla/5.0 Chrome/1 Safari/1")).terms.frame_max == 4096
    assert accepted(head_of(User_Agent="Mozilla/5.0 Version/1 Safari/1")).terms.whole_compressed
    assert not accepted(head_of(User_Agent="curl/8")).terms.frame_max


def test_masks_may_be_left_out() -> None:
    found = accepted(head_of(Nats_No_Masking="true"))
    assert not found.terms.masked
    assert b"Nats-No-Masking: true\r\n" in found.answer
    assert accepted(head_of(Nats_No_Masking="yes")).terms.masked


def test_the_address_before_a_proxy_is_kept_if_it_is_one() -> None:
    assert accepted(head_of(X_Forwarded_For="203.0.113.7")).forwarded_for == "203.0.113.7"
    assert not accepted(head_of(X_Forwarded_For="203.0.113.7, 10.0.0.1")).forwarded_for
    assert not accepted(head_of()).forwarded_for


def test_cookies_are_credentials() -> None:
    options = replace(PLAIN, jwt_cookie="j", user_cookie="u", pass_cookie="p", token_cookie="t")
    found = accepted(head_of(Cookie='u=alice; p="secret"; t=tok; j=eyJ; other=x; broken'), options)
    assert found.credentials == Credentials("eyJ", "alice", "secret", "tok")
    assert accepted(head_of(Cookie="u=alice")).credentials == Credentials()
    assert "secret" not in repr(accepted(head_of(Cookie="p=secret"), options))


def test_headers_of_the_options_are_in_the_answer() -> None:
    assert b"X-Us: yes\r\n" in accepted(head_of(), replace(PLAIN, headers={"X-Us": "yes"})).answer


def test_origins_are_checked() -> None:
    same = replace(PLAIN, same_origin=True)
    assert refused(head_of(Origin="http://other"), same) == (403, "origin not allowed: not same origin")
    assert refused(head_of(Origin="null"), same)[0] == 403
    assert refused(head_of(Origin="http://a:b"), same)[0] == 403
    accepted(head_of(Origin="http://localhost"), same)
    accepted(head_of(Origin="https://localhost"), same, encrypted=True)
    listed = replace(PLAIN, allowed_origins=("https://example.com",))
    assert refused(head_of(Origin="http://example.com"), listed)[1].endswith("not in the allowed list")
    accepted(head_of(Origin="https://EXAMPLE.com:443"), listed)


@pytest.mark.parametrize(
    "head",
    [
        b"BOGUS\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / SPDY/1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    ],
)
def test_what_is_no_http_is_refused(head: bytes) -> None:
    with pytest.raises(NotHttp):
        accepted(head)


def test_what_only_the_library_refuses_is_refused_too() -> None:
    assert refused(head_of(Upgrade="websocket, other"))[0] == 400


def test_a_leafnode_is_recognised() -> None:
    assert accepted(head_of("/x/leafnode")).is_leafnode
