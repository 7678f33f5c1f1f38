"""Files that nobody writes by chance: a start neither hangs nor takes all memory."""

from __future__ import annotations

import struct
import time

from tests.unit.store.segment_files import message_record, segment_of

from pyjs.store.segment import scan_segment

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
