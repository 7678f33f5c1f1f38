"""Damaged segments of a replica that are rewritten with the messages of another replica."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.support.disk import Crash, FaultyDisk
from tests.unit.store.encodings import ENCODINGS, upkeep
from tests.unit.store.file_state import INCARNATION, state_of

from pyjs.base.disk import OsDisk
from pyjs.base.errors import NotNow
from pyjs.base.log import ListLog
from pyjs.store.crypt.keys import StreamKey
from pyjs.store.file.store import FileStore
from pyjs.store.segment.rewrite import record_of
from pyjs.store.store import StoredMessage

SEGMENT_SIZE = 40_000
COUNT = 340
GROUP = 5
FIRST = "00000001.seg"


def open_replica(
    directory: Path, disk: OsDisk | None = None, key: StreamKey | None = None, codec: int = 0
) -> FileStore:
    store = FileStore(
        disk or OsDisk(), str(directory), ListLog(), SEGMENT_SIZE, INCARNATION, key, replicated=GROUP
    )
    store.compactor.set_codec(codec)
    return store


def payload(seq: int) -> bytes:
    return b"%04d" % seq + b"x" * 200


def headers(seq: int) -> bytes:
    return b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % seq if seq % 3 == 0 else b""


def message(seq: int) -> StoredMessage:
    return StoredMessage(seq, 1000 + seq, b"s.%d" % (seq % 11), headers(seq), payload(seq))


def fill(store: FileStore, count: int = COUNT) -> None:
    """Store messages in entries of ten."""
    for first in range(1, count + 1, 10):
        store.begin_copied_entry()
        for seq in range(first, first + 10):
            each = message(seq)
            store.store(each.subject, each.headers, each.payload, each.ts)
        store.end_copied_entry(first // 10 + 1, 1, 1000 + first, 0, b"")
    store.sync_now()


def flip(path: Path, seqs: Iterable[int], at: int = 30) -> None:
    """Change a byte in each of some messages in a plain file."""
    data = bytearray(path.read_bytes())
    for seq in seqs:
        data[data.index(payload(seq)) + at] ^= 4
    with path.open("r+b") as file:  # in place: the store has the file open
        file.write(data)


def damage(directory: Path, *seqs: int) -> None:
    for path in sorted(directory.glob("*.seg")):
        inside = [seq for seq in seqs if payload(seq) in path.read_bytes()]
        flip(path, inside)


def repair(store: FileStore, number: int) -> None:
    """Repair a segment with the messages of another replica."""
    assert store.seal_damaged(number)
    found = [message(seq) for seq in store.examiner.wanted(number)]
    assert all(store.examiner.fits(each) for each in found)
    store.compactor.repair(number, {each.seq: record_of(each) for each in found})
    store.sync_now()
    upkeep(store)


def without_place(store: FileStore) -> dict[str, object]:
    return {key: value for key, value in state_of(store).items() if key != "segments"}


@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if name != "plain"])
def test_a_segment_of_any_encoding_is_repaired(tmp_path: Path, encoding: str) -> None:
    key, codec = ENCODINGS[encoding]
    store = open_replica(tmp_path, key=key, codec=codec)
    fill(store)
    upkeep(store)
    expected = without_place(store)
    store.close()
    store = open_replica(tmp_path, key=key, codec=codec)
    path = tmp_path / FIRST
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    with path.open("r+b") as file:  # in place: the store may have the file open
        file.write(data)
    assert store.examiner.confirm(1) >= 1
    lost = store.examiner.damaged[1]
    assert lost
    assert store.msgs == COUNT

    repair(store, 1)

    assert not store.examiner.damaged
    assert without_place(store) == expected
    store.close()
    again = open_replica(tmp_path, key=key, codec=codec)
    assert without_place(again) == expected
    again.release()


def test_a_damaged_message_of_a_replica_stays_listed_and_is_not_read(tmp_path: Path) -> None:
    store = open_replica(tmp_path)
    fill(store)
    store.close()
    store = open_replica(tmp_path)
    numbers = store.msgs, store.bytes, store.first_seq
    damage(tmp_path, 1, 20)

    with pytest.raises(NotNow):
        store.get(20)

    assert store.examiner.damaged == {1: [1, 20]}
    assert store.lost is None
    assert (store.msgs, store.bytes, store.first_seq) == numbers
    assert store.get(19) is not None
    assert (tmp_path / "00000001.idx").exists()
    store.release()
    again = open_replica(tmp_path)
    assert (again.msgs, again.lost) == (COUNT, None)
    again.release()


@pytest.mark.parametrize("where", ["sealed", "open"])
def test_everything_is_as_before_the_damage(tmp_path: Path, where: str) -> None:
    store = open_replica(tmp_path)
    fill(store)
    for seq in (2, 3, 150, COUNT - 4):
        store.begin_copied_entry()
        store.drop_seq(seq, erase=seq == 3)
        store.end_copied_entry(100 + seq, 1, 5000, 0, b"")
    store.sync_now()
    expected = without_place(store)
    store.close()
    store = open_replica(tmp_path)
    number = 1 if where == "sealed" else store.ranges()[-1][0]
    seqs = (1, 7, 8, 9) if where == "sealed" else (COUNT - 5, COUNT - 2)
    damage(tmp_path, *seqs)
    assert store.examiner.confirm(number) >= 1
    assert store.examiner.wanted(number) == list(seqs)

    repair(store, number)

    assert not store.examiner.damaged
    assert without_place(store) == expected
    store.release()
    again = open_replica(tmp_path)
    assert again.lost is None
    assert without_place(again) == expected
    assert again.applied_index == store.applied_index
    again.release()


def test_a_removal_that_only_the_damaged_segment_records_stays(tmp_path: Path) -> None:
    store = open_replica(tmp_path)
    fill(store, 60)
    store.begin_copied_entry()
    store.drop_seq(5)
    store.end_copied_entry(50, 1, 5000, 0, b"")
    store.close()
    store = open_replica(tmp_path)
    damage(tmp_path, 58)
    number = store.ranges()[-1][0]
    assert store.examiner.confirm(number) == 1

    repair(store, number)

    store.release()
    again = open_replica(tmp_path)
    assert again.get(5) is None
    assert again.msgs == 59
    again.release()


def test_what_is_removed_meanwhile_stays_removed(tmp_path: Path) -> None:
    store = open_replica(tmp_path)
    fill(store)
    store.close()
    store = open_replica(tmp_path)
    damage(tmp_path, 7, 8)
    store.examiner.confirm(1)
    store.drop_seq(7)
    store.flush()
    assert store.examiner.wanted(1) == [8]
    assert not store.examiner.fits(message(7))

    repair(store, 1)

    assert store.get(7) is None
    assert store.get(8) is not None
    store.release()
    again = open_replica(tmp_path)
    assert (again.get(7), again.msgs) == (None, COUNT - 1)
    again.release()


def test_another_message_does_not_fit(tmp_path: Path) -> None:
    store = open_replica(tmp_path)
    fill(store)
    right = message(7)
    others = [
        StoredMessage(8, right.ts, right.subject, right.headers, right.payload),
        StoredMessage(7, right.ts + 1, right.subject, right.headers, right.payload),
        StoredMessage(7, right.ts, b"s.8", right.headers, right.payload),
        StoredMessage(7, right.ts, right.subject, b"x", right.payload[1:]),
        StoredMessage(7, right.ts, right.subject, right.headers, right.payload + b"x"),
    ]

    assert store.examiner.fits(right)
    assert [store.examiner.fits(each) for each in others] == [False] * len(others)
    store.release()


def test_a_segment_that_lacks_a_message_still_is_not_replaced(tmp_path: Path) -> None:
    store = open_replica(tmp_path)
    fill(store)
    store.close()
    store = open_replica(tmp_path)
    damage(tmp_path, 7, 8)
    store.examiner.confirm(1)
    before = (tmp_path / FIRST).read_bytes()
    store.compactor.repair(1, {7: record_of(message(7))})

    job = store.begin_upkeep()
    assert job is not None
    store.finish_upkeep(job())

    assert store.examiner.damaged == {1: [7, 8]}
    assert (tmp_path / FIRST).read_bytes() == before
    assert not list(tmp_path.glob("*.new"))
    store.release()


def test_a_crash_at_any_call_of_a_repair_loses_nothing_more(tmp_path: Path) -> None:
    crashed, call = True, 0
    while crashed:
        directory = tmp_path / str(call)
        store = open_replica(directory)
        fill(store, 200)
        expected = without_place(store)
        store.close()
        disk = FaultyDisk()
        store = open_replica(directory, disk)
        damage(directory, 7, 8)
        store.examiner.confirm(1)
        disk.at, disk.calls, crashed = call, 0, False
        try:
            repair(store, 1)
        except Crash:
            crashed = True
        again = open_replica(directory)
        assert (again.msgs, again.lost) == (200, None), call
        if again.examiner.confirm(1):
            repair(again, 1)
        assert without_place(again) == expected, call
        assert not list(directory.glob("*.new"))
        again.release()
        call += 1
    assert call > 5
