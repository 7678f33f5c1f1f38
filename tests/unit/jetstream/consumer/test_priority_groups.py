"""Priority groups on a virtual clock: overflow, pinned client, prioritized."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.jetstream.consumerfixture import ConsumerFixture, delivery

from pyjs.testing import RawClient

MS = 1_000_000


class GroupFixture(ConsumerFixture):
    """A stream S of s.> with a consumer c whose only priority group is A, and two clients that pull."""

    def __init__(self, policy: str, **config: Any) -> None:
        super().__init__()
        self.consumer(priority_policy=policy, priority_groups=["A"], **config)
        self.one, self.two = self.listener("one"), self.listener("two")
        self.pins = self.listener("$JS.EVENT.ADVISORY.CONSUMER.*.S.c")

    def listener(self, subject: str) -> RawClient:
        client = self.client()
        client.send(f"SUB {subject} 1\r\n".encode())
        client.take()
        return client

    def want(self, reply: str, batch: int = 1, expires: int = 20_000 * MS, **fields: Any) -> None:
        """Send a pull request of the group."""
        self.request("c", reply, batch=batch, expires=expires, group="A", **fields)

    def events(self) -> list[tuple[str, str]]:
        """Return the kind and the reason or pin id of every advisory since the last call."""
        found = [json.loads(payload) for payload in self.pins.payloads()]
        kinds = [event["type"].rpartition("_")[2] for event in found]
        return [
            (kind, event.get("reason") or event["pinned_id"])
            for kind, event in zip(kinds, found, strict=True)
        ]


def got(client: RawClient) -> list[int | str]:
    """Return the sequences and status codes that a client received."""
    frames = client.frames()
    return [delivery(frame).seq if frame.reply else frame.headers[9:12].decode() for frame in frames]


def pin_of(client: RawClient) -> str:
    """Return the pin id in the only message that arrived."""
    (frame,) = client.frames()
    name, _, value = frame.headers.split(b"\r\n")[-3].partition(b": ")
    assert name == b"Nats-Pin-Id"
    return value.decode()


# -- overflow --------------------------------------------------------------------------------------------------


def test_an_overflow_request_waits_until_enough_is_pending() -> None:
    js = GroupFixture("overflow")
    js.fill(2)
    js.want("one", batch=5, min_pending=3)
    assert got(js.one) == []
    js.fill(1)
    assert got(js.one) == [1]  # two are pending after it, which is too few
    js.fill(1)
    assert got(js.one) == [2]


def test_an_overflow_request_waits_until_enough_is_unacknowledged() -> None:
    js = GroupFixture("overflow")
    js.fill(4)
    js.want("one", min_ack_pending=2)
    js.want("two", batch=2)
    assert (got(js.one), got(js.two)) == ([3], [1, 2])


def test_an_ack_may_end_an_overflow() -> None:
    js = GroupFixture("overflow")
    js.fill(3)
    js.want("two")
    first = delivery(js.two.frames()[0])
    js.want("one", batch=2, min_ack_pending=1)
    assert got(js.one) == [2, 3]
    js.ack(first)
    js.fill(1)
    js.want("two")
    assert got(js.two) == [4]


def test_an_overflow_request_that_nobody_serves_expires() -> None:
    js = GroupFixture("overflow")
    js.fill(1)
    js.want("one", expires=1000 * MS, min_pending=9)
    js.advance(milliseconds=1100)
    assert got(js.one) == ["408"]


def test_an_overflow_that_does_not_apply_lets_the_others_have_it() -> None:
    js = GroupFixture("overflow")
    js.want("one", batch=3, min_pending=100)
    js.want("two", batch=3)
    js.fill(3)
    assert (got(js.one), got(js.two)) == ([], [1, 2, 3])


# -- pinned client ---------------------------------------------------------------------------------------------


def test_the_first_client_served_is_pinned_and_the_others_wait() -> None:
    js = GroupFixture("pinned_client")
    js.want("one", batch=3)
    js.want("two", batch=3)
    js.fill(3)
    assert (got(js.one), got(js.two)) == ([1, 2, 3], [])
    assert [kind for kind, _ in js.events()] == ["pinned"]


def test_a_pinned_client_goes_on_with_its_pin() -> None:
    js = GroupFixture("pinned_client")
    js.fill(1)
    js.want("one")
    pin = pin_of(js.one)
    js.want("two")
    js.want("one", id=pin)
    js.fill(1)
    assert (got(js.one), got(js.two)) == ([2], [])
    group = js.info()["priority_groups"][0]
    assert (group["group"], group["pinned_client_id"]) == ("A", pin)


def test_a_foreign_pin_is_refused() -> None:
    js = GroupFixture("pinned_client")
    js.fill(1)
    js.want("one")
    js.want("two", id="someone")
    assert [frame.headers for frame in js.two.frames()] == [b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"]


def test_a_pin_ends_when_its_client_does_not_ask_again() -> None:
    js = GroupFixture("pinned_client", priority_timeout=5000 * MS)
    js.fill(1)
    js.want("one")
    old = pin_of(js.one)
    js.want("two")
    js.fill(1)
    js.advance(milliseconds=4900)
    assert got(js.two) == []
    js.advance(milliseconds=200)
    new = pin_of(js.two)
    assert js.events() == [("pinned", old), ("unpinned", "timeout"), ("pinned", new)]
    js.want("one", id=old)
    assert got(js.one) == ["423"]


def test_a_request_with_the_pin_keeps_it() -> None:
    js = GroupFixture("pinned_client", priority_timeout=5000 * MS)
    js.fill(1)
    js.want("one")
    pin = pin_of(js.one)
    js.advance(milliseconds=4000)
    js.want("one", id=pin)
    js.advance(milliseconds=4000)
    assert [kind for kind, _ in js.events()] == ["pinned"]
    js.advance(milliseconds=1100)
    assert js.events() == [("unpinned", "timeout")]


def test_an_unpinned_client_is_told_and_another_one_served() -> None:
    js = GroupFixture("pinned_client")
    js.fill(1)
    js.want("one", batch=5)
    js.want("two", batch=5)
    assert got(js.one) == [1]
    assert js.api("CONSUMER.UNPIN.S.c", {"group": "A"}) == {}
    js.fill(2)
    assert got(js.one) == ["423"]
    assert got(js.two) == [2, 3]
    assert [reason for _, reason in js.events()][1:2] == ["admin"]
    assert js.error("CONSUMER.UNPIN.S.c", {"group": "B"})[1] == 10160


def test_a_client_that_left_gets_no_pin() -> None:
    js = GroupFixture("pinned_client")
    js.want("one")
    js.want("two")
    js.one.send(b"UNSUB 1\r\n")
    js.fill(1)
    assert got(js.two) == [1]
    assert [kind for kind, _ in js.events()] == ["pinned"]


def test_headers_only_and_own_headers_go_with_the_pin() -> None:
    js = GroupFixture("pinned_client", headers_only=True)
    js.user.send(b"HPUB s.a 18 23\r\nNATS/1.0\r\nK: v\r\n\r\nhello\r\n")
    js.want("one")
    (frame,) = js.one.frames()
    lines = frame.headers.split(b"\r\n")
    assert lines[:3] == [b"NATS/1.0", b"K: v", b"Nats-Msg-Size: 5"]
    assert lines[3].startswith(b"Nats-Pin-Id: ")
    assert frame.payload == b""


# -- prioritized -----------------------------------------------------------------------------------------------


def test_the_smallest_priority_is_served_first() -> None:
    js = GroupFixture("prioritized")
    js.want("one", batch=2, priority=2)
    js.want("two", batch=2, priority=1)
    js.fill(3)
    assert (got(js.one), got(js.two)) == ([3], [1, 2])


def test_equal_priorities_take_turns() -> None:
    js = GroupFixture("prioritized")
    js.want("one", batch=2, priority=1)
    js.want("two", batch=2, priority=1)
    js.fill(4)
    assert (got(js.one), got(js.two)) == ([1, 3], [2, 4])
