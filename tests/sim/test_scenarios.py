"""Errors that the simulation has found, as scenarios: a SimDisk, a few requests, and a crash at a chosen moment."""

from __future__ import annotations

import errno
import json
import random
from typing import Any

import pytest
from tests.sim.disk import SimDisk
from tests.sim.process import Process, SimClient
from tests.support.disk import Crash

import pyjs.jetstream.consumer.record as consumer_record

START_NS = 1_700_000_000 * 10**9
STREAM = {"name": "S", "subjects": ["s.*"]}
DURABLE = {"durable_name": "c", "ack_policy": "explicit"}


class NothingLands(random.Random):
    """Makes a power cut keep exactly the synced data."""

    def random(self) -> float:
        return 0.9

    def choice(self, seq: Any) -> Any:
        return seq[0]


class Story:
    """A disk, and the processes that run on it one after another."""

    def __init__(self, always: bool = True, seed: int = 1) -> None:
        self.disk = SimDisk(NothingLands(seed))
        self.always = always
        self.process: Process
        self.client: SimClient
        self.number = 0

    def begin(self) -> None:
        """Start a process."""
        self.process = Process(self.disk, START_NS, 1, self.always, 10**9)
        self.process.start()
        self.client = self.process.client()
        self.client.send(b"SUB _I.> 1\r\n")

    def put(self, subject: str, payload: bytes = b"", headers: bytes = b"") -> bytes:
        """Send a request without running a turn; return its inbox."""
        self.number += 1
        inbox = b"_I.%d" % self.number
        verb, sizes = (b"HPUB", b"%d " % len(headers)) if headers else (b"PUB", b"")
        line = b"%b %b %b %b%d\r\n" % (verb, subject.encode(), inbox, sizes, len(headers) + len(payload))
        self.client.send(line + headers + payload + b"\r\n")
        return inbox

    def ask(self, subject: str, body: object = None) -> Any:
        """Send a request and return its answer."""
        inbox = self.put(subject, b"" if body is None else json.dumps(body).encode())
        self.process.run()
        self.process.settle()
        frames = [frame for frame in self.client.frames() if frame.subject == inbox]
        return json.loads(frames[0].payload) if frames and frames[0].payload else None

    def stream(self) -> Any:
        """Return the stream S."""
        jetstream = self.process.node.jetstream
        assert jetstream is not None
        return jetstream.accounts["$G"].streams["S"]

    def make(self, **config: object) -> None:
        """Create the stream and a consumer."""
        assert "error" not in self.ask("$JS.API.STREAM.CREATE.S", STREAM | config)
        assert "error" not in self.make_consumer()

    def make_consumer(self) -> Any:
        return self.ask("$JS.API.CONSUMER.CREATE.S.c", {"stream_name": "S", "config": DURABLE})

    def info(self) -> Any:
        """Return the info of the consumer."""
        return self.ask("$JS.API.CONSUMER.INFO.S.c")


def test_a_purge_of_a_stream_that_never_had_a_message_leaves_its_consumers_at_the_start() -> None:
    story = Story()
    story.begin()
    story.make()

    story.ask("$JS.API.STREAM.PURGE.S")
    story.ask("s.a")

    assert story.info()["delivered"]["stream_seq"] == 0
    assert story.info()["num_pending"] == 1


def test_a_purge_that_consumers_cannot_keep_does_not_end_the_turn() -> None:
    story = Story()
    story.begin()
    story.make()
    story.ask("s.a")
    story.disk.failing, story.disk.failure, story.disk.fail_in = "rename", errno.EIO, 0

    purged = story.ask("$JS.API.STREAM.PURGE.S")

    assert purged["purged"] == 1
    assert story.ask("s.a")["seq"] == 2


def test_messages_nobody_wants_do_not_set_the_times_of_a_stream_back() -> None:
    story = Story()
    story.begin()
    story.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "retention": "interest"})
    consumer = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "s.a"}
    story.ask("$JS.API.CONSUMER.CREATE.S.c", {"stream_name": "S", "config": consumer})

    for subject in ("s.a", "s.a", "s.a", "s.b", "s.a"):
        story.put(subject)
    story.process.run()

    times = [message.ts for seq in range(1, 6) if (message := story.stream().store.get(seq)) is not None]
    assert len(times) == 4
    assert times == sorted(set(times))


@pytest.mark.parametrize("calls", range(25))
def test_a_stream_whose_making_was_cut_short_is_safe_once_it_is_confirmed(calls: int) -> None:
    story = Story()
    story.disk.crash_in = calls
    try:
        story.begin()
        story.put("$JS.API.STREAM.CREATE.S", json.dumps(STREAM).encode())
        story.process.run()
    except Crash:
        pass
    story.disk.end_process()
    story.begin()
    story.ask("$JS.API.STREAM.CREATE.S", STREAM)
    assert story.ask("s.a")["seq"] == 1

    story.disk.lose_power()
    story.begin()

    assert story.stream().store.msgs == 1


def test_a_consumer_ahead_of_a_stream_that_lost_its_end_gets_what_comes_there() -> None:
    story = Story(always=False)
    story.begin()
    story.make()
    story.process.advance(10**9)
    story.process.settle()
    for _ in range(5):
        story.ask("s.a")
    consumer = story.stream().consumers["c"]
    story.put("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":5,"no_wait":true}')
    story.process.run()
    consumer.acks.changes.lost = True  # its whole state becomes durable at once; the messages do not
    story.put("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1,"no_wait":true}')
    story.ask("s.a")
    story.ask("$JS.API.CONSUMER.MSG.NEXT.S.c", {"batch": 1, "no_wait": True})
    story.disk.lose_power()
    story.begin()
    assert story.stream().store.last_seq == 0

    for _ in range(8):
        story.ask("s.a")
    story.disk.end_process()
    story.begin()

    assert story.info()["num_pending"] == 8


def test_a_segment_that_a_killed_process_left_is_synced_before_its_index_vouches_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyjs.jetstream.manage.segments.SEGMENT_SIZE_MAX", 2048)
    story = Story(always=False)
    story.begin()
    story.make()
    story.process.advance(10**9)
    story.process.settle()
    for _ in range(40):
        story.put("s.a", b"x" * 100)
    story.process.run()
    story.disk.end_process()
    story.begin()  # it reads the segments, and is killed as well
    story.disk.end_process()
    story.begin()
    story.process.advance(2 * 10**9)
    story.process.settle()

    story.disk.lose_power()
    story.begin()

    assert story.stream().store.msgs == 40


def test_acks_of_a_killed_process_are_synced_by_the_next_one() -> None:
    story = Story(always=False)
    story.begin()
    story.make()
    story.ask("s.a")
    story.process.advance(2 * 10**9)
    story.process.settle()
    story.put("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1,"no_wait":true}')
    story.process.run()
    [delivery] = [frame for frame in story.client.frames() if frame.payload == b"" and frame.reply]
    story.put(delivery.reply.decode(), b"+ACK")
    story.process.run()
    story.disk.end_process()
    story.begin()
    story.process.advance(2 * 10**9)
    story.process.settle()

    story.disk.lose_power()
    story.begin()

    assert story.info()["ack_floor"]["stream_seq"] == 1


def test_acks_confirmed_behind_a_whole_state_survive_a_power_cut_before_the_first_log_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_record, "DELTAS_SIZE_MIN", 0)
    monkeypatch.setattr(consumer_record, "DELTAS_PER_SNAPSHOT", 0)
    story = Story()
    story.begin()
    story.make()
    for _ in range(20):
        story.ask("s.a")
    for _ in range(20):
        story.put("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1")
        story.process.run()  # writes the first log; the job that syncs it has not run
    story.process.finish_changes()  # a whole state replaces the log
    delivery = next(frame for frame in story.client.frames() if frame.subject == b"s.a")

    inbox = story.put(delivery.reply.decode())
    story.process.run()
    story.process.settle()
    story.process.finish_changes()
    assert inbox in [frame.subject for frame in story.client.frames()]
    story.disk.lose_power()
    story.begin()

    assert story.info()["ack_floor"]["stream_seq"] == 1


def test_what_a_failed_sync_lost_is_written_again_before_it_is_acknowledged() -> None:
    story = Story(seed=3)  # with this seed, the failed sync loses the message
    story.begin()
    story.make()
    story.ask("s.a", "first")
    story.disk.failing, story.disk.failure, story.disk.fail_in = "sync", errno.EIO, 0
    headers = b"NATS/1.0\r\nNats-Msg-Id: id\r\n\r\n"
    story.put("s.a", b"second", headers)
    story.process.run()
    story.process.settle()
    assert story.stream().store.sync_lost
    for file in story.disk.files():
        file.lossy = False  # its pages stay in memory
    story.disk.end_process()
    story.begin()

    inbox = story.put("s.a", b"second", headers)
    story.process.run()
    story.process.settle()
    (answer,) = (frame for frame in story.client.frames() if frame.subject == inbox)
    assert json.loads(answer.payload)["duplicate"]
    assert not story.disk.exists("/srv/jetstream/$G/streams/S/msgs/.unsynced")
    story.disk.lose_power()
    story.begin()

    message = story.stream().store.get(2)
    assert message is not None
    assert message.payload == b"second"


def test_a_message_that_ends_a_schedule_is_refused_while_the_schedule_cannot_be_read() -> None:
    story = Story()
    story.begin()
    story.make(allow_msg_schedules=True)
    story.ask("s.a", "of no schedule")
    story.process.stop()
    story.disk.end_process()
    story.begin()
    story.disk.failing, story.disk.failure = "open_read_only", errno.EMFILE
    story.disk.fail_in, story.disk.fail_more = 0, 9
    headers = b"NATS/1.0\r\nNats-Scheduler: s.a\r\nNats-Schedule-Next: purge\r\n\r\n"

    inbox = story.put("s.b", b"x", headers)
    story.process.run()
    story.process.settle()

    (answer,) = (frame for frame in story.client.frames() if frame.subject == inbox)
    assert json.loads(answer.payload)["error"]["err_code"] == 10077
    assert story.stream().store.msgs == 1
