"""A damaged byte in the only record of removals: its checksums reveal the original byte."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.store.file_state import open_store
from tests.unit.store.segment_files import DELETES, MSG, STATE, records

from pyjs.base.log import ListLog
from pyjs.store.segment.scan import scan_segment

SEGMENT_SIZE = 1000
COUNT = 30
REMOVED = (3, 4, 9)
NAME = "00000002.seg"  # the open segment
MANY = 56  # maximum number of removals in one record


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The files of a store after a kill: the open segment records removals from a sealed one in its middle."""
    store = open_store(tmp_path / "msgs", segment_size=SEGMENT_SIZE)
    for number in range(COUNT):
        store.store(b"s.%d" % (number % 3), b"", b"payload-%d" % number, 1000 + number)
    store.flush()
    store.drop_seq(REMOVED[0])
    store.flush()
    store.store(b"s.0", b"", b"one more", 2000)
    store.drop_seq(REMOVED[1])
    store.drop_seq(REMOVED[2])
    store.flush()
    store.drop_seq(1)  # the first message: a STATE record stores its removal
    store.flush()
    store.store(b"s.1", b"", b"the last", 2001)
    store.flush()
    shutil.copytree(tmp_path / "msgs", tmp_path / "killed")
    store.close()
    return tmp_path / "killed"


def seqs_and_log(directory: Path) -> tuple[list[int], ListLog]:
    """Return the messages that a start finds in a copy, and its log."""
    copy = directory.with_name("start")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    log = ListLog()
    store = open_store(copy, log, SEGMENT_SIZE)
    found = [seq for seq in range(1, COUNT + 3) if store.get(seq) is not None]
    assert store.examiner.losses.msgs == 0
    added = store.store(b"s.2", b"", b"after the start", 3000)
    store.close()
    for index in copy.glob("*.idx"):
        index.unlink()
    assert seqs_of(copy) == [*found, added], "what the next start finds"
    return found, log


def seqs_of(directory: Path) -> list[int]:
    store = open_store(directory, None, SEGMENT_SIZE)
    try:
        return [seq for seq in range(1, COUNT + 4) if store.get(seq) is not None]
    finally:
        store.close()


def places(data: bytes, *kinds: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each record that has one of these kinds."""
    return ((at, at + len(record)) for at, kind, record in records(data) if kind in kinds)


def test_no_damaged_byte_of_a_removal_brings_a_message_back(killed: Path) -> None:
    path = killed / NAME
    data = path.read_bytes()
    expected, _ = seqs_and_log(killed)
    assert not set(expected) & {1, *REMOVED}
    spans = list(places(data, DELETES, STATE))
    assert len(spans) >= 3
    for start, end in spans:
        for at in range(start, end):
            for change in (0x01, 0x80, 0x5A):
                path.write_bytes(data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])
                found, log = seqs_and_log(killed)
                assert found == expected, at
                assert [level for level, _ in log.lines] == ["WRN"], at


def test_a_removal_at_the_end_of_the_file_is_put_right_as_well(killed: Path) -> None:
    path = killed / NAME
    data = path.read_bytes()
    start, end = list(places(data, DELETES))[-1]
    data = data[:end]  # as if the kill had happened earlier
    path.write_bytes(data)
    expected, _ = seqs_and_log(killed)
    for at in range(start, end):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x11]) + data[at + 1 :])
        found, log = seqs_and_log(killed)
        assert found == expected, at
        assert len(log.lines) == 1, at


def test_two_damaged_bytes_are_not_guessed_at(killed: Path) -> None:
    path = killed / NAME
    data = bytearray(path.read_bytes())
    start, end = next(places(data, DELETES))
    data[start + 33] ^= 1
    data[start + 35] ^= 1
    path.write_bytes(data)
    contents = scan_segment(bytes(data))
    assert contents.problems == [(start, end - start, "damaged bytes between records")]
    assert REMOVED[0] in seqs_of(killed)


def test_a_message_is_not_put_right_as_its_bytes_would_still_be_damaged(killed: Path) -> None:
    data = bytearray((killed / NAME).read_bytes())
    start, end = list(places(data, MSG))[1]
    data[start + 40] ^= 1
    contents = scan_segment(bytes(data))
    assert contents.problems == [(start, end - start, "damaged bytes between records")]
    data[start + 40] ^= 1
    data[start + 4] = DELETES
    contents = scan_segment(bytes(data))
    assert contents.problems == [(start, end - start, "damaged bytes between records")]


def test_many_removals_are_kept_in_records_that_are_short_enough_to_be_put_right(tmp_path: Path) -> None:
    store = open_store(tmp_path / "msgs")
    for number in range(1000):
        store.store(b"s.%d" % (number % 2), b"", b"", 1000 + number)
    store.flush()
    store.purge(store.make_filter((b"s.1",)))
    store.flush()
    data = (tmp_path / "msgs" / "00000001.seg").read_bytes()
    store.close()
    sizes = [end - start for start, end in places(data, DELETES)]
    assert max(sizes) == 40 + 8 * MANY
    for start, end in list(places(data, DELETES))[:2]:
        for at in range(start, end, 7):
            damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
            contents = scan_segment(damaged)
            assert contents.n_removals == 499 or contents.n_removals == 500
            assert len(contents.problems) == 1
