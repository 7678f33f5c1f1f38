"""Changes between two states of the metadata."""

from __future__ import annotations

import random

import pytest
from tests.unit.jetstream.cluster.metafixture import A, Meta, random_entry

from pyjs.jetstream.cluster.changes import ServerChange, StreamChange, difference
from pyjs.jetstream.cluster.entries import ServerRemoved, StreamDeleted, encode
from pyjs.jetstream.cluster.snapshot import decode_snapshot, encode_snapshot
from pyjs.jetstream.cluster.state import MetaState


def test_a_stream_that_was_created_again_is_another_one() -> None:
    meta = Meta(1, 2, 3, 4)
    old = meta.create("S", 1, 2, 3).stream
    before = decode_snapshot(encode_snapshot(meta.state))
    meta.do(StreamDeleted(A, "S", 1))
    new = meta.create("S", 1, 2, 3).stream
    assert difference(before, meta.state) == [StreamChange(old, None), StreamChange(None, new)]


def test_removed_servers_and_moved_streams_are_changes() -> None:
    meta = Meta(1, 2, 3, 4)
    old = meta.create("S", 1, 2, 3).stream
    before = decode_snapshot(encode_snapshot(meta.state))
    gone = meta.state.servers[3]
    meta.do(ServerRemoved(3))
    new = meta.move("S", 1, 2, 4).stream
    assert difference(before, meta.state) == [ServerChange(gone, None), StreamChange(old, new)]


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
