"""Rewritten segments: the store has the same content before and after, and its files are as small as possible."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.support.disk import Crash, FaultyDisk, LossyDisk
from tests.unit.store.file.test_full_disk import FullDisk
from tests.unit.store.file_state import INCARNATION, state_of

from pyjs.base.disk import OsDisk
from pyjs.base.errors import StoreFailed
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.open_files import Release

SEGMENT_SIZE = 40_000
COUNT = 500


def open_store(directory: Path, disk: OsDisk | None = None, log: ListLog | None = None) -> FileStore:
    store = FileStore(disk or OsDisk(), str(directory), log or ListLog(), SEGMENT_SIZE, INCARNATION)
    store.writer.set_meta(b"the metadata")
    return store


def fill(store: FileStore, count: int = COUNT) -> None:
    for number in range(count):
        store.store(b"s.%d" % (number % 11), b"", b"%04d" % number + b"x" * 200, 1000 + number)
    store.flush()
    store.sync_now()


def thin_out(store: FileStore, keep: Callable[[int], bool]) -> None:
    for seq in range(1, store.last_seq + 1):
        if not keep(seq):
            store.drop_seq(seq)
    store.flush()
    store.sync_now()


def upkeep(store: FileStore) -> int:
    """Do all pending upkeep; return the number of rewritten segments."""
    done = 0
    while (job := store.begin_upkeep()) is not None:
        store.finish_upkeep(job())
        store.sync_now()
        done += not isinstance(job, Release)
    return done


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.seg"))


def without_segments(state: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in state.items() if key != "segments"}


def test_the_disk_usage_follows_the_messages(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store)
    full = size_of(tmp_path)
    thin_out(store, lambda seq: seq % 10 == 1 or seq > 450)
    expected = state_of(store)
    assert upkeep(store) == 3
    assert size_of(tmp_path) < full / 2
    assert state_of(store) == expected
    store.close()
    assert not list(tmp_path.glob("*.new"))
    again = open_store(tmp_path)
    assert state_of(again) == expected
    assert not again.wants_upkeep
    again.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_store_says_the_same_whatever_was_rewritten(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    kept, rewritten = open_store(tmp_path / "kept"), open_store(tmp_path / "rewritten")
    stores = [kept, rewritten]
    done = 0
    for round_ in range(4):
        for number in range(160):
            subject = b"s.%d" % random.randrange(30)
            payload = random.randbytes(random.randrange(300))
            for store in stores:
                store.store(
                    subject, b"NATS/1.0\r\n\r\n" if number % 3 else b"", payload, 1000 * round_ + number
                )
        for store in stores:
            store.flush()
            store.sync_now()
        for seq in random.sample(range(1, kept.last_seq + 1), kept.last_seq * 2 // 5):
            erase = random.random() < 0.1
            assert kept.drop_seq(seq, erase) == rewritten.drop_seq(seq, erase)
        for store in stores:
            store.flush()
            store.sync_now()
        done += upkeep(rewritten)
        expected = without_segments(state_of(kept))
        assert without_segments(state_of(rewritten)) == expected
        if round_ % 2:
            rewritten.close()
            rewritten = open_store(tmp_path / "rewritten")
            assert without_segments(state_of(rewritten)) == expected
            stores[1] = rewritten
            for index in (tmp_path / "rewritten").glob("*.idx"):
                index.unlink()
    assert done >= 2
    kept.close()
    rewritten.release()
    again = open_store(tmp_path / "rewritten")
    assert without_segments(state_of(again)) == expected
    again.close()


def test_what_is_removed_while_a_segment_is_rewritten_stays_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store)
    thin_out(store, lambda seq: seq % 5 == 1 or seq > 450)
    job = store.begin_upkeep()
    assert job is not None
    assert job() is None
    store.drop_seq(6)
    store.drop_seq(1)
    store.flush()
    expected = state_of(store)
    store.finish_upkeep(None)
    assert state_of(store) == expected
    store.sync_now()
    store.release()
    again = open_store(tmp_path)
    assert state_of(again) == expected
    again.release()


def test_a_message_erased_meanwhile_keeps_the_old_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store)
    thin_out(store, lambda seq: seq % 5 == 1 or seq > 450)
    job = store.begin_upkeep()
    assert job is not None
    assert job() is None
    before = size_of(tmp_path)
    store.drop_seq(6, erase=True)
    store.flush()
    store.finish_upkeep(None)
    assert size_of(tmp_path) >= before
    assert not list(tmp_path.glob("*.new"))
    assert b"0005xxxx" not in (tmp_path / "00000001.seg").read_bytes()
    store.close()


def test_a_segment_gone_meanwhile_leaves_no_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store)
    thin_out(store, lambda seq: seq % 5 == 1 or seq > 450)
    job = store.begin_upkeep()
    assert job is not None
    store.purge(store.make_filter(()))
    store.flush()
    store.sync_now()
    store.finish_upkeep(job())
    store.sync_now()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".seg"]
    assert (store.msgs, store.last_seq) == (0, COUNT)
    store.close()


def test_a_damaged_segment_is_left_as_it_is(tmp_path: Path) -> None:
    log = ListLog()
    store = open_store(tmp_path, log=log)
    fill(store)
    thin_out(store, lambda seq: seq % 5 == 1 or seq > 450)
    path = tmp_path / "00000001.seg"
    data = path.read_bytes()
    damaged = data[:20_000] + b"\xff" + data[20_001:]
    path.write_bytes(damaged)
    job = store.begin_upkeep()
    assert job is not None
    store.finish_upkeep(job())
    assert path.read_bytes() == damaged
    assert "00000001.seg stays larger than its messages: it is damaged" in log.lines[-1][1]
    assert not list(tmp_path.glob("*.new"))
    store.close()


def test_a_new_file_waits_for_the_sync_of_what_it_leaves_out(tmp_path: Path) -> None:
    disk = LossyDisk()
    store = open_store(tmp_path / "msgs", disk)
    fill(store)
    before = state_of(store)
    for seq in range(1, 451):
        if seq % 10 != 1:
            store.drop_seq(seq)
    store.flush()
    job = store.begin_upkeep()
    assert job is not None
    store.finish_upkeep(job())
    store.release()
    disk.lose_power()
    again = open_store(tmp_path / "msgs")
    assert state_of(again) == before
    again.release()


def test_a_crash_at_any_call_leaves_every_message(tmp_path: Path) -> None:
    crashed, call = True, 0
    while crashed:
        directory = tmp_path / str(call)
        store = open_store(directory)
        fill(store)
        thin_out(store, lambda seq: seq % 10 == 1 or seq > 450)
        expected = state_of(store)
        store.release()
        disk = FaultyDisk()
        store = open_store(directory, disk)
        disk.at, disk.calls, crashed = call, 0, False
        try:
            upkeep(store)
        except Crash:
            crashed = True
        again = open_store(directory)
        assert state_of(again) == expected, call
        assert again.examiner.losses.msgs == 0
        assert not list(directory.glob("*.new"))
        again.release()
        call += 1
    assert call > 10


def test_no_index_file_tells_of_what_a_new_file_leaves_out(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store)
    thin_out(store, lambda seq: seq % 10 == 1 or seq > 450)
    job = store.begin_upkeep()
    assert job is not None
    store.finish_upkeep(job())  # as in a kill before the sync that writes the new index file
    store.release()
    path = tmp_path / "00000001.seg"
    path.write_bytes(path.read_bytes()[:-88])  # and its footer is lost
    log = ListLog()
    again = open_store(tmp_path, log=log)
    assert (again.msgs, again.lost) == (store.msgs, None)
    assert not [text for _, text in log.lines if "its index file tells" in text]
    again.release()


def test_a_full_disk_costs_no_more_than_the_space(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store)
    thin_out(store, lambda seq: seq % 10 == 1 or seq > 450)
    expected = state_of(store)
    store.release()
    log = ListLog()
    disk = FaultyDisk(error=errno.ENOSPC)
    store = open_store(tmp_path, disk, log)
    disk.at, disk.calls = 1, 0
    job = store.begin_upkeep()
    assert job is not None
    store.finish_upkeep(job())
    assert "stays larger than its messages" in log.lines[-1][1]
    assert "ENOSPC" in log.lines[-1][1]
    assert (state_of(store), store.failed) == (expected, False)
    store.close()


def test_a_segment_that_is_the_last_by_now_is_left_as_it_is(tmp_path: Path) -> None:
    # given: the next segment is empty and abandoned, and the one after it could not be begun
    disk = FullDisk("allocate")
    store = open_store(tmp_path, disk)
    fill(store, 290)
    assert len(store.segment_paths()) == 2
    thin_out(store, lambda seq: seq < 20 or seq > 200)
    job = store.begin_upkeep()
    assert job is not None
    assert job() is None
    before = (tmp_path / "00000001.seg").read_bytes()
    disk.full = True
    with pytest.raises(StoreFailed):
        thin_out(store, lambda seq: seq < 20)
    assert len(store.segment_paths()) == 1
    expected = without_segments(state_of(store))
    # when
    store.finish_upkeep(None)
    # then
    assert (tmp_path / "00000001.seg").read_bytes() == before
    assert not list(tmp_path.glob("*.new"))
    assert without_segments(state_of(store)) == expected
    store.release()
    again = open_store(tmp_path)
    assert again.last_seq == 290
    again.release()
