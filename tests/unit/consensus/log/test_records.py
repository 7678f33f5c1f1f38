"""Records of the node log: the example of the document, and invalid bytes."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from random import Random

import pytest
import xxhash
from tests.sim.disk import SimDisk
from tests.support.node_logs import DIRECTORY, Write, opened, synced

from pyjs.consensus.log.records import (
    HEAD,
    RECORD_SIZE_MIN,
    Base,
    Membership,
    body_of,
    decode_base,
    decode_census,
    encode_base,
    encode_census,
    head_at,
    payload_of,
)

DOCUMENT = Path(__file__).parents[4] / "docs" / "node-log-format.md"
HEADER_SIZE, HEAD_SIZE = 72, 104


def example() -> bytes:
    """Return the bytes of the document's example; text after two spaces is a comment."""
    text = DOCUMENT.read_text().partition("## Example\n")[2]
    lines = text.partition("```\n")[2].partition("```")[0].splitlines()
    return bytes.fromhex(" ".join(re.split("  +", line.strip())[0] for line in lines))


def test_the_log_writes_the_example_of_the_document() -> None:
    disk = SimDisk(Random(1))
    log = opened(disk, 7)
    log.create(5, "S", 1 << 32 | 1, Membership((1, 2, 3)), 1, 1)
    log.write(Write(5, (2, 1, 1), 2, ((2, 1, b"\x02\x00"),)), [b"hi"])
    synced(log)

    data, shown = disk.read_file(f"{DIRECTORY}/00000001.log"), example()
    assert data[: len(shown)] == shown
    assert data[-HEADER_SIZE:] == shown[:HEADER_SIZE]
    assert not data[len(shown) : -HEADER_SIZE].strip(b"\0")


def test_the_example_of_the_document_is_decoded_by_its_layout() -> None:
    data = example()
    magic, version, major, minor, zero, size, file_id, number, boot, first, synced_to, check = struct.unpack(
        "<8sHBBI7Q", data[:HEADER_SIZE]
    )
    assert (magic, version, major, minor, zero, size) == (b"PYJSRLOG", 1, 0, 1, 0, 4096)
    assert (number, boot, first, synced_to) == (1, 1, 1, 0)
    assert check == xxhash.xxh3_64_intdigest(data[:64])
    found, at = [], HEADER_SIZE
    while at < len(data):
        mark, size, kind, flags, entry_kind, body_size, *numbers = struct.unpack_from("<IIBBHI11Q", data, at)
        end = at + HEAD_SIZE + body_size
        (check,) = struct.unpack_from("<Q", data, end)
        payload = data[end + 8 : at + size]
        assert mark == file_id & 0xFFFFFFFF
        assert check == xxhash.xxh3_64_intdigest(data[at:end], file_id)
        assert numbers.pop() == xxhash.xxh3_64_intdigest(payload)
        found.append((kind, flags, entry_kind, numbers, data[at + HEAD_SIZE : end], payload))
        at += size
    group = struct.pack("<QQQHHHHBBH3Q", 1 << 32 | 1, 1, 1, 3, 0, 0, 0, 0, 0, 1, 1, 2, 3) + b"S"
    assert found == [
        (4, 0, 0, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0], bytes(8), b""),
        (2, 4, 0, [2, 1, 0, 5, 2, 0, 0, 0, 1, 0], group, b""),
        (1, 1, 1, [3, 1, 5, 5, 3, 2, 1, 1, 2, 2], b"\x02\x00", b"hi"),
    ]


def test_any_other_byte_makes_a_record_none() -> None:
    data = example()
    file_id = int.from_bytes(data[24:32], "little")
    end = HEADER_SIZE + int.from_bytes(data[HEADER_SIZE + 4 : HEADER_SIZE + 8], "little")
    assert head_at(memoryview(data), HEADER_SIZE, len(data), file_id) is not None
    for at in range(HEADER_SIZE, end):
        wrong = bytearray(data)
        wrong[at] ^= 1
        assert head_at(memoryview(wrong), HEADER_SIZE, len(data), file_id) is None
    assert head_at(memoryview(data), HEADER_SIZE, HEADER_SIZE + RECORD_SIZE_MIN - 1, file_id) is None
    assert head_at(memoryview(data), HEADER_SIZE, len(data), file_id + (1 << 32)) is None


def test_a_payload_that_changed_is_none() -> None:
    data = bytearray(example())
    file_id, at = int.from_bytes(data[24:32], "little"), data.rindex(data[24:28])
    head = head_at(memoryview(data), at, len(data), file_id)
    assert head is not None
    assert body_of(memoryview(data), at, head) == b"\x02\x00"
    assert payload_of(memoryview(data), at, head) == b"hi"
    data[-1] ^= 1
    assert head_at(memoryview(data), at, len(data), file_id) == head
    assert payload_of(memoryview(data), at, head) is None


def test_what_a_group_is_comes_back() -> None:
    base = Base(2**64 - 1, 7, 3, Membership((1, 2), (3,), (4,), (5, 6), True), "ünï")
    assert decode_base(encode_base(base)) == base
    with pytest.raises(ValueError, match="a body of 90 bytes, its fields make 89"):
        decode_base(encode_base(base) + b"x")


def test_a_census_comes_back() -> None:
    assert decode_census(encode_census(9, [(1, 5), (7, 0)])) == (9, [(1, 5), (7, 0)])
    assert decode_census(encode_census(0, [])) == (0, [])


def test_the_head_has_no_padding() -> None:
    assert HEAD.size == HEAD_SIZE
