"""Entries of the metadata: their bytes, and entries that are refused instead of being applied."""

from __future__ import annotations

import random

import msgpack
import pytest
from tests.unit.jetstream.cluster.metafixture import A, random_entry, server, stored

from pyjs.base.errors import PyjsError
from pyjs.jetstream.cluster.entries import (
    AccountPurged,
    Bounds,
    Entry,
    GroupEnded,
    ReplicaLost,
    ServerDescribed,
    ServerEvacuating,
    ServerRemoved,
    StreamCreated,
    StreamDeleted,
    StreamMoved,
    StreamOpened,
    StreamRestored,
    StreamUpdated,
    UnknownEntry,
    decode,
    encode,
)
from pyjs.jetstream.cluster.fields import BadRow
from pyjs.jetstream.cluster.state import MetaState

ENTRIES: list[Entry] = [
    ServerDescribed(
        server(7, tags=("az:1", "ssd"), max_memory=5, max_storage=6, incarnation=3, evacuating=True)
    ),
    ServerRemoved(7),
    ServerEvacuating(7, True),
    StreamCreated(
        A, stored("S", "a.>", "b", num_replicas=3, metadata={"k": "v"}), (1, 2, 3), Bounds(5, 10, True)
    ),
    StreamUpdated(A, 4, 9, stored("S"), (3, 1), Bounds(-1, 0)),
    StreamMoved(A, "S", 4, 9, (5,)),
    StreamMoved(A, "S", 4, 9, (5, 6), 6),
    StreamUpdated(A, 4, 9, stored("S", num_replicas=2), (3, 1), Bounds(), 1),
    StreamDeleted(A, "S", 4),
    AccountPurged(A),
    ReplicaLost(A, "S", 4, 9, 5),
    GroupEnded(A, "S", 4, 9),
    StreamRestored(A, stored("S", num_replicas=3), 5, 7, Bounds(5, 10, True)),
    StreamOpened(A, "S", 4, True),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_comes_back_from_its_bytes(entry: Entry) -> None:
    assert decode(encode(entry)) == entry


def test_the_bytes_of_an_entry_are_as_documented() -> None:
    assert encode(StreamDeleted("A", "S", 4)) == bytes.fromhex("95 01 07 a141 a153 04")
    assert decode(bytes.fromhex("94 01 03 07 c3")) == ServerEvacuating(7, True)


@pytest.mark.parametrize("values", [[2, 7, "A"], [1, 99], [255, 1]])
def test_an_entry_of_a_newer_server_is_refused_by_its_version(values: list[object]) -> None:
    with pytest.raises(UnknownEntry, match=f"entry of version {values[0]} and kind {values[1]}.*update it"):
        decode(msgpack.packb(values))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, 2, 0], "node of an entry of the metadata is 0"),
        ([1, 2, 1, 1], "1 values too many"),
        ([1, 7, "A", "S"], "ends before group"),
        ([1, 6, "A", "S", 1, 1, [1, 1]], "different numbers"),
        ([1, 6, "A", "S", 1, 1, [1, 2, 3, 4, 5, 6]], "a list of up to 5"),
        ([1, 6, "A", "S", 1, 1, [1, 2], 3], "is not one of two servers"),
        ([1, 6, "A", "S", 1, 1, [1, 2, 3], 3], "is not one of two servers"),
        ([1, 4, "A", {"name": 5}, [1], -1, -1, False], "config of an entry of the metadata: name"),
        ([1, 4, "A", {"name": "a.b"}, [1], -1, -1, False], "has no name or no storage"),
        ([1, 4, "A", {"name": "a", "num_replicas": 0}, [1], -1, -1, False], "has 0 replicas"),
        ([1, 4, "A", {"name": "a", "sources": 5}, [1], -1, -1, False], "config of"),
        ([1, 4, "A", {"name": "a", "placement": [1]}, [1], -1, -1, False], "config of"),
        (
            [1, 4, "A", {"name": "a", "num_replicas": 3}, [1], -1, -1, False],
            "1 servers, not as many as its replicas",
        ),
    ],
)
def test_a_damaged_entry_is_refused_by_its_field(values: list[object], text: str) -> None:
    with pytest.raises(BadRow, match=text):
        decode(msgpack.packb(values))


def test_nothing_is_proposed_that_would_be_refused() -> None:
    with pytest.raises(BadRow, match="account of an entry of the metadata is empty"):
        encode(AccountPurged(""))
    with pytest.raises(BadRow, match="the most are"):
        encode(StreamCreated(A, stored("S", description="x" * (17 << 20)), (1,)))


def test_changed_bytes_give_an_entry_or_a_refusal() -> None:
    chance = random.Random(1)
    state = MetaState()
    for _ in range(3000):
        data = bytearray(encode(random_entry(chance, state)))
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            entry = decode(bytes(data[: chance.randint(1, len(data) + 20)]))
        except PyjsError:
            continue
        assert decode(encode(entry)) == entry
