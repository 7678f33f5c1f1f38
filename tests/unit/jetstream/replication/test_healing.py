"""A replica with damaged messages repairs them from the others, and does not lead before.

Long because all tests begin with the same damaged files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from tests.support.disk import Crash, LossyDisk, crash_is_printed
from tests.support.replicated import Cluster, ReplicaNode
from tests.unit.jetstream.replication.test_power_cuts import cut_power, sync_log
from tests.unit.jetstream.stream.replicated.test_crash import DyingDisk

from pyjs.base.clock import NS_PER_MS
from pyjs.base.disk import OsDisk
from pyjs.base.errors import NotNow
from pyjs.cli import main
from pyjs.consensus.consensus import Tuning
from pyjs.jetstream.manage import segments
from pyjs.jetstream.replication import catch_up, copy_batch, copying, repairing
from pyjs.jetstream.replication.healing import is_damaged
from pyjs.jetstream.replication.restoring import PutBack
from pyjs.store.file.store import FileStore
from pyjs.store.format.recast import NEW

SIZE = 3000  # bytes of a payload; 30 messages fill two segments
COUNT = 30
STRIDE = 5


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PART_MSGS", 7)
    monkeypatch.setattr(segments, "SEGMENT_SIZE_MAX", segments.SEGMENT_SIZE_MIN)


def filled(directory: Path, **options: Any) -> Cluster:
    """Return three nodes with messages in several segments."""
    cluster = Cluster(directory, **options)
    cluster.create()
    publish(cluster, COUNT)
    cluster.settle()
    return cluster


def segments_of(cluster: Cluster, number: int) -> list[Path]:
    """Return the segments of a node, oldest first."""
    return sorted((cluster.directory / f"{number}").rglob("*.seg"))


def damage(cluster: Cluster, number: int, *payloads: bytes, at: int = 5) -> None:
    """On one node, change a byte of the stored messages that have these payloads."""
    for payload in payloads:
        for path in segments_of(cluster, number):
            data = path.read_bytes()
            found = data.find(payload)
            if found >= 0:
                with path.open("r+b") as file:
                    file.seek(found + at)
                    file.write(bytes([data[found + at] ^ 1]))
                break
        else:
            raise AssertionError(f"{payload!r} is in no segment")


def message(number: int) -> bytes:
    """Return the payload of message `number`, as `publish` sends it."""
    return (b"%d" % number).ljust(SIZE, b".")


def publish(cluster: Cluster, count: int, first: int = 0) -> None:
    """Publish `count` messages; many of them fill a segment."""
    cluster.publish(count, size=SIZE, first=first)


def store_of(node: ReplicaNode) -> FileStore:
    store = node.stream.store
    assert isinstance(store, FileStore)
    return store


def notice(node: ReplicaNode, number: int = 1) -> None:
    """Examine a segment, as the scrub does after it has found damage."""
    assert store_of(node).examiner.confirm(number) >= 1


def is_whole(node: ReplicaNode) -> bool:
    return "S" in node.js.streams and not is_damaged(node.stream)


def healed(cluster: Cluster, steps: int = 1500) -> dict[str, Any]:
    """Wait until no replica is damaged any more and all are equal; return their state."""
    cluster.until(lambda: all(is_whole(node) for node in cluster.up()), steps)
    cluster.step(10)
    return cluster.same()


def told(node: ReplicaNode) -> list[str]:
    """Return the log lines of a node about repairs."""
    return [text for _, text in node.log.lines if "has repaired" in text]


def leads_with_everything(cluster: Cluster, node: ReplicaNode, seqs: range = range(1, COUNT + 1)) -> None:
    """Make a node the leader, and read all messages from it."""
    cluster.leader().consensus.transfer(1, node.number)
    cluster.until(lambda: node.leads)
    for seq in seqs:
        answer = node.ask("$JS.API.STREAM.MSG.GET.S", {"seq": seq})
        assert answer["message"]["seq"] == seq


def test_a_replica_whose_file_was_damaged_while_it_was_down_is_repaired(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    damage(cluster, follower.number, message(27))
    again = cluster.start(follower.number)

    state = healed(cluster)

    assert len(state["messages"]) == COUNT
    assert again.stream.store.lost is None
    assert "1 message from n" in told(again)[0]
    assert again.js.shared.repaired == 1
    leads_with_everything(cluster, again)
    publish(cluster, 3, first=COUNT)
    assert cluster.same()["range"][2] == COUNT + 3


def test_damage_that_costs_no_message_is_repaired_too(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    wanted = cluster.same()
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    damage(cluster, follower.number, message(25), at=SIZE)  # a byte of the record's checksum
    again = cluster.start(follower.number)

    assert healed(cluster) == wanted
    assert told(again)[0].endswith("no message was lost")
    cluster.kill(follower.number)
    again = cluster.start(follower.number)
    cluster.step(100)
    assert not told(again)


def test_a_damaged_replica_does_not_lead_before(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    damage(cluster, follower.number, message(27))
    again = cluster.start(follower.number)
    leader = cluster.leader()

    leader.consensus.transfer(1, again.number)
    cluster.until(lambda: not leader.leads)
    led_damaged = False
    for _ in range(200):
        cluster.step()
        led_damaged |= again.leads and not is_whole(again)

    assert not led_damaged
    healed(cluster)


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("place", [5, 14, 29])
def test_a_replica_is_repaired_wherever_the_damage_is(tmp_path: Path, end: str, place: int) -> None:
    cluster = filled(tmp_path)
    wanted = cluster.same()
    follower = cluster.followers()[0]
    (cluster.stop if end == "stop" else cluster.kill)(follower.number)
    damage(cluster, follower.number, message(place), at=400)
    again = cluster.start(follower.number)

    for number, _, _ in store_of(again).ranges() if "S" in again.js.streams else ():
        with suppress(OSError):
            store_of(again).examiner.confirm(number)  # as the first pass of the scrub does

    assert healed(cluster) == wanted
    assert again.js.shared.repaired in (0, 1)  # entries are applied again after a damaged end


def test_a_leader_that_reads_a_damaged_message_is_repaired(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    first = cluster.leader()
    damage(cluster, first.number, message(12))
    notice(first)
    assert "error" in first.ask("$JS.API.STREAM.MSG.GET.S", {"seq": 13})

    cluster.until(lambda: not first.leads)

    answer = cluster.leader().ask("$JS.API.STREAM.MSG.GET.S", {"seq": 13})
    assert answer["message"]["seq"] == 13
    healed(cluster)
    publish(cluster, 3, first=COUNT)
    assert cluster.same()["range"][2] == COUNT + 3
    leads_with_everything(cluster, first)


def test_two_damaged_replicas_repair_each_other(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    wanted = cluster.same()
    away = cluster.followers()[0]
    cluster.kill(away.number)
    for number, node in enumerate(cluster.up()):
        damage(cluster, node.number, message(12 + number), message(3 + number))
        notice(node)

    assert healed(cluster) == wanted
    assert [node.js.shared.repaired for node in cluster.up()] == [2, 2]


def test_two_replicas_that_lost_messages_repair_each_other(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    wanted = cluster.same()
    for node in cluster.up():
        cluster.kill(node.number)
    for number in (1, 2):
        damage(cluster, number, message(25 + number), message(22 + number))
    for number in (1, 2):
        cluster.start(number)

    assert healed(cluster, 6000) == wanted
    assert [node.js.shared.repaired for node in cluster.up()] == [2, 2]


def test_a_message_that_all_replicas_have_damaged_is_lost(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    for node in cluster.up():
        damage(cluster, node.number, message(12))
        notice(node)
    cluster.step(300)
    assert all(node.stream.store.msgs == COUNT for node in cluster.up())
    with pytest.raises(NotNow):
        cluster.nodes[1].stream.store.get(13)

    cluster.until(
        lambda: any(node.leads and node.stream.store.lost is not None for node in cluster.up()), 8000
    )

    leader = next(node for node in cluster.up() if node.leads)
    assert leader.stream.store.msgs == COUNT - 1
    publish(cluster, 3, first=COUNT)


def test_a_loss_does_not_spread(tmp_path: Path) -> None:
    cluster = filled(tmp_path, tuning=Tuning(log_size_max=2000))
    wanted = cluster.same()["messages"]
    whole = cluster.followers()[0]
    for node in cluster.up():
        cluster.kill(node.number)
    others = [number for number in cluster.numbers if number != whole.number]
    for number in others:
        damage(cluster, number, message(0), message(25))
        cluster.start(number)
    cluster.until(
        lambda: any(node.leads and node.stream.store.lost is not None for node in cluster.up()), 8000
    )
    publish(cluster, 20, first=COUNT)
    leader = cluster.leader()
    cluster.until(lambda: leader.node_log.groups[1].start > 20, 3000)

    cluster.start(whole.number)

    state = healed(cluster, 6000)
    assert state["messages"][:COUNT] == wanted
    assert state["range"][:3] == (1, COUNT + 20, COUNT + 20)


def test_a_replica_that_has_lost_the_same_messages_as_the_leader_waits_for_another_one(
    tmp_path: Path,
) -> None:
    cluster = filled(tmp_path)
    wanted = cluster.same()["messages"]
    whole = cluster.followers()[0]
    for node in cluster.up():
        cluster.kill(node.number)
    for number in set(cluster.numbers) - {whole.number}:
        damage(cluster, number, message(0), message(25))
        cluster.start(number)
    cluster.until(lambda: any(node.leads for node in cluster.up()), 8000)
    publish(cluster, 5, first=COUNT)
    cluster.step(1000)

    assert ["S" in node.js.streams for node in cluster.up()].count(True) == 1

    cluster.start(whole.number)
    state = healed(cluster, 6000)
    assert state["messages"][:COUNT] == wanted
    assert len(state["messages"]) == COUNT + 5


def test_a_lost_leader_forgets_that_it_led_when_nothing_is_lost_any_more(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    for node in cluster.up():
        damage(cluster, node.number, message(12))
        notice(node)
    cluster.until(lambda: any(node.leads and node.stream.store.lost for node in cluster.up()), 8000)
    leader = next(node for node in cluster.up() if node.leads)
    resigned = leader.replicated.resigned
    assert resigned == {1}

    assert leader.ask("$JS.API.STREAM.PURGE.S")["success"]
    stream = leader.stream
    store_of(leader).sync_now()
    leader.keep_up()  # this removes the files
    machine = leader.replicated.machine_of(stream)
    assert machine is not None
    leader.node.turn_state.go_on(leader.replicated.mend_steps(machine, failed=False))  # as after a failure
    cluster.until(lambda: leader.js.streams.get("S", stream) is not stream)
    assert not resigned


def test_the_only_undamaged_replica_leads(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    whole = cluster.followers()[0]
    for node in cluster.up():
        if node is not whole:
            damage(cluster, node.number, message(12))
            notice(node)

    assert len(healed(cluster)["messages"]) == COUNT


def test_a_damaged_source_sends_what_it_has(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    wanted = cluster.same()
    one, two = cluster.followers()
    damage(cluster, cluster.leader().number, message(12))
    damage(cluster, one.number, message(12), message(13))
    damage(cluster, two.number, message(13))
    notice(one)

    cluster.until(lambda: is_whole(one))
    notice(two)
    notice(cluster.leader())

    assert healed(cluster) == wanted


def test_what_is_removed_while_a_replica_is_damaged_stays_removed(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    one, two = cluster.followers()
    cluster.kill(one.number)
    damage(cluster, one.number, message(27), message(25))
    leader = cluster.leader()
    assert leader.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 28})["success"]
    cluster.start(one.number)
    assert [each[0] for each in healed(cluster)["messages"]] == [*range(1, 28), 29, 30]

    damage(cluster, two.number, message(4), message(5))
    leader = cluster.leader()
    notice(two)
    assert leader.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 5})["success"]

    assert [each[0] for each in healed(cluster)["messages"]] == [*range(1, 5), *range(6, 28), 29, 30]


def cut(path: Path) -> None:
    """Cut a file to half of its size."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def behead(path: Path) -> None:
    """Overwrite the header and the first record of a file."""
    data = path.read_bytes()
    path.write_bytes(b"\xaa" * 3500 + data[3500:])


def scramble(path: Path) -> None:
    """Overwrite most of a file, and remove its index file."""
    data = path.read_bytes()
    path.write_bytes(b"\xaa" * (len(data) - 100) + data[-100:])
    path.with_suffix(".idx").unlink(missing_ok=True)


@pytest.mark.parametrize("harm", [Path.unlink, cut, behead, scramble])
@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_lost_file_is_written_anew(
    tmp_path: Path, harm: Callable[[Path], None], end: str, which: int
) -> None:
    cluster = Cluster(tmp_path, max_msgs_per_subject=200)
    cluster.create()
    publish(cluster, 70)
    leader = cluster.leader()
    for seq in (3, 25, 40):
        leader.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": seq})
    wanted = cluster.same()
    follower = cluster.followers()[0]
    store_of(follower).sync_now()  # as in every second: this writes the index files of sealed segments
    (cluster.stop if end == "stop" else cluster.kill)(follower.number)
    harm(segments_of(cluster, follower.number)[which])
    again = cluster.start(follower.number)

    for _ in range(3):
        cluster.until(lambda: is_whole(again), 1500)
        for number, _, _ in store_of(again).ranges():
            with suppress(OSError):
                store_of(again).examiner.confirm(number)

    assert healed(cluster) == wanted
    leads_with_everything(cluster, again, range(60, 70))


def test_a_lost_first_message_is_there_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, max_msgs=10)
    cluster.create()
    publish(cluster, 14)
    wanted = cluster.same()
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    damage(cluster, follower.number, message(4), message(5))
    cluster.start(follower.number)

    assert healed(cluster) == wanted
    assert wanted["range"][:3] == (5, 14, 10)
    publish(cluster, 3, first=14)
    assert cluster.same()["range"][:3] == (8, 17, 10)


def test_ids_and_consumers_count_as_before(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    leader = cluster.leader()
    client = leader.client()
    for number in range(12):
        head = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
        body = message(number)
        client.send(b"HPUB s.a %d %d\r\n%b%b\r\n" % (len(head), len(head) + len(body), head, body))
    cluster.settle()
    body = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    assert "config" in leader.ask("$JS.API.CONSUMER.CREATE.S.C", body)
    leader.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 5})
    wanted = cluster.same()
    assert len(wanted["each id"]) >= 11
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    damage(cluster, follower.number, message(3), message(7))
    again = cluster.start(follower.number)

    assert healed(cluster) == wanted
    leader.consensus.transfer(1, again.number)
    cluster.until(lambda: again.leads)
    info = again.ask("$JS.API.CONSUMER.INFO.S.C")
    assert info["num_pending"] == 11


def test_what_fsck_has_given_up_comes_from_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = filled(tmp_path)
    wanted = cluster.same()
    follower = cluster.followers()[0]
    cluster.stop(follower.number)
    damage(cluster, follower.number, message(4))
    store = str(tmp_path / f"{follower.number}")
    assert main(["fsck", "--repair", store]) == 1
    assert "lost for good: 1 message: 5" in capsys.readouterr().out
    again = cluster.start(follower.number)

    assert healed(cluster) == wanted
    assert again.js.shared.repaired == 1
    cluster.stop(follower.number)
    assert main(["fsck", store]) == 0
    capsys.readouterr()


def test_a_damaged_message_of_the_open_segment_is_neither_served_nor_sent(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    for node in cluster.up():
        damage(cluster, node.number, message(28))
    assert copying.readable(cluster.leader().stream.store, 29) is None  # before the damage is detected
    for node in cluster.up():
        with suppress(AssertionError):  # the leader has already found the damage by reading
            notice(node, store_of(node).ranges()[-1][0])

    cluster.step(200)

    for node in cluster.up():
        assert not told(node)
        with pytest.raises(NotNow):
            node.stream.store.get(29)
        assert store_of(node).get(28) is not None


def test_a_message_erased_during_a_repair_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = filled(tmp_path)
    follower = cluster.followers()[0]
    write, has_come, goes_on = repairing._written_steps, [], []

    def wait_first(machine: Any, *given: Any) -> Any:
        has_come.append(True)
        while not goes_on:
            yield from machine.whole.pause(NS_PER_MS)
        yield from write(machine, *given)

    monkeypatch.setattr(repairing, "_written_steps", wait_first)
    damage(cluster, follower.number, message(12))
    notice(follower)
    cluster.until(lambda: bool(has_come))
    assert cluster.leader().ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 13})["success"]
    cluster.step(50)
    goes_on.append(True)

    assert len(healed(cluster)["messages"]) == COUNT - 1
    assert not any(message(12) in path.read_bytes() for path in segments_of(cluster, follower.number))


def test_a_message_erased_after_it_was_put_back_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = filled(tmp_path)
    put_back, has_come, goes_on = catch_up.put_back_steps, [], []

    def wait_then(*given: Any) -> Any:
        try:
            yield from put_back(*given)
        except PutBack:
            has_come.append(True)
            while not goes_on:
                yield from given[-1].pause(NS_PER_MS)
            raise

    monkeypatch.setattr(catch_up, "put_back_steps", wait_then)
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    damage(cluster, follower.number, message(12))
    for path in segments_of(cluster, follower.number):
        path.with_suffix(".idx").unlink(missing_ok=True)
    cluster.start(follower.number)
    cluster.until(lambda: bool(has_come))
    assert cluster.leader().ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 13})["success"]
    goes_on.append(True)

    assert len(healed(cluster)["messages"]) == COUNT - 1
    assert not any(message(12) in path.read_bytes() for path in segments_of(cluster, follower.number))


@pytest.mark.parametrize("which", [0, 2])
def test_many_lost_messages_come_back_in_several_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    monkeypatch.setattr(copying, "LACKING_MAX", 4)
    monkeypatch.setattr(copying, "STEP", 3)
    cluster = filled(tmp_path)
    publish(cluster, 40, first=COUNT)
    wanted = cluster.same()
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    for path in segments_of(cluster, follower.number)[which : which + 2]:
        path.unlink()
        path.with_suffix(".idx").unlink(missing_ok=True)
    cluster.start(follower.number)

    assert healed(cluster) == wanted


class FullDisk(OsDisk):
    """A disk without space for the new files of rewritten segments."""

    def __init__(self) -> None:
        self.is_full = True
        self.refused = 0

    def open_file(self, path: str, *, create: bool = False) -> int:
        if self.is_full and path.endswith(NEW):
            self.refused += 1
            raise OSError(ENOSPC, "no space", path)
        return super().open_file(path, create=create)


def test_the_pause_between_repairs_that_fail_grows(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    disk = cluster.disks[follower.number] = FullDisk()
    again = cluster.start(follower.number)
    cluster.settle()
    damage(cluster, follower.number, message(12))
    notice(again)

    cluster.step(3000)

    assert 2 <= disk.refused <= 6
    assert any("cannot be repaired now" in text and "no space" in text for _, text in again.log.lines)
    disk.is_full = False
    assert len(healed(cluster, 7000)["messages"]) == COUNT


def test_the_questions_of_a_second_copy_have_other_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    numbers: list[int] = []
    ask = copy_batch.ask

    def note(group: int, number: int, have: int) -> Any:
        if number % 4 == 3:  # a copy requests the message
            asked.append(number)
        return ask(group, number, have)

    cluster = filled(tmp_path)
    monkeypatch.setattr(copy_batch, "ask", note)
    node = cluster.followers()[0]
    for _ in range(2):
        machine = node.replicated.machine_of(node.stream)
        assert machine is not None
        asked.clear()
        machine.copy_lost()
        cluster.until(lambda: asked, 1000)
        cluster.until(lambda: is_whole(node))
        numbers += asked

    assert numbers == sorted(set(numbers))


class Damaged:
    """The files of three nodes; two of them have lost different messages."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        cluster = Cluster(directory / "kept", max_msgs_per_subject=60)
        self.assignment = cluster.create()
        publish(cluster, COUNT)
        leader = cluster.leader()
        leader.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 9})
        leader.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 27})
        cluster.settle()
        self.hurt = cluster.followers()[0].number
        for node in cluster.up():
            cluster.kill(node.number)
        damage(cluster, self.hurt, message(3), message(12), message(14))

    def begin(self, name: str) -> Cluster:
        """Start the two other nodes on a copy of the files."""
        directory = self.directory / name
        shutil.copytree(self.directory / "kept", directory)
        cluster = Cluster(directory, assignment=self.assignment, without=self.hurt)
        cluster.leader()
        return cluster


def heals(cluster: Cluster, number: int, at: int = -1) -> DyingDisk:
    """Start a node whose disk fails at a call after its start; return the disk when the node is repaired or dead."""
    disk = DyingDisk()
    cluster.disks[number] = disk
    node = cluster.start(number)
    disk.calls, disk.at = 0, at
    with suppress(Crash):
        cluster.until(lambda: disk.dead or is_whole(node))
        cluster.step(3)
    return disk


@crash_is_printed
@pytest.mark.parametrize("power", [False, True])
def test_a_replica_that_dies_during_a_repair_is_repaired_by_the_next_start(
    tmp_path: Path, power: bool
) -> None:
    files = Damaged(tmp_path)
    never = files.begin("never")
    calls = heals(never, files.hurt).calls
    wanted, deaths = never.same(), 0
    assert len(wanted["messages"]) == COUNT - 2
    for at in range(STRIDE // 2, calls, STRIDE):
        cluster = files.begin(f"{at}")
        dying = heals(cluster, files.hurt, at)
        if dying.dead:
            deaths += 1
            cluster.kill(files.hurt)
        publish(cluster, 2, first=100)
        if dying.dead:
            if power:
                dying.lose_power()
            cluster.disks[files.hurt] = DyingDisk()
            cluster.start(files.hurt)
        state = healed(cluster)
        assert state["messages"][: COUNT - 2] == wanted["messages"], at
        assert len(state["messages"]) == COUNT, at
    assert deaths > 3


def test_a_torn_write_that_the_log_repeats_is_no_damage(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    path = segments_of(cluster, follower.number)[-1]
    data = path.read_bytes()
    end = data.rfind(message(29)) + 3
    path.write_bytes(data[:end] + bytes(len(data) - end))

    again = cluster.start(follower.number)

    assert len(cluster.same()["messages"]) == COUNT
    assert again.stream.store.lost is None
    assert not told(again)


def test_messages_are_repaired_from_a_replica_that_must_drop_its_last_ones(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, tuning=Tuning(sync_interval_ns=10**15))
    for number in cluster.numbers:
        cluster.disks[number] = LossyDisk()
        cluster.kill(number)
        cluster.start(number)
    cluster.create()
    publish(cluster, COUNT)
    cluster.same()
    for node in cluster.up():
        sync_log(node)
        node.stream.store.sync_now()
    odd = cluster.followers()[0].number
    publish(cluster, 5, first=100)
    cluster.same()
    sync_log(cluster.nodes[odd])
    cluster.nodes[odd].stream.store.sync_now()
    cut_power(cluster)
    others = [number for number in cluster.numbers if number != odd]
    for number in others:
        cluster.start(number)
    publish(cluster, 7, first=200)
    for number in others:
        damage(cluster, number, message(5))
        notice(cluster.nodes[number])

    again = cluster.start(odd)

    stored = [payload.rstrip(b".") for *_, payload in healed(cluster, 3000)["messages"]]
    assert stored == [b"%d" % each for each in (*range(COUNT), *range(200, 207))]
    assert any("drops all" in text for _, text in again.log.lines)
    assert sum(cluster.nodes[number].js.shared.repaired for number in others) == 2


def test_a_repaired_store_that_never_matches_is_copied_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = filled(tmp_path)
    wanted = cluster.same()
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    damage(cluster, follower.number, message(5))
    ends = []

    def end_steps(*arguments: Any, **named: Any) -> Any:
        ends.append(arguments)
        if len(ends) <= 2:
            raise copying.OtherStore("one byte more")
        return copying.end_steps(*arguments, **named)

    monkeypatch.setattr(catch_up, "end_steps", end_steps)
    cluster.start(follower.number)

    assert healed(cluster, 3000) == wanted
    assert len(ends) == 3
    assert ends[0][0].last_seq == ends[1][0].last_seq == COUNT
