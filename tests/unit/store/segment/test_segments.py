"""The beginnings and ends of segments, their contents, and damaged headers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import xxhash
from tests.unit.store.file_state import INCARNATION, open_store, state_of
from tests.unit.store.segment_files import META, STATE, records

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.format.meta import UnknownFormat
from pyjs.store.segment.scan import last_meta

SEGMENT_SIZE = 1000


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def kinds(path: Path) -> list[int]:
    return [kind for _, kind, _ in records(path.read_bytes())]


# -- beginning and end -----------------------------------------------------------------------------------------
def test_a_segment_is_sealed_when_its_first_message_is_old(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.writer.seal_age_ns = 100
    for ts in (1000, 1050, 1100, 1101, 1150, 1300):
        store.store(b"a", b"", b"x", ts)
    store.flush()
    assert files(tmp_path) == ["00000001.seg", "00000002.seg", "00000003.seg"]
    assert [store.get(seq) is not None for seq in range(1, 7)] == [True] * 6
    store.drop_seq(1)
    store.drop_seq(2)
    store.drop_seq(3)
    store.flush()
    store.sync_now()
    assert files(tmp_path) == ["00000002.idx", "00000002.seg", "00000003.seg"]
    store.close()


def test_a_large_last_segment_without_messages_is_left(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    for number in range(8):
        store.store(b"a", b"", b"x" * 30, 1000 + number)
    store.flush()
    for seq in range(1, 9):
        store.drop_seq(seq)
    store.flush()
    store.sync_now()
    assert files(tmp_path) == ["00000002.seg"]
    assert kinds(tmp_path / "00000002.seg") == [STATE]
    expected = state_of(store)
    store.release()
    again = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    assert again.last_seq == 8
    assert state_of(again) == expected
    assert again.store(b"a", b"", b"", 2000) == 9
    again.close()


def test_older_messages_stay_when_an_empty_last_segment_is_left(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    for number in range(20):
        store.store(b"a", b"", b"x" * 30, 1000 + number)
    store.flush()
    assert len(store.segment_paths()) == 2
    for seq in (3, *range(13, 21)):
        store.drop_seq(seq)
    store.flush()
    store.sync_now()
    assert store.segment_paths() == [f"{tmp_path}/00000001.seg", f"{tmp_path}/00000003.seg"]
    expected = state_of(store)
    assert store.last_seq == 20
    store.release()
    again = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    assert state_of(again) == expected
    again.close()


def test_a_queue_that_stays_small_keeps_a_small_directory(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    for number in range(500):
        seq = store.store(b"work", b"", b"x" * 30, 1000 + number)
        store.flush()
        if seq > 2:
            store.drop_seq(seq - 2)
        store.flush()
        store.sync_now()
        assert len(list(tmp_path.glob("*.seg"))) <= 2
    store.close()


# -- metadata --------------------------------------------------------------------------------------------------
def test_every_segment_begins_with_the_metadata(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    store.writer.set_meta(b"the metadata")
    for number in range(20):
        store.store(b"a", b"", b"x" * 30, 1000 + number)
    expected = state_of(store)
    store.close()
    for path in sorted(tmp_path.glob("*.seg")):
        assert kinds(path)[0] == META
        assert last_meta(path.read_bytes()) == b"the metadata"
    for index in (True, False):
        again = open_store(tmp_path, segment_size=SEGMENT_SIZE)
        assert state_of(again) == expected
        again.release()
        for path in tmp_path.glob("*.idx") if index else ():
            path.unlink()


def test_changed_metadata_is_in_the_next_commit_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.writer.set_meta(b"old")
    store.store(b"a", b"", b"x", 1)
    store.flush()
    store.writer.set_meta(b"new")
    store.flush()
    store.flush()
    path = tmp_path / "00000001.seg"
    assert kinds(path).count(META) == 2
    assert last_meta(path.read_bytes()) == b"new"
    store.close()


def test_metadata_that_are_set_twice_before_a_commit_are_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.writer.set_meta(b"old")
    store.store(b"s", b"", b"1", 1000)
    store.flush()

    store.writer.set_meta(b"new")
    store.writer.set_meta(b"new")
    store.flush()

    store.release()
    assert last_meta((tmp_path / "00000001.seg").read_bytes()) == b"new"


def test_the_metadata_is_found_behind_a_damaged_header(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.writer.set_meta(b"the metadata")
    store.store(b"a", b"", b"x", 1)
    store.close()
    data = (tmp_path / "00000001.seg").read_bytes()
    assert last_meta(b"X" * 56 + data[56:]) == b"the metadata"
    assert last_meta(data[:40]) == b""


# -- a damaged header ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("with_meta", [True, False])
def test_a_damaged_header_costs_no_message(tmp_path: Path, with_meta: bool) -> None:
    store = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    if with_meta:
        store.writer.set_meta(b"the metadata")
    for number in range(24):
        store.store(b"a", b"", b"x" * 30, 1000 + number)
    expected = state_of(store)
    store.close()
    for path in sorted(tmp_path.glob("*.seg")):
        data = path.read_bytes()
        for at in range(64):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
            log = ListLog()
            again = open_store(tmp_path, log, SEGMENT_SIZE)
            assert state_of(again) == expected, at
            again.release()
            assert [(level, "the header is damaged" in text) for level, text in log.lines] == [("WRN", True)]
        path.write_bytes(data)


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    ("version", "what"),
    [
        (9, r"a newer version: it needs pyjs-server >= 1\.7"),
        (2, "an older version: it has format 2, and only 3 is read; start the pyjs-server that wrote it"),
        (1, "an older version: it has format 1, and only 3 is read; start the pyjs-server that wrote it"),
    ],
)
def test_a_segment_of_another_version_is_refused_with_what_to_do(
    tmp_path: Path, version: int, what: str, indexed: bool
) -> None:
    store = open_store(tmp_path)
    store.store(b"a", b"", b"x", 1)
    store.close()
    path = tmp_path / "00000001.seg"
    header = bytearray(path.read_bytes()[:56])
    header[8:12] = struct.pack("<HBB", version, 1, 7)
    checksum = struct.pack("<Q", xxhash.xxh64_intdigest(bytes(header)))
    path.write_bytes(bytes(header) + checksum + path.read_bytes()[64:])
    for index in () if indexed else tmp_path.glob("*.idx"):
        index.unlink()
    before = path.read_bytes()
    with pytest.raises(UnknownFormat, match=rf"00000001\.seg was written by {what}"):
        FileStore(OsDisk(), str(tmp_path), ListLog(), 1 << 20, INCARNATION)
    assert path.read_bytes() == before


def test_a_file_with_removals_stays_until_they_are_recorded_again(tmp_path: Path) -> None:
    # given: the second segment records that message 1 is removed, and all its own messages are removed
    store = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    while len(store.segment_paths()) < 2:
        store.store(b"a", b"", b"x" * 30, 1000)
    second = store.last_seq
    store.drop_seq(2)
    store.flush()
    while len(store.segment_paths()) < 3:
        store.store(b"a", b"", b"x" * 30, 1000)
    third = store.last_seq
    store.flush()
    store.sync_now()
    for seq in range(second, third):
        store.drop_seq(seq)
    # when: more is staged than fits, and an interval ends, before the turn commits; then the process is killed
    for _ in range(30):
        store.store(b"a", b"", b"x" * 30, 1000)
    store.sync_now()
    store.release()
    # then
    again = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    assert again.get(1) is not None
    assert again.get(2) is None
    again.close()


def test_a_message_that_a_start_would_take_for_damage_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.store(b"a", b"", bytes((128 << 20) - 40), 1000) == 0
    assert store.store(b"a", b"", b"x", 1000) == 1
    store.close()


def test_sequences_do_not_begin_again_behind_the_last_one(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.set_first_seq((1 << 64) - 2)
    assert store.store(b"a", b"", b"x", 1000) == (1 << 64) - 2
    assert store.store(b"a", b"", b"x", 1000) == 0
    store.flush()
    store.close()
    again = open_store(tmp_path)
    assert (again.msgs, again.last_seq) == (1, (1 << 64) - 2)
    again.release()
