"""Batches between nodes: they are read as they were written, and damage raises an error."""

from __future__ import annotations

import pytest
from raft.tests.cluster import GROUP, Cluster

from pyjs.consensus import batch
from pyjs.consensus.batch import BadBatch, Fetch, Frames, Has, Lacks, Outcome, Part
from pyjs.consensus.descriptor import describe

PAYLOADS = [b"first", b"", b"third" * 100]


def frames_of(*bodies: bytes) -> bytes:
    """Return frames of a leader that append entries with these bodies."""
    cluster = Cluster()
    cluster.elect(1)
    cluster.nodes[1].propose([(GROUP, body) for body in bodies])
    return next(data for node, data, _ in cluster.nodes[1].ready().frames if node == 2)


@pytest.fixture(scope="module")
def good() -> bytes:
    """Return a valid batch of three entries."""
    frames = frames_of(*(describe(payload, 7) for payload in PAYLOADS))
    return b"".join(batch.of_frames(frames, PAYLOADS))


def refused(data: bytes) -> str:
    with pytest.raises(BadBatch) as caught:
        batch.read(data)
    return str(caught.value)


def test_frames_come_with_their_payloads(good: bytes) -> None:
    found = batch.read(good)

    assert isinstance(found, Frames)
    assert [payload for _, payload in found.payloads] == PAYLOADS
    assert [key for key, _ in found.payloads] == [(GROUP, index, 2) for index in (3, 4, 5)]


def test_frames_are_from_the_node_that_sends_them(good: bytes) -> None:
    assert batch.read(good, 1) == batch.read(good)
    with pytest.raises(BadBatch, match="frames: frame at byte 0: from node 1 in a batch of node 2"):
        batch.read(good, 2)


def test_a_question_for_a_read_may_be_passed_on() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.nodes[2].read_index(GROUP)
    ((_, frames, _),) = cluster.nodes[2].ready().frames

    batch.read(b"".join(batch.of_frames(frames, [])), 3)


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        (batch.of_fetch(5, 9, 100), Fetch(5, 9, 100)),
        (batch.of_part(5, 9, 100, b"abc"), Part(5, 9, 100, b"abc")),
        (batch.of_lacks(5, 9, 100), Lacks(5, 9, 100)),
        (batch.of_has(5, 9, 2, 100), Has(5, 9, 2, 100)),
        (batch.of_outcome(5, 9, done=True), Outcome(5, 9, True)),
        (batch.of_outcome(5, 9, done=False), Outcome(5, 9, False)),
    ],
)
def test_what_concerns_snapshots_is_read(parts: list[bytes], wanted: object) -> None:
    assert batch.read(b"".join(parts)) == wanted


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x01\x01\x00", "size: a batch of 3 bytes"),
        (b"\x02\x02" + bytes(6 + 24), "version: 2, 1 is known"),
        (b"\x01\x02\x01\x00" + bytes(4 + 24), "spare bytes: 1, not 0"),
        (b"\x01\x09" + bytes(6), "kind: 9 is not known"),
        (b"\x01\x02\x00\x00\x01" + bytes(3 + 24), "bytes of the frames: 1 in a batch of kind 2"),
        (b"\x01\x02" + bytes(6 + 23), "size: 31 bytes in a batch of kind 2"),
        (b"\x01\x02" + bytes(6 + 25), "size: 33 bytes in a batch of kind 2"),
        (b"\x01\x03" + bytes(6 + 24), "size: 32 bytes in a batch of kind 3"),
        (b"\x01\x03" + bytes(6 + 24 + batch.PART_MAX + 1), "in a batch of kind 3"),
        (b"\x01\x04" + bytes(6 + 17), "size: 25 bytes in a batch of kind 4"),
        (b"\x01\x07" + bytes(6 + 16), "size: 24 bytes in a batch of kind 7"),
        (b"\x01\x01" + bytes(6), "bytes of the frames: 0 in a batch of 8"),
        (b"\x01\x01\x00\x00\x09" + bytes(3 + 8), "bytes of the frames: 9 in a batch of 16"),
        (b"\x01\x01\x00\x00\x08" + bytes(3 + 8), "frames: frame at byte 0"),
    ],
)
def test_damage_is_named(data: bytes, text: str) -> None:
    assert text in refused(data)


def test_a_damaged_payload_is_refused_with_its_entry(good: bytes) -> None:
    damaged = good[:-1] + b"X"

    assert refused(damaged) == "entry 5 of group 5: the digest of the payload of 500 bytes is wrong"


def test_payloads_that_are_cut_or_too_long_are_refused(good: bytes) -> None:
    assert refused(good[:-1]) == "entry 5 of group 5: a payload of 499 bytes, 500 are described"
    assert refused(good + b"x") == "size: 1 bytes after the last payload"


def test_an_entry_whose_descriptor_is_none_is_refused() -> None:
    frames = frames_of(bytes(40))

    text = refused(b"".join(batch.of_frames(frames, [])))

    assert text == "entry 3 of group 5: version 0 of a descriptor, 1 is known"


def test_a_batch_larger_than_any_is_refused(monkeypatch: pytest.MonkeyPatch, good: bytes) -> None:
    monkeypatch.setattr(batch, "SIZE_MAX", len(good) - 1)

    assert refused(good) == f"size: a batch of {len(good)} bytes, not 8 to {len(good) - 1}"
