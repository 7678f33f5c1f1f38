"""Mutated frames of a route: each ends the route or has no effect, and the server keeps working."""

from __future__ import annotations

import json
import os
import random
import struct

from tests.support.simnet import SimNet, SimServer

from pyjs.core.link import Peer
from pyjs.testing import MemoryLink, RawClient

CASES = int(os.environ.get("PYJS_ROUTE_CASES", "5000"))
HELLO = {"pyjs_route": 4, "server_id": "NS", "server_name": "s", "cluster": "SIM", "host": "", "port": 1}
NUMBERS = (0, 1, 2, 7, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1)


def frame(kind: int, body: bytes, flags: int = 0, account: int = 0) -> bytes:
    return struct.pack("<IIBBH", len(body), account, kind, flags, 0) + body


def interest_frame(subject: bytes, queue: bytes, weight: int) -> bytes:
    """Return the frame of a change of interest."""
    return frame(2, struct.pack("<II", weight, len(subject)) + subject + queue)


def message_frame(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bytes:
    """Return the frame of a message for plain subscriptions."""
    return _message_frame(subject, reply, headers, payload, b"", b"", 1)


def _message_frame(
    subject: bytes, reply: bytes, headers: bytes, payload: bytes, found: bytes, queues: bytes, flags: int
) -> bytes:
    size = len(headers) + len(payload)
    tail = (reply + b" " if reply else b"") + (b"%d " % len(headers) if headers else b"") + b"%d\r\n" % size
    tail += headers + payload + b"\r\n"
    fixed = struct.pack("<6I", len(subject), len(reply), len(headers), size, len(found), len(queues))
    number = struct.pack("<Q", 2**63) if flags & 4 else b""
    return frame(3, fixed + number + subject + found + tail + queues, flags)


def message(rng: random.Random) -> bytes:
    subject, reply, payload = (
        rng.choice((b"x", b"x.y")),
        rng.choice((b"", b"_INBOX.1")),
        rng.randbytes(rng.randrange(40)),
    )
    headers = rng.choice((b"", b"NATS/1.0\r\nA: b\r\n\r\n"))
    found = rng.choice((b"", b"y.z"))
    queues = b"".join(struct.pack("<I", len(name)) + name for name in rng.choice(((), (b"g",), (b"g", b"h"))))
    flags = rng.choice((0, 1)) | (2 if found else 0) | rng.choice((0, 4))
    return _message_frame(subject, reply, headers, payload, found, queues, flags)


def stream(rng: random.Random) -> bytes:
    """Return valid frames."""
    parts = [frame(1, b"$G")]
    for _ in range(rng.randrange(1, 8)):
        what = rng.randrange(6)
        if what < 3:
            parts.append(message(rng))
        elif what == 3:
            subject, queue = rng.choice((b"a.*", b">", b"b")), rng.choice((b"", b"g"))
            parts.append(interest_frame(subject, queue, rng.randrange(3)))
        elif what == 4:
            parts.append(frame(rng.choice((4, 5)), rng.randbytes(8)))
        else:
            parts.append(frame(6, json.dumps({"connect_urls": ["h:1"], "peers": []}).encode()))
    return b"".join(parts)


def mutated(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(out))
        what = rng.randrange(5)
        if what == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            out[at : at + 4] = struct.pack("<I", rng.choice(NUMBERS))
        elif what == 2:
            del out[at : at + rng.randrange(1, 20)]
            out = out or bytearray(1)
        elif what == 3:
            out[at:at] = rng.randbytes(rng.randrange(1, 20))
        else:
            del out[at + 1 :]
    return bytes(out)


def play(rng: random.Random, server: SimServer) -> None:
    link = MemoryLink()
    route = server.cluster.open_route(Peer("10.9.9.9", 1), link)
    route.receive_data(b"CONNECT " + json.dumps(HELLO).encode() + b"\r\n")
    data = mutated(rng, stream(rng))
    while data:
        size = rng.choice((1, 3, 12, 50, 5000))
        route.receive_data(data[:size])
        data = data[size:]
    server.wake()
    route.connection_lost()
    server.wake()


def test_mutated_frames_never_stop_the_server() -> None:
    rng = random.Random(7)
    net = SimNet(7)
    server = net.start("a")
    client: RawClient = server.client()
    client.send(b"SUB > 1\r\nSUB x g 2\r\nSUB x.* h 3\r\n")
    for number in range(CASES):
        play(rng, server)
        assert server.cluster.routes == {}
        if number % 100 == 0:
            client.take()
            client.send(b"PUB alive %d\r\n%d\r\n" % (len(str(number)), number))
            assert client.payloads() == [b"%d" % number]
    assert server.node.faults.counts == {}
    assert server.node.accounts["$G"].subs.subscriptions() != []
    assert all(not sub.is_remote for sub in server.node.accounts["$G"].subs.subscriptions())
