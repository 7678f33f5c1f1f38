"""Segments with damage: a start and later reads treat it alike."""

from __future__ import annotations

import errno
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.disk import LossyDisk
from tests.unit.store.file_state import INCARNATION, open_store, state_of
from tests.unit.store.segment_files import (
    DELETES,
    FOOTER,
    META,
    MSG,
    STATE,
    message_record,
    records,
    segment_of,
)

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.segment.scan import scan_segment

SEGMENT_SIZE = 500
COUNT = 24


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A cleanly stopped store of three segments, from which one message was removed."""
    store = open_store(tmp_path / "msgs", segment_size=SEGMENT_SIZE)
    for number in range(COUNT):
        store.store(b"s.%d" % (number % 3), b"", b"payload-%d" % number, 1000 + number)
    store.drop_seq(5)
    store.close()
    assert len(list((tmp_path / "msgs").glob("*.seg"))) == 3
    return tmp_path / "msgs"


def flips(directory: Path, name: str, *kinds: int) -> Iterator[int]:
    """Flip one byte of the records of each file in turn; afterwards all files are as before."""
    path = directory / name
    data = path.read_bytes()
    indexes = {index: index.read_bytes() for index in directory.glob("*.idx")}
    places = [at + i for at, kind, record in records(data) if kind in kinds for i in range(len(record))]
    for at in places:
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        yield at
        path.write_bytes(data)
        for index, before in indexes.items():
            index.write_bytes(before)


def by_scan(directory: Path) -> tuple[dict[str, object], ListLog]:
    """Return the state of a copy without index files, so that the start reads the segments."""
    copy = directory.with_name("bare")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("*.idx"))
    log = ListLog()
    store = open_store(copy, log, SEGMENT_SIZE)
    state = state_of(store)
    store.release()
    return state, log


def read_all(store: FileStore) -> list[int]:
    """Return the sequences that cannot be loaded."""
    return [seq for seq in range(1, COUNT + 1) if store.get(seq) is None]


def without_segments(state: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in state.items() if key != "segments"}


# -- at a start ------------------------------------------------------------------------------------------------
def test_a_damaged_checksum_alone_loses_nothing(directory: Path) -> None:
    path = directory / "00000001.seg"
    data = path.read_bytes()
    for at, _, record in list(records(data))[:-1]:
        last = at + len(record) - 1
        path.write_bytes(data[:last] + bytes([data[last] ^ 1]) + data[last + 1 :])
        state, log = by_scan(directory)
        assert state["lost"] == (0, 0, [])
        assert [level for level, _ in log.lines] == ["WRN"]
        assert "its record is whole" in log.lines[0][1]


def test_damage_at_the_end_of_a_segment_does_not_cost_the_next_one(directory: Path) -> None:
    messages = [m for m in range(1, COUNT + 1) if m != 5]
    last_of_first = max(seq for seq in messages if seq < 10)
    for at in flips(directory, "00000001.seg", MSG, FOOTER):
        state, _ = by_scan(directory)
        kept = [message[0] for message in state["messages"]]  # type: ignore[attr-defined]
        assert len(kept) >= len(messages) - 1, at
        assert set(range(last_of_first + 1, COUNT + 1)) <= set(kept), at


def test_a_segment_whose_last_message_and_footer_are_gone_counts_what_was_lost(directory: Path) -> None:
    path = directory / "00000001.seg"
    data = path.read_bytes()
    *_, (at, kind, record), _footer = records(data)
    assert kind == MSG
    path.write_bytes(data[:at] + b"\xff" * len(record) + b"\xff" * 88)
    lost = int.from_bytes(record[8:16], "little")
    state, log = by_scan(directory)
    assert state["lost"] == (1, len(record) + 88, [lost])
    assert log.lines[-1][0] == "ERR"


def test_a_removed_message_is_not_lost(directory: Path) -> None:
    path = directory / "00000001.seg"
    data = path.read_bytes()
    at, _, record = list(records(data))[4]
    assert record[8] == 5
    path.write_bytes(data[: at + 40] + b"\xff" + data[at + 41 :])
    state, log = by_scan(directory)
    assert state["lost"] == (0, len(record), [])
    assert [level for level, _ in log.lines] == ["WRN"]


def test_every_start_reports_the_damage_of_a_sealed_segment(directory: Path) -> None:
    path = directory / "00000001.seg"
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" + data[101:])
    for index in directory.glob("*.idx"):
        index.unlink()
    for _ in range(3):
        log = ListLog()
        store = open_store(directory, log, SEGMENT_SIZE)
        assert store.examiner.losses.msgs == 1
        assert [level for level, _ in log.lines] == ["WRN", "ERR"]
        store.close()
        assert not (directory / "00000001.idx").exists()
        assert (directory / "00000002.idx").exists()


def test_a_segment_cut_short_is_noticed_at_the_start(directory: Path) -> None:
    path = directory / "00000001.seg"
    path.write_bytes(path.read_bytes()[:-100])
    expected, _ = by_scan(directory)
    log = ListLog()
    store = open_store(directory, log, SEGMENT_SIZE)
    assert expected["lost"] == (1, 40, [8])
    expected["lost"] = (1, 140, [8])  # the index file also proves how much is missing
    assert without_segments(state_of(store)) == without_segments(expected)
    assert log.lines
    store.close()


def test_a_lost_last_message_is_counted_and_its_sequence_not_used_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(3):
        store.store(b"s", b"", b"payload-%d" % number, number)
    store.flush()
    store.drop_seq(2)
    store.close()
    path = tmp_path / "00000001.seg"
    data = path.read_bytes()
    path.write_bytes(data[: 64 + 2 * 50] + b"\xff" * 8 + data[64 + 2 * 50 + 8 :])
    (tmp_path / "00000001.idx").unlink()
    store = open_store(tmp_path)
    assert store.examiner.losses.seqs == [3]
    assert store.store(b"s", b"", b"", 9) == 4
    store.close()


# -- at a read -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["00000001.seg", "00000003.seg"])
def test_a_damaged_record_is_found_when_it_is_read_as_a_start_would_have_done(
    directory: Path, name: str
) -> None:
    found_later = 0
    for at in flips(directory, name, MSG):
        expected, _ = by_scan(directory)
        log = ListLog()
        store = open_store(directory, log, SEGMENT_SIZE)
        at_start = store.examiner.losses.msgs
        store.catalogue.drops.tracked = True
        read_all(store)
        drops = list(store.catalogue.drops.take())
        state = state_of(store)
        assert state["messages"] == expected["messages"], at
        assert state["lost"][0::2] == expected["lost"][0::2], at  # type: ignore[index]
        assert [seq for seq, _ in drops] == ([] if at_start else store.examiner.losses.seqs), at
        assert not store.examiner.losses.msgs or "ERR" in [level for level, _ in log.lines], at
        found_later += store.examiner.losses.msgs > at_start
        store.close()
    assert found_later > 100


def test_what_a_read_found_damaged_is_found_by_the_next_start(directory: Path) -> None:
    path = directory / "00000001.seg"
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" + data[101:])
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    assert store.examiner.losses.msgs == 0
    assert read_all(store) == [1, 5]
    assert (store.examiner.losses.msgs, store.examiner.losses.seqs) == (1, [1])
    assert (store.msgs, store.first_seq) == (COUNT - 2, 2)
    store.close()
    assert not (directory / "00000001.idx").exists()

    log = ListLog()
    again = open_store(directory, log, SEGMENT_SIZE)
    assert (again.examiner.losses.msgs, again.examiner.losses.seqs) == (1, [1])
    assert log.lines[-1][0] == "ERR"
    again.close()


def test_a_damaged_header_is_reported_and_costs_no_message_before_the_next_start(directory: Path) -> None:
    path = directory / "00000002.seg"
    data = path.read_bytes()
    log = ListLog()
    store = open_store(directory, log, SEGMENT_SIZE)
    path.write_bytes(data[:20] + b"\xff" + data[21:100] + b"\xff" + data[101:])
    assert len(read_all(store)) == 2
    assert "the header is damaged" in log.lines[0][1]
    store.close()


def test_a_message_overwritten_but_never_removed_is_lost_when_it_is_read(directory: Path) -> None:
    path = directory / "00000001.seg"
    data = path.read_bytes()
    path.write_bytes(data[: 64 + 5] + b"\x02" + data[64 + 6 :])
    log = ListLog()
    store = open_store(directory, log, SEGMENT_SIZE)
    assert read_all(store) == [1, 5]
    assert store.examiner.losses.seqs == [1]
    store.close()
    for _ in range(2):  # from the segment, and from the index file made of it
        again = open_store(directory, ListLog(), SEGMENT_SIZE)
        assert again.examiner.losses.seqs == [1]
        again.close()


def test_a_length_that_changes_after_the_segment_was_examined_leads_nowhere(directory: Path) -> None:
    path = directory / "00000001.seg"
    data = bytearray(path.read_bytes())
    places = [at for at, _, _ in records(bytes(data))]
    data[places[0] + 40] ^= 1
    path.write_bytes(data)
    store = open_store(directory, ListLog(), SEGMENT_SIZE)
    assert (store.get(1), store.examiner.losses.seqs) == (None, [1])
    assert store.get(2) is not None
    with path.open("r+b") as file:
        file.seek(places[1])
        file.write(b"\xff\xff\xff\x7f")
    assert store.get(2) is None
    assert store.get(3) is not None
    store.release()


class UnreadableSegments(OsDisk):
    """Refuses to read a segment as a whole."""

    def read_file(self, path: str) -> bytes:
        if path.endswith(".seg"):
            raise OSError(errno.ENODEV, "ENODEV", path)
        return super().read_file(path)


def test_a_damaged_record_in_a_file_that_cannot_be_read_is_refused_and_stays_counted(directory: Path) -> None:
    path = directory / "00000001.seg"
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" + data[101:])
    log = ListLog()
    store = FileStore(UnreadableSegments(), str(directory), log, SEGMENT_SIZE, INCARNATION)
    assert store.get(1) is None
    assert store.get(2) is not None
    assert store.examiner.losses.msgs == 0
    assert "cannot be read" in log.lines[-1][1]
    store.close()


# -- what a killed process had not synced ----------------------------------------------------------------------
@pytest.mark.parametrize("count", [3, COUNT])
def test_what_a_start_finds_is_on_the_medium_after_its_first_sync(tmp_path: Path, count: int) -> None:
    disk, directory = LossyDisk(), str(tmp_path / "msgs")
    killed = FileStore(disk, directory, ListLog(), SEGMENT_SIZE, INCARNATION)
    for number in range(count):
        killed.store(b"s", b"", b"payload-%d" % number, 1000 + number)
    killed.flush()
    killed.release()
    started = FileStore(disk, directory, ListLog(), SEGMENT_SIZE, INCARNATION)

    job = started.begin_sync()
    started.finish_sync(job, job())
    started.release()
    disk.lose_power()

    found = FileStore(OsDisk(), directory, ListLog(), SEGMENT_SIZE, INCARNATION)
    assert found.msgs == count
    assert found.examiner.losses.msgs == 0
    found.release()


def test_a_damaged_overwritten_message_costs_no_other(tmp_path: Path) -> None:
    # given: nothing proves the length and the sequence of a message with an overwritten payload
    store = open_store(tmp_path / "msgs")
    for number in range(6):
        store.store(b"s", b"", b"payload-%d" % number, 1000 + number)
    store.drop_seq(3, erase=True)
    store.close()
    path = tmp_path / "msgs" / "00000001.seg"
    data = path.read_bytes()
    at = next(at for at, _, record in records(data) if record[8] == 3)
    for place in (*range(at, at + 5), *range(at + 6, at + 16)):
        for bit in range(8):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
            # when
            state, _ = by_scan(tmp_path / "msgs")
            # then
            assert [message[0] for message in state["messages"]] == [1, 2, 4, 5, 6], (place, bit)  # type: ignore[attr-defined]
            assert state["lost"][0] == 0, (place, bit)  # type: ignore[index]


def test_a_sealed_segment_cut_anywhere_counts_what_was_lost(directory: Path) -> None:
    path = directory / "00000001.seg"
    data = path.read_bytes()
    before = by_scan(directory)[0]["messages"]
    for size in range(64, len(data)):
        path.write_bytes(data[:size])
        state, log = by_scan(directory)
        gone = len(before) - len(state["messages"])  # type: ignore[arg-type]
        assert state["lost"][0] == gone, size  # type: ignore[index]
        assert log.lines, size


def test_a_damaged_footer_before_a_gap_loses_nothing(tmp_path: Path) -> None:
    # given
    store = open_store(tmp_path / "msgs")
    store.store(b"s", b"", b"x", 1)
    store.skip_seqs_to(1 << 40)
    store.store(b"s", b"", b"y", 2)
    store.close()
    path = tmp_path / "msgs" / "00000001.seg"
    data = path.read_bytes()
    path.write_bytes(data[:-20] + b"\xff" * 20)
    # when
    log = ListLog()
    store = open_store(tmp_path / "msgs", log)
    # then
    assert (store.msgs, store.examiner.losses.msgs, store.examiner.losses.bytes) == (2, 0, 88)
    assert "the last record is damaged" in log.lines[-1][1]
    store.close()


def test_a_damaged_end_before_a_wide_gap_loses_no_more_than_the_segment_held(tmp_path: Path) -> None:
    # given
    store = open_store(tmp_path / "msgs", segment_size=SEGMENT_SIZE)
    store.store(b"s", b"", b"x", 1)
    store.store(b"s", b"", b"x", 1)
    store.skip_seqs_to(1 << 40)
    store.store(b"s", b"", b"y", 2)
    store.close()
    path = tmp_path / "msgs" / "00000001.seg"
    data = path.read_bytes()
    path.write_bytes(data[:-100] + b"\xff" * 100)
    # when
    store = open_store(tmp_path / "msgs", segment_size=SEGMENT_SIZE)
    # then
    assert 1 <= store.examiner.losses.msgs <= SEGMENT_SIZE // 41
    store.close()


def test_a_damaged_first_sector_costs_what_was_in_it(directory: Path) -> None:
    path = directory / "00000002.seg"
    data = path.read_bytes()
    first = next(record[8] for at, kind, record in records(data) if kind == MSG)
    for size in (100, 200):
        path.write_bytes(bytes(size) + data[size:])
        hit = [record[8] for at, kind, record in records(data) if kind == MSG and at < size]
        state, _ = by_scan(directory)
        kept = [message[0] for message in state["messages"]]  # type: ignore[attr-defined]
        assert kept == [seq for seq in range(1, COUNT + 1) if seq != 5 and seq not in hit]
        assert state["lost"][0] == len(hit)  # type: ignore[index]
        assert hit[0] == first


def test_an_overwritten_message_in_a_segment_without_header_keeps_its_sequence(tmp_path: Path) -> None:
    # given: a power cut came before the header was durable, another one after the message was erased
    store = open_store(tmp_path)
    store.store(b"s", b"", b"secret", 1)
    store.drop_seq(1, erase=True)
    store.flush()
    store.release()
    path = tmp_path / "00000001.seg"
    data = path.read_bytes()
    at, _, record = next(records(data))
    path.write_bytes(bytes(64) + data[64 : at + len(record)] + bytes(4096))
    # when
    store = open_store(tmp_path)
    # then
    assert store.store(b"s", b"", b"other", 2) == 2
    store.close()


def test_the_end_of_the_last_segment_is_missed_when_its_index_file_tells_of_it(tmp_path: Path) -> None:
    # given: a clean stop, after which everything was on the medium
    store = open_store(tmp_path / "msgs")
    for number in range(5):
        store.store(b"s", b"", b"payload-%d" % number, 1000 + number)
    store.close()
    path = tmp_path / "msgs" / "00000001.seg"
    index = tmp_path / "msgs" / "00000001.idx"
    data, told = path.read_bytes(), index.read_bytes()
    ends = [at + len(record) for at, _, record in records(data)]
    for size in range(64, len(data)):
        for rest in (b"", bytes(len(data) - size)):
            path.write_bytes(data[:size] + rest)
            index.write_bytes(told)
            # when
            store = open_store(tmp_path / "msgs")
            # then
            kept = sum(end <= size for end in ends)
            if store.msgs == 5:  # the cut bytes were zeros
                assert size > len(data) - 8
            else:
                assert (store.msgs, store.examiner.losses.msgs, store.last_seq) == (kept, 5 - kept, 5), size
                assert store.examiner.losses.seqs == list(range(kept + 1, 6))
            store.flush()
            store.release()
            again = open_store(tmp_path / "msgs")
            assert again.last_seq == 5
            again.release()


def test_files_with_odd_names_are_left_alone(tmp_path: Path) -> None:
    names = ["\u00b2\u00b2\u00b2.seg", "99999999999.seg", "1.seg", ".seg", "00000001.seg.old"]
    store = open_store(tmp_path)
    store.store(b"s", b"", b"x", 1)
    store.close()
    for name in names:
        (tmp_path / name).write_bytes(b"odd")
    store = open_store(tmp_path)
    assert store.msgs == 1
    store.close()
    assert {path.name for path in tmp_path.iterdir()} >= set(names)


def test_a_purged_segment_that_a_kill_left_goes_at_the_start(tmp_path: Path) -> None:
    # given
    store = open_store(tmp_path / "msgs")
    store.skip_seq()
    store.flush()
    store.purge(store.make_filter(()))
    store.flush()
    shutil.copytree(tmp_path / "msgs", tmp_path / "killed")
    store.close()
    # when
    log = ListLog()
    store = open_store(tmp_path / "killed", log)
    store.close()
    # then
    assert log.lines == []
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["00000002.idx", "00000002.seg"]


@pytest.mark.parametrize("kind", [MSG, STATE, DELETES, META])
def test_a_write_that_a_kill_cut_at_a_page_is_no_loss_whatever_it_was(tmp_path: Path, kind: int) -> None:
    # given: a record that crosses a page, of which the second part was never written
    body = bytes([1]) * 800
    first = message_record(1, 5, b"s", b"", b"x" * 3600)
    seq = 2 if kind == MSG else 1
    torn = struct.pack("<IBBHQqII", 40 + len(body), kind, 0, 0, seq, 0, 0, 0) + body
    data = segment_of(1, first, torn)
    (tmp_path / "00000001.seg").write_bytes(data[:4096] + bytes(4096))
    # when
    log = ListLog()
    store = open_store(tmp_path, log)
    # then
    assert (store.msgs, store.examiner.losses.msgs, store.examiner.losses.bytes) == (1, 0, 0)
    assert [text.partition(": ")[2] for _, text in log.lines] == [
        f"{4096 - len(segment_of(1, first))} bytes: the last write was cut short; it was never acknowledged"
    ]
    assert store.store(b"s", b"", b"y", 6) == 2
    store.close()


@pytest.mark.parametrize("zeros", [1, 15, 300, 1000])
def test_a_write_that_a_kill_cut_at_a_page_after_zeros_of_its_own_is_no_loss(
    tmp_path: Path, zeros: int
) -> None:
    # given: a message that crosses a page boundary, and whose part before it ends with zeros
    first = message_record(1, 5, b"s", b"", b"x" * 2500)
    room = 4096 - len(segment_of(1, first)) - 32 - 1
    payload = b"y" * (room - zeros) + bytes(zeros) + b"z" * 500
    data = segment_of(1, first, message_record(2, 6, b"s", b"", payload))
    assert data[4095] == 0 != data[4096]
    (tmp_path / "00000001.seg").write_bytes(data[:4096] + bytes(8192))
    # when
    log = ListLog()
    store = open_store(tmp_path, log)
    # then
    assert (store.msgs, store.examiner.losses.msgs, store.examiner.losses.bytes) == (1, 0, 0)
    assert ["cut short" in text for _, text in log.lines] == [True]
    assert store.store(b"s", b"", b"y", 6) == 2
    store.close()


def written_up_to(directory: Path, end: int) -> bytes:
    """Return a segment of two messages, with all bytes up to `end`."""
    store = open_store(directory, segment_size=1 << 20)
    store.store(b"s", b"", b"x" * 2500, 5)
    store.flush()
    path = directory / "00000001.seg"
    begin = scan_segment(path.read_bytes()).end
    store.store(b"s", b"", b"y" * (end - begin - 40 - 1), 6)
    store.flush()
    data = path.read_bytes()
    assert scan_segment(data).end == end
    store.close()
    shutil.rmtree(directory)
    directory.mkdir()
    return data


@pytest.mark.parametrize("kept", range(1, 8))
def test_a_write_that_a_kill_cut_within_its_checksum_is_no_loss(tmp_path: Path, kept: int) -> None:
    # given: a message that is complete except for the end of its checksum, which is after a page boundary
    data = written_up_to(tmp_path, 4096 + 8 - kept)
    (tmp_path / "00000001.seg").write_bytes(data[:4096] + bytes(8192))
    # when
    log = ListLog()
    store = open_store(tmp_path, log)
    # then
    assert (store.msgs, store.last_seq, store.examiner.losses.msgs, store.examiner.losses.bytes) == (
        1,
        1,
        0,
        0,
    )
    assert ["cut short" in text for _, text in log.lines] == [True]
    assert store.store(b"s", b"", b"y", 6) == 2
    store.close()


@pytest.mark.parametrize("damaged_at", [2700, 4000, 4095])
def test_a_damaged_record_whose_checksum_crosses_a_page_is_no_write_that_was_cut(
    tmp_path: Path, damaged_at: int
) -> None:
    data = bytearray(written_up_to(tmp_path, 4096 + 4))
    data[damaged_at] ^= 1
    (tmp_path / "00000001.seg").write_bytes(data[:4096] + bytes(8192))
    store = open_store(tmp_path)
    assert (store.msgs, store.last_seq, store.examiner.losses.msgs) == (1, 2, 1)
    store.close()


def test_zeros_that_end_elsewhere_than_at_a_page_are_damage(tmp_path: Path) -> None:
    """The message, or the file, ends before the page does: no interrupted write looks like this."""
    first = message_record(1, 5, b"s", b"", b"x" * 2500)
    for number, (size, behind) in enumerate(((300, bytes(8192)), (2000, b""))):
        directory = tmp_path / str(number)
        directory.mkdir()
        data = segment_of(1, first, message_record(2, 6, b"s", b"", b"y" * size))
        cut = len(segment_of(1, first)) + 200
        (directory / "00000001.seg").write_bytes(
            data[:cut] + (bytes(len(data) - cut) + behind if behind else b"")
        )
        store = open_store(directory)
        assert (store.msgs, store.examiner.losses.msgs) == (1, 1)
        store.close()


def test_a_sync_that_ends_after_its_stream_was_deleted_is_no_failure(tmp_path: Path) -> None:
    # given
    log = ListLog()
    store = open_store(tmp_path / "msgs", log)
    store.store(b"s", b"", b"x", 5)
    store.flush()
    job = store.begin_sync()
    assert job is not None
    # when
    (tmp_path / "msgs").rename(tmp_path / ".deleting-0-msgs")
    error = job()
    assert isinstance(error, FileNotFoundError)
    store.destroy()
    store.finish_sync(job, error)
    # then
    assert log.lines == []
