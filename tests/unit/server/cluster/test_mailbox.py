"""Mailboxes of clients that disconnect hold each message once, within one limit, for other servers only."""

from __future__ import annotations

import pytest
from tests.support.simnet import LONG_NS, SimNet, SimServer, say, three

from pyjs.server.cluster import mailbox
from pyjs.server.cluster.mailbox import Mailbox, Mailboxes


@pytest.fixture
def net() -> SimNet:
    return SimNet(seed=1)


def opened(server: SimServer, *subjects: bytes) -> tuple[Mailboxes, list[Mailbox]]:
    mailboxes = Mailboxes()
    mailboxes.cluster = server.cluster
    account = server.node.accounts["$G"]
    return mailboxes, [box for each in subjects for box in mailboxes.open(account, [each])]


def close(net: SimNet, server: SimServer, mailboxes: Mailboxes, box: Mailbox) -> None:
    for each in mailboxes.leave([box]):
        server.node.turn_state.go_on(each.close_steps())
    server.wake()
    net.run(LONG_NS)


def test_a_message_for_many_mailboxes_is_sent_once_and_to_nobody_here(net: SimNet) -> None:
    a, b, _ = three(net)
    here, there, publisher = a.client(), b.client(), a.client()
    say(net, here, b"SUB _INBOX.> 1\r\n")
    mailboxes, boxes = opened(a, b"_INBOX.s.>", b"_INBOX.s.*", b"_INBOX.s.>", b"_INBOX.s.1", b"_INBOX.s.>")
    say(net, publisher, b"PUB _INBOX.s.1 2\r\nhi\r\n")
    say(net, there, b"SUB _INBOX.s.> 1\r\nSUB _INBOX.s.* 2\r\n")
    assert mailboxes.size < 2 * mailbox.OVERHEAD  # the message is held only once
    for box in boxes:
        close(net, a, mailboxes, box)
    assert [frame.payload for frame in here.frames() if frame.subject == b"_INBOX.s.1"] == [b"hi"]
    assert [frame.payload for frame in there.frames() if frame.subject == b"_INBOX.s.1"] == [b"hi", b"hi"]
    assert mailboxes.size == 0


def test_all_mailboxes_together_hold_a_limited_size(net: SimNet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "SIZE_MAX", 3 * mailbox.OVERHEAD)
    a = three(net)[0]
    publisher = a.client()
    mailboxes, boxes = opened(a, b"_INBOX.1", b"_INBOX.2")
    for number in (1, 2, 1, 2):
        say(net, publisher, b"PUB _INBOX.%d 2\r\nhi\r\n" % number)
    assert [len(box.held) for box in boxes] == [1, 1]
    for box in boxes:
        close(net, a, mailboxes, box)
    assert mailboxes.size == 0
