"""Valid protocol sequences and mutations of them, reproducible: a case is (seed, number)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

CONNECTS = [
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n',
    b'CONNECT {"verbose":true,"pedantic":true}\r\n',
    b"CONNECT {}\r\n",
    b"",
]
LINES = [
    b"PING\r\n",
    b"PONG\r\n",
    b"SUB foo 1\r\n",
    b"SUB foo.* q 2\r\n",
    b"SUB > 3\r\n",
    b"SUB _INBOX.a.* 4\r\n",
    b"UNSUB 1\r\n",
    b"UNSUB 2 3\r\n",
    b"PUB foo 5\r\nhello\r\n",
    b"PUB foo.bar _INBOX.a.1 0\r\n\r\n",
    b"HPUB foo.bar r 22 27\r\nNATS/1.0\r\nKey: val\r\n\r\nhello\r\n",
    b"HPUB foo 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"PUB $JS.API.INFO _INBOX.a.2 0\r\n\r\n",
    b'PUB $JS.API.STREAM.CREATE.F _INBOX.a.3 47\r\n{"name":"F","subjects":["f.>"],"storage":"memory"}\r\n',
    b"PUB $JS.API.STREAM.INFO.F _INBOX.a.4 0\r\n\r\n",
    b"PUB f.x _INBOX.a.5 3\r\nabc\r\n",
    b"HPUB f.x _INBOX.a.6 32 35\r\nNATS/1.0\r\nNats-Msg-Id: abc\r\n\r\n\r\nabc\r\n",
    b"PUB $JS.API.CONSUMER.MSG.NEXT.F.c _INBOX.a.7 1\r\n1\r\n",
    b"PUB $JS.ACK.F.c.1.1.1.1.0 4\r\n+ACK\r\n",
    b"+OK\r\n",
    b"INFO {}\r\n",
]
BYTES = [
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\x00",
    b"\xff",
    b".",
    b"*",
    b">",
    b"-1",
    b"99999999999",
    b"{",
    b'"',
]


def case(seed: int, number: int) -> list[bytes]:
    """Return the reads of one connection: a valid sequence with up to three mutations, cut at random."""
    rng = random.Random(seed * 1_000_003 + number)
    lines = [rng.choice(CONNECTS), *(rng.choice(LINES) for _ in range(rng.randint(1, 8)))]
    data = bytearray(b"".join(lines))
    for _ in range(rng.randint(0, 3)):
        _mutate(rng, data)
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(0, 3)))
    edges = [0, *cuts, len(data)]
    return [bytes(data[start:end]) for start, end in itertools.pairwise(edges)]


def _mutate(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(5)
    if kind == 0 and at < len(data):
        data[at] = rng.randrange(256)
    elif kind == 1:
        data[at:at] = rng.choice(BYTES)
    elif kind == 2:
        del data[at : at + rng.randint(1, 8)]
    elif kind == 3:
        data[at:at] = data[at : at + rng.randint(1, 40)]
    else:
        data[at:at] = rng.choice(LINES)


def cases(seed: int, count: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number, reads) of `count` cases."""
    for number in range(count):
        yield number, case(seed, number)
