"""Forwarded messages: their bytes, damaged ones, and the subscriptions that get them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.simnet import SimNet, say, three

from pyjs.cluster import forwarded
from pyjs.cluster.forwarded import Forwarded

MESSAGE = Forwarded("$G", b"_INBOX.x.*", b"_INBOX.x.1", b"r", b"NATS/1.0\r\nA: b\r\n\r\n", b"payload")


def test_a_message_is_read_as_it_was_written() -> None:
    data = b"".join(forwarded.encode(MESSAGE))
    assert data.startswith(b"\2\0\0\0\x0a\0\0\0\x0a\0\0\0\1\0\0\0\x12\0\0\0$G_INBOX.x.*_INBOX.x.1r")
    assert forwarded.decode(data) == MESSAGE
    bare = replace(MESSAGE, reply=b"", headers=b"", payload=b"")
    assert forwarded.decode(b"".join(forwarded.encode(bare))) == bare


@pytest.mark.parametrize("size", range(61))
def test_half_a_message_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="a forwarded message"):
        forwarded.decode(b"".join(forwarded.encode(MESSAGE))[:size])


@pytest.mark.parametrize("name", ["key", "subject", "reply"])
@pytest.mark.parametrize("subject", [b"a b", b"a\tb", b"a\r\n"])
def test_a_subject_that_would_break_the_protocol_is_refused(name: str, subject: bytes) -> None:
    message = replace(MESSAGE, **{name: subject})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="invalid subject"):
        forwarded.decode(b"".join(forwarded.encode(message)))


@pytest.mark.parametrize("key", [b"", b"a..b", b"."])
def test_an_invalid_subject_of_a_subscription_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="invalid subject"):
        forwarded.decode(b"".join(forwarded.encode(replace(MESSAGE, key=key))))


@pytest.mark.parametrize("name", ["subject", "reply"])
@pytest.mark.parametrize("subject", [b"a..b", b".a", b"a.*", b">", b"\xff\xfe", b"a\x01"])
def test_every_subject_that_a_client_may_publish_is_forwarded(name: str, subject: bytes) -> None:
    message = replace(MESSAGE, **{name: subject})  # type: ignore[arg-type]
    assert forwarded.decode(b"".join(forwarded.encode(message))) == message


def test_only_plain_subscriptions_of_the_subject_on_this_server_get_it() -> None:
    net = SimNet(seed=1)
    a, b, _ = three(net)
    here, there = a.client(), b.client()
    say(net, there, b"SUB _INBOX.x.* 1\r\n")
    say(net, here, b"SUB _INBOX.x.* 1\r\nSUB _INBOX.x.* q 2\r\nSUB _INBOX.> 3\r\nSUB _INBOX.x.1 4\r\n")

    forwarded.deliver(a.node.accounts, MESSAGE)
    say(net, here, b"")

    assert [(frame.sid, frame.payload) for frame in here.frames()] == [(b"1", b"payload")]
    assert there.frames() == []


@pytest.mark.parametrize("message", [replace(MESSAGE, account="NONE"), replace(MESSAGE, key=b"_INBOX.y.*")])
def test_without_an_account_or_a_subscription_nobody_gets_it(message: Forwarded) -> None:
    net = SimNet(seed=1)
    a = three(net)[0]
    here = a.client()
    say(net, here, b"SUB _INBOX.> 3\r\n")
    forwarded.deliver(a.node.accounts, message)
    say(net, here, b"")
    assert here.frames() == []
