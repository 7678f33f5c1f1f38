"""Mutated bulk requests: each is answered by a JSON error that names the fault, or by consistent chunks."""

from __future__ import annotations

import json
import os
from random import Random
from typing import Any

from tests.support.bulk import decode
from tests.unit.jetstream.api.test_bulk_api import ask
from tests.unit.jetstream.jsfixture import JetStreamFixture

CASES = int(os.environ.get("PYJS_FUZZ_CASES", "50000")) // 50
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))
NUMBERS = [
    0,
    1,
    2,
    50,
    99,
    100,
    101,
    -1,
    1 << 31,
    1 << 32,
    (1 << 63) - 1,
    (1 << 64) - 1,
    1 << 64,
    1.5,
    "1",
    None,
]
TEXTS = ["", ">", "s.*", "s.1", "a..b", ".", "*", "s.>.a", "\u00e9", "\ud800", "x" * 300, "a b", 7, None]
FIELDS: dict[str, list[Any]] = {
    "seq": NUMBERS,
    "end_seq": NUMBERS,
    "max_bytes": NUMBERS,
    "chunk_bytes": NUMBERS,
    "offset": NUMBERS,
    "entries_only": [True, False, 1, None, "true"],
    "created": ["", "2020-01-01T00:00:00Z", "now", "2020-13-01T00:00:00Z", "\ud800", 5, None],
    "subjects": [[], None, "s.1", *([text] for text in TEXTS), TEXTS],
}


def request(chance: Random) -> bytes:
    names = chance.sample(sorted(FIELDS), chance.choice([0, 1, 1, 2, 2, 3, 8]))
    body = bytearray(json.dumps({name: chance.choice(FIELDS[name]) for name in names}).encode())
    while body and chance.random() < 0.2:
        body[chance.randrange(len(body))] = chance.randrange(256)
    return bytes(body)


def test_mutated_requests_are_answered_and_leave_nothing_behind() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s.>"], allow_direct=True)
    for at in range(100):
        js.publish(f"s.{at % 3}", b"x" * at)
    chance = Random(SEED)
    for number in range(CASES):
        what = chance.choice(["LIST.S", "READ.S", "READ.S", "READ.S", "READ.T"])
        body = request(chance)
        frames = ask(js.user, f"$JS.API.PYJS.BULK.{what}", body)
        assert frames, (number, what, body)
        if frames[0].payload.startswith(b"{"):
            (frame,) = frames
            answer = json.loads(frame.payload)
            assert answer.get("error", {}).get("description", "x")
        else:
            chunks = [decode(frame.payload) for frame in frames]
            assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True], (number, body)
    assert not js.user.link.closed
    assert [text for _, text in js.log.lines if "unexpected failure" in text] == []
