"""Many consumers of one stream compared with a model: each gets every match once, in order, with the right counts.

Publishes, deletes, purges, limits and requests are random; no result may depend on which consumers were woken.
"""

from __future__ import annotations

import random

import pytest
from tests.unit.jetstream.consumerfixture import ConsumerFixture

from pyjs.subjects.tokens import subject_matches

SUBJECTS = [f"t.{letter}.{digit}" for letter in "abcd" for digit in range(5)]
FILTERS = ["t.a.0", "t.b.1", "t.c.2", "t.d.3", "t.a.*", "t.*.1", "t.>", "t.b.>", "t.d.4", "t.c.0"]
STEPS = 300


class Reader:
    """The messages that one consumer must have received."""

    def __init__(self, name: str, subject_filter: str) -> None:
        self.name = name
        self.filter = subject_filter
        self.inbox = f"_I.{name}".encode()
        self.next_seq = 1
        self.wanted = 0  # number of messages requested and not delivered yet
        self.expected: list[tuple[int, int]] = []  # sequence, and number pending after it
        self.got: list[tuple[int, int]] = []


class Model:
    """The stream and its consumers, with the messages that they must have received."""

    def __init__(self, seed: int, **config: object) -> None:
        self.rng = random.Random(seed)
        self.js = ConsumerFixture()
        self.js.add("T", subjects=["t.>"], **config)
        self.readers = [Reader(f"c{i}", subject) for i, subject in enumerate(FILTERS)]
        for reader in self.readers:
            self.configure(reader)
        self.client = self.js.client()
        for reader in self.readers:
            self.client.send(b"SUB %s %s\r\n" % (reader.inbox, reader.name.encode()))

    def configure(self, reader: Reader) -> None:
        config = {"durable_name": reader.name, "filter_subject": reader.filter, "ack_policy": "none"}
        answer = self.js.api(
            f"CONSUMER.DURABLE.CREATE.T.{reader.name}", {"stream_name": "T", "config": config}
        )
        assert "error" not in answer, answer

    def live(self, reader: Reader) -> list[int]:
        """Return the sequences that `reader` has not received yet."""
        store = self.js.stream("T").store
        out = []
        for seq in range(max(reader.next_seq, store.first_seq), store.last_seq + 1):
            message = store.get(seq)
            if message is not None and subject_matches(message.subject, reader.filter.encode()):
                out.append(seq)
        return out

    def serve(self) -> None:
        """Compute the deliveries that must have happened by now."""
        for reader in self.readers:
            matches = self.live(reader)
            for at, seq in enumerate(matches[: reader.wanted]):
                reader.expected.append((seq, len(matches) - at - 1))
                reader.next_seq = seq + 1
                reader.wanted -= 1

    def step(self) -> None:
        match self.rng.randrange(12):
            case 0:
                self.js.api("STREAM.MSG.DELETE.T", {"seq": self.rng.randint(1, 60)})
            case 1 if self.rng.randrange(6) == 0:
                self.js.api(
                    "STREAM.PURGE.T", {"filter": self.rng.choice([*SUBJECTS, "t.a.>", ">"]), "keep": 1}
                )
            case 3 | 4 | 5:
                reader = self.rng.choice(self.readers)
                batch = self.rng.randint(1, 4)
                reader.wanted += batch
                subject = f"$JS.API.CONSUMER.MSG.NEXT.T.{reader.name}".encode()
                self.client.send(b"PUB %s %s 1\r\n%d\r\n" % (subject, reader.inbox, batch))
            case 6:
                reader = self.rng.choice(self.readers)
                info = self.js.api(f"CONSUMER.INFO.T.{reader.name}")
                assert info["num_pending"] == len(self.live(reader)), reader.name
            case _:
                self.js.publish(self.rng.choice(SUBJECTS))
        self.serve()

    def collect(self) -> None:
        """Read the deliveries that have arrived."""
        by_sid = {reader.name.encode(): reader for reader in self.readers}
        for frame in self.client.frames():
            if frame.reply.startswith(b"$JS.ACK."):
                tokens = frame.reply.split(b".")
                by_sid[frame.sid].got.append((int(tokens[5]), int(tokens[8])))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("config", [{}, {"max_msgs": 25}, {"max_msgs_per_subject": 2}], ids=str)
def test_every_consumer_gets_its_matches_once_whoever_else_waits(seed: int, config: dict[str, int]) -> None:
    # given
    model = Model(seed, **config)
    # when
    for _ in range(STEPS):
        model.step()
    model.collect()
    # then
    for reader in model.readers:
        assert reader.got == reader.expected, reader.filter
    assert sum(len(reader.got) for reader in model.readers) > 50
