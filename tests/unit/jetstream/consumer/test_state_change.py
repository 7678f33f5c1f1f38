"""A thread writes the whole state of a consumer; the consumer waits for it, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.jetstream.consumer.test_consumer_commit import Pipelined

from pyjs.jetstream.consumer import record as consumer_record
from pyjs.jetstream.consumer.consumer import Consumer


@pytest.fixture
def js(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipelined:
    """Return a stream of twenty messages with a consumer that rewrites its state at each change."""
    monkeypatch.setattr(consumer_record, "DELTAS_SIZE_MIN", 0)
    monkeypatch.setattr(consumer_record, "DELTAS_PER_SNAPSHOT", 0)
    made = Pipelined(tmp_path)
    made.hold_jobs = False
    config = {"durable_name": "c", "ack_policy": "explicit", "max_deliver": 1}
    made.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    for number in range(20):
        made.publish("s.a", b"%d" % number)
    made.user.send(b"SUB out 9\r\n")
    return made


def pull(js: Pipelined, count: int = 1) -> list[bytes]:
    """Send a pull request; return the reply subjects of the messages that arrive."""
    js.user.take()
    js.user.send(
        b'PUB $JS.API.CONSUMER.MSG.NEXT.S.c out %d\r\n{"batch":%d}\r\n'
        % (len(b'{"batch":%d}' % count), count)
    )
    return [frame.reply for frame in js.user.frames()]


def grow(js: Pipelined) -> list[bytes]:
    """Deliver until a whole state is being written; return the reply subjects of the deliveries."""
    js.hold_jobs = True
    replies: list[bytes] = []
    while not js.node.turn_state.jobs:
        replies += pull(js)
    return replies


def run(js: Pipelined) -> None:
    js.hold_jobs = False
    js.turn()


def files(js: Pipelined) -> list[str]:
    (directory,) = js.root.glob("c.*")
    return sorted(path.name for path in directory.iterdir())


def after_a_kill(js: Pipelined) -> Consumer:
    """Return the consumer that another server recovers after a kill."""
    assert js.node.jetstream is not None
    assert js.node.jetstream._lock is not None
    js.node.jetstream._lock.release()
    found = Pipelined(js.root.parents[3]).stream("S").consumers["c"]
    assert isinstance(found, Consumer)
    return found


def test_nothing_is_delivered_or_answered_while_it_is_written(js: Pipelined) -> None:
    replies = grow(js)
    assert pull(js) == []
    js.user.send(b"SUB acked 8\r\n")
    js.user.send(b"PUB %b acked 4\r\n+ACK\r\n" % replies[0])
    js.turn()
    assert js.user.frames() == []

    run(js)

    assert [frame.subject for frame in js.user.frames()] == [b"acked", b"s.a"]
    assert len(files(js)) == 2


def test_it_costs_the_turn_no_sync(js: Pipelined) -> None:
    before = js.files.syncs
    grow(js)
    assert js.files.syncs == before


def test_the_name_of_a_directory_made_with_the_first_deltas_is_synced_with_it(
    js: Pipelined, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(js.files, "sync_dir", synced.append)
    grow(js)
    # the log is replaced before its sync, which would have covered the directory
    assert str(js.root) not in synced

    run(js)

    assert str(js.root) in synced


def test_others_are_served_meanwhile(js: Pipelined) -> None:
    grow(js)
    assert js.publish("s.b")["seq"] == 21
    assert js.state("S")["messages"] == 21


def test_a_kill_before_it_is_written_leaves_the_state_before(js: Pipelined) -> None:
    replies = grow(js)
    js.user.send(b"PUB %b 4\r\n+ACK\r\n" % replies[0])
    js.turn()
    assert len(after_a_kill(js).acks.pending) == len(replies)


def test_a_kill_after_it_is_written_finds_it_and_what_came_then(js: Pipelined) -> None:
    replies = grow(js)
    js.user.send(b"PUB %b 4\r\n+ACK\r\n" % replies[0])
    run(js)
    found = after_a_kill(js)
    assert len(found.acks.pending) == len(replies) - 1


def test_one_that_cannot_be_written_is_written_at_once(js: Pipelined) -> None:
    replies = grow(js)
    js.user.send(b"PUB %b 4\r\n+ACK\r\n" % replies[0])
    js.files.failing = True
    js.hold_jobs = False
    js.run_jobs()
    js.files.failing = False
    js.turn()
    assert any("state can not be written" in text for _, text in js.log.lines)
    assert len(after_a_kill(js).acks.pending) == len(replies) - 1


def test_a_disk_that_goes_on_failing_confirms_nothing(js: Pipelined) -> None:
    replies = grow(js)
    js.user.send(b"SUB acked 8\r\n")
    js.user.take()
    js.files.failing = True
    js.user.send(b"PUB %b acked 4\r\n+ACK\r\n" % replies[0])
    run(js)
    assert b"acked" not in [frame.subject for frame in js.user.frames()]
    js.files.failing = False
    js.user.send(b"PUB %b acked 4\r\n+ACK\r\n" % replies[0])
    run(js)
    assert js.user.frames()[-1].subject == b"acked"
    assert len(after_a_kill(js).acks.pending) == len(replies) - 1


def test_a_purge_has_the_states_of_all_consumers_written_without_a_sync_in_a_turn(js: Pipelined) -> None:
    for number in range(5):
        config = {"durable_name": f"d{number}", "ack_policy": "explicit"}
        js.api(f"CONSUMER.CREATE.S.d{number}", {"stream_name": "S", "config": config})
    js.turn()
    js.hold_jobs = True
    before = js.files.syncs
    js.send("STREAM.PURGE.S", "purged")
    js.turn()
    assert js.files.syncs == before
    run(js)
    found = after_a_kill(js)
    assert (found.cursor.next_seq, found.acks.floor_seq) == (21, 20)


def test_a_consumer_may_be_deleted_meanwhile(js: Pipelined) -> None:
    grow(js)
    js.send("CONSUMER.DELETE.S.c", "gone")
    run(js)
    assert js.stream("S").consumers == {}
    assert not list(js.root.glob("c.*"))


def test_a_stream_may_be_deleted_and_made_again_meanwhile(js: Pipelined) -> None:
    grow(js)
    js.send("STREAM.DELETE.S", "gone")
    js.send("STREAM.CREATE.S", "made", {"name": "S", "subjects": ["s.>"]})
    run(js)
    assert js.stream("S").consumers == {}
    assert not js.root.exists()
    assert not [name for name in js.engine.damaged() if name]


def test_a_stop_that_does_not_wait_leaves_a_state_that_can_be_read(js: Pipelined) -> None:
    replies = grow(js)
    js.user.send(b"PUB %b 4\r\n+ACK\r\n" % replies[0])
    js.turn()
    js.node.stop()
    found = Pipelined(js.root.parents[3]).stream("S").consumers["c"]
    assert isinstance(found, Consumer)
    assert len(found.acks.pending) == len(replies) - 1
