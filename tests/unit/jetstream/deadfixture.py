"""A fixture for tests of dead letters: a stream whose dead letters go to another one."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.jetstream.consumerfixture import ConsumerFixture, Delivery

STREAM_KEY, PREFIX_KEY = "_pyjs.dead_letter_stream", "_pyjs.dead_letter_prefix"


class Dead(ConsumerFixture):
    """The stream S, whose dead letters go to D; the consumer c delivers twice."""

    def __init__(self, letters: dict[str, Any] | None = None, **config: Any) -> None:
        super().__init__(**config)
        self.add("D", subjects=["$DLQ.S.>"], **(letters or {}))
        self.edit(**{STREAM_KEY: "D"})

    def edit(self, name: str = "S", **metadata: str) -> dict[str, Any]:
        """Replace the metadata of a stream."""
        config = self.api(f"STREAM.INFO.{name}")["config"]
        return self.api(f"STREAM.UPDATE.{name}", {**config, "metadata": metadata})

    def reconfigure(self, name: str, **fields: Any) -> None:
        """Change a stream."""
        config = self.api(f"STREAM.INFO.{name}")["config"]
        answer = self.api(f"STREAM.UPDATE.{name}", {**config, **fields})
        assert "error" not in answer, answer

    def letters(self, name: str = "D") -> list[tuple[str, bytes]]:
        """Return subject and payload of each letter."""
        store = self.stream(name).store
        found = [store.get(seq) for seq in range(store.first_seq, store.last_seq + 1)]
        return [(each.subject.decode(), each.payload) for each in found if each is not None]

    def headers(self, seq: int = 1, name: str = "D") -> dict[str, str]:
        """Return the headers of a letter."""
        message = self.stream(name).store.get(seq)
        assert message is not None
        lines = message.headers.decode().split("\r\n")[1:]
        return dict(line.split(": ", 1) for line in lines if line)

    def given_up(self) -> dict[int, int]:
        """Return what the consumer has given up and not settled."""
        return self.core().acks.exhausted

    def nak_all(self, count: int, name: str = "c") -> list[Delivery]:
        """Receive and refuse messages until all are given up."""
        found: list[Delivery] = []
        for _ in range(2):
            got = self.pull(name, batch=count)
            found += got
            for message in got:
                self.ack(message, b"-NAK")
        self.pull(name, batch=1)
        return found

    def why(self) -> dict[str, Any]:
        """Return the reason of the consumer that is about dead letters, or {}."""
        answer = json.loads(self.ask("$JS.API.PYJS.WHY.S.c").payload)
        return next((each for each in answer["reasons"] if each["kind"] == "dead_letters"), {})
