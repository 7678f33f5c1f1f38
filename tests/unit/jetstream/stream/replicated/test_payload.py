"""The format of payloads: an example that is decoded by hand, and invalid bytes."""

from __future__ import annotations

import random

import pytest

from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.payload import KINDS, items_of, operation, payload_fault

ONE = bytes.fromhex(
    "01 00 0000 01000000"  # version, spare, spare, one item
    "11000000 01 00 0300 00000000"  # size 17, message, spare, subject of 3 bytes, no headers
    "612e62 6869"  # "a.b", "hi"
)


def test_a_payload_of_one_message_is_as_documented() -> None:
    assert operation("message", b"hi", b"a.b") == ONE
    assert payload_fault(ONE) is None
    assert items_of(ONE) == [("message", b"a.b", b"", b"hi")]


def test_an_empty_payload_has_no_items() -> None:
    assert payload_fault(b"") is None


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        (ONE[:4], "a payload of 4 bytes"),
        (b"\2" + ONE[1:], "its payload has version 2, and this server knows 1"),
        (ONE[:-1], "byte 8 of its payload: its size is wrong"),
        (ONE + b"x", "byte 25 of its payload: it is cut off"),
        (ONE.replace(b"a.b", b"a b"), "byte 8 of its payload: a separator in a subject"),
        (ONE[:4] + b"\2" + ONE[5:], "its payload has 1 items instead of 2"),
        (ONE[:12] + b"\x63" + ONE[13:], "byte 8 of its payload: an unknown kind"),
        (operation("skip", b"1"), "byte 8 of its payload: an operation of a wrong size"),
        (ONE[:4] + b"\2\0\0\0" + ONE[8:] + operations.skip(3)[8:],
         "byte 25 of its payload: an operation that is not alone"),
        (operation("batch", b"", b"id"), "byte 8 of its payload: an empty batch"),
        (operation("consumer state", bytes(9)), "byte 8 of its payload: a consumer without name, or with headers"),
        (operation("consumer changes", bytes(7), b"c"),
         "byte 8 of its payload: an item about a consumer of a wrong size"),
        (operation("consumer deleted", bytes(9), b"c"),
         "byte 8 of its payload: an item about a consumer of a wrong size"),
        (ONE[:4] + b"\2\0\0\0" + operation("consumer deleted", bytes(8), b"c")[8:] + ONE[8:],
         "byte 8 of its payload: an operation that is not alone"),
        (operation("mirrored", bytes(15), b"a"), "byte 8 of its payload: a mirrored message of a wrong size"),
        (operation("mirrored", bytes(16), b"a"),
         "byte 8 of its payload: a mirrored message without sequence or time"),
        (operation("sourced", b"x"), "byte 8 of its payload: a message without subject"),
        (operation("positions"), "byte 8 of its payload: an operation of a wrong size"),
        (operation("clock step", bytes(8)), "byte 8 of its payload: an operation of a wrong size"),
        (operation("clock step", b"\xff" * 8), "byte 8 of its payload: an operation of a wrong size"),
        (operation("clock step", bytes(9)), "byte 8 of its payload: an operation of a wrong size"),
        (operation("clock step", b"\1" * 7 + b"\0", b"s"), "byte 8 of its payload: an operation of a wrong size"),
        (ONE[:4] + b"\2\0\0\0" + ONE[8:] + operation("clock step", b"\1" * 7 + b"\0")[8:],
         "byte 25 of its payload: an operation that is not alone"),
        (operation("batch", operation("sourced", b"x", b"a")[8:], b"id"),
         "byte 22 of its payload: an operation that is not alone"),
        (operation("batch", operation("consumer changes", bytes(8), b"c")[8:], b"id"),
         "byte 22 of its payload: an operation that is not alone"),
    ],
)  # fmt: skip
def test_the_first_fault_is_named(payload: bytes, fault: str) -> None:
    assert payload_fault(payload) == fault


def test_changes_of_consumers_are_together_with_messages() -> None:
    changes, state = (
        operation("consumer changes", bytes(8), b"c"),
        operation("consumer state", bytes(9), b"c"),
    )
    payload = ONE[:4] + b"\3\0\0\0" + ONE[8:] + changes[8:] + state[8:]
    assert payload_fault(payload) is None
    assert [kind for kind, *_ in items_of(payload)] == ["message", "consumer changes", "consumer state"]


def test_no_bytes_crash_the_check() -> None:
    rng = random.Random(5)
    batch = operation("batch", ONE[8:] * 3, b"id")
    valid = [ONE, batch, operations.purge(b"a.>", 1, 2), operations.delete(1, True), operation("expiry")]
    valid += [operation(f"consumer {kind}", bytes(12), b"c") for kind in ("created", "state", "changes")]
    for _ in range(20_000):
        data = bytearray(rng.choice(valid))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
        made = bytes(data)
        if payload_fault(made) is None:
            assert all(kind in KINDS for kind, *_ in items_of(made))
