"""Republishing: subjects and headers for the copies that a stream publishes of its stored messages.

This module works only on bytes: the stream queues the copies together with its PubAcks, so a copy is sent after the
commit, and not at all if the commit fails. Streams without republish do not use this module.

Source: nats.docs "Streams", republish; headers and corner cases probed on nats-server 2.15.1
(tests/conformance/scenarios/republish).
"""

from __future__ import annotations

from pyjs.base.gotext import time_text
from pyjs.base.rng import Rng
from pyjs.jetstream.config.stream import RepublishConfig
from pyjs.subjects.tokens import is_valid_literal
from pyjs.subjects.transform import open_transform

_END = b"\r\n"


class Republisher:
    """The subjects and headers of the copies that one stream republishes."""

    def __init__(self, stream: str, config: RepublishConfig, rng: Rng) -> None:
        """Prepare `config`, which jetstream/rules/stream.py must have checked."""
        self._stream = stream.encode()
        self._transform = open_transform(config.src, config.dest, rng)
        self.headers_only = config.headers_only

    def destination(self, subject: bytes) -> bytes:
        """Return the subject of the copy, or b"" if the message is not republished."""
        made = self._transform.apply(subject) if self._transform is not None else None
        return made if made is not None and is_valid_literal(made) else b""

    def headers(self, own: bytes, subject: bytes, seq: int, at_ns: int, last_seq: int, size: int) -> bytes:
        """Return the header block for the copy of a message that has the headers `own` and a payload of `size` bytes.

        `last_seq` is the sequence of the preceding message of the subject, or 0 if there is none.
        """
        lines = [
            own[: -len(_END)] if own else b"NATS/1.0\r\n",
            b"Nats-Stream: %b\r\nNats-Subject: %b\r\n" % (self._stream, subject),
            b"Nats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n" % (seq, time_text(at_ns).encode()),
            b"Nats-Last-Sequence: %d\r\n" % last_seq,
        ]
        if self.headers_only:
            lines.append(b"Nats-Msg-Size: %d\r\n" % size)
        return b"".join([*lines, _END])
