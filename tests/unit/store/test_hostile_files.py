"""Files made by an attacker: a start neither hangs nor uses all memory."""

from __future__ import annotations

import resource
import struct
import time
from pathlib import Path

import pytest
from tests.unit.store.file_state import open_store
from tests.unit.store.segment_files import DELETES, META, STATE, message_record, segment_of

from pyjs.base.log import ListLog
from pyjs.store.memory import MemStore
from pyjs.store.segment.scan import last_meta, scan_segment

FAST_S = 5.0  # seconds; an earlier version took minutes


def test_damage_in_front_of_bytes_that_look_like_records_is_passed_quickly() -> None:
    # given: a damaged record whose payload, chosen by a client, looks like a long record at every 32nd byte
    payload = struct.pack("<IBBHQqII", 4 << 20, 1, 0, 0, 2, 0, 0, 0) * (1 << 17) + bytes(4 << 20)
    messages = message_record(1, 5, b"a", b"", payload), message_record(2, 6, b"b", b"", b"x")
    data = bytearray(segment_of(1, *messages))
    data[64 + 40] ^= 1
    # when
    began = time.perf_counter()
    found = scan_segment(bytes(data))
    # then
    assert time.perf_counter() - began < FAST_S
    assert (found.messages, found.lost) == (1, [(1, 1)])


def plain_record(kind: int, seq: int, body: bytes = b"") -> bytes:
    """Return a record other than a message, without its check and checksum."""
    return struct.pack("<IBBHQqII", 40 + len(body), kind, 0, 0, seq, 0, 0, 0) + body


@pytest.mark.parametrize("kind", [STATE, META])
def test_a_record_with_a_sequence_far_ahead_does_not_fill_the_memory(kind: int) -> None:
    body = struct.pack("<Qq", 1, 5)
    data = segment_of(1, plain_record(kind, 1 << 40, body), message_record(1, 5, b"a", b"", b"x"))
    found = scan_segment(data)
    assert (found.messages, found.n, len(found.problems)) == (1, 1, 1)


@pytest.mark.parametrize("subject", [b"a b", b"a\r\n", b"a\rb", b"\t", b""])
def test_a_subject_that_would_end_in_a_protocol_line_is_damage(subject: bytes) -> None:
    data = segment_of(1, message_record(1, 5, subject, b"", b"x"), message_record(2, 6, b"a", b"", b"y"))
    found = scan_segment(data)
    assert (found.messages, found.lost) == (1, [(1, 1)])
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    "subject", [b"a\0", b"\x01", b"s.\x0b.\x0c", b"\x1f\x7f", b"s.*", b"s.>", b"\xff\xfe"]
)
def test_a_subject_that_a_client_can_publish_to_is_read_again(subject: bytes) -> None:
    # nats-server 2.15 accepts, stores and delivers each of these
    data = segment_of(1, message_record(1, 5, subject, b"", b"x"), message_record(2, 6, b"a", b"", b"y"))
    found = scan_segment(data)
    assert (found.messages, found.lost, found.problems) == (2, [], [])


def test_many_gaps_in_one_segment_do_not_fill_the_memory() -> None:
    messages = [message_record(1 + at * 1_900_000, 5, b"a", b"", b"x") for at in range(20)]
    found = scan_segment(segment_of(1, *messages))
    assert (found.messages, len(found.problems)) == (2, 18)


def test_sixty_small_segments_of_wide_gaps_are_served_in_little_memory(tmp_path: Path) -> None:
    # given
    gap, base = 2_000_000, 1
    for number in range(1, 61):
        messages = (message_record(base, 5, b"a", b"", b"x"), message_record(base + gap, 6, b"b", b"", b"y"))
        (tmp_path / f"{number:08d}.seg").write_bytes(segment_of(base, *messages, number=number))
        base += gap + 1
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    # when
    log = ListLog()
    store = open_store(tmp_path, log)
    # then
    assert time.process_time() - began < FAST_S
    assert (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    )  # KiB; decompressed, the files take 5 GB
    assert (store.msgs, store.first_seq, store.last_seq, store.examiner.losses.msgs) == (120, 1, base - 1, 0)
    assert store.catalogue.seq_at(6) == 1 + gap
    assert store.catalogue.next_match(2, store.make_filter(())) == 1 + gap
    # when: new messages go to a new segment, and a second start finds the same
    assert store.store(b"a", b"", b"z", 7) == base
    store.close()
    store = open_store(tmp_path, log)
    assert (store.msgs, store.last_seq) == (121, base)
    assert [store.get(seq).payload for seq in (1, 1 + gap, base)] == [b"x", b"y", b"z"]  # type: ignore[union-attr]
    store.close()
    assert not list(tmp_path.glob("0000000[1-9].idx"))


LAST = 2**64 - 2  # the highest sequence of a message


@pytest.mark.parametrize("seq", [LAST - 1, LAST, LAST + 1])
def test_sequences_at_the_end_of_all_do_not_begin_again(tmp_path: Path, seq: int) -> None:
    # given
    records = message_record(LAST - 2, 5, b"a", b"", b"x"), message_record(seq, 6, b"a", b"", b"y")
    (tmp_path / "00000001.seg").write_bytes(segment_of(LAST - 2, *records))
    # when
    store = open_store(tmp_path)
    # then
    assert store.msgs == (2 if seq <= LAST else 1)
    while store.store(b"a", b"", b"z", 7):
        assert store.last_seq <= LAST
    assert store.last_seq <= LAST
    assert store.catalogue.next_match(LAST, store.make_filter(())) in (0, LAST)
    store.close()


def test_a_memory_store_ends_with_the_last_sequence() -> None:
    store = MemStore()
    store.set_first_seq(2**64 - 1)
    assert store.store(b"a", b"", b"x", 5) == 0
    assert store.msgs == 0


@pytest.mark.parametrize("first_seq", [100, 2**64 - 1])
def test_a_first_sequence_behind_the_last_one_removes_nothing(tmp_path: Path, first_seq: int) -> None:
    state = plain_record(STATE, 1, struct.pack("<Qq", first_seq, 5))
    (tmp_path / "00000001.seg").write_bytes(segment_of(1, message_record(1, 5, b"a", b"", b"x"), state))
    log = ListLog()
    store = open_store(tmp_path, log)
    assert (store.msgs, store.first_seq) == (1, 1)
    assert any("not believed" in text for _, text in log.lines)
    store.close()


def test_a_removal_of_what_is_still_to_come_removes_nothing(tmp_path: Path) -> None:
    # given
    removal = plain_record(DELETES, 1, struct.pack("<Q", 2))
    (tmp_path / "00000001.seg").write_bytes(segment_of(1, message_record(1, 5, b"a", b"", b"x"), removal))
    log = ListLog()
    store = open_store(tmp_path, log)
    assert any("not believed" in text for _, text in log.lines)
    assert store.store(b"a", b"", b"y", 6) == 2
    store.close()
    # when
    store = open_store(tmp_path)
    # then
    assert store.msgs == 2
    store.close()


def test_metadata_is_found_in_a_segment_of_high_sequences() -> None:
    body = b"the metadata"
    data = segment_of(1 << 50, message_record(1 << 50, 5, b"a", b"", b"x"), plain_record(META, 1 << 50, body))
    assert last_meta(data) == body


def test_a_segment_of_gaps_ends_before_a_start_would_doubt_it(tmp_path: Path) -> None:
    # given
    store = open_store(tmp_path)
    store.store(b"s", b"", b"x", 1)
    for _ in range(300):
        assert store.skip_seqs_to(store.last_seq + 4000)
    store.store(b"s", b"", b"y", 2)
    before = store.last_seq
    store.flush()
    assert len(store.segment_paths()) == 2
    store.release()
    # when
    log = ListLog()
    store = open_store(tmp_path, log)
    # then
    assert (store.last_seq, store.msgs, log.lines) == (before, 2, [])
    store.close()
