"""Reply subjects that a client may publish to: expiry in order, counts, bounded memory."""

from __future__ import annotations

import time

import pytest

from pyjs.core.auth import replies as module
from pyjs.core.auth.permissions import ResponsePermission
from pyjs.core.auth.replies import Replies


def test_a_reply_may_be_answered_as_often_as_allowed() -> None:
    replies = Replies(ResponsePermission(2, 100))
    replies.note(b"r", 0)
    assert [replies.take(b"r", 1) for _ in range(3)] == [True, True, False]
    assert replies.take(b"other", 1) is False
    assert (len(replies), replies.size) == (0, 0)


def test_without_a_limit_it_may_be_answered_for_ever() -> None:
    replies = Replies(ResponsePermission(-1, -1))
    replies.note(b"r", 0)
    assert all(replies.take(b"r", 10**18) for _ in range(100))


def test_a_reply_expires() -> None:
    replies = Replies(ResponsePermission(-1, 100))
    replies.note(b"r", 0)
    assert replies.take(b"r", 100)
    assert not replies.take(b"r", 101)
    assert len(replies) == 0


def test_a_second_request_renews_count_and_expiry() -> None:
    replies = Replies(ResponsePermission(1, 100))
    replies.note(b"r", 0)
    replies.note(b"r", 90)
    assert replies.take(b"r", 150)
    assert replies.size == 0


def test_expired_replies_do_not_pile_up() -> None:
    replies = Replies(ResponsePermission(1, 100))
    for now in range(100_000):
        replies.note(b"%d" % now, now)
    assert len(replies) <= 102


def test_the_oldest_go_when_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIZE_MAX", 10 * (module.ENTRY_SIZE + 4))
    replies = Replies(ResponsePermission(1, -1))
    for number in range(1000):
        replies.note(b"%04d" % number, 0)
    assert len(replies) == 10
    assert not replies.take(b"0989", 0)
    assert replies.take(b"0990", 0)


def test_one_that_is_too_large_alone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIZE_MAX", 10)
    replies = Replies(ResponsePermission(1, -1))
    replies.note(b"r", 0)
    assert len(replies) == 0


def test_noting_costs_the_same_however_many_wait() -> None:
    replies = Replies(ResponsePermission(1, 10**12))
    began = time.process_time()
    for number in range(100_000):
        replies.note(b"_INBOX.abcdefghijklmnop.%d" % number, number)
    # an earlier version took 100 us each with 4,096 waiting, 10 s in all
    assert time.process_time() - began < 5
