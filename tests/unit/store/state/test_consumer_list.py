"""The list of a stream's consumers: the cost of damage to its copies, and the result of a kill."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pyjs.base.disk import OsDisk
from pyjs.store.crypt.keys import CHACHA, KeyRing, Locked
from pyjs.store.format.meta import KIND_STREAM, Opener, UnknownFormat, encode
from pyjs.store.state.consumer_list import (
    MARK,
    ConsumerList,
    drop_values,
    encode_entry,
    encode_list,
    is_intact,
    list_paths,
    load_list,
    put_values,
)

ENTRIES: list[dict[str, Any]] = [
    put_values("a", 2, 77, {"durable_name": "a"}, b"state of a"),
    put_values("b", 3, 78, {"durable_name": "b"}, b"state of b"),
    put_values("a", 2, 77, {"durable_name": "a", "description": "changed"}, None),
    drop_values("b", 3),
    put_values("b", 6, 79, {"durable_name": "b"}, b"state of another b"),
    put_values("c", 7, 80, {"durable_name": "c"}, b"state of c"),
]
WHOLE = {"a": (2, "changed", b"state of a"), "b": (6, "", b"state of another b"), "c": (7, "", b"state of c")}


def image(count: int = len(ENTRIES)) -> bytes:
    """Return a file that was written entry by entry."""
    entries = enumerate(ENTRIES[:count], 2)
    return encode_list(1, [], None) + b"".join(encode_entry(number, each, None) for number, each in entries)


def load(directory: Path, *copies: bytes | None) -> ConsumerList:
    for path, data in zip(list_paths(str(directory)), copies, strict=True):
        Path(path).unlink(missing_ok=True) if data is None else Path(path).write_bytes(data)
    return load_list(OsDisk(), str(directory), Opener())


def live(found: ConsumerList) -> dict[str, tuple[int, str, bytes | None]]:
    return {
        each.name: (each.ident, each.config.get("description", ""), each.state)
        for each in found.live.values()
    }


def test_what_was_appended_is_there(tmp_path: Path) -> None:
    found = load(tmp_path, image(), image())
    assert live(found) == WHOLE
    assert (found.last, found.count, found.size, found.dropped) == (7, 7, len(image()), {("b", 3)})
    assert (found.clean, found.gaps, found.problems) == (True, [], [])


def test_a_stream_without_files_has_no_consumers(tmp_path: Path) -> None:
    for copies in ((None, None), (b"", None), (None, b""), (b"", b"")):
        found = load(tmp_path, *copies)
        assert (found.live, found.last, found.clean, found.gaps) == ({}, 0, True, [])


@pytest.mark.parametrize("damaged", [0, 1])
def test_any_damaged_byte_of_one_copy_loses_nothing(tmp_path: Path, damaged: int) -> None:
    whole = image()
    for at in range(len(whole)):
        copies = [whole, whole]
        copies[damaged] = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        found = load(tmp_path, *copies)
        assert live(found) == WHOLE, at
        assert found.problems, at
        assert (found.gaps, found.clean, found.last) == ([], False, 7), at


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_copy_that_ends_early_or_is_missing_loses_nothing(tmp_path: Path, damaged: int) -> None:
    whole = image()
    for end in (None, *range(len(whole))):
        copies: list[bytes | None] = [whole, whole]
        copies[damaged] = None if end is None else whole[:end]
        found = load(tmp_path, *copies)
        assert live(found) == WHOLE, end
        assert (bool(found.problems), found.gaps, found.clean) == (True, [], False), end


@pytest.mark.parametrize("zeros", [b"", bytes(40)])
def test_an_entry_that_was_being_appended_is_no_damage(tmp_path: Path, zeros: bytes) -> None:
    start, end = len(image(5)), len(image())
    for at in range(start + 1, end - 1):
        torn = image()[:at] + zeros
        found = load(tmp_path, torn, torn)
        assert (found.problems, found.gaps, found.last, found.clean) == ([], [], 6, False), at
        found = load(tmp_path, torn, image(5))
        assert (found.problems, found.gaps, found.last) == ([], [], 6), at


def test_an_entry_that_neither_copy_has_is_told(tmp_path: Path) -> None:
    at = len(image(4)) + 60
    damaged = image()[:at] + b"\0\0" + image()[at + 2 :]
    found = load(tmp_path, damaged, damaged)
    assert live(found) == {"a": WHOLE["a"], "c": WHOLE["c"]}
    assert (found.gaps, found.last) == ([(6, 6)], 7)


def test_damage_of_the_last_entry_or_of_everything_in_both_copies_is_told(tmp_path: Path) -> None:
    last = image()[:-20] + b"damage" + image()[-14:]
    assert load(tmp_path, last, last).gaps == [(7, 7)]
    assert load(tmp_path, b"damage", b"damage").gaps == [(1, 1)]
    assert load(tmp_path, b"damage", None).gaps == [(1, 1)]
    head = b"damage" + image()[6:]
    found = load(tmp_path, head, head)
    assert live(found) == WHOLE
    assert found.gaps == [(0, 1)]


def test_damage_of_each_copy_in_another_place_loses_nothing(tmp_path: Path) -> None:
    one = image()[:100] + b"damage" + image()[106:]
    other = image()[:-20] + b"damage" + image()[-14:]
    found = load(tmp_path, one, other)
    assert (live(found), found.gaps) == (WHOLE, [])


def test_a_list_that_was_rewritten_in_one_copy_counts(tmp_path: Path) -> None:
    entries = [each.values() for each in load(tmp_path, image(), image()).live.values()]
    anew = encode_list(8, entries, None)
    for copies in ((anew, image()), (image(), anew), (anew, anew)):
        found = load(tmp_path, *copies)
        assert live(found) == WHOLE
        assert (found.gaps, found.last, found.clean) == ([], 11, copies[0] == copies[1])
    cut = anew[: -len(encode_entry(11, entries[-1], None))]
    assert load(tmp_path, cut, cut).gaps == [(11, 11)]


def test_numbers_of_any_size_and_entries_of_any_kind_are_damage(tmp_path: Path) -> None:
    far = image() + encode_entry(1 << 61, drop_values("a", 2), None)
    assert load(tmp_path, far, far).gaps == [(8, (1 << 61) - 1)]
    for values in (
        {},
        {"op": []},
        {"op": "put", "name": 1},
        {"op": "head", "count": -1},
        drop_values("a", 99),
    ):
        strange = image() + encode_entry(8, values, None)
        assert load(tmp_path, strange, strange).gaps == [(8, 8)]
    alien = image() + encode_entry(8, drop_values("a", 2), None)[:8] + encode(KIND_STREAM, 8, {})
    assert load(tmp_path, alien, alien).gaps == [(8, 8)]


def test_a_newer_entry_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("pyjs.store.format.meta.VERSION", 2)
        later = image()
    with pytest.raises(UnknownFormat, match=r"consumers\.a was written by a newer version"):
        load(tmp_path, later, later)


def test_a_sealed_list_needs_its_key(tmp_path: Path) -> None:
    key = KeyRing("key", CHACHA, os.urandom).new_key()
    data = encode_list(1, ENTRIES[:1], key)
    with pytest.raises(Locked):
        load(tmp_path, data, data)
    opener = Opener(key)
    found = load_list(OsDisk(), str(tmp_path), opener)
    assert (list(found.live), found.sealed) == (["a"], True)
    for path in list_paths(str(tmp_path)):
        Path(path).write_bytes(image())
    assert load_list(OsDisk(), str(tmp_path), opener).sealed is False


def test_only_what_counts_is_read(tmp_path: Path) -> None:
    load(tmp_path, image(), image())
    ends = (len(image(1)), len(image(1)))
    assert list(load_list(OsDisk(), str(tmp_path), Opener(), ends).live) == ["a"]


def intact(directory: Path, *copies: bytes | None, ends: tuple[int, int] | None = None) -> bool:
    load(directory, *copies)
    size = len(image())
    return is_intact(OsDisk(), str(directory), ends or (size, size), Opener())


def test_whole_equal_copies_are_intact_up_to_their_ends(tmp_path: Path) -> None:
    assert intact(tmp_path, image(), image())
    unfinished = image() + encode_entry(8, drop_values("c", 7), None)[:20]
    assert intact(tmp_path, unfinished, image())
    assert intact(tmp_path, image(4), image(), ends=(len(image(4)),) * 2)


def test_copies_that_are_damaged_anywhere_are_not_intact(tmp_path: Path) -> None:
    for at in range(len(image())):
        damaged = bytearray(image())
        damaged[at] ^= 1
        assert not intact(tmp_path, bytes(damaged), bytes(damaged)), at
    for copies in ((image(), None), (image(), image(5)), (image(5), image(5)), (image(), b"")):
        assert not intact(tmp_path, *copies), copies
    second = image().index(MARK, 1)
    assert not intact(tmp_path, image()[second:], image()[second:], ends=(len(image()) - second,) * 2)
