"""Changes of the metadata, and what they mean for one server."""

from __future__ import annotations

import random

import pytest
from tests.unit.jetstream.cluster.metafixture import A, Meta, random_entry, server

from pyjs.jetstream.cluster.changes import StreamChange, Work, difference, duties
from pyjs.jetstream.cluster.entries import ReplicaLost, ServerDescribed, ServerRemoved, StreamDeleted, encode
from pyjs.jetstream.cluster.snapshot import decode_snapshot, encode_snapshot
from pyjs.jetstream.cluster.state import Applied, MetaState


def works(applied: Applied) -> dict[int, list[str]]:
    """Return what servers 1 to 4 have to do."""
    found = {node: [duty.work.value for duty in duties(applied.changes, node)] for node in range(1, 5)}
    return {node: each for node, each in found.items() if each}


@pytest.fixture
def meta() -> Meta:
    meta = Meta(1, 2, 3, 4)
    meta.create("S", 1, 2, 3)
    return meta


def test_the_servers_of_a_new_stream_create_it() -> None:
    assert works(Meta(1, 2, 3, 4).create("S", 1, 2, 3)) == {1: ["create"], 2: ["create"], 3: ["create"]}


def test_an_update_concerns_its_servers(meta: Meta) -> None:
    assert works(meta.update("S", max_msgs=5)) == {1: ["update"], 2: ["update"], 3: ["update"]}


def test_a_move_lets_one_join_and_one_leave(meta: Meta) -> None:
    assert works(meta.move("S", 1, 2, 4)) == {1: ["regroup"], 2: ["regroup"], 3: ["leave"], 4: ["join"]}


def test_an_update_may_move_too(meta: Meta) -> None:
    found = works(meta.update("S", 1, num_replicas=1))
    assert found == {1: ["update", "regroup"], 2: ["leave"], 3: ["leave"]}


def test_a_replica_that_lost_its_log_joins_again(meta: Meta) -> None:
    entry = ReplicaLost(A, "S", 1, meta.there("S").revision, 2)
    assert works(meta.do(entry)) == {1: ["regroup"], 2: ["join"], 3: ["regroup"]}


def test_the_only_replica_begins_empty_when_its_store_was_lost(meta: Meta) -> None:
    meta.create("T", 4)
    assert works(meta.do(ServerDescribed(server(4, store=9)))) == {4: ["create"]}


def test_a_stream_that_moves_to_other_servers_is_copied_to_them(meta: Meta) -> None:
    meta.create("T", 4)
    assert works(meta.move("T", 1)) == {1: ["join"], 4: ["leave"]}
    meta.create("U", 1, 2)
    assert works(meta.move("U", 3, 4)) == {1: ["leave"], 2: ["leave"], 3: ["join"], 4: ["join"]}


def test_a_stream_whose_only_server_was_removed_begins_empty(meta: Meta) -> None:
    meta.create("T", 4)
    before = decode_snapshot(encode_snapshot(meta.state))
    meta.do(ServerRemoved(4))
    assert works(meta.move("T", 1)) == {1: ["create"], 4: ["leave"]}
    assert [duty.work for duty in duties(difference(before, meta.state), 1)] == [Work.CREATE]


def test_a_deleted_stream_is_removed_where_it_is(meta: Meta) -> None:
    done = meta.do(StreamDeleted(A, "S", 1))
    assert works(done) == {1: ["remove"], 2: ["remove"], 3: ["remove"]}
    assert next(duties(done.changes, 1)).stream.name == "S"


def test_a_stream_that_was_created_again_is_another_one(meta: Meta) -> None:
    before = decode_snapshot(encode_snapshot(meta.state))
    meta.do(StreamDeleted(A, "S", 1))
    meta.create("S", 1, 2, 3)
    changes = difference(before, meta.state)
    assert [duty.work for duty in duties(changes, 1)] == [Work.REMOVE, Work.CREATE]


@pytest.mark.parametrize("seed", range(10))
def test_a_difference_leads_to_the_other_state(seed: int) -> None:
    chance = random.Random(seed)
    state, before = MetaState(), MetaState()
    for index in range(1, 150):
        if index == 75:
            before = decode_snapshot(encode_snapshot(state))
        state.apply(index, index, encode(random_entry(chance, state)))
    streams = {each.group: each for each in before.streams()}
    servers = dict(before.servers)
    for change in difference(before, state):
        if isinstance(change, StreamChange):
            if change.old is not None:
                assert streams.pop(change.old.group) == change.old
            if change.new is not None:
                streams[change.new.group] = change.new
        else:
            if change.old is not None:
                assert servers.pop(change.old.node) == change.old
            if change.new is not None:
                servers[change.new.node] = change.new
    assert streams == {each.group: each for each in state.streams()}
    assert servers == state.servers
    assert difference(state, state) == []
