"""A fixture: a replicated stream with consumers, and clients of its leader."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.unit.jetstream.consumerfixture import Delivery, delivery
from tests.unit.jetstream.stream.replicated.replicas import Loopback, Member, config, replicas, same

from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.manage.consumers import resources_of
from pyjs.jetstream.manage.replicated_consumers import ConsumerOpener

if TYPE_CHECKING:
    from pathlib import Path

    from pyjs.testing import RawClient


def join(member: Member) -> None:
    """Let a member open its consumers when it leads, and answer requests about them."""
    engine = member.js.engine
    engine.streams["S"] = member.stream
    opener = ConsumerOpener(engine, member.stream, resources_of(engine, member.stream))
    member.replica.consumers.opener = opener


class Consuming:
    """A group led by its first member; the client is connected to the leader."""

    def __init__(self, directory: Path | None = None, count: int = 3, **options: Any) -> None:
        options.setdefault("storage", "memory")
        self.group: Loopback = replicas(config(**options), directory, count)
        self._inboxes: dict[Member, RawClient] = {}
        for member in self.group.members:
            join(member)

    @property
    def leader(self) -> Member:
        """The member that is the leader."""
        return self.group.leader

    @property
    def inbox(self) -> RawClient:
        """A client of the leader's node that subscribes to in.>."""
        member = self.leader
        if member not in self._inboxes:
            self._inboxes[member] = member.js.client()
            self._inboxes[member].send(b"SUB in.> 1\r\n")
            self._inboxes[member].take()
        return self._inboxes[member]

    def settle(self) -> None:
        """Run turns, commit and apply until nothing is left to do."""
        self.group.settle()

    def fail_over(self, number: int) -> None:
        """Make another member the leader; uncommitted entries are lost."""
        self.group.lead(self.group.members[number])
        self.settle()

    def advance(self, **by: float) -> None:
        """Move the clocks of all members."""
        for member in self.group.members:
            member.js.advance(**by)
        self.settle()

    def publish(self, count: int, subject: str = "s.a") -> None:
        """Store `count` messages."""
        for _ in range(count):
            self.leader.js.user.send(b"PUB %b 1\r\nx\r\n" % subject.encode())
        self.settle()

    def ask(self, endpoint: str, body: Any = b"") -> list[dict[str, Any]]:
        """Send an API request; return its answers, of which there is none before the request is committed."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.inbox.send(b"PUB $JS.API.%b in.api %d\r\n%b\r\n" % (endpoint.encode(), len(payload), payload))
        return self.answers()

    def answers(self) -> list[dict[str, Any]]:
        """Return the API answers that have arrived."""
        return [json.loads(frame.payload) for frame in self.inbox.frames() if frame.subject == b"in.api"]

    def api(self, endpoint: str, body: Any = b"") -> dict[str, Any]:
        """Send an API request; return its answer once the request is committed."""
        found = self.ask(endpoint, body)
        self.settle()
        (answer,) = found or self.answers()
        return answer

    def consumer(self, name: str = "c", **fields: Any) -> dict[str, Any]:
        """Create or update a durable consumer, with explicit acks unless the fields differ."""
        given = {"durable_name": name, "ack_policy": "explicit", **fields}
        answer = self.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": given})
        assert "config" in answer, answer
        return answer

    def opened(self, name: str = "c") -> Consumer:
        """Return the open consumer on the leader."""
        found = self.leader.stream.consumers[name]
        assert isinstance(found, Consumer)
        return found

    def request(self, name: str = "c", **fields: Any) -> None:
        """Send a pull request; nothing is committed."""
        payload = json.dumps(fields).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{name}".encode()
        self.inbox.send(b"PUB %b in.1 %d\r\n%b\r\n" % (subject, len(payload), payload))
        self.leader.turn()

    def deliveries(self) -> list[Delivery]:
        """Return the messages that have arrived, without statuses."""
        return [delivery(frame) for frame in self.inbox.frames() if frame.reply.startswith(b"$JS.ACK.")]

    def pull(self, name: str = "c", **fields: Any) -> list[Delivery]:
        """Send a pull request that does not wait; return the messages that arrive, and commit the deliveries."""
        self.inbox.take()
        self.request(name, no_wait=True, **{"batch": 100, **fields})
        found = self.deliveries()
        self.settle()
        return found

    def ack(self, message: Delivery, body: bytes = b"", reply: bytes = b"") -> None:
        """Send an ack; a turn processes it, but nothing is committed."""
        self.inbox.send(b"PUB %b %b %d\r\n%b\r\n" % (message.reply, reply, len(body), body))
        self.leader.turn()

    def same(self) -> dict[str, Any]:
        """Check that all members are equal, including their consumers; return the state."""
        dumps = [member.replica.consumers.dump() for member in self.group.members]
        assert dumps.count(dumps[0]) == len(dumps)
        return same(self.group)
