"""A fixture for consumer tests: a stream with consumers on a virtual clock."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.testing import Frame


@dataclass(frozen=True)
class Delivery:
    """A delivered message, with the parts of its ack subject."""

    subject: str
    payload: bytes
    reply: bytes
    count: int
    seq: int
    consumer_seq: int
    pending: int


def delivery(frame: Frame) -> Delivery:
    """Parse a frame as a delivery."""
    count, seq, consumer_seq, _ts, pending = (int(word) for word in frame.reply.split(b".")[-5:])
    return Delivery(frame.subject.decode(), frame.payload, frame.reply, count, seq, consumer_seq, pending)


class ConsumerFixture(JetStreamFixture):
    """A memory stream S of s.>, and a client that subscribes to in.>."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.add("S", subjects=["s.>"], **config)
        self.inbox = self.client()
        self.inbox.send(b"SUB in.> 1\r\n")
        self.inbox.take()

    def fill(self, count: int, subject: str = "s.a") -> None:
        """Publish `count` messages, payloads m1, m2, ..."""
        for number in range(1, count + 1):
            payload = b"m%d" % number
            self.user.send(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))

    def consumer(self, name: str = "c", **config: Any) -> dict[str, Any]:
        """Create a durable consumer, with explicit acks unless the configuration differs."""
        fields = {"durable_name": name, "ack_policy": "explicit", **config}
        answer = self.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": fields})
        assert "config" in answer, answer
        return answer

    def core(self, name: str = "c") -> Consumer:
        """Return the Consumer object."""
        found = self.stream("S").consumers[name]
        assert isinstance(found, Consumer)
        return found

    def info(self, name: str = "c") -> dict[str, Any]:
        """Return CONSUMER.INFO."""
        return self.api(f"CONSUMER.INFO.S.{name}")

    def request(self, name: str = "c", reply: str = "in.1", body: bytes = b"", **fields: Any) -> None:
        """Send a pull request."""
        payload = body or json.dumps(fields).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{name} {reply}".encode()
        self.user.send(b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload))

    def pull(self, name: str = "c", **fields: Any) -> list[Delivery]:
        """Send a pull request and return the messages that arrive at once."""
        self.inbox.take()
        self.request(name, **fields)
        return self.deliveries()

    def deliveries(self) -> list[Delivery]:
        """Return the messages that the client received, without statuses."""
        return [delivery(frame) for frame in self.inbox.frames() if frame.reply.startswith(b"$JS.ACK.")]

    def statuses(self) -> list[str]:
        """Return the first lines of the statuses that the client received."""
        frames = [frame for frame in self.inbox.frames() if not frame.reply.startswith(b"$JS.ACK.")]
        return [frame.headers.split(b"\r\n")[0].decode().removeprefix("NATS/1.0 ") for frame in frames]

    def ack(self, message: Delivery, body: bytes = b"", reply: bytes = b"") -> None:
        """Send an ack for a delivery."""
        self.user.send(b"PUB %b %b %d\r\n%b\r\n" % (message.reply, reply, len(body), body))

    def position(self, name: str = "c") -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the delivered position and the ack floor, each as (consumer_seq, stream_seq)."""
        info = self.info(name)
        pairs = [(info[key]["consumer_seq"], info[key]["stream_seq"]) for key in ("delivered", "ack_floor")]
        return pairs[0], pairs[1]
