"""The metadata as a state machine: conflicting entries, errors, and equal states from equal entries."""

from __future__ import annotations

import random
from dataclasses import replace

import msgpack
import pytest
from tests.unit.jetstream.cluster.metafixture import A, Meta, random_entry, server, stored

from pyjs.jetstream.cluster.assignments import Assignment, Replica, add_load
from pyjs.jetstream.cluster.changes import ServerChange, StreamChange
from pyjs.jetstream.cluster.entries import (
    AccountPurged,
    Bounds,
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
    encode,
)
from pyjs.jetstream.cluster.fields import BadRow
from pyjs.jetstream.cluster.servers import SERVERS_MAX, Load
from pyjs.jetstream.cluster.snapshot import decode_snapshot, encode_snapshot
from pyjs.jetstream.cluster.state import Applied, MetaState, Outcome
from pyjs.jetstream.config.choices import MEMORY
from pyjs.jetstream.config.stream import Placement


def err_code(applied: Applied) -> int:
    assert applied.outcome is Outcome.REFUSED
    assert applied.changes == ()
    assert applied.error is not None
    return applied.error.err_code


# -- streams ---------------------------------------------------------------------------------------------------


def test_a_created_stream_has_a_group_and_the_time_of_its_entry() -> None:
    meta = Meta(1, 2, 3)
    done = meta.create("S", 3, 1, 2)
    assert done.outcome is Outcome.DONE
    replicas = (Replica(3, 1), Replica(1, 1), Replica(2, 1))
    made = Assignment(A, 1, 4, 4000, replicas, 1, stored("S", num_replicas=3))
    assert done.stream == made == meta.state.stream(A, "S")
    assert done.changes == (StreamChange(None, made),)
    assert made.raft_group == "S-R3F-00000001"
    assert made.nodes == (3, 1, 2)


def test_of_two_creates_in_flight_the_second_is_refused_or_finds_the_stream() -> None:
    meta = Meta(1, 2, 3)
    meta.create("S", 1, 2, 3)
    again = meta.create("S", 3, 2, 1)
    assert again.outcome is Outcome.EXISTS
    assert again.stream == meta.there("S")
    assert again.changes == ()
    assert err_code(meta.create("S", 1, 2, 3, max_msgs=5)) == 10058


def test_a_name_is_taken_in_its_account_only() -> None:
    meta = Meta(1)
    meta.create("S", 1)
    assert meta.create("S", 1, account="B").outcome is Outcome.DONE
    assert meta.state.stream("C", "S") is None


@pytest.mark.parametrize("subject", ["a.b", "a.*", ">", "a.b.c"])
def test_of_two_streams_with_overlapping_subjects_the_second_is_refused(subject: str) -> None:
    meta = Meta(1)
    meta.create("S", 1, subjects=("x", "a.>"))
    assert err_code(meta.create("T", 1, subjects=("y", subject))) == 10065
    assert meta.create("T", 1, account="B", subjects=(subject,)).outcome is Outcome.DONE


def test_a_deleted_stream_frees_its_name_and_subjects_and_its_group_never_comes_again() -> None:
    meta = Meta(1)
    meta.create("S", 1, subjects=("a",))
    old = meta.there("S")
    done = meta.do(StreamDeleted(A, "S", old.group))
    assert done.changes == (StreamChange(old, None),)
    assert meta.state.accounts == {}
    assert meta.create("T", 1, subjects=("a",)).outcome is Outcome.DONE
    assert meta.there("T").group == 2
    assert err_code(meta.do(StreamDeleted(A, "S", old.group))) == 10059


def test_a_delete_of_an_earlier_stream_of_the_name_is_stale() -> None:
    meta = Meta(1)
    meta.create("S", 1)
    meta.do(StreamDeleted(A, "S", 1))
    meta.create("S", 1)
    assert meta.do(StreamDeleted(A, "S", 1)).outcome is Outcome.STALE
    assert meta.there("S").group == 2


def test_an_update_changes_configuration_subjects_and_servers() -> None:
    meta = Meta(1, 2, 3, 4)
    meta.create("S", 1, subjects=("a", "b"))
    old = meta.there("S")
    done = meta.update("S", 1, 2, 4, subjects=("b", "c"), num_replicas=3)
    assert done.stream == meta.there("S")
    assert done.changes == (StreamChange(old, meta.there("S")),)
    assert meta.there("S").replicas == (Replica(1, 1), Replica(2, 2), Replica(4, 2))
    assert meta.there("S").created_ns == old.created_ns
    assert meta.create("T", 1, subjects=("a",)).outcome is Outcome.DONE
    assert err_code(meta.create("U", 1, subjects=("c",))) == 10065


def test_of_two_updates_in_flight_the_second_is_stale() -> None:
    meta = Meta(1)
    meta.create("S", 1)
    revision = meta.there("S").revision
    assert meta.update("S", max_msgs=5).outcome is Outcome.DONE
    assert meta.update("S", max_msgs=6, revision=revision).outcome is Outcome.STALE
    assert meta.there("S").config.max_msgs == 5


def test_an_update_that_changes_nothing_has_no_changes() -> None:
    meta = Meta(1)
    meta.create("S", 1)
    done = meta.update("S")
    assert done.outcome is Outcome.DONE
    assert done.changes == ()
    assert done.stream == meta.there("S")


def test_an_update_may_not_take_the_subjects_of_another_stream() -> None:
    meta = Meta(1)
    meta.create("S", 1)
    meta.create("T", 1)
    assert err_code(meta.update("T", subjects=("S",))) == 10065


def test_a_stream_on_a_server_that_was_removed_meanwhile_is_stale() -> None:
    meta = Meta(1, 2)
    meta.do(ServerRemoved(2))
    assert meta.create("S", 2).outcome is Outcome.STALE
    meta.create("S", 1)
    assert meta.move("S", 2).outcome is Outcome.STALE
    assert meta.update("S", 2, max_msgs=5).outcome is Outcome.STALE


def test_a_replica_may_stay_on_a_removed_server_until_it_is_moved() -> None:
    meta = Meta(1, 2, 3)
    meta.create("S", 1, 2, 3)
    meta.do(ServerRemoved(3))
    assert meta.update("S", max_msgs=5).outcome is Outcome.DONE
    assert meta.move("S", 1, 2).outcome is Outcome.DONE
    assert meta.there("S").nodes == (1, 2)


def test_a_replica_that_comes_back_is_another_peer() -> None:
    meta = Meta(1, 2, 3)
    meta.create("S", 1, 2)
    meta.move("S", 1, 3)
    meta.move("S", 1, 2)
    assert meta.there("S").replicas == (Replica(1, 1), Replica(2, 3))


def test_a_replica_that_lost_its_log_is_another_peer() -> None:
    meta = Meta(1, 2)
    meta.create("S", 1, 2)
    old = meta.there("S")
    assert meta.do(ReplicaLost(A, "S", 1, old.revision, 2)).outcome is Outcome.DONE
    assert meta.there("S").replicas == (Replica(1, 1), Replica(2, 2))
    assert meta.do(ReplicaLost(A, "S", 1, old.revision, 2)).outcome is Outcome.STALE
    assert meta.do(ReplicaLost(A, "S", 1, meta.there("S").revision, 3)).outcome is Outcome.STALE


def test_a_purged_account_has_no_streams() -> None:
    meta = Meta(1)
    for name in "TSR":
        meta.create(name, 1)
    meta.create("S", 1, account="B")
    done = meta.do(AccountPurged(A))
    assert [change.old.name for change in done.changes if change.old] == ["T", "S", "R"]
    assert list(meta.state.accounts) == ["B"]
    assert meta.do(AccountPurged(A)).outcome is Outcome.DONE


def test_the_load_is_what_is_assigned() -> None:
    meta = Meta(1, 2)
    meta.create("S", 1, 2, max_bytes=5)
    meta.create("T", 2, max_bytes=7, storage=MEMORY)
    meta.create("U", 1)
    assert meta.state.load == {
        1: Load(storage=5, streams=2, ha_assets=1),
        2: Load(memory=7, storage=5, streams=2, ha_assets=1),
    }
    meta.move("U", 2)
    meta.update("S", 2, num_replicas=1, max_bytes=9)
    assert meta.state.load == {2: Load(memory=7, storage=9, streams=3)}
    meta.do(AccountPurged(A))
    assert meta.state.load == {}


# -- limits ----------------------------------------------------------------------------------------------------


def test_the_number_of_streams_of_an_account_is_bounded() -> None:
    meta = Meta(1)
    bounds = Bounds(max_streams=1)
    meta.create("S", 1, bounds=bounds)
    assert err_code(meta.create("T", 1, bounds=bounds)) == 10027
    assert meta.create("S", 1, bounds=bounds).outcome is Outcome.EXISTS
    assert meta.update("S", bounds=bounds, max_msgs=1).outcome is Outcome.DONE
    assert meta.create("S", 1, bounds=bounds, account="B").outcome is Outcome.DONE


def test_the_bytes_of_an_account_count_once_for_each_replica() -> None:
    meta = Meta(1, 2, 3)
    bounds = Bounds(max_bytes=400)
    meta.create("S", 1, 2, 3, bounds=bounds, max_bytes=100)
    assert err_code(meta.create("T", 1, bounds=bounds, max_bytes=101)) == 10047
    assert err_code(meta.create("T", 1, 2, bounds=bounds, max_bytes=51)) == 10047
    assert meta.create("T", 1, 2, bounds=bounds, max_bytes=50).outcome is Outcome.DONE
    assert err_code(meta.create("U", 1, bounds=bounds)) == 10047
    assert err_code(meta.create("U", 1, bounds=Bounds(max_bytes=0), storage=MEMORY)) == 10028
    assert err_code(meta.update("S", bounds=bounds, max_bytes=101)) == 10047
    assert meta.update("S", bounds=bounds, max_bytes=99).outcome is Outcome.DONE


def test_limits_of_a_tier_count_streams_with_as_many_replicas() -> None:
    meta = Meta(1, 2)
    tier = Bounds(max_streams=1, max_bytes=100, is_tier=True)
    assert meta.create("S", 1, bounds=tier, max_bytes=100).outcome is Outcome.DONE
    assert meta.create("T", 1, 2, bounds=tier, max_bytes=100).outcome is Outcome.DONE
    assert err_code(meta.create("U", 1, bounds=tier)) == 10027


def test_a_proposer_can_ask_before_it_looks_for_servers() -> None:
    meta = Meta(1)
    meta.create("S", 1)
    assert meta.state.check_create(A, stored("S", num_replicas=1), Bounds()) == meta.there("S")
    assert meta.state.check_create("B", stored("S"), Bounds()) is None
    meta.state.check_update(A, stored("S", "x"), Bounds())
    with pytest.raises(Exception, match="10059"):
        meta.state.check_update(A, stored("T"), Bounds())


# -- servers ---------------------------------------------------------------------------------------------------


def test_a_server_joins_and_says_what_is_new() -> None:
    meta = Meta()
    assert meta.do(ServerDescribed(server(1))).changes == (ServerChange(None, server(1)),)
    assert meta.do(ServerDescribed(server(1))).changes == ()
    changed = server(1, tags=("ssd",), version="0.2.0")
    assert meta.do(ServerDescribed(changed)).changes == (ServerChange(server(1), changed),)
    assert meta.state.servers == {1: changed}


def test_two_names_with_one_number_are_refused() -> None:
    meta = Meta(1)
    done = meta.do(ServerDescribed(server(1, name="other")))
    assert done.outcome is Outcome.REFUSED
    assert done.reason == "the servers n1 and other have the same number 1: rename one"


def test_a_server_with_an_empty_store_has_new_peers_everywhere() -> None:
    meta = Meta(1, 2, 3)
    meta.create("S", 1, 2, 3)
    meta.create("T", 1)
    done = meta.do(ServerDescribed(server(2, store=5)))
    assert meta.state.servers[2].incarnation == 2
    assert len(done.changes) == 2
    assert meta.there("S").replicas == (Replica(1, 1), Replica(2, 2), Replica(3, 1))


def test_changes_have_an_order_that_a_snapshot_keeps() -> None:
    meta = Meta(1)
    for account, name in [("B", "S"), ("A", "S"), ("B", "T")]:
        meta.create(name, 1, account=account)
    meta.do(StreamDeleted("B", "S", 1))
    restored = decode_snapshot(encode_snapshot(meta.state))
    done = meta.do(ServerDescribed(server(1, store=5)))
    assert restored.apply(len(meta.log), 0, meta.log[-1]) == done


def test_a_removed_server_comes_back_with_an_empty_store_only() -> None:
    meta = Meta(1, 2)
    meta.create("S", 1, 2)
    assert meta.do(ServerRemoved(2)).changes == (ServerChange(server(2), None),)
    assert err_code(meta.do(ServerRemoved(2))) == 10044
    refused = meta.do(ServerDescribed(server(2)))
    assert refused.reason == "the server n2 was removed: it may come back with an empty store"
    meta.do(ServerDescribed(server(2, store=9)))
    assert meta.state.servers[2].incarnation == 2
    assert meta.state.removed == {}
    assert meta.there("S").incarnation_on(2) == 2


def test_a_server_is_evacuated_until_that_is_stopped() -> None:
    meta = Meta(1)
    assert len(meta.do(ServerEvacuating(1, True)).changes) == 1
    assert meta.do(ServerEvacuating(1, True)).changes == ()
    meta.do(ServerDescribed(server(1, tags=("x",))))
    assert meta.state.servers[1].evacuating
    meta.do(ServerEvacuating(1, False))
    assert not meta.state.servers[1].evacuating
    assert err_code(meta.do(ServerEvacuating(2, True))) == 10044


def test_a_cluster_has_a_bounded_number_of_servers() -> None:
    meta = Meta(*range(1, SERVERS_MAX + 1))
    assert (
        meta.do(ServerDescribed(server(SERVERS_MAX + 1))).reason == f"the cluster has {SERVERS_MAX} servers"
    )


def test_entries_may_be_as_new_as_the_oldest_server() -> None:
    meta = Meta()
    assert meta.state.level() == 1
    meta.do(ServerDescribed(server(1, level=3)))
    meta.do(ServerDescribed(server(2, level=2)))
    assert meta.state.level() == 2


# -- the machine -----------------------------------------------------------------------------------------------


def test_an_entry_that_is_not_understood_stops_the_group_before_it_changes_anything() -> None:
    meta = Meta(1)
    before = encode_snapshot(meta.state)
    with pytest.raises(UnknownEntry):
        meta.state.apply(5, 0, msgpack.packb([2, 7, "A", "S", 1]))
    with pytest.raises(BadRow):
        meta.state.apply(5, 0, b"\xc1")
    assert encode_snapshot(meta.state) == before


def test_an_empty_entry_changes_nothing_but_the_index() -> None:
    state = MetaState()
    assert state.apply(3, 0, b"").outcome is Outcome.DONE
    assert state.index == 3


def test_a_stream_with_options_of_a_newer_server_is_offline_and_keeps_its_place() -> None:
    meta = Meta(1)
    config = stored("S", "a.>")
    entry = StreamCreated(A, config, (1,))
    row = msgpack.unpackb(encode(entry))
    row[3]["newest_option"] = 5
    meta.state.apply(2, 0, msgpack.packb(row))
    meta.log.append(b"")
    assert meta.there("S").stored.offline == 'unsupported - config error: unknown field "newest_option"'
    assert meta.there("S").stored.values["newest_option"] == 5
    assert err_code(meta.create("T", 1, subjects=("a.b",))) == 10065
    assert err_code(meta.create("S", 1, subjects=("a.>",))) == 10058
    assert decode_snapshot(encode_snapshot(meta.state)).stream(A, "S") == meta.there("S")


@pytest.mark.parametrize("seed", range(8))
def test_equal_entries_give_equal_states_with_and_without_a_snapshot(seed: int) -> None:
    chance = random.Random(seed)
    one, two, restored = MetaState(), MetaState(), MetaState()
    for index in range(1, 300):
        data = encode(random_entry(chance, one))
        results = [state.apply(index, index, data) for state in (one, two, restored)]
        assert [replace(each, error=None) for each in results] == [replace(results[0], error=None)] * 3
        assert len({str(each.error) for each in results}) == 1
        if chance.random() < 0.05:
            restored = decode_snapshot(encode_snapshot(restored))
        _check_invariants(one)
    assert encode_snapshot(one) == encode_snapshot(two) == encode_snapshot(restored)
    assert len(list(one.streams())) + one.next_group > 10


def _check_invariants(state: MetaState) -> None:
    load: dict[int, Load] = {}
    for stream in state.streams():
        add_load(load, stream.config, stream.nodes)
    assert state.load == load
    groups = [each.group for each in state.streams()]
    assert len(set(groups)) == len(groups)
    assert all(0 < group < state.next_group for group in groups)
    assert not state.servers.keys() & state.removed.keys()
    for stream in state.streams():
        assert len(set(stream.nodes)) == len(stream.nodes) > 0
        assert max(each.incarnation for each in stream.replicas) <= stream.newest
        assert all(node in state.servers or node in state.removed for node in stream.nodes)
        others = [each for each in state.accounts[stream.account] if each.name != stream.name]
        assert not set(stream.config.subjects) & {
            subject for each in others for subject in each.config.subjects
        }


def test_moves_name_a_stream_that_is_there() -> None:
    assert err_code(Meta(1).do(StreamMoved(A, "S", 1, 1, (1,)))) == 10059


def test_a_stream_whose_group_has_ended_gets_the_number_of_another_one() -> None:
    meta = Meta(1, 2, 3)
    meta.create("S", 1, 2, 3)
    three = meta.there("S")
    assert meta.do(GroupEnded(A, "S", three.group, three.revision)).outcome is Outcome.STALE
    meta.update("S", 2, num_replicas=1)
    one = meta.there("S")
    assert meta.do(GroupEnded(A, "S", one.group, three.revision)).outcome is Outcome.STALE
    alone = meta.do(GroupEnded(A, "S", one.group, one.revision)).stream
    assert alone is not None
    assert alone.replicas == (Replica(2, 1),)
    assert alone.group == meta.state.next_group - 1 > one.group
    assert alone.created_ns == one.created_ns
    meta.update("S", 2, 1, 3, num_replicas=3)
    assert meta.there("S").replicas == (Replica(2, 1), Replica(1, 2), Replica(3, 2))
    assert meta.there("S").group == alone.group


def test_a_restored_stream_has_one_server_at_first_and_its_own_time() -> None:
    meta = Meta(1, 2, 3)
    done = meta.do(StreamRestored(A, stored("S", num_replicas=3), 2, 77))
    assert done.stream is not None
    assert (done.stream.nodes, done.stream.created_ns) == ((2,), 77)
    assert meta.state.uneven == {done.stream.group}
    assert err_code(meta.do(StreamRestored(A, stored("S"), 2, 78))) == 10130
    assert err_code(meta.do(StreamRestored(A, stored("T", "S"), 2, 78))) == 10065
    assert meta.do(StreamRestored(A, stored("T"), 9, 78)).outcome is Outcome.STALE


def test_a_restored_stream_is_removed_if_its_server_has_not_opened_it_and_loses_or_leaves_it() -> None:
    for name, replicas in (("ONE", 1), ("MANY", 3)):
        meta = Meta(1, 2, 3)
        made = meta.do(StreamRestored(A, stored(name, num_replicas=replicas), 2, 77)).stream
        assert made is not None
        meta.do(ServerDescribed(server(2, store=99)))
        assert meta.state.stream(A, name) is None

        meta.do(StreamRestored(A, stored(name, num_replicas=replicas), 2, 77))
        meta.move(name, 1)
        assert meta.state.stream(A, name) is None


def test_a_restored_stream_stays_or_is_removed_as_its_server_reports() -> None:
    meta = Meta(1, 2, 3)
    for is_there in (True, False):
        meta.do(StreamRestored(A, stored("S", num_replicas=3), 2, 77))
        meta.move("S", 2, 1, 3)
        group = meta.there("S").group
        meta.do(StreamOpened(A, "S", group, is_there))
        assert (meta.state.stream(A, "S") is not None) is is_there
        if is_there:
            assert not meta.there("S").is_built
            assert meta.do(StreamOpened(A, "S", group, False)).outcome is Outcome.STALE
            meta.do(StreamDeleted(A, "S", group))


def test_a_stream_that_moves_has_two_replicas_and_shows_one() -> None:
    meta = Meta(1, 2, 3)
    meta.create("S", 1, max_bytes=100)
    old = meta.there("S")
    bounds = Bounds(max_bytes=150)  # room for one replica
    config = stored("S", num_replicas=2, max_bytes=100, max_msgs=5)
    moves = StreamUpdated(A, old.group, old.revision, config, (1, 2), bounds, 2)
    assert meta.do(moves).outcome is Outcome.DONE
    moving = meta.there("S")
    assert [each.incarnation for each in moving.replicas] == [1, 2]
    assert (moving.config.num_replicas, moving.shown_config.num_replicas) == (2, 1)
    assert meta.state.moving == {old.group: moving}
    assert decode_snapshot(encode_snapshot(meta.state)).moving == meta.state.moving
    assert meta.move("S", 3).outcome is Outcome.STALE
    assert meta.update("S", max_msgs=7).outcome is Outcome.STALE
    assert meta.move("S", 2).outcome is Outcome.DONE
    moved = meta.there("S")
    assert (moved.nodes, moved.config.num_replicas, moved.target) == ((2,), 1, 0)
    assert moved.group == old.group
    assert meta.state.moving == {}


@pytest.mark.parametrize("before", [None, Placement(tags=("ssd",))])
def test_a_stream_whose_move_is_cancelled_has_its_former_placement(before: Placement | None) -> None:
    meta = Meta(1, 2, 3)
    meta.create("S", 1, placement=before)
    old = meta.there("S")
    config = stored("S", num_replicas=2, placement=Placement(tags=("new",)))
    meta.do(StreamUpdated(A, old.group, old.revision, config, (1, 2), Bounds(), 2))
    meta.do(StreamMoved(A, "S", old.group, meta.there("S").revision, (1, 3), 3))  # its target was removed
    meta.state = decode_snapshot(encode_snapshot(meta.state))
    assert meta.there("S").shown_config.placement == Placement(tags=("new",))
    assert meta.move("S", 1).outcome is Outcome.DONE
    stayed = meta.there("S")
    assert (stayed.nodes, stayed.target, stayed.placed) == ((1,), 0, None)
    assert stayed.config == old.config
    assert stayed.stored.values == old.stored.values
    assert meta.state.moving == {}


def test_a_stream_that_moves_and_is_deleted_moves_no_more() -> None:
    meta = Meta(1, 2)
    meta.create("S", 1)
    old = meta.there("S")
    meta.do(StreamMoved(A, "S", old.group, old.revision, (1, 2), 2))
    meta.do(StreamDeleted(A, "S", old.group))
    assert meta.state.moving == {}
