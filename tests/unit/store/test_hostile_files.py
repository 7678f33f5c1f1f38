"""Files that nobody writes by chance: a start neither hangs nor takes all memory."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from tests.unit.store.file_state import open_store
from tests.unit.store.segment_files import META, STATE, message_record, segment_of

from pyjs.base.log import ListLog
from pyjs.store.segment import last_meta, scan_segment

FAST_S = 5.0  # what took minutes takes well below


def test_damage_in_front_of_bytes_that_look_like_records_is_passed_quickly() -> None:
    # given: a damaged record whose payload, as a client chose it, looks like a long record at every 32nd byte
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
    """Return a record that is no message, without its checksum."""
    return struct.pack("<IBBHQqII", 40 + len(body), kind, 0, 0, seq, 0, 0, 0) + body


@pytest.mark.parametrize("kind", [STATE, META])
def test_a_record_with_a_sequence_far_ahead_does_not_fill_the_memory(kind: int) -> None:
    body = struct.pack("<Qq", 1, 5)
    data = segment_of(1, plain_record(kind, 1 << 40, body), message_record(1, 5, b"a", b"", b"x"))
    found = scan_segment(data)
    assert (found.messages, found.n, len(found.problems)) == (1, 1, 1)


def test_many_gaps_in_one_segment_do_not_fill_the_memory() -> None:
    messages = [message_record(1 + at * 9_000_000, 5, b"a", b"", b"x") for at in range(20)]
    found = scan_segment(segment_of(1, *messages))
    assert (found.messages, len(found.problems)) == (2, 18)


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
