"""The status messages of consumers: header blocks without payload.

This module knows nothing of the reasons for which they are sent.

Source: ADR-13 and nats.docs "Consumers"; texts and headers probed on nats-server 2.15.1.
"""

from __future__ import annotations

FLOW_CONTROL_REQUEST = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
NO_MESSAGES = b"NATS/1.0 404 No Messages\r\n\r\n"


def status(text: str | bytes) -> bytes:
    """Return a status without further headers; `text` is its code and description."""
    return b"NATS/1.0 %b\r\n\r\n" % (text.encode() if isinstance(text, str) else text)


def ended(text: bytes, messages_left: int, bytes_left: int) -> bytes:
    """Return the status that ends a pull request; it shows how many messages and bytes are missing."""
    return b"NATS/1.0 %b\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n" % (
        text,
        messages_left,
        bytes_left,
    )


def read_progress(headers: bytes) -> tuple[int, int]:
    """Return (stream_seq, consumer_seq) from the headers of an answer to flow control.

    A number that is missing or invalid is returned as 0.
    """
    found = []
    for name in (b"Nats-Last-Stream:", b"Nats-Last-Consumer:"):
        text = headers.partition(name)[2].partition(b"\r\n")[0].strip()
        found.append(int(text) if text.isdigit() and len(text) < 20 else 0)
    return found[0], found[1]


def idle_heartbeat(consumer_seq: int, stream_seq: int, stalled: bytes = b"") -> bytes:
    """Return a heartbeat; `stalled` is the reply subject of an unanswered flow control request."""
    head = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n" % (
        consumer_seq,
        stream_seq,
    )
    return head + (b"Nats-Consumer-Stalled: %b\r\n" % stalled if stalled else b"") + b"\r\n"
