"""Mutated batches of the consensus: each is refused, naming a field, or is a complete batch with valid payloads."""

from __future__ import annotations

import os
import random

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from raft.tests.cluster import GROUP, Cluster

from pyjs.consensus import batch
from pyjs.consensus.batch import BadBatch, Frames
from pyjs.consensus.descriptor import describe

CASES = int(os.environ.get("PYJS_BATCH_CASES", "5000"))


def batches() -> list[bytes]:
    """Return a valid batch of each kind."""
    cluster = Cluster()
    cluster.elect(1)
    payloads = [b"a" * 100, b"", b"b" * 3000]
    cluster.nodes[1].propose([(GROUP, describe(payload, 7)) for payload in payloads])
    frames = [data for node, data, _ in cluster.nodes[1].ready().frames if node == 2]
    return [
        b"".join(parts)
        for parts in (
            batch.of_frames(frames[0], payloads),
            batch.of_fetch(5, 9, 100),
            batch.of_part(5, 9, 100, b"abc"),
            batch.of_outcome(5, 9, done=True),
        )
    ]


def mutated(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(out) + 1)
        what = rng.randrange(4)
        if what == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            del out[at : at + rng.randrange(1, 60)]
        elif what == 2:
            out[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            out[at : at + 4] = rng.choice((0, 1, 255, 1 << 31, (1 << 32) - 1)).to_bytes(4, "little")
    return bytes(out)


def test_mutated_batches_are_refused_by_name_or_sound() -> None:
    rng = random.Random(15)
    good = batches()
    taken = refused = unnamed = 0
    for _ in range(CASES):
        data = mutated(rng, rng.choice(good))
        try:
            found = batch.read(data)
        except BadBatch as error:
            refused += 1
            unnamed += ":" not in str(error)
            continue
        taken += 1
        if isinstance(found, Frames):
            assert b"".join(batch.of_frames(found.frames, [payload for _, payload in found.payloads])) == data

    assert unnamed == 0
    assert taken > CASES / 50
    assert refused > CASES / 3
