"""Consumers are created, changed and deleted in concurrent batches; each request is answered when it is durable."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.consumer_lists import listed
from tests.support.disk import FaultyDisk
from tests.support.packed import pack
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.consumer.record import first_state
from pyjs.jetstream.consumer.start import Start
from pyjs.store.state.consumer_list import MARK, drop_values, encode_entry, list_paths


class CountingDisk(OsDisk):
    """Counts operations that wait for the medium; syncs fail while `failing`."""

    def __init__(self) -> None:
        self.syncs = 0
        self.failing = False

    def _sync(self) -> None:
        self.syncs += 1
        if self.failing:
            raise OSError(errno.EIO, "Input/output error")

    def sync_file(self, fd: int) -> None:
        self._sync()

    def sync_dir(self, path: str) -> None:
        self._sync()

    def sync_filesystem(self, fd: int) -> None:
        self._sync()


class Pipelined(JetStreamFixture):
    """A client that sends requests without waiting, and a thread that the test runs."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.files = CountingDisk()
        options = Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(directory)))
        super().__init__(options, self.files)
        self.root = directory / "$G/streams/S/consumers"
        if "S" not in self.engine.streams:
            self.add("S", storage="file", subjects=["s.>"], **config)
        self.user.send(b"SUB in.> 1\r\n")
        self.user.take()
        self.hold_jobs = True

    def send(self, endpoint: str, reply: str, body: Any = None) -> None:
        """Send a request whose answer goes to in.<reply>."""
        payload = b"" if body is None else json.dumps(body).encode()
        self.user.send(
            b"PUB $JS.API.%b in.%b %d\r\n%b\r\n" % (endpoint.encode(), reply.encode(), len(payload), payload)
        )

    def create(self, name: str, reply: str = "", **fields: Any) -> None:
        config = {"durable_name": name, "ack_policy": "explicit", **fields}
        self.send(f"CONSUMER.CREATE.S.{name}", reply or name, {"stream_name": "S", "config": config})

    def answers(self) -> list[str]:
        """Return the replies that got an answer, each with its error, if any."""
        out = []
        for frame in self.user.frames():
            body = json.loads(frame.payload)
            failed = f" {body['error']['err_code']}" if "error" in body else ""
            out.append(frame.subject.decode().removeprefix("in.") + failed)
        return out

    def batch(self) -> list[str]:
        """Run the thread's jobs, and return the answers."""
        self.hold_jobs = False
        self.run_jobs()
        self.hold_jobs = True
        self.turn()
        return self.answers()

    def batches(self) -> list[str]:
        """Run all jobs, also those that they lead to; return the answers in order."""
        out = self.answers()
        while self.node.turn_state.jobs:
            out += self.batch()
        return out

    def stored(self) -> list[str]:
        return listed(self.root.parent)


@pytest.fixture
def js(tmp_path: Path) -> Pipelined:
    return Pipelined(tmp_path)


def test_a_consumer_is_answered_when_it_is_durable(js: Pipelined) -> None:
    js.create("a")
    assert js.answers() == []
    assert js.stream("S").consumers == {}

    assert js.batch() == ["a"]

    assert list(js.stream("S").consumers) == ["a"]
    assert js.stored() == ["a"]


def test_a_hundred_consumers_wait_for_three_batches_of_few_syncs(js: Pipelined) -> None:
    for number in range(100):
        js.create(f"c{number}")
    js.files.syncs = 0

    answered = js.batches()

    assert len(answered) == 100
    assert js.files.syncs <= 6
    assert len(js.restart().stream("S").consumers) == 100


def test_a_report_of_a_consumer_that_is_being_made_waits_for_it(js: Pipelined) -> None:
    js.create("a")
    js.send("CONSUMER.INFO.S.a", "info")
    js.send("CONSUMER.INFO.S.b", "other")
    assert js.answers() == ["other 10014"]

    assert js.batch() == ["a", "info"]


def test_a_consumer_that_is_being_made_is_not_listed(js: Pipelined) -> None:
    js.create("a")
    js.send("CONSUMER.NAMES.S", "names")

    assert json.loads(js.user.frames()[0].payload)["consumers"] == []


def test_requests_for_one_consumer_are_answered_in_their_order(js: Pipelined) -> None:
    js.create("a")
    js.create("a", "again")
    js.send("CONSUMER.DELETE.S.a", "delete")
    js.create("a", "new", max_ack_pending=7)
    js.create("b")

    assert js.batches() == ["a", "again", "b", "delete", "new"]

    assert js.stored() == ["a", "b"]
    consumers = js.restart().stream("S").consumers
    assert consumers["a"].config.max_ack_pending == 7


def test_the_deletion_of_a_stream_waits_for_its_consumers(js: Pipelined) -> None:
    js.create("a")
    js.send("STREAM.DELETE.S", "delete")
    js.create("b")

    assert js.batches() == ["a", "delete", "b 10059"]


def test_consumers_that_are_being_made_count(tmp_path: Path) -> None:
    js = Pipelined(tmp_path, max_consumers=1)
    js.create("a")
    js.create("b")

    assert js.batches() == ["b 10026", "a"]


def test_consumers_of_a_work_queue_that_are_being_made_hold_their_subjects(tmp_path: Path) -> None:
    js = Pipelined(tmp_path, retention="workqueue")
    js.create("a", filter_subject="s.a")
    js.create("b", filter_subject="s.*")
    js.create("c", filter_subject="s.c")

    assert js.batches() == ["b 10100", "a", "c"]


def test_a_name_that_the_server_makes_up_is_not_one_that_is_being_made(js: Pipelined) -> None:
    for number in range(20):
        config = {"ack_policy": "explicit"}
        js.send("CONSUMER.CREATE.S", f"{number}", {"stream_name": "S", "config": config})

    assert len(js.batches()) == 20
    assert len(js.stream("S").consumers) == 20


def test_a_failed_sync_makes_no_consumer_and_leaves_nothing(tmp_path: Path) -> None:
    js = Pipelined(tmp_path, retention="workqueue")
    js.files.failing = True
    js.create("a")
    assert js.batches() == ["a 10012"]
    assert js.stored() == []
    js.files.failing = False

    js.create("b")

    assert js.batches() == ["b"]
    assert list(js.restart().stream("S").consumers) == ["b"]


def test_a_consumer_that_cannot_be_deleted_is_back(js: Pipelined) -> None:
    js.create("a")
    js.batches()
    js.files.failing = True
    js.send("CONSUMER.DELETE.S.a", "delete")

    assert js.batches() == ["delete 10051"]

    js.files.failing = False
    assert list(js.stream("S").consumers) == ["a"]
    assert js.stored() == ["a"]
    assert any("is not deleted" in text for level, text in js.log.lines if level == "ERR")


def test_changes_are_answered_when_they_are_durable(js: Pipelined) -> None:
    js.create("a")
    js.batches()
    js.create("a", "change", max_ack_pending=5)
    js.send("CONSUMER.PAUSE.S.a", "pause", {"pause_until": "2100-01-01T00:00:00Z"})
    assert js.answers() == []
    assert js.stream("S").consumers["a"].config.max_ack_pending == 1000

    assert js.batches() == ["change", "pause"]

    config = js.restart().stream("S").consumers["a"].config
    assert config.max_ack_pending == 5
    assert config.pause_until_ns


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    js = Pipelined(tmp_path, retention="workqueue")
    js.create("a", filter_subject="s.a")
    js.batches()
    js.files.failing = True
    js.create("a", "change", filter_subject="s.b")
    assert js.batches() == ["change 10012"]
    js.files.failing = False

    js.create("b", filter_subject="s.a")

    assert js.batches() == ["b 10100"]


def test_a_consumer_that_expires_while_it_is_changed_is_gone(js: Pipelined) -> None:
    js.create("a", inactive_threshold=1_000_000_000)
    js.batches()
    js.create("a", "change", inactive_threshold=1_000_000_000, max_ack_pending=5)
    js.advance(seconds=2)

    assert js.batches() == ["change 10014"]

    assert js.stored() == []
    assert js.stream("S").consumers == {}


def test_a_consumer_made_after_another_of_its_name_expired_stays(js: Pipelined) -> None:
    js.create("a", inactive_threshold=1_000_000_000)
    js.batches()
    js.advance(seconds=2)
    js.create("a", "new")

    assert js.batches() == ["new"]

    assert js.stored() == ["a"]
    assert list(js.restart().stream("S").consumers) == ["a"]


def test_a_removal_that_nobody_waits_for_is_logged_when_it_fails(js: Pipelined) -> None:
    js.create("a", inactive_threshold=1_000_000_000)
    js.batches()
    js.files.failing = True
    js.advance(seconds=2)
    js.batches()
    js.files.failing = False

    assert any("may come back" in text for level, text in js.log.lines if level == "ERR")


def test_a_consumer_that_fails_while_files_are_written_begins_again_after_that(js: Pipelined) -> None:
    js.create("a")
    js.batches()
    js.create("b")
    consumer = js.stream("S").consumers["a"]
    js.node.turn_state.faulted.append((consumer, ZeroDivisionError()))
    js.turn()
    assert "a" not in js.stream("S").consumers

    assert js.batches() == ["b"]

    assert sorted(js.stream("S").consumers) == ["a", "b"]
    assert js.stream("S").consumers["a"] is not consumer


def test_a_stream_that_fails_while_a_consumer_is_made_has_it_when_it_is_open_again(js: Pipelined) -> None:
    js.create("a")
    js.node.turn_state.faulted.append((js.stream("S"), ZeroDivisionError()))
    js.turn()

    assert js.batches() == ["a 10012"]

    js.hold_jobs = False
    js.turn()
    assert list(js.stream("S").consumers) == ["a"]


def test_what_is_in_the_place_of_a_new_consumer_is_set_aside(js: Pipelined) -> None:
    (js.root / "a.2").mkdir(parents=True)
    js.create("a")

    assert js.batches() == ["a"]

    assert js.stored() == ["a"]
    assert [path.name for path in js.root.iterdir()] == [".damaged-0-a.2"]
    assert any("is set aside" in text for level, text in js.log.lines if level == "WRN")


def test_a_killed_creation_is_cut_by_the_next_start(js: Pipelined) -> None:
    js.create("a")
    js.batches()
    for path in list_paths(str(js.root.parent)):
        with Path(path).open("ab") as file:
            file.write(encode_entry(3, drop_values("a", 2), None)[:-9])
    again = js.restart()

    assert list(again.stream("S").consumers) == ["a"]
    assert [text for level, text in again.log.lines if level in ("WRN", "ERR")] == []
    assert Path(list_paths(str(js.root.parent))[0]).read_bytes().count(MARK) == 2


def test_a_list_of_mostly_removed_consumers_is_rewritten(js: Pipelined) -> None:
    path = Path(list_paths(str(js.root.parent))[0])
    js.create("stays")
    sizes = []
    for number in range(300):
        js.create(f"c{number}")
        js.send(f"CONSUMER.DELETE.S.c{number}", "delete")
        js.batches()
        sizes.append(path.stat().st_size)

    assert max(sizes) < 80_000
    assert sizes[-1] < max(sizes)
    assert path.read_bytes() == path.with_suffix(".b").read_bytes()
    assert list(js.restart().stream("S").consumers) == ["stays"]


def test_the_state_of_a_removed_consumer_goes_also_after_a_kill(js: Pipelined) -> None:
    js.create("a")
    js.create("b")
    js.send("CONSUMER.DELETE.S.a", "delete")
    js.batches()
    for name in ("a.2", "b.2", "x.9"):
        (js.root / name).mkdir()
    again = js.restart()

    assert list(again.stream("S").consumers) == ["b"]
    assert sorted(path.name for path in js.root.iterdir()) == ["x.9"]
    assert any("belongs to no consumer" in text for level, text in again.log.lines if level == "ERR")


@pytest.mark.parametrize("at", range(40))
def test_a_disk_that_fails_anywhere_makes_a_consumer_or_none(tmp_path: Path, at: int) -> None:
    js = Pipelined(tmp_path)
    assert js.node.jetstream is not None
    writer = js.node.jetstream.shared.metadata
    writer._disk = FaultyDisk(at, errno.EIO)
    js.create("a")
    answers = js.batches()
    writer._disk = js.files
    found = list(js.restart().stream("S").consumers)

    assert (answers, found) in ((["a"], ["a"]), (["a 10012"], []))


def test_the_first_state_is_that_of_a_consumer_that_begins(js: Pipelined) -> None:
    js.hold_jobs = False
    js.create("a")
    consumer = js.stream("S").consumers["a"]
    assert isinstance(consumer, Consumer)
    start = Start(5, pack([5, 7]), 9)
    consumer.begin(start, written=True)

    assert json.loads(first_state(start)) == {"version": 1, **consumer.dump_state()}
