"""Removals of many messages: in steps, with the result of a single step; the start after a kill completes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.jetstream.test_long_requests import API, LongFixture

from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.manage.purging import STEP

MANY = 24 * STEP  # takes more steps than one turn runs


class StoredFixture(LongFixture):
    """The same, on files that remain when the server is killed."""

    def __init__(self, root: Path) -> None:
        super().__init__(Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(root))))
        self.root = root

    def kill(self) -> StoredFixture:
        """Leave the files as they are; return the next server on them."""
        assert self.node.jetstream is not None
        lock = self.node.jetstream._lock
        assert lock is not None
        lock.release()
        return StoredFixture(self.root)


@pytest.fixture
def js(tmp_path: Path) -> StoredFixture:
    return StoredFixture(tmp_path)


def filled(js: StoredFixture) -> StoredFixture:
    """Create a file stream in which every second message has a subject that matches `a.*`."""
    js.add("S", subjects=["a.*", "b.*"], storage="file")
    for _ in range(MANY // 1000):
        js.user.send(b"".join(b"PUB a.%d 1\r\nx\r\nPUB b.%d 1\r\nx\r\n" % (n, n) for n in range(1000)))
    assert js.state("S")["messages"] == 2 * MANY
    return js


def begin(js: StoredFixture, endpoint: str, body: object) -> None:
    """Send a request, and run some turns with their jobs."""
    asker = js.asker()
    js.ask_later(asker, API + endpoint, body)
    for _ in range(2):
        js.one_turn()
        js.run_jobs()
    assert asker.frames() == []


@pytest.mark.parametrize("given", [{"filter": "a.*"}, {"filter": "a.*", "keep": 10}, {"seq": MANY + 1}])
def test_a_long_purge_takes_many_turns_and_removes_what_it_says(
    js: StoredFixture, given: dict[str, object]
) -> None:
    filled(js)
    asker = js.asker()

    js.ask_later(asker, API + "STREAM.PURGE.S", given)
    turns = js.turns_until_idle()

    (frame,) = asker.frames()
    purged = MANY - int(str(given.get("keep", 0)))
    assert turns >= 3
    assert json.loads(frame.payload)["purged"] == purged
    assert js.state("S")["messages"] == 2 * MANY - purged
    assert not (js.root / "$G/streams/S/purge").exists()


def test_a_message_that_comes_during_a_purge_stays(js: StoredFixture) -> None:
    filled(js)
    begin(js, "STREAM.PURGE.S", {"filter": "a.*"})

    js.user.send(b"PUB a.new 1\r\nx\r\n")
    js.turns_until_idle()

    assert js.state("S")["messages"] == MANY + 1


def test_nothing_is_delivered_between_the_steps_of_a_purge(js: StoredFixture) -> None:
    filled(js)
    js.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"name": "c", "filter_subject": "a.*"}})
    reader = js.asker()
    begin(js, "STREAM.PURGE.S", {"filter": "a.*"})

    js.ask_later(reader, API + "CONSUMER.MSG.NEXT.S.c", {"batch": 1, "no_wait": True}, b"_I.b")
    js.one_turn()
    early = reader.frames()
    js.turns_until_idle()

    assert early == []
    (frame,) = [each for each in reader.frames() if each.subject == b"_I.b"]
    assert frame.headers.startswith(b"NATS/1.0 404")


def test_num_pending_is_at_most_the_number_of_messages_between_the_steps_of_a_purge(
    js: StoredFixture,
) -> None:
    filled(js)
    js.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"name": "c"}})
    begin(js, "STREAM.PURGE.S", {"filter": "a.*"})
    stream = js.stream("S")
    assert MANY < stream.store.msgs < 2 * MANY
    assert stream.consumers["c"].cursor.num_pending() == stream.store.msgs  # as a monitoring page reads it
    js.turns_until_idle()
    assert js.api("CONSUMER.INFO.S.c")["num_pending"] == MANY


def test_requests_for_the_stream_wait_for_the_end_of_a_purge(js: StoredFixture) -> None:
    filled(js)
    other = js.asker()
    begin(js, "STREAM.PURGE.S", {"filter": "a.*"})

    js.ask_later(other, API + "STREAM.INFO.S", b"", b"_I.b")
    js.turns_until_idle()

    (frame,) = [each for each in other.frames() if each.subject == b"_I.b"]
    assert json.loads(frame.payload)["state"]["messages"] == MANY


def test_a_purge_that_a_kill_interrupts_is_ended_by_the_next_start(js: StoredFixture) -> None:
    filled(js)
    begin(js, "STREAM.PURGE.S", {"filter": "a.*"})
    assert MANY < js.stream("S").store.msgs < 2 * MANY

    again = js.kill()
    again.turns_until_idle()

    assert again.state("S")["messages"] == MANY
    assert not (js.root / "$G/streams/S/purge").exists()


def test_a_kill_before_the_purge_is_written_down_leaves_everything(js: StoredFixture) -> None:
    filled(js)
    js.ask_later(js.asker(), API + "STREAM.PURGE.S", {"filter": "a.*"})
    js.one_turn()  # its job has not run

    assert js.kill().state("S")["messages"] == 2 * MANY


def test_a_lower_limit_is_applied_in_steps(js: StoredFixture) -> None:
    filled(js)
    asker = js.asker()

    config = {"name": "S", "subjects": ["a.*", "b.*"], "storage": "file", "max_msgs_per_subject": 1}
    js.ask_later(asker, API + "STREAM.UPDATE.S", config)
    turns = js.turns_until_idle()

    assert turns >= 3
    assert json.loads(asker.frames()[0].payload)["state"]["messages"] == 2000
    assert [js.stream("S").store.first_seq, js.stream("S").store.last_seq] == [2 * MANY - 1999, 2 * MANY]


def test_a_lower_limit_of_the_stream_is_applied_in_steps(js: StoredFixture) -> None:
    filled(js)
    asker = js.asker()

    config = {"name": "S", "subjects": ["a.*", "b.*"], "storage": "file", "max_msgs": 5}
    js.ask_later(asker, API + "STREAM.UPDATE.S", config)
    turns = js.turns_until_idle()

    assert turns >= 3
    assert json.loads(asker.frames()[0].payload)["state"]["messages"] == 5


def test_a_kill_while_a_lower_limit_is_applied_leaves_the_new_one(js: StoredFixture) -> None:
    filled(js)
    config = {"name": "S", "subjects": ["a.*", "b.*"], "storage": "file", "max_msgs_per_subject": 1}
    begin(js, "STREAM.UPDATE.S", config)

    assert js.kill().state("S")["messages"] == 2000


def test_a_message_that_comes_while_a_limit_is_lowered_is_the_one_that_stays(js: StoredFixture) -> None:
    filled(js)
    config = {"name": "S", "subjects": ["a.*", "b.*"], "storage": "file", "max_msgs_per_subject": 1}
    begin(js, "STREAM.UPDATE.S", config)

    js.user.send(b"PUB a.7 3\r\nnew\r\n")
    js.turns_until_idle()

    last = js.stream("S").store.get_last(b"a.7")
    assert last is not None
    assert last.payload == b"new"
    assert js.state("S")["messages"] == 2000
