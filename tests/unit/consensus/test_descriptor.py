"""Descriptors: their layout, composed by the test, and errors for damaged ones."""

from __future__ import annotations

import struct

import pytest
import xxhash

from pyjs.consensus.descriptor import SIZE, BadDescriptor, check, describe, payload_at, read


def test_a_descriptor_typed_by_hand_is_read() -> None:
    digest = xxhash.xxh3_128_digest(b"hello")
    by_hand = bytes.fromhex("05000000 01 000000 0700000000000000") + digest + bytes(8)

    assert describe(b"hello", 7) == by_hand
    assert read(by_hand) == (5, 7, digest)


def test_an_entry_without_a_payload_has_size_0() -> None:
    found = read(describe(b"", 0))

    assert found.size == 0
    check(found, b"")


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (4, "version 0 of a descriptor, 1 is known"),
        (5, "spare bytes that are not 0"),
        (7, "spare bytes that are not 0"),
        (15, "before the epoch"),
        (32, "spare bytes that are not 0"),
        (39, "spare bytes that are not 0"),
    ],
)
def test_a_damaged_field_is_named(at: int, text: str) -> None:
    data = bytearray(describe(b"hello", 7))
    data[at] ^= 0x81 if at == 15 else 1

    with pytest.raises(BadDescriptor, match=text):
        read(bytes(data))


@pytest.mark.parametrize("size", [0, SIZE - 1, SIZE + 1])
def test_another_size_is_refused(size: int) -> None:
    with pytest.raises(BadDescriptor, match=f"a descriptor of {size} bytes, not 40"):
        read(bytes(size))


def test_another_payload_is_refused() -> None:
    found = read(describe(b"hello", 7))

    with pytest.raises(BadDescriptor, match="a payload of 4 bytes, 5 are described"):
        check(found, b"hell")
    with pytest.raises(BadDescriptor, match="the digest of the payload of 5 bytes is wrong"):
        check(found, b"hallo")


def test_a_payload_is_found_behind_its_frames() -> None:
    described = describe(b"hello", 7)

    assert payload_at(b"..hello..", 2, described) == b"hello"
    assert payload_at(b"..", 2, describe(b"", 7)) == b""
    with pytest.raises(BadDescriptor, match="a payload of 3 bytes, 5 are described"):
        payload_at(b"..hel", 2, described)
    with pytest.raises(BadDescriptor, match="the digest of the payload"):
        payload_at(b"..hallo", 2, described)
    with pytest.raises(BadDescriptor, match="of 39 bytes, not 40"):
        payload_at(b"..hello", 2, described[:-1])
    with pytest.raises(BadDescriptor, match="before the epoch"):
        payload_at(b"..hello", 2, described[:15] + b"\x80" + described[16:])


def test_the_engine_reads_the_size_from_the_first_four_bytes() -> None:
    assert struct.unpack_from("<I", describe(b"x" * 70_000, 7)) == (70_000,)
