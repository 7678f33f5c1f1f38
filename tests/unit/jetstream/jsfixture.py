"""A fixture for stream tests: a node with JetStream and one client."""

from __future__ import annotations

import json
import tempfile
from typing import Any

from pyjs.base.disk import Disk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.manage.engine import JetStream
from pyjs.jetstream.stream.stream import Stream
from pyjs.testing import Frame, VirtualNode

API = "$JS.API."


class JetStreamFixture(VirtualNode):
    """A node with JetStream enabled; its client is connected to the global account."""

    def __init__(
        self, options: Options | None = None, disk: Disk | None = None, now_ns: int | None = None
    ) -> None:
        if options is None:
            options = Options()
        options.jetstream = options.jetstream if options.jetstream.enabled else JetStreamOptions(enabled=True)
        self.directory = tempfile.TemporaryDirectory()  # removed together with the fixture
        options.jetstream.store_dir = options.jetstream.store_dir or self.directory.name
        super().__init__(options, now_ns=now_ns)
        if disk is not None:
            self.node.disk = disk
        self.node.start_jetstream()
        self.user = self.client()

    def restart(self) -> JetStreamFixture:
        """Stop the node, and return a new one on the same files at the same time."""
        self.node.stop()
        again = JetStreamFixture(self.options, now_ns=self.clock.now_ns())
        again.directory = self.directory
        return again

    def at(self, now_ns: int) -> JetStreamFixture:
        """Move the clock to `now_ns`."""
        self.clock.advance(now_ns - self.clock.now_ns())
        self.turn()
        return self

    @property
    def engine(self) -> JetStream:
        assert self.node.jetstream is not None
        return self.node.jetstream.accounts["$G"]

    def stream(self, name: str) -> Stream:
        return self.engine.streams[name]

    def ask(self, subject: str, body: Any = b"", headers: bytes = b"") -> Frame:
        """Send one request and return the frame of its answer."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.user.request(subject.encode(), payload, headers)

    def api(self, endpoint: str, body: Any = b"", headers: bytes = b"") -> dict[str, Any]:
        """Send an API request; return the answer without its type."""
        answer: dict[str, Any] = json.loads(self.ask(API + endpoint, body, headers).payload)
        assert answer.pop("type").startswith("io.nats.jetstream.api.v1.")
        return answer

    def error(self, endpoint: str, body: Any = b"", headers: bytes = b"") -> tuple[int, int, str]:
        """Send an API request; return the error of its answer."""
        error = self.api(endpoint, body, headers)["error"]
        return error["code"], error["err_code"], error["description"]

    def add(self, name: str, **config: Any) -> dict[str, Any]:
        """Create a memory stream; return the configuration in the answer."""
        fields = {"name": name, "storage": "memory", **config}
        answer = self.api(f"STREAM.CREATE.{name}", fields)
        assert "config" in answer, answer
        shown: dict[str, Any] = answer["config"]
        return shown

    def publish(self, subject: str, payload: bytes = b"x", **headers: str) -> dict[str, Any]:
        """Publish with a reply subject; return the PubAck. Names of headers are given in snake case."""
        block = b""
        if headers:
            lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
            block = f"NATS/1.0\r\n{''.join(lines)}\r\n".encode()
        ack: dict[str, Any] = json.loads(self.ask(subject, payload, block).payload)
        return ack

    def refused(self, subject: str, payload: bytes = b"x", **headers: str) -> tuple[int, int, str]:
        """Publish; return the error in the PubAck."""
        ack = self.publish(subject, payload, **headers)
        assert (ack["stream"], ack["seq"]) != ("", 1)
        error = ack["error"]
        return error["code"], error["err_code"], error["description"]

    def state(self, name: str) -> dict[str, Any]:
        """Return the state in STREAM.INFO."""
        shown: dict[str, Any] = self.api(f"STREAM.INFO.{name}")["state"]
        return shown

    def payloads(self, name: str) -> list[bytes]:
        """Return the payloads of the stored messages, in order."""
        store = self.stream(name).store
        found = [store.get(seq) for seq in range(store.first_seq, store.last_seq + 1)]
        return [message.payload for message in found if message is not None]
