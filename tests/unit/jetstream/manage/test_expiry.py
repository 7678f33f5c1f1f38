"""When the expiry timer of a stream fires: on time, and then not again for a while."""

from __future__ import annotations

from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.timers import Timers
from pyjs.jetstream.manage.expiry import REST_NS, Expiry

S = 1_000_000_000


class Calls:
    """Stands for a stream; counts the calls of its timer."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.expiry = Expiry(self.timers)
        self.count = 0

    def expire(self) -> None:
        self.count += 1

    def run(self, now_ns: int) -> int:
        """Fire all due timers; return the number of calls so far."""
        while self.timers.due(now_ns) is not None:
            self.timers.pop()()
        return self.count


def test_a_message_is_gone_when_its_time_is_over() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"], max_age=S, allow_msg_ttl=True)
    js.publish("s", b"plain")
    js.publish("s", b"ttl", Nats_TTL="2s")
    js.add("T", subjects=["t"], allow_msg_ttl=True)
    js.publish("t", b"ttl", Nats_TTL="1s")
    js.advance(milliseconds=999)
    assert js.payloads("S") == [b"plain", b"ttl"]
    assert js.payloads("T") == [b"ttl"]
    js.advance(milliseconds=2 + REST_NS // 1_000_000)
    assert js.payloads("S") == js.payloads("T") == []


def test_the_timer_fires_when_the_first_is_due() -> None:
    calls = Calls()
    calls.expiry.arm(calls, 5 * S, S)
    calls.expiry.arm(calls, 4 * S, S)
    calls.expiry.arm(calls, 6 * S, S)
    assert calls.run(4 * S - 1) == 0
    assert calls.run(4 * S) == 1
    assert calls.run(10 * S) == 1


def test_the_timer_rests_after_it_fired() -> None:
    calls = Calls()
    calls.expiry.arm(calls, S, S)
    assert calls.run(S) == 1
    calls.expiry.arm(calls, S + 1, S + 2)
    assert calls.run(S + REST_NS) == 1
    assert calls.run(S + 2 + REST_NS) == 2
    calls.expiry.arm(calls, 2 * S, S + 3 + REST_NS)
    assert calls.run(2 * S) == 3


def test_a_cancelled_timer_does_not_fire() -> None:
    calls = Calls()
    calls.expiry.arm(calls, S, 0)
    calls.expiry.cancel()
    calls.expiry.cancel()
    assert calls.run(2 * S) == 0
