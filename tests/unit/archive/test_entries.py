"""Entries of an archive: their bytes."""

from __future__ import annotations

from pyjs.archive.entries import encode


def test_an_entry_has_these_bytes() -> None:
    # name size 1, time 3 (zigzag 6), sequence 300, no headers, payload of 2 bytes
    assert encode(b"s", 3, 300, b"", b"ab") == b"\x01\x06\xac\x02\x00\x02sab"


def test_times_before_the_epoch_alternate_with_those_after_it() -> None:
    assert encode(b"", -1, 0, b"", b"")[1:2] == b"\x01"
