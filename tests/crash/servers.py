"""Parts that every crash test needs: a server process in a sync mode, and a client for it."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.support.raw import RawClient

# `default` is the server's own interval: 1 s in this server, 2 minutes in nats-server.
MODES = {
    "default": "",
    "always": ", sync_interval: always",
    "5s": ", sync_interval: 5s",
    "2s": ", sync_interval: 2s",
}
PAYLOAD_SIZE = 128
_numbers = itertools.count(1)  # numbers of connections: each has its own inboxes


class PeerMissing(Exception):
    """nats-server is not installed."""


def command_of(server: str) -> list[str]:
    """Return the command of the server named `ours` or `peer`."""
    if server == "ours":
        return our_command()
    command = peer_command()
    if command is None:
        raise PeerMissing("nats-server is not installed beside this Python")
    return command


def make_server(
    server: str,
    mode: str,
    directory: Path,
    *,
    store: Path | None = None,
    prefix: Sequence[str] = (),
    more: str = "",
) -> ServerProcess:
    """Return a server that is not started; its store is `directory`/store, or `store`.

    Its command begins with `prefix`; `more` is added to its configuration.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if store is not None:
        (directory / "store").symlink_to(store)
    config = f'jetstream: {{store_dir: "<<store>>", max_file: 10GB{MODES[mode]}}}\n{more}'
    return ServerProcess([*prefix, *command_of(server)], config, directory, with_http=False, may_fork=True)


def rng_of(seed: int, *what: object) -> random.Random:
    """Return the random numbers for one part of a run; the same seed yields the same numbers."""
    return random.Random(f"{seed} {what}")


class Speaker(RawClient):
    """A RawClient with the operations of these tests and its own inboxes; damage.py has the same for a Node."""

    def __init__(self, port: int, timeout_s: float = 20.0) -> None:
        super().__init__(port, timeout_s)
        self.inbox = b"_INBOX.s%d." % next(_numbers)
        self.send(b"UNSUB 1\r\nSUB %b> 2\r\n" % self.inbox)

    def request(self, subject: bytes, payload: bytes = b"") -> bytes:
        """Publish with an inbox and return the payload of the answer."""
        return self._answer(subject, payload, b"")

    def raw_message(self, stream: str, seq: int) -> bytes:
        """Return the answer to MSG.GET, b"" for no message."""
        body = self.request(f"$JS.API.STREAM.MSG.GET.{stream}".encode(), b'{"seq":%d}' % seq)
        return b"" if b'"error":' in body[:200] else body

    def publish(self, subject: bytes, payload: bytes, headers: bytes = b"") -> dict[str, Any]:
        """Publish and return the PubAck, or {} if no answer comes."""
        answer: dict[str, Any] = json.loads(self._answer(subject, payload, headers) or b"{}")
        return answer

    def pull(self, stream: str, consumer: str, batch: int) -> list[tuple[int, bytes]]:
        """Return (stream sequence, reply subject) of up to `batch` messages that can be delivered now."""
        body = json.dumps({"batch": batch, "no_wait": True}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
        inbox = self._next_inbox()
        self.send(framed(subject, inbox, body))
        found: list[tuple[int, bytes]] = []
        for _, reply, headers, _ in self.frames():
            if headers.startswith(
                (b"NATS/1.0 40", b"NATS/1.0 503")
            ):  # nothing more is due, or the server has ended
                return found
            if reply.startswith(b"$JS.ACK."):
                found.append((stream_seq_of(reply), reply))
            if len(found) == batch:
                return found
        return found

    def _answer(self, subject: bytes, payload: bytes, headers: bytes) -> bytes:
        inbox = self._next_inbox()
        self.send(framed(subject, inbox, payload, headers))
        for answered, _, _, body in self.frames():
            if answered == inbox:
                return body
        raise AssertionError("unreachable: frames() ends with an error")

    def _next_inbox(self) -> bytes:
        self._asked += 1
        return b"%brq%d" % (self.inbox, self._asked)


def framed(subject: bytes, inbox: bytes, payload: bytes, headers: bytes = b"") -> bytes:
    """Return a message with a reply subject as PUB or HPUB."""
    if headers:
        sizes = (len(headers), len(headers) + len(payload))
        return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, inbox, *sizes, headers, payload)
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(payload), payload)


def stream_seq_of(reply: bytes) -> int:
    """Return the stream sequence in an ack subject of either format."""
    parts = reply.split(b".")
    return int(parts[5] if len(parts) == 9 else parts[7])


def id_header(message_id: bytes) -> bytes:
    """Return headers with a message id."""
    return b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id


def read_messages(port: int, stream: str) -> list[tuple[int, bytes]]:
    """Return (seq, payload) of every message of a stream, read through a pull consumer."""
    client = Speaker(port)
    state = client.api(f"STREAM.INFO.{stream}")["state"]
    config = {"ack_policy": "none", "deliver_policy": "all", "inactive_threshold": 60_000_000_000}
    name = client.api(f"CONSUMER.CREATE.{stream}", stream_name=stream, config=config)["name"]
    found: list[tuple[int, bytes]] = []
    frames = client.frames()
    while len(found) < state["messages"]:
        batch = min(5_000, state["messages"] - len(found))
        body = json.dumps({"batch": batch, "no_wait": True}).encode()
        client.send(framed(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}".encode(), client.inbox + b"n", body))
        before = len(found)
        for _ in range(batch):
            _, reply, headers, payload = next(frames)
            if headers.startswith(b"NATS/1.0 40"):
                break
            found.append((stream_seq_of(reply), payload))
        if len(found) == before:
            break  # fewer than the state reports: the caller sees the gap
    client.api(f"CONSUMER.DELETE.{stream}.{name}")
    client.close()
    return found
