"""The state of a consumer after a restart, and after a kill during a write."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.consumer_lists import damage_entry
from tests.unit.jetstream.consumerfixture import ConsumerFixture, Delivery, delivery
from tests.unit.jetstream.jsfixture import JetStreamFixture
from tests.unit.store.segment_files import MSG
from tests.unit.store.segment_files import records as segment_records

from pyjs.base.clock import VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.testing import Frame

NS = 1_000_000_000


class Restarting(ConsumerFixture):
    """A server on a directory; `restart` stops it and starts another one there."""

    def __init__(self, directory: Path, clock: VirtualClock | None = None) -> None:
        self.store = directory
        options = Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(directory)))
        JetStreamFixture.__init__(self, options, now_ns=None if clock is None else clock.now_ns())
        self.inbox = self.client()
        self.inbox.send(b"SUB in.> 1\r\n")
        self.inbox.take()
        if "S" not in self.engine.streams:
            self.add("S", subjects=["s.>"], storage="file")

    def restart(self) -> Restarting:
        self.node.stop()
        return Restarting(self.store, self.clock)


def comparable(info: dict[str, Any]) -> dict[str, Any]:
    """Return the part of CONSUMER.INFO that survives a restart."""
    positions = {
        key: {k: v for k, v in info[key].items() if k != "last_active"} for key in ("delivered", "ack_floor")
    }
    return {**info, **positions, "ts": "", "num_waiting": 0}


@pytest.fixture
def js(tmp_path: Path) -> Restarting:
    return Restarting(tmp_path)


def test_deliveries_and_acks_survive_a_restart(js: Restarting) -> None:
    # given
    js.fill(5)
    js.consumer(ack_wait=30 * NS)
    got = js.pull(batch=4)
    js.ack(got[0])
    js.ack(got[2])
    before = js.info()
    # when
    js = js.restart()
    # then
    assert comparable(js.info()) == comparable(before)
    assert [m.seq for m in js.pull(batch=9, no_wait=True)] == [5]
    js.advance(seconds=31)
    assert [(m.seq, m.count) for m in js.pull(batch=9, no_wait=True)] == [(2, 2), (4, 2), (5, 2)]


def test_a_named_ephemeral_survives_a_restart_and_then_its_threshold_counts(js: Restarting) -> None:
    # given
    js.consumer(durable_name="", name="c", inactive_threshold=5 * NS)
    # when
    js = js.restart()
    # then
    assert js.info()["name"] == "c"
    js.advance(seconds=7)
    assert "c" not in js.stream("S").consumers


def test_a_deleted_consumer_stays_away(js: Restarting) -> None:
    # given
    js.consumer()
    js.api("CONSUMER.DELETE.S.c")
    # when
    js = js.restart()
    # then
    assert js.error("CONSUMER.INFO.S.c")[1] == 10014


def test_a_changed_configuration_survives_a_restart(js: Restarting) -> None:
    # given
    js.consumer()
    js.consumer(max_ack_pending=7, filter_subject="s.x", description="changed")
    before = js.info()["config"]
    # when
    js = js.restart()
    # then
    assert js.info()["config"] == before


def test_the_rest_of_the_last_ones_per_subject_survives_a_restart(js: Restarting) -> None:
    # given
    for subject in ("s.a", "s.b", "s.a", "s.c", "s.b", "s.b"):
        js.fill(1, subject)
    js.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    js.pull(batch=1)
    # when
    js = js.restart()
    # then
    assert [m.seq for m in js.pull(batch=9, no_wait=True)] == [4, 6]


def test_a_removed_message_among_the_last_of_each_subject_repeats_no_delivery_after_restarts(
    js: Restarting,
) -> None:
    # given
    for subject in ("s.a", "s.b", "s.c", "s.d"):
        js.fill(1, subject)
    js.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    js.api("STREAM.MSG.DELETE.S", {"seq": 1})
    before = [(m.seq, m.pending) for m in js.pull(batch=1)]
    # when
    js = js.restart()
    then = [(m.seq, m.pending) for m in js.pull(batch=1)]
    js = js.restart()
    # then
    assert (before, then) == ([(2, 2)], [(3, 1)])
    assert js.info()["delivered"]["consumer_seq"] == 2
    assert [m.seq for m in js.pull(batch=9, no_wait=True)] == [4]


def test_messages_that_went_away_meanwhile_are_not_waited_for(js: Restarting) -> None:
    # given
    js.fill(4)
    js.consumer()
    js.pull(batch=3)
    saved = {path: path.read_bytes() for path in js.store.rglob("consumers/**/*") if path.is_file()}
    js.api("STREAM.PURGE.S", {"seq": 3})
    js.node.stop()
    for path, data in saved.items():
        path.write_bytes(data)
    # when
    js = Restarting(js.store, js.clock)
    # then
    info = js.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"], info["num_pending"]) == (1, 2, 1)


def test_a_cut_log_redelivers_what_it_lost(js: Restarting) -> None:
    # given
    js.fill(2)
    js.consumer(ack_wait=NS)
    for message in js.pull(batch=2):
        js.ack(message)
    js.node.stop()
    (log,) = js.store.rglob("consumers/**/log.*")
    log.write_bytes(log.read_bytes()[:-3])
    # when
    js = Restarting(js.store, js.clock)
    js.advance(seconds=2)
    # then
    assert js.position()[1] == (1, 1)
    assert [(m.seq, m.count) for m in js.pull(batch=9, no_wait=True)] == [(2, 2)]


@pytest.mark.parametrize("policy", ["explicit", "all", "none"])
@pytest.mark.parametrize("seed", range(4))
def test_any_history_survives_a_restart(tmp_path: Path, policy: str, seed: int) -> None:
    # given
    chance = random.Random(f"{policy}{seed}")
    js = Restarting(tmp_path)
    js.consumer(ack_policy=policy, ack_wait=NS, max_deliver=3, filter_subjects=["s.a", "s.b"])
    held: list[Delivery] = []
    # when
    for _step in range(60):
        held += act(js, chance, held)
    before = comparable(js.info())
    queued = js.core().acks.pending.queued()
    js = js.restart()
    # then
    assert comparable(js.info()) == before
    js.advance(milliseconds=1)  # deliveries that were overdue are due at the first timer
    assert sorted(js.core().acks.pending.queued()) == sorted(queued)


def act(js: Restarting, chance: random.Random, held: list[Delivery]) -> list[Delivery]:
    """Do one random operation; return its deliveries."""
    choice = chance.randrange(7)
    if choice == 0:
        js.fill(chance.randrange(1, 5), chance.choice(["s.a", "s.b", "s.c"]))
    elif choice == 1:
        js.advance(milliseconds=chance.randrange(1, 700))
    elif choice < 4 or not held:
        return js.pull(batch=chance.randrange(1, 6), no_wait=True)
    else:
        verbs = [b"", b"", b"+ACK", b"-NAK", b"-NAK 300ms", b"+WPI", b"+TERM"]
        js.ack(held[chance.randrange(len(held))], chance.choice(verbs))
    return []


def test_a_delivery_reads_back(js: Restarting) -> None:
    # given
    frame = Frame(b"s.a", b"1", b"$JS.ACK.S.c.1.2.3.4.5", b"", b"x")
    # then
    assert delivery(frame) == Delivery("s.a", b"x", frame.reply, 1, 2, 3, 5)


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_message_that_was_acked_before_a_kill_and_not_dropped_yet_goes_at_the_start(
    tmp_path: Path, retention: str
) -> None:
    # given
    js = Restarting(tmp_path)
    js.api("STREAM.DELETE.S")
    js.add("S", subjects=["s.>"], storage="file", retention=retention)
    js.consumer(filter_subject="s.a")
    for subject in ("s.a", "s.b", "s.a", "s.a"):
        js.publish(subject)
    got = js.pull(batch=3)
    js.stream("S").inbox.close()  # the kill comes before the stream reads it
    js.ack(got[0])
    js.ack(got[1])
    # when
    again = js.restart()
    again.turn()
    # then
    store = again.stream("S").store
    kept = [seq for seq in range(1, 5) if store.get(seq) is not None]
    assert kept == (
        [2, 4] if retention == "workqueue" else [4]
    )  # s.b was never wanted: the stream's interest retention did not store it


def test_nothing_is_dropped_at_the_start_while_a_consumer_is_missing(tmp_path: Path) -> None:
    # given
    js = Restarting(tmp_path)
    js.api("STREAM.DELETE.S")
    js.add("S", subjects=["s.>"], storage="file", retention="interest")
    js.consumer("c")
    js.consumer("d")
    js.fill(3)
    for delivered in js.pull("c", batch=3):
        js.ack(delivered)
    js.node.stop()
    damage_entry(tmp_path / "$G/streams/S", 2)
    for _ in range(2):
        # when
        js = Restarting(tmp_path, js.clock)
        js.turn()
        # then
        assert set(js.stream("S").consumers) == {"c"}
        assert js.stream("S").store.msgs == 3
        js.node.stop()


def lose_the_end(js: Restarting, records: int) -> None:
    """Stop the server as in a power loss: without the last messages, which were not durable."""
    js.node.stop()
    (path,) = js.store.rglob("*.seg")
    data = path.read_bytes()
    ends = [at for at, kind, _ in segment_records(data) if kind == MSG]
    path.write_bytes(data[: ends[-records]])
    for index in js.store.rglob("*.idx"):
        index.unlink()


def test_sequences_that_a_power_cut_took_from_the_stream_are_delivered_when_they_are_used_again(
    js: Restarting,
) -> None:
    # given
    js.fill(5)
    js.consumer()
    for message in js.pull(batch=5):
        js.ack(message)
    lose_the_end(js, records=3)
    # when: another start comes before any delivery
    js = Restarting(js.store, js.clock)
    js.fill(2)
    js = js.restart()
    # then
    assert js.position()[1][1] == 2
    assert [m.seq for m in js.pull(batch=9, no_wait=True)] == [3, 4]


@pytest.mark.parametrize("left", [5, 1])
def test_the_last_of_each_subject_that_a_power_cut_took_are_delivered_once_when_they_are_used_again(
    js: Restarting, left: int
) -> None:
    # given: eight messages to deliver first, of which some are lost
    for subject in "abcdefgh":
        js.fill(1, f"s.{subject}")
    js.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    lose_the_end(js, records=8 - left)
    # when: their sequences are used again
    js = Restarting(js.store, js.clock)
    js.api("STREAM.PURGE.S")
    js.fill(8 - left, "s.z")
    # then
    assert js.info()["num_pending"] == 8 - left
    assert [m.seq for m in js.pull(batch=20, no_wait=True)] == list(range(left + 1, 9))
    assert js.info()["num_pending"] == 0


def test_sequences_that_were_passed_over_and_then_lost_are_delivered_when_they_are_used_again(
    js: Restarting,
) -> None:
    # given: a consumer that has seen, and skipped, everything up to 5
    js.fill(1, "s.a")
    js.fill(4, "s.b")
    js.consumer(filter_subject="s.a", deliver_policy="new")
    lose_the_end(js, records=3)
    # when
    js = Restarting(js.store, js.clock)
    js.fill(2, "s.a")
    js = js.restart()
    # then
    assert [m.seq for m in js.pull(batch=9, no_wait=True)] == [3, 4]


def test_a_start_in_the_future_stays_there(js: Restarting) -> None:
    # given
    js.fill(2)
    js.consumer(deliver_policy="by_start_sequence", opt_start_seq=5)
    # when
    js = js.restart()
    js.fill(4)
    # then
    assert [m.seq for m in js.pull(batch=9, no_wait=True)] == [5, 6]


class NoDescriptors(OsDisk):
    """Opens no segment for reading while `none` is set: clients use all descriptors."""

    none = False

    def open_read_only(self, path: str) -> int:
        if self.none and path.endswith(".seg"):
            raise OSError(errno.EMFILE, "EMFILE", path)
        return super().open_read_only(path)


class Crowded(ConsumerFixture):
    """A server with an exhausted limit of descriptors, and messages in several segments."""

    def __init__(self) -> None:
        self.disk = NoDescriptors()
        JetStreamFixture.__init__(self, disk=self.disk)
        self.inbox = self.client()
        self.inbox.send(b"SUB in.> 1\r\n")
        self.inbox.take()
        self.add("S", subjects=["s.>"], storage="file", max_bytes=1 << 18)
        for number in range(6):
            self.user.send(b"PUB s.a 30000\r\n%030000d\r\n" % number)


def test_messages_that_cannot_be_read_for_want_of_descriptors_are_delivered_later() -> None:
    # given
    js = Crowded()
    js.consumer(ack_wait=NS)
    js.disk.none = True
    # when
    assert js.pull(batch=6, expires=60 * NS) == []
    js.disk.none = False
    js.advance(milliseconds=200)
    # then
    assert [m.seq for m in js.deliveries()] == [1, 2, 3, 4, 5, 6]


def test_redeliveries_that_cannot_be_read_for_want_of_descriptors_come_later() -> None:
    # given
    js = Crowded()
    js.consumer(ack_wait=NS)
    assert len(js.pull(batch=6)) == 6
    js.stream("S").store.maps.drop_maps()
    js.disk.none = True
    # when
    js.inbox.take()
    js.request(batch=6, expires=60 * NS)
    js.advance(milliseconds=1100)
    js.disk.none = False
    js.advance(milliseconds=200)
    # then
    assert [m.seq for m in js.deliveries()] == [1, 2, 3, 4, 5, 6]


def test_a_mirror_passes_nothing_over_for_want_of_descriptors() -> None:
    # given
    js = Crowded()
    js.disk.none = True
    # when
    js.add("M", storage="file", mirror={"name": "S"})
    js.advance(milliseconds=100)
    js.disk.none = False
    js.advance(milliseconds=1500)
    # then
    assert (js.stream("M").store.msgs, js.stream("M").store.first_seq) == (6, 1)
