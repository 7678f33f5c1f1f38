"""Snapshots of the metadata: their bytes, and invalid ones."""

from __future__ import annotations

import random

import msgpack
import pytest
from tests.unit.jetstream.cluster.metafixture import Meta, random_entry, server

from pyjs.base.errors import PyjsError
from pyjs.jetstream.cluster.entries import ServerRemoved, encode
from pyjs.jetstream.cluster.fields import BadRow
from pyjs.jetstream.cluster.snapshot import STEP, UnknownSnapshot, decode_snapshot, decoding, encode_snapshot
from pyjs.jetstream.cluster.state import MetaState


def test_a_snapshot_has_everything() -> None:
    meta = Meta(2, 1, 3)
    meta.create("T", 1, 2)
    meta.create("S", 1)
    meta.do(ServerRemoved(3))
    restored = decode_snapshot(encode_snapshot(meta.state))
    assert (restored.index, restored.next_group) == (6, 3)
    assert restored.servers == {1: server(1), 2: server(2)}
    assert restored.removed == meta.state.removed
    assert list(restored.streams()) == list(meta.state.streams())


def test_a_large_snapshot_is_read_in_steps() -> None:
    meta = Meta(1)
    for number in range(200):
        meta.create(f"S{number}", 1)
    assert len(list(decoding(encode_snapshot(meta.state)))) == 200 // STEP


def test_the_bytes_of_an_empty_state_are_as_documented() -> None:
    assert encode_snapshot(MetaState()) == bytes.fromhex("96 02 00 01 90 90 90")


def test_a_snapshot_of_a_newer_server_is_refused_by_its_version() -> None:
    with pytest.raises(UnknownSnapshot, match="wrote version 3 of a snapshot of the metadata"):
        decode_snapshot(msgpack.packb([3, "x"]))


@pytest.mark.parametrize("lacks", [(8,), (8, 7), (8, 7, 6)])
def test_a_snapshot_of_the_version_before_is_read_with_and_without_what_was_added(
    lacks: tuple[int, ...],
) -> None:
    meta = Meta(1)
    meta.create("S", 1)
    row = msgpack.unpackb(encode_snapshot(meta.state))
    row[0] = 1
    for at in lacks:
        del row[5][0][at]
    restored = decode_snapshot(msgpack.packb(row))
    assert list(restored.streams()) == list(meta.state.streams())


def test_a_stream_of_this_version_lacks_nothing() -> None:
    meta = Meta(1)
    meta.create("S", 1)
    row = msgpack.unpackb(encode_snapshot(meta.state))
    del row[5][0][7]
    with pytest.raises(BadRow, match="is_built of streams of a snapshot"):
        decode_snapshot(msgpack.packb(row))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda row: row[4].append([1, "n1", 5, 1]), "has a server that was removed"),
        (lambda row: row[5].append(row[5][0]), "stream S of group 1 twice"),
        (lambda row: row.__setitem__(2, 1), "stream S of group 1 twice, or in the wrong place"),
        (lambda row: row[5][0].__setitem__(4, [[1, 1], [1, 2]]), "replicas of streams of a snapshot"),
        (lambda row: row[5][0].__setitem__(4, []), "are none"),
        (lambda row: row[5][0].__setitem__(4, [[1, 2]]), "newer than 1"),
        (lambda row: row.append(1), "1 values too many"),
    ],
)
def test_nonsense_in_a_snapshot_is_refused(change: object, text: str) -> None:
    meta = Meta(1)
    meta.create("S", 1)
    row = msgpack.unpackb(encode_snapshot(meta.state))
    assert callable(change)
    change(row)
    with pytest.raises(BadRow, match=text):
        decode_snapshot(msgpack.packb(row))


def test_changed_bytes_give_a_state_or_a_refusal() -> None:
    chance = random.Random(2)
    state = MetaState()
    for index in range(1, 60):
        state.apply(index, index, encode(random_entry(chance, state)))
    whole = encode_snapshot(state)
    for _ in range(1000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            restored = decode_snapshot(bytes(data[: chance.choice((len(data), chance.randrange(len(data))))]))
        except PyjsError:
            continue
        assert encode_snapshot(decode_snapshot(encode_snapshot(restored))) == encode_snapshot(restored)
