"""A leader that has lost messages accepts nothing for which an undamaged replica would have another result.

PYJS_HISTORIES=200 plays more of the random histories.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.replicated import Cluster, ReplicaNode
from tests.unit.jetstream.replication.test_healing import COUNT, damage, healed, is_whole, message

from pyjs.jetstream.manage import segments
from pyjs.jetstream.replication import copying

LOST = 25  # number of the message that two replicas have lost
SEEDS = range(int(os.environ.get("PYJS_HISTORIES", "3")))
S = 1_000_000_000
WINDOW_NS = 60 * S


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PART_MSGS", 7)
    monkeypatch.setattr(segments, "SEGMENT_SIZE_MAX", segments.SEGMENT_SIZE_MIN)


class Lossy:
    """A cluster in which two replicas have lost a message and one of them leads; the third one is down."""

    def __init__(self, directory: Path, *lost: bytes, **options: Any) -> None:
        self.cluster = Cluster(directory, **{"duplicate_window_ns": WINDOW_NS, **options})
        self.cluster.create()
        self.acked: dict[int, bytes] = {}
        self.sent = 0
        for number in range(COUNT):
            self.publish(b"s.%d" % number, body=message(number))
        self.cluster.settle()
        self.whole = self.cluster.followers()[0].number
        self.lose(*(lost or (message(LOST),)))

    def lose(self, *payloads: bytes) -> None:
        """Restart two replicas without some messages, and wait until one of them leads."""
        for node in self.cluster.up():
            self.cluster.kill(node.number)
        for number in set(self.cluster.numbers) - {self.whole}:
            damage(self.cluster, number, *payloads)
            self.cluster.start(number)
        self.cluster.until(lambda: self.leader is not None, 8000)

    @property
    def leader(self) -> ReplicaNode | None:
        """The replica that is the leader although it lacks messages."""
        found = (node for node in self.cluster.up() if node.leads and node.stream.store.lost is not None)
        return next(found, None)

    def publish(self, subject: bytes, body: bytes | None = None, **headers: object) -> Any:
        """Publish to the leader; return the sequence, the number of the error, "duplicate", or "unknown"."""
        self.sent += 1
        body = b"m%d" % self.sent if body is None else body
        client = self.cluster.leader().client()
        lines = b"".join(
            b"Nats-%b: %b\r\n" % (name.replace("_", "-").encode(), str(value).encode())
            for name, value in headers.items()
        )
        head = b"NATS/1.0\r\n%b\r\n" % lines
        client.send(
            b"SUB _INBOX.p 1\r\nHPUB %b _INBOX.p %d %d\r\n%b%b\r\n"
            % (subject, len(head), len(head) + len(body), head, body)
        )
        found: list[bytes] = []
        for _ in range(300):
            found.extend(client.payloads())
            if found:
                break
            self.cluster.step()
        client.session.close("done")
        if not found:  # the leader has changed
            return "unknown"
        if not found[-1]:
            return "staged"
        answer = json.loads(found[-1])
        if "error" in answer:
            return answer["error"]["err_code"]
        if answer.get("duplicate"):
            return "duplicate"
        self.acked[answer["seq"]] = body
        return answer["seq"]

    def heal(self) -> dict[int, bytes]:
        """Start the undamaged replica; return the final messages, which must be the acknowledged ones."""
        self.cluster.start(self.whole)
        state = healed(self.cluster, 6000)
        stored = {seq: payload for seq, _, _, _, payload in state["messages"]}
        assert stored == self.acked
        return stored


def test_conditions_on_subjects_wait_for_what_is_lost(tmp_path: Path) -> None:
    lossy = Lossy(tmp_path)
    subject = b"s.%d" % LOST

    assert lossy.publish(subject, Expected_Last_Subject_Sequence=0) == 20004
    assert lossy.publish(b"s.new", Expected_Last_Subject_Sequence=0) == 20004
    assert lossy.publish(b"s.2", Expected_Last_Subject_Sequence=3) == 20004
    assert lossy.publish(b"s.28", Expected_Last_Subject_Sequence=7) == 10071
    assert lossy.publish(b"s.28", Expected_Last_Subject_Sequence=29) == 31
    assert lossy.publish(b"s.2", Expected_Last_Sequence=31) == 32
    assert lossy.publish(b"s.2", Expected_Last_Subject_Sequence=32) == 33
    assert (
        lossy.publish(b"s.3", Expected_Last_Subject_Sequence=33, Expected_Last_Subject_Sequence_Subject="s.2")
        == 34
    )
    assert (
        lossy.publish(b"s.3", Expected_Last_Subject_Sequence=1, Expected_Last_Subject_Sequence_Subject="s.1")
        == 20004
    )
    assert lossy.publish(subject) == 35

    assert lossy.heal()[LOST + 1] == message(LOST)
    assert lossy.publish(b"s.new", Expected_Last_Subject_Sequence=0) == 36


def test_unknown_ids_wait_until_lost_ones_are_forgotten(tmp_path: Path) -> None:
    lossy = Lossy(tmp_path)

    assert lossy.publish(b"s.a", Msg_Id="x") == 20004
    assert lossy.publish(b"s.a") == 31
    lossy.cluster.step(WINDOW_NS // 10_000_000)
    assert lossy.publish(b"s.a", Msg_Id="x") == 32
    assert lossy.publish(b"s.a", Msg_Id="x") == "duplicate"

    lossy.heal()


def test_discard_new_counts_what_is_lost(tmp_path: Path) -> None:
    lossy = Lossy(tmp_path, max_msgs=COUNT + 3, discard="new")

    assert [lossy.publish(b"s.a") for _ in range(5)] == [31, 32, 33, 20004, 20004]

    lossy.heal()
    assert lossy.publish(b"s.a") == 10077


def test_discard_new_for_each_subject_counts_what_is_lost(tmp_path: Path) -> None:
    lossy = Lossy(tmp_path, max_msgs_per_subject=2, discard="new", discard_new_per_subject=True)

    assert [lossy.publish(b"s.%d" % LOST) for _ in range(2)] == [31, 20004]
    assert [lossy.publish(b"s.new") for _ in range(2)] == [32, 20004]

    lossy.heal()
    assert lossy.publish(b"s.%d" % LOST) == 10077
    assert lossy.publish(b"s.new") == 33


def test_a_counter_waits_for_its_last_value(tmp_path: Path) -> None:
    lossy = Lossy.__new__(Lossy)
    lossy.cluster = Cluster(tmp_path, allow_msg_counter=True)
    lossy.cluster.create()
    lossy.acked, lossy.sent = {}, 0
    for number in range(6):
        assert lossy.publish(b"s.%d" % (number % 3), b"", Incr="+2") == number + 1
    lossy.cluster.settle()
    lossy.whole = lossy.cluster.followers()[0].number
    lossy.lose(b'"val":"4"')

    assert lossy.publish(b"s.0", b"", Incr="+2") == 20004

    lossy.cluster.start(lossy.whole)
    healed(lossy.cluster, 6000)
    assert lossy.publish(b"s.0", b"", Incr="+2") == 7


def test_a_batch_waits_for_what_one_of_its_messages_needs(tmp_path: Path) -> None:
    lossy = Lossy(tmp_path, allow_atomic=True)

    for number, ends in enumerate(({"Expected_Last_Subject_Sequence": 0}, {})):
        assert lossy.publish(b"s.a", Batch_Id=f"b{number}", Batch_Sequence=1) == "staged"
        answer = lossy.publish(b"s.b", Batch_Id=f"b{number}", Batch_Sequence=2, Batch_Commit=1, **ends)
        assert answer == (20004 if ends else 32)
    lossy.acked[31] = b"m33"

    lossy.heal()


def test_an_operator_accepts_a_loss(tmp_path: Path) -> None:
    lossy = Lossy(tmp_path)
    assert lossy.publish(b"s.new", Expected_Last_Subject_Sequence=0) == 20004

    assert lossy.leader is not None
    assert lossy.leader.replicated.accept_loss(1)

    assert lossy.publish(b"s.new", Expected_Last_Subject_Sequence=0) == 31
    assert not lossy.leader.replicated.accept_loss(1)


def test_a_leader_that_resigns_places_no_markers_for_what_may_be_newer(tmp_path: Path) -> None:
    options = {"max_age_ns": 120 * S, "subject_delete_marker_ttl_ns": 600 * S, "allow_msg_ttl": True}
    lossy = Lossy(tmp_path, **options)
    lossy.cluster.step(130 * S // 10_000_000)  # all messages expire
    old = lossy.leader
    assert old is not None
    machine = old.replicated.machine_of(old.stream)
    assert machine is not None
    heir = next(node.number for node in lossy.cluster.up() if node is not old)

    old.do(lambda: old.replicated.resign_steps(machine, heir))
    lossy.cluster.until(lambda: lossy.leader is not None, 8000)

    assert lossy.publish(b"s.new") == COUNT + 1  # no marker has taken this sequence


class History(Lossy):
    """The history of one seed: publishes with and without conditions, while replicas stop and start."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = rng = Random(seed)
        options = rng.choice(
            (
                {},
                {"max_msgs_per_subject": rng.choice((1, 3))},
                {"max_msgs": rng.choice((28, 40)), "discard": rng.choice(("old", "new"))},
                {"max_msgs_per_subject": 3, "discard": "new", "discard_new_per_subject": True},
            )
        )
        self.is_limited = bool(options)
        self.removed: set[int] = set()
        lost = [message(number) for number in rng.sample(range(5, 27), rng.choice((1, 3)))]
        super().__init__(directory, *lost, **options)

    def play(self) -> None:
        """Do random operations while the leader lacks messages, and more once the undamaged replica is back."""
        for actions in (25, 10):
            for _ in range(actions):
                self.act()
            if not self.cluster.nodes[self.whole].is_up:
                self.cluster.start(self.whole)
        self.cluster.until(lambda: all(is_whole(node) for node in self.cluster.up()), 6000)
        self.publish(b"s.last")  # a store copied from a lossy source applies the limits with the next entry
        state = healed(self.cluster, 6000)
        stored = {seq: payload for seq, _, _, _, payload in state["messages"]}
        for seq, body in self.acked.items():
            may_be_gone = self.is_limited or seq in self.removed
            assert stored.get(seq, b"" if may_be_gone else None) in (body, b""), seq

    def act(self) -> None:
        """Do a random operation."""
        rng, cluster, chance = self.rng, self.cluster, self.rng.random()
        number = rng.randrange(COUNT + 3)
        if chance < 0.25:
            self.publish(b"s.%d" % number)
        elif chance < 0.6:
            known = [seq for seq, body in self.acked.items() if body == message(number)]
            last = rng.choice((0, *known, *list(self.acked)[-3:]))
            self.publish(b"s.%d" % number, Expected_Last_Subject_Sequence=last)
        elif chance < 0.75:
            self.publish(b"s.a", Msg_Id=rng.randrange(8))
        elif chance < 0.85:
            seq = rng.choice(list(self.acked))
            self.removed.add(seq)
            with suppress(AssertionError):  # no answer: the leader has changed
                cluster.leader().ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": seq})
        elif chance < 0.92:
            node = rng.choice([node for node in cluster.up() if node.number != self.whole])
            cluster.kill(node.number)
            cluster.start(node.number)
            cluster.until(lambda: any(each.leads for each in cluster.up()), 8000)
        else:
            cluster.step(rng.choice((5, 200)))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_lossy_leader_acknowledges_stays(tmp_path: Path, seed: int) -> None:
    History(tmp_path, seed).play()
