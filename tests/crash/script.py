"""A store that contains every kind of record, made by a real server, and the answers that its client got.

ORDERS has several segments (or blocks), messages with headers and ids, some removed and one overwritten, and a
durable consumer with some acknowledged messages; COPY has ORDERS as its source.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.servers import Speaker, id_header, make_server

HOUR_NS = 3_600_000_000_000
FILL_SIZE = 20_000  # payload size in bytes: three of these messages and a few small ones fill a segment
PER_SEGMENT = 6
SEALED = 3
TAIL = 24
PULLED = 22
SETTLED = (
    1,
    2,
    3,
    4,
    6,
    7,
    12,
)  # positions among the pulled messages; the ack floor is below the first one that is missing here


@dataclass
class Known:
    """What the client was told while the store was made."""

    messages: dict[int, tuple[bytes, bytes, bytes]] = field(
        default_factory=dict
    )  # seq -> subject, headers, payload
    removed: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    ids: dict[bytes, int] = field(default_factory=dict)
    last_seq: int = 0

    def unsettled(self) -> set[int]:
        """Return the sequences that the consumer must still deliver."""
        return set(self.messages) - self.settled


def make_store(server: str, directory: Path, *, clean: bool, seed: int = 1) -> Known:
    """Create the store below `directory` and stop its server, or kill it if not `clean`."""
    process = make_server(server, "default", directory)
    process.start()
    try:
        client = Speaker(process.port)
        known = _fill(client, random.Random(seed))
        _consume(client, known)
        _wait_for_copy(client, known)  # of the messages after the removals
        _wait_for_sync(server, directory)
        client.close()
        if clean:
            process.stop()
    finally:
        process.kill()
    return known


def _fill(client: Speaker, rng: random.Random) -> Known:
    known = Known()
    config = {"subjects": ["orders.>"], "max_bytes": 262_144, "duplicate_window": HOUR_NS}
    client.api("STREAM.CREATE.ORDERS", name="ORDERS", **config)
    client.api(
        "STREAM.CREATE.COPY", name="COPY", sources=[{"name": "ORDERS", "filter_subject": "orders.small.>"}]
    )
    for _ in range(SEALED):
        for _ in range(PER_SEGMENT):
            _small(client, known, rng)
        for _ in range(3):
            payload = rng.randbytes(FILL_SIZE // 2).hex().encode()
            _publish(client, known, b"orders.fill", payload, b"")
    for _ in range(TAIL):
        _small(client, known, rng)
    _wait_for_copy(client, known)
    tail_first = known.last_seq - TAIL + 1
    for seq, no_erase in ((4, True), (tail_first + 2, True), (tail_first + 3, False), (tail_first + 4, True)):
        client.api("STREAM.MSG.DELETE.ORDERS", seq=seq, no_erase=no_erase)
        del known.messages[seq]
        known.removed.add(seq)
    for _ in range(4):
        _small(client, known, rng)
    return known


def _small(client: Speaker, known: Known, rng: random.Random) -> None:
    number = known.last_seq + 1
    message_id = b"id-%d" % number
    headers = (
        b"NATS/1.0\r\nNats-Msg-Id: %b\r\nColour: blue\r\n\r\n" % message_id
        if number % 3
        else id_header(message_id)
    )
    payload = b"%d " % number + rng.randbytes(rng.randrange(4, 40)).hex().encode()
    _publish(client, known, b"orders.small.%d" % (number % 5), payload, headers)
    known.ids[message_id] = known.last_seq


def _publish(client: Speaker, known: Known, subject: bytes, payload: bytes, headers: bytes) -> None:
    seq = client.publish(subject, payload, headers)["seq"]
    assert seq == known.last_seq + 1
    known.messages[seq] = (subject, headers, payload)
    known.last_seq = seq


def _consume(client: Speaker, known: Known) -> None:
    config = {
        "durable_name": "worker",
        "ack_policy": "explicit",
        "ack_wait": HOUR_NS,
        "deliver_policy": "all",
    }
    client.api("CONSUMER.DURABLE.CREATE.ORDERS.worker", stream_name="ORDERS", config=config)
    pulled = client.pull("ORDERS", "worker", PULLED)
    for number, (seq, reply) in enumerate(pulled, 1):
        known.delivered.add(seq)
        if number in SETTLED:
            client.request(reply, b"+ACK")
            known.settled.add(seq)


def _wait_for_copy(client: Speaker, known: Known) -> None:
    deadline = time.monotonic() + 20
    while client.api("STREAM.INFO.COPY")["state"]["messages"] < len(known.ids):
        assert time.monotonic() < deadline, "the source was not copied"
        time.sleep(0.005)  # polling: no event signals that a source is up to date


def _wait_for_sync(server: str, directory: Path) -> None:
    """Wait for the sync that writes the index files of our sealed segments; nats-server's blocks have none."""
    deadline = time.monotonic() + 20
    while server == "ours" and len(list(directory.rglob("ORDERS/msgs/*.idx"))) < SEALED - 1:
        assert time.monotonic() < deadline, "a sealed segment has no index file"
        time.sleep(0.02)  # polling the directory
