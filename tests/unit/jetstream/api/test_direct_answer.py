import random

import pytest

from pyjs.base.gotext import time_text
from pyjs.jetstream.api.direct_answer import DirectAnswers
from pyjs.store.memory import MemStore
from pyjs.testing import VirtualNode

DAY_NS = 86_400_000_000_000


class Site:
    """A store, and a client that receives the answers."""

    def __init__(self) -> None:
        self.fixture = VirtualNode()
        self.account = self.fixture.node.accounts["$G"]
        self.store = MemStore()
        self.answers = DirectAnswers(b"S")
        self.client = self.fixture.client()
        self.client.send(b"SUB r 1\r\n")
        self.client.take()

    def ask(self, subject: bytes, reply: bytes = b"r") -> bool:
        sent = self.answers.send_last(self.account, self.store, subject, reply)
        self.fixture.turn()
        return sent


@pytest.fixture
def site() -> Site:
    return Site()


def test_an_answer_has_the_message_and_where_it_was(site: Site) -> None:
    rng = random.Random(7)
    times_ns = sorted(rng.randrange(1, 300 * 365 * DAY_NS // 2) for _ in range(300))
    times_ns += [times_ns[-1] // DAY_NS * DAY_NS + DAY_NS, times_ns[-1] + 2 * DAY_NS]
    for at, ts in enumerate(times_ns):
        subject = b"s.%d" % (at % 7)
        headers = b"NATS/1.0\r\nA: %b\r\n\r\n" % (b"x" * at) if at % 3 == 0 else b""
        payload = rng.randbytes(at * 10)
        seq = site.store.store(subject, headers, payload, ts)

        assert site.ask(subject)

        (frame,) = site.client.frames()
        shown = (b"S", subject, seq, time_text(ts).encode())
        assert frame.payload == payload
        assert frame.headers == (headers[:-2] or b"NATS/1.0\r\n") + (
            b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n\r\n" % shown
        )


def test_a_large_message_is_answered_whole_and_its_memory_given_back(site: Site) -> None:
    for size in (5_000_000, 10, 900_000):
        site.store.store(b"s", b"", b"z" * size, 1)

        assert site.ask(b"s")

        (frame,) = site.client.frames()
        assert frame.payload == b"z" * size


@pytest.mark.parametrize(("subject", "reply"), [(b"gone", b"r"), (b"*", b"r"), (b"", b"r"), (b"s", b"")])
def test_what_is_not_plain_is_left_to_others(site: Site, subject: bytes, reply: bytes) -> None:
    site.store.store(b"s", b"", b"x", 1)

    assert not site.ask(subject, reply)

    assert site.client.frames() == []


def test_a_removed_message_is_left_to_others(site: Site) -> None:
    seq = site.store.store(b"s", b"", b"x", 1)
    assert site.store.drop_seq(seq)

    assert not site.ask(b"s")
