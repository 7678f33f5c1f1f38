"""Moves of existing streams to other servers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.jetstream.cluster.metafixture import A, Meta, server

from pyjs.jetstream.cluster.entries import (
    ServerDescribed,
    ServerEvacuating,
    ServerRemoved,
    StreamDeleted,
    StreamMoved,
)
from pyjs.jetstream.cluster.moves import (
    SINGLES_MAX,
    field_of,
    may_move,
    moves,
    updated_nodes,
    without_replica,
)
from pyjs.jetstream.cluster.placement import Rules
from pyjs.jetstream.cluster.state import Outcome
from pyjs.jetstream.config.stream import Placement
from pyjs.jetstream.errcodes import ApiError

ALL = Rules(online=range(10))


@pytest.fixture
def meta() -> Meta:
    """Five servers, of which those with even numbers have a tag, and stream S on three of them."""
    meta = Meta()
    for node in range(1, 6):
        meta.do(ServerDescribed(server(node, tags=() if node % 2 else ("even",))))
    meta.create("S", 1, 2, 3)
    return meta


def after(meta: Meta, leader: int = 1, rules: Rules = ALL, **options: object) -> tuple[int, ...] | int:
    """Return the servers of stream S after an update, or the number of the error."""
    old = meta.there("S")
    config = replace(old.config, **options)  # type: ignore[arg-type]
    try:
        return updated_nodes(field_of(meta.state, "TRIO", rules), old, config, leader)
    except ApiError as error:
        return error.err_code


def test_more_replicas_are_added_to_the_old_ones(meta: Meta) -> None:
    assert after(meta, num_replicas=5) == (1, 2, 3, 4, 5)
    assert after(meta, num_replicas=3) == (1, 2, 3)
    assert after(meta, num_replicas=5, rules=Rules(online=range(5))) == 10005


def test_of_fewer_replicas_the_leader_stays_and_then_those_online(meta: Meta) -> None:
    assert after(meta, num_replicas=1, leader=3) == (3,)
    assert after(meta, num_replicas=2, leader=3, rules=Rules(online={2, 3})) == (3, 2)
    assert after(meta, num_replicas=1, leader=0) == (1,)


def test_a_new_placement_keeps_servers_that_it_allows(meta: Meta) -> None:
    odd = Placement(tags=("!even",))
    assert after(meta, placement=odd) == (1, 3, 5)
    assert after(meta, placement=Placement(tags=("even",))) == 10005
    assert after(meta, placement=odd, num_replicas=5) == 10123
    assert after(meta, placement=None) == (1, 2, 3)


def test_a_removed_replica_goes_to_another_server(meta: Meta) -> None:
    stream = meta.there("S")
    field = field_of(meta.state, "TRIO", ALL)
    moved = without_replica(field, stream, 2)
    assert moved == StreamMoved(A, "S", 1, stream.revision, (1, 3, 4))
    assert meta.do(moved).outcome is Outcome.DONE
    with pytest.raises(ApiError, match="10040"):
        without_replica(field, meta.there("S"), 2)


def test_a_replica_without_another_server_stays(meta: Meta) -> None:
    field = field_of(meta.state, "TRIO", Rules(online={1, 2, 3}))
    with pytest.raises(ApiError, match="10075"):
        without_replica(field, meta.there("S"), 2)


def test_streams_move_away_from_servers_that_go(meta: Meta) -> None:
    meta.create("T", 2, 3, 4)
    meta.create("U", 1)
    meta.do(ServerRemoved(3))
    meta.do(ServerEvacuating(2, True))
    found = {each.name: each.nodes for each in moves(field_of(meta.state, "TRIO", ALL))}
    assert found == {"S": (1, 5, 4), "T": (4, 5, 1)}
    for entry in list(moves(field_of(meta.state, "TRIO", ALL))):
        assert meta.do(entry).outcome is Outcome.DONE
    assert list(moves(field_of(meta.state, "TRIO", ALL))) == []


def test_streams_that_move_are_spread() -> None:
    meta = Meta(1, 2, 3, 4)
    for number in range(12):
        meta.create(f"S{number}", 1)
    meta.do(ServerRemoved(1))
    nodes = [each.nodes[0] for each in moves(field_of(meta.state, "TRIO", ALL))]
    assert sorted(nodes) == [2] * 4 + [3] * 4 + [4] * 4


def test_a_stream_without_another_server_has_a_replica_less_until_one_fits(meta: Meta) -> None:
    meta.create("T", 3)
    meta.do(ServerRemoved(3))
    few = Rules(online={1, 2})
    (moved,) = moves(field_of(meta.state, "TRIO", Rules(online=())))
    assert (moved.name, moved.nodes) == ("S", (1, 2))
    meta.do(moved)
    (moved,) = moves(field_of(meta.state, "TRIO", few))
    assert (moved.name, moved.nodes) == ("T", (1,))  # it starts anew, without messages
    meta.do(moved)
    assert list(moves(field_of(meta.state, "TRIO", few))) == []
    (moved,) = moves(field_of(meta.state, "TRIO", ALL))
    assert moved.nodes == (1, 2, 4)


def test_the_only_replica_stays_where_it_is_if_nothing_fits(meta: Meta) -> None:
    meta.create("T", 3)
    meta.do(ServerEvacuating(3, True))
    found = {each.name: each.nodes for each in moves(field_of(meta.state, "TRIO", Rules(online={3})))}
    assert found == {"S": (1, 2)}


def test_the_only_replica_is_copied_from_an_evacuated_server_that_is_there(meta: Meta) -> None:
    meta.create("T", 3)
    meta.do(ServerEvacuating(3, True))
    away = Rules(online={1, 2, 4, 5})
    assert [each.name for each in moves(field_of(meta.state, "TRIO", away))] == ["S"]
    found = {each.name: each for each in moves(field_of(meta.state, "TRIO", ALL))}
    assert (found["T"].nodes, found["T"].target) == ((3, 5), 5)
    meta.do(found["T"])
    assert [each.name for each in moves(field_of(meta.state, "TRIO", ALL))] == ["S"]
    meta.do(ServerRemoved(5))
    found = {each.name: each for each in moves(field_of(meta.state, "TRIO", ALL))}
    assert (found["T"].nodes, found["T"].target) == ((3, 1), 1)
    assert meta.do(found["T"]).outcome is Outcome.DONE
    assert meta.move("T", 1).outcome is Outcome.DONE
    assert (meta.there("T").nodes, meta.there("T").config.num_replicas) == ((1,), 1)


def test_few_streams_of_one_replica_are_copied_at_once(meta: Meta) -> None:
    for number in range(3 * SINGLES_MAX):
        meta.create(f"T{number}", 4)
    meta.do(ServerEvacuating(4, True))
    for entry in list(moves(field_of(meta.state, "TRIO", ALL))):
        meta.do(entry)
    assert len(meta.state.moving) == SINGLES_MAX
    assert list(moves(field_of(meta.state, "TRIO", ALL))) == []
    meta.do(ServerRemoved(5))  # some moves have it as their target
    again = list(moves(field_of(meta.state, "TRIO", ALL)))
    assert again
    assert {each.name for each in again} <= {each.name for each in meta.state.moving.values()}
    for entry in again:
        meta.do(entry)
    ended = next(iter(meta.state.moving.values()))
    meta.move(ended.name, ended.target)
    assert len(list(moves(field_of(meta.state, "TRIO", ALL)))) == 1


def test_a_replica_of_a_stream_that_moves_is_not_removed(meta: Meta) -> None:
    meta.create("T", 3)
    old = meta.there("T")
    meta.do(StreamMoved(A, "T", old.group, old.revision, (3, 4), 4))
    with pytest.raises(ApiError, match="10124"):
        without_replica(field_of(meta.state, "TRIO", ALL), meta.there("T"), 3)


def test_a_replicated_stream_is_not_reduced_to_one_server(meta: Meta) -> None:
    meta.create("T", 4, 5)
    meta.do(ServerEvacuating(5, True))
    for evacuated in (1, 2, 3):
        meta.do(ServerEvacuating(evacuated, True))
    found = {each.name: each.nodes for each in moves(field_of(meta.state, "TRIO", ALL))}
    assert found == {}


def test_streams_are_looked_at_only_while_one_of_them_may_move(meta: Meta) -> None:
    assert not may_move(meta.state)
    meta.do(ServerRemoved(5))  # server 5 has no stream
    assert not may_move(meta.state)
    meta.do(ServerEvacuating(3, True))
    assert may_move(meta.state)
    (moved,) = moves(field_of(meta.state, "TRIO", Rules(online={1, 2})))
    meta.do(moved)
    assert may_move(meta.state)  # a stream lacks a replica
    (moved,) = moves(field_of(meta.state, "TRIO", ALL))
    meta.do(moved)
    assert meta.there("S").nodes == (1, 2, 4)
    assert not may_move(meta.state)
    meta.move("S", 1, 2)
    meta.do(StreamDeleted(A, "S", 1))
    assert not may_move(meta.state)
