"""A node with JetStream, and the dashboard's data about it."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.monitor.conftest import Site, finish

from pyjs.config.options import HttpLogin, Options
from pyjs.monitor.dashboard.posted import ACTION_HEADER, Posted
from pyjs.monitor.response import Response


def posted(body: bytes, **headers: str) -> Posted:
    """Return a POST as a script of the page sends it.

    `headers` (with _ for -) replace its headers; "" removes one.
    """
    found = {
        "host": "here:8222",
        "origin": "http://here:8222",
        "sec-fetch-site": "same-origin",
        "content-type": "application/json",
        "content-length": str(len(body)),
        ACTION_HEADER: "replay",
    }
    found |= {name.replace("_", "-"): value for name, value in headers.items()}
    return Posted({name: value for name, value in found.items() if value}, body, "10.1.2.3:4")


class Dash(Site):
    """A site with a vocabulary for streams, consumers and the views."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.monitored.in_turns = self._in_turns
        self.user = self.client("tester")

    def view(self, target: str, status: int = 200) -> Any:
        """Return the data of a view, after the last survey has become old."""
        self.fixture.advance(seconds=1)
        return self.json(f"/dashboard/data/{target}", status)

    def refusal(self, target: str) -> str:
        return self.refused(f"/dashboard/data/{target}")

    def _in_turns(self, steps: Iterator[Any]) -> Generator[None, None, None]:
        self.node.turn_state.go_on(steps)
        self.fixture.turn()
        yield

    def post(self, target: str, body: bytes, **headers: str) -> Response:
        """Send a POST as a script of the page does, see `posted`."""
        answer: Response = finish(self.router.answer(f"/dashboard/{target}", posted(body, **headers)))
        return answer

    def letter(self, seq: int, subject: str = "s.a", consumer: str = "c", stream: str = "S") -> None:
        """Publish a dead letter for a message of the stream S."""
        headers = f"Dead-Letter-Stream: {stream}\r\nDead-Letter-Consumer: {consumer}\r\n"
        headers += f"Dead-Letter-Reason: term\r\nDead-Letter-Subject: {subject}\r\n"
        block = f"NATS/1.0\r\n{headers}\r\n".encode()
        self.publish(f"$DLQ.{stream}.{consumer}.{seq}.{subject}", b"m%d" % seq, headers=block)

    def stream(self, name: str, **config: Any) -> None:
        body = {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory", **config}
        self._api(f"STREAM.CREATE.{name}", body)

    def consumer(self, stream: str, name: str, **config: Any) -> None:
        body = {"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit", **config}}
        self._api(f"CONSUMER.CREATE.{stream}.{name}", body)

    def _api(self, subject: str, body: object) -> None:
        answer = self.user.request(f"$JS.API.{subject}".encode(), json.dumps(body).encode())
        assert b'"error"' not in answer.payload, answer.payload

    def publish(self, subject: str, *payloads: bytes, headers: bytes = b"") -> None:
        for payload in payloads:
            if headers:
                sizes = len(headers), len(headers) + len(payload)
                self.user.send(b"HPUB %b %d %d\r\n%b%b\r\n" % (subject.encode(), *sizes, headers, payload))
            else:
                self.user.send(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))

    def pull(self, stream: str, consumer: str, batch: int, inbox: bytes = b"mine") -> None:
        """Ask for messages, which the client then receives."""
        self.user.send(b"SUB %b 9\r\n" % inbox)
        body = json.dumps({"batch": batch, "expires": 60_000_000_000}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
        self.user.send(b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(body), body))


def jetstream_options(directory: Path) -> Options:
    options = Options()
    options.jetstream.enabled = True
    options.jetstream.store_dir = str(directory)
    return options


@pytest.fixture
def dash(tmp_path: Path) -> Dash:
    """A server whose operator has turned the message browser and replays on."""
    options = jetstream_options(tmp_path)
    options.monitoring.login = HttpLogin(token="t", messages=True, replay=True)
    made = Dash(options)
    made.node.start_jetstream()
    return made
