"""The file that combines the index files of many streams: each part is complete or left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyjs.base.disk import OsDisk
from pyjs.store.format import tail_file
from pyjs.store.format.meta import KIND_TAILS, KIND_WINDOW, encode
from pyjs.store.format.tail_file import Tails, read_tails, tails_path, write_tails

TAILS: Tails = {f"S{number}": (number + 1, b"index of S%d" % number) for number in range(5)}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(tail_file, "PART_STREAMS", 2)
    return tails_path(f"{tmp_path}/streams")


def test_what_was_written_is_read(path: str) -> None:
    write_tails(OsDisk(), path, TAILS)
    assert read_tails(OsDisk(), path) == (TAILS, [])
    assert [each.name for each in Path(path).parent.iterdir()] == ["tails"]


def test_no_file_has_nothing(path: str) -> None:
    assert read_tails(OsDisk(), path) == ({}, [])


def test_without_entries_there_is_no_file(path: str) -> None:
    write_tails(OsDisk(), path, {})
    write_tails(OsDisk(), path, TAILS)
    write_tails(OsDisk(), path, {})
    assert not Path(path).exists()


def test_a_damaged_byte_costs_its_part_and_is_told(path: str) -> None:
    write_tails(OsDisk(), path, TAILS)
    whole = Path(path).read_bytes()
    parts = [dict(list(TAILS.items())[at : at + 2]) for at in (0, 2, 4)]
    size = len(encode(KIND_TAILS, 1, {"streams": parts[0]}))
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 0x10
        Path(path).write_bytes(data)
        tails, problems = read_tails(OsDisk(), path)
        hit = parts[min(at // size, 2)]
        assert tails == {name: TAILS[name] for name in TAILS if name not in hit}
        assert problems


def test_what_is_cut_off_is_left_out_and_told(path: str) -> None:
    write_tails(OsDisk(), path, TAILS)
    whole = Path(path).read_bytes()
    size = len(encode(KIND_TAILS, 1, {"streams": dict(list(TAILS.items())[:2])}))
    for at in range(len(whole)):
        Path(path).write_bytes(whole[:at])
        tails, problems = read_tails(OsDisk(), path)
        assert tails == dict(list(TAILS.items())[: at // size * 2])
        assert bool(problems) == (at % size > 0)


@pytest.mark.parametrize(
    "values",
    [{}, {"streams": 1}, {"streams": {"S": 1}}, {"streams": {"S": [-1, b""]}}, {"streams": {1: [1, b""]}}],
)
def test_entries_that_make_no_sense_are_left_out(path: str, values: dict[str, Any]) -> None:
    Path(path).write_bytes(encode(KIND_TAILS, 1, values))
    assert read_tails(OsDisk(), path)[0] == {}


def test_envelopes_of_another_kind_are_told(path: str) -> None:
    Path(path).write_bytes(encode(KIND_WINDOW, 1, {"streams": {"S": [1, b""]}}))
    assert read_tails(OsDisk(), path) == (
        {},
        [f"{path} at 10: it is of kind 4 where kind 6 belongs (part at 0)"],
    )
