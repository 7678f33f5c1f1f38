"""A node with JetStream, and the dashboard's data about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.monitor.conftest import Site

from pyjs.config.options import HttpLogin, Options


class Dash(Site):
    """A site with a vocabulary for streams, consumers and the views."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.user = self.client("tester")

    def view(self, target: str, status: int = 200) -> Any:
        """Return the data of a view, after the last survey has become old."""
        self.fixture.advance(seconds=1)
        return self.json(f"/dashboard/data/{target}", status)

    def refusal(self, target: str) -> str:
        return self.refused(f"/dashboard/data/{target}")

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
    """A server whose operator has turned the message browser on."""
    options = jetstream_options(tmp_path)
    options.monitoring.login = HttpLogin(token="t", messages=True)
    made = Dash(options)
    made.node.start_jetstream()
    return made
