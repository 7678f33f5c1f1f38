"""The file of a purge in steps: its bytes, and invalid files."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from pyjs.base.disk import OsDisk
from pyjs.base.errors import CorruptRecord
from pyjs.store.format.meta import KIND_PURGE, KIND_WINDOW, encode
from pyjs.store.format.purge_file import Purge, encode_purge, read_purge


def read(path: Path, data: bytes) -> Purge:
    """Decode `data` as the file of a purge."""
    path.write_bytes(data)
    return read_purge(OsDisk(), str(path), None)


def test_a_purge_is_read_as_it_was_written(tmp_path: Path) -> None:
    for purge in (Purge("a.*", 1), Purge("", (1 << 64) - 1), Purge("größe.>", 77)):
        assert read(tmp_path / "purge", encode_purge(purge, None)) == purge


def test_the_file_is_one_envelope_of_kind_5(tmp_path: Path) -> None:
    data = encode_purge(Purge("a", 3), None)
    assert (data[10], KIND_PURGE) == (5, 5)
    assert msgpack.unpackb(data[32:-8]) == {"subject": "a", "before_seq": 3}


@pytest.mark.parametrize(
    "values",
    [{}, {"subject": "a"}, {"subject": 1, "before_seq": 1}, {"subject": "a", "before_seq": 0}]
    + [{"subject": "a", "before_seq": each} for each in (-1, "9", 1.5)],
)
def test_values_that_no_purge_has_are_refused(tmp_path: Path, values: dict[str, object]) -> None:
    with pytest.raises(CorruptRecord, match="which messages are purged"):
        read(tmp_path / "purge", encode(KIND_PURGE, 1, values))


@pytest.mark.parametrize("size", [0, 10, 40])
def test_what_a_power_failure_left_of_it_is_refused(tmp_path: Path, size: int) -> None:
    data = encode_purge(Purge("a", 3), None)
    with pytest.raises(CorruptRecord):
        read(tmp_path / "purge", data[:size])
    with pytest.raises(CorruptRecord):
        read(tmp_path / "purge", data[:size] + bytes(len(data) - size))


def test_another_kind_of_envelope_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptRecord, match="kind 4"):
        read(tmp_path / "purge", encode(KIND_WINDOW, 1, {"subject": "a", "before_seq": 3}))
