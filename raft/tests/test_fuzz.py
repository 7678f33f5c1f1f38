"""A damaged frame with a valid checksum is refused with the name of a field, or is harmless; none ends the process.

A damaged frame may still be valid but make the state of a group impossible. That group is quarantined; the checksum
prevents this for random damage. The module of frames is also fuzzed in Rust.
"""

from __future__ import annotations

import os
import random
import struct

import pytest
import xxhash
from raft.tests.cluster import GROUP, Cluster, descriptor

from pyjs_raft import Conf, FrameError, Groups, payloads_of, peer_id

CASES = int(os.environ.get("PYJS_RAFT_CASES", "5000"))
NUMBERS = (0, 1, 2, 3, 255, 2**32 - 1, 2**32 + 1, 2**62, 2**64 - 1)


def harvest() -> list[bytes]:
    """Return single frames of every kind that a group sends to node 2 in a short run."""
    cluster = Cluster()
    found: list[bytes] = []
    take = cluster.deliver

    def keep(source: int, frames: list[tuple[int, bytes, list[tuple[int, int, int]]]]) -> None:
        found.extend(one for target, data, _ in frames if target == 2 for one in split(data))
        take(source, frames)

    cluster.deliver = keep  # type: ignore[method-assign]
    cluster.elect(1)
    cluster.propose(1, 17)
    cluster.nodes[3].read_index(GROUP)
    cluster.tick(8)
    cluster.nodes[1].change(GROUP, [(2, peer_id(3))])
    cluster.settle()
    cluster.nodes[1].transfer(GROUP, peer_id(2))
    cluster.settle()
    cluster.nodes[1].read_index(GROUP)
    cluster.settle()
    cluster.tick(8)
    return found


def split(data: bytes) -> list[bytes]:
    frames = []
    while data:
        (size,) = struct.unpack_from("<I", data)
        frames.append(data[:size])
        data = data[size:]
    return frames


def signed(frame: bytearray) -> bytes:
    frame[4:8] = struct.pack("<I", xxhash.xxh64_intdigest(bytes(frame[8:])) & 0xFFFFFFFF)
    return bytes(frame)


def damaged(rng: random.Random, frame: bytes) -> bytes:
    out = bytearray(frame)
    for _ in range(rng.randrange(4)):
        what = rng.randrange(4)
        at = rng.randrange(8, len(out))
        if what == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            at = 16 + 8 * rng.randrange(11)
            out[at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS))
        elif what == 2:
            del out[max(at, 104) :]
            out[:4] = struct.pack("<I", len(out))
        else:
            out += rng.randbytes(8)
            out[:4] = struct.pack("<I", len(out))
    return signed(out)


def is_refused(engine: Groups, data: bytes) -> bool:
    """Pass a batch to the engine; return whether it was refused. `payloads_of` must give the same result."""
    text = ""
    try:
        engine.step(data)
    except FrameError as error:
        text = str(error)
    if text:
        with pytest.raises(FrameError, match=r"^frame at byte ") as found:
            payloads_of(data)
        assert str(found.value) == text
    return text != ""


def test_damaged_frames_never_stop_the_node() -> None:
    rng = random.Random(7)
    frames = harvest()
    assert {frame[9] for frame in frames} >= {1, 2, 3, 5, 7, 10}
    conf = Conf([peer_id(1), peer_id(2), peer_id(3)])
    refused = quarantined = 0
    engine = Groups(2, seed=7, boot=1)
    for number in range(CASES):
        if number % 50 == 0 or engine.quarantined():
            quarantined += len(engine.quarantined())
            engine = Groups(2, seed=7, boot=1)
            engine.open(GROUP, "orders", peer_id(2), conf)
            engine.open(6, "bills", peer_id(2), Conf([peer_id(2)]))
        data = b"".join(damaged(rng, frame) for frame in rng.choices(frames, k=rng.randrange(1, 4)))
        refused += is_refused(engine, data)
        engine.tick()
        engine.stored(engine.ready().token)
        if number % 50 == 49:
            engine.propose([(6, descriptor(number))])
            assert all(group == GROUP for group, _ in engine.quarantined())
    assert CASES // 4 < refused < CASES * 9 // 10
    assert quarantined < CASES // 4
