"""Roll-ups remove many messages together, with the same effects as if they removed one after another."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

NEVER = (1 << 32) - 1  # a number of messages that no stream here has
CONSUMERS = {
    "all": {"ack_policy": "all"},
    "each": {"ack_policy": "explicit", "filter_subject": "s.a"},
    "wild": {"ack_policy": "explicit", "filter_subject": "s.*", "max_ack_pending": 20},
}
SUBJECTS = ["s.a"] * 6 + ["s.b", "s.c"]
CONFIGS: list[dict[str, Any]] = [
    {"storage": "memory"},
    {"storage": "file"},
    {"storage": "file", "retention": "interest", "max_msgs_per_subject": 30},
    {"storage": "memory", "max_msgs": 70, "compression": "none"},
]


class Pair:
    """Two nodes that get the same requests; one of them removes messages together whenever it can."""

    def __init__(self, config: dict[str, Any], now_ns: int | None = None) -> None:
        self.nodes = [JetStreamFixture(now_ns=1_700_000_000 * 10**9) for _ in range(2)]
        self.tokens: list[bytes] = []  # ack subjects of deliveries that are not acknowledged
        for js in self.nodes:
            js.add("S", subjects=["s.>"], allow_rollup_hdrs=True, **config)
            for name, options in CONSUMERS.items():
                body = {"stream_name": "S", "config": {"durable_name": name, **options}}
                assert "error" not in js.api(f"CONSUMER.DURABLE.CREATE.S.{name}", body)
        self.choose()

    def choose(self) -> None:
        """Set from how many messages on each node removes them together."""
        for js, many in zip(self.nodes, (2, NEVER), strict=True):
            js.stream("S").store.many = many

    def send(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Send in one read; return what both nodes answered."""
        found = []
        for js in self.nodes:
            js.user.send(b"SUB in.> 9\r\n" + data + b"UNSUB 9\r\n")
            found.append([(each.reply, each.payload) for each in js.user.frames()])
        assert found[0] == found[1]
        return found[0]

    def publish(self, rng: Random) -> None:
        """Publish up to 60 messages in one turn, some of them roll-ups."""
        data = b""
        for number in range(rng.randint(1, 60)):
            subject, headers = rng.choice(SUBJECTS).encode(), b""
            if rng.random() < 0.05:
                headers = b"NATS/1.0\r\nNats-Rollup: %b\r\n\r\n" % rng.choice([b"sub", b"sub", b"all"])
                subject = rng.choice([subject, subject, b"s.*"])
            elif rng.random() < 0.1:
                headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % rng.randrange(30)
            size = len(headers)
            data += (
                b"HPUB %b in.%d %d %d\r\n%bx\r\n" % (subject, number, size, size + 1, headers)
                if size
                else (b"PUB %b in.%d 1\r\nx\r\n" % (subject, number))
            )
        self.send(data)

    def fetch(self, rng: Random) -> None:
        """Request messages for a consumer."""
        body = b'{"batch":%d,"no_wait":true}' % rng.randint(1, 30)
        name = rng.choice(list(CONSUMERS)).encode()
        found = self.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.%b in.f %d\r\n%b\r\n" % (name, len(body), body))
        self.tokens += [reply for reply, _ in found if reply]

    def acknowledge(self, rng: Random) -> None:
        """Acknowledge some deliveries."""
        some = [self.tokens.pop(rng.randrange(len(self.tokens))) for _ in range(len(self.tokens) // 3)]
        self.send(
            b"".join(b"PUB %b %d\r\n%b\r\n" % (each, 4, rng.choice([b"+ACK", b"-NAK"])) for each in some)
        )

    def delete(self, rng: Random) -> None:
        """Remove a message."""
        seq = rng.randint(1, max(1, self.nodes[0].state("S")["last_seq"]))
        self.compare("STREAM.MSG.DELETE.S", {"seq": seq})

    def compare(self, endpoint: str, body: object = None) -> dict[str, Any]:
        """Compare the answers of an API request, but for times; return the answer."""
        answers = [js.api(endpoint, body or {}) for js in self.nodes]
        assert answers[0] == answers[1]
        return answers[0]

    def check(self) -> None:
        """Compare the stream, its messages and its consumers."""
        state = self.compare("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True})["state"]
        assert sum(state.get("subjects", {}).values()) == state["messages"]
        assert self.nodes[0].payloads("S") == self.nodes[1].payloads("S")
        for name in CONSUMERS:
            self.compare(f"CONSUMER.INFO.S.{name}")

    def restart(self) -> None:
        """Restart both nodes."""
        self.nodes = [js.restart() for js in self.nodes]
        self.choose()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_rollups_have_the_same_effects_however_they_remove(config: dict[str, Any], seed: int) -> None:
    rng = Random(seed)
    pair = Pair(config)
    for step in range(40):
        rng.choice([pair.publish, pair.publish, pair.fetch, pair.acknowledge, pair.delete])(rng)
        pair.check()
        if config["storage"] == "file" and step % 15 == 14:
            pair.restart()
            pair.check()
    assert pair.nodes[0].state("S")["last_seq"] > 100
