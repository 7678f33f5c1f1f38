"""The file of a duplicate window: its parts are used completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pyjs.base.disk import OsDisk
from pyjs.base.errors import CorruptRecord
from pyjs.store.crypt.keys import CHACHA, KeyRing, Locked
from pyjs.store.format.meta import KIND_WINDOW, encode
from pyjs.store.format.window_file import is_plain, read_parts, write_parts

PARTS: list[dict[str, Any]] = [
    {"total": 7, "count": count, "ids": b"some ids, and their seqs" * count} for count in (3, 3, 1)
]


class CountingDisk(OsDisk):
    """Records the largest number of bytes read at once."""

    largest = 0

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        data = super().read_at(fd, size, offset)
        self.largest = max(self.largest, len(data))
        return data


def written(directory: Path, parts: list[dict[str, Any]] = PARTS) -> str:
    path = f"{directory}/window"
    write_parts(OsDisk(), path, iter(parts))
    return path


def test_parts_are_read_one_at_a_time(tmp_path: Path) -> None:
    disk, parts = CountingDisk(), [{"total": 40, "count": 1, "ids": bytes(10_000)}] * 40
    assert list(read_parts(disk, written(tmp_path, parts))) == parts
    assert disk.largest < 11_000


def test_a_window_cut_between_two_parts_is_told(tmp_path: Path) -> None:
    path = written(tmp_path)
    size = len(encode(KIND_WINDOW, 1, PARTS[0]))
    os.truncate(path, 2 * size)
    with pytest.raises(CorruptRecord, match=f"at {2 * size}: it ends after 6 of 7 message ids"):
        list(read_parts(OsDisk(), path))


def test_every_cut_and_every_flipped_byte_is_told(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = Path(path).read_bytes()
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        for data in (whole[:at], flipped):
            Path(path).write_bytes(data)
            with pytest.raises(CorruptRecord):
                list(read_parts(OsDisk(), path))


@pytest.mark.parametrize("total", [1 << 40, "seven", None])
def test_a_total_that_no_file_of_that_size_can_have_is_told(tmp_path: Path, total: object) -> None:
    path = written(tmp_path, [PARTS[0] | {"total": total}])
    with pytest.raises(CorruptRecord, match=f"tells of {total} message ids in"):
        list(read_parts(OsDisk(), path))


def test_the_place_of_damage_counts_from_the_begin_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    first = len(encode(KIND_WINDOW, 1, PARTS[0]))
    data = bytearray(Path(path).read_bytes())
    data[first] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(CorruptRecord, match=f"at {first}: "):
        list(read_parts(OsDisk(), path))


def test_parts_in_another_order_are_told(tmp_path: Path) -> None:
    path, encoded = written(tmp_path), [encode(KIND_WINDOW, n, part) for n, part in enumerate(PARTS, 1)]
    Path(path).write_bytes(encoded[1] + encoded[0] + encoded[2])
    with pytest.raises(CorruptRecord, match="part 2 is where part 1 belongs"):
        list(read_parts(OsDisk(), path))


def test_sealed_parts_need_their_key(tmp_path: Path) -> None:
    path, key = f"{tmp_path}/window", KeyRing("secret", CHACHA, os.urandom, "").new_key()
    write_parts(OsDisk(), path, PARTS, key)
    assert not is_plain(OsDisk(), path)
    assert b"some ids" not in Path(path).read_bytes()
    assert list(read_parts(OsDisk(), path, key)) == PARTS
    with pytest.raises(Locked):
        list(read_parts(OsDisk(), path))


def test_a_failed_write_leaves_the_window_that_was_there(tmp_path: Path) -> None:
    class FullDisk(OsDisk):
        def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
            if offset:
                raise OSError(28, "No space left on device")
            super().write_at(fd, data, offset)

    whole = {"total": 1, "count": 1, "ids": b"a"}
    path = written(tmp_path, [whole])
    with pytest.raises(OSError, match="No space"):
        write_parts(FullDisk(), path, PARTS)
    assert list(read_parts(OsDisk(), path)) == [whole]
