"""Segments of an open store that are read completely because something in them is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.store.file_state import open_store
from tests.unit.store.segment_files import resealed

from pyjs.base.errors import NotNow
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore

SEGMENT_SIZE = 2000
COUNT = 30


def filled(directory: Path, log: ListLog | None = None) -> FileStore:
    """Return a reopened store of several sealed segments with their index files."""
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    for seq in range(1, COUNT + 1):
        store.store(b"s", b"", b"payload %02d" % seq * 10, 1000 + seq)
    store.flush()
    store.close()
    return open_store(directory, log, SEGMENT_SIZE)


def damage(directory: Path, seq: int) -> None:
    """Change a byte of a message in its file."""
    wanted = b"payload %02d" % seq
    path = next(path for path in sorted(directory.glob("*.seg")) if wanted in path.read_bytes())
    data = bytearray(path.read_bytes())
    data[data.index(wanted) + 20] ^= 1
    with path.open("r+b") as file:  # in place: the store has the file open
        file.write(data)


def there(store: FileStore) -> list[int]:
    return [seq for seq in range(1, COUNT + 1) if store.get(seq) is not None]


def without(*lost: int) -> list[int]:
    return [seq for seq in range(1, COUNT + 1) if seq not in lost]


def test_a_whole_segment_loses_nothing(tmp_path: Path) -> None:
    store = filled(tmp_path)

    assert [store.examiner.confirm(number) for number in store.sealed_numbers()] == [0] * len(
        store.sealed_numbers()
    )

    assert there(store) == without()
    assert store.lost is None
    store.release()


def test_a_damaged_message_is_dropped_counted_and_told(tmp_path: Path) -> None:
    store = filled(tmp_path, log := ListLog())
    damage(tmp_path, 3)

    assert store.examiner.confirm(1) == 1

    assert there(store) == without(3)
    assert store.lost is not None
    assert store.lost[:2] == (1, [3])
    assert store.lost[2] > 0
    assert [text for level, text in log.lines if "are lost: [3]" in text]
    store.release()


def test_damage_is_counted_once(tmp_path: Path) -> None:
    store = filled(tmp_path)
    damage(tmp_path, 3)
    assert store.get(3) is None
    lost = store.lost

    assert store.examiner.confirm(1) == 0
    assert store.get(3) is None

    assert store.lost == lost
    store.release()


def test_the_index_file_of_a_damaged_segment_goes_so_that_a_start_finds_it_again(tmp_path: Path) -> None:
    store = filled(tmp_path)
    damage(tmp_path, 3)
    store.examiner.confirm(1)
    assert not (tmp_path / "00000001.idx").exists()
    store.close()

    again = open_store(tmp_path, segment_size=SEGMENT_SIZE)

    assert there(again) == without(3)
    assert again.lost is not None
    again.release()


def test_a_segment_that_still_grows_or_is_gone_is_not_examined(tmp_path: Path) -> None:
    store = filled(tmp_path)
    damage(tmp_path, COUNT)
    last = len(store.segment_paths())

    assert store.examiner.confirm(last) == 0
    assert store.examiner.confirm(last + 1) == 0
    store.release()
    assert store.examiner.confirm(1) == 0

    assert store.lost is None


def test_where_the_index_is_wrong_nothing_is_lost_and_the_store_is_to_be_opened_again(tmp_path: Path) -> None:
    filled(tmp_path).release()
    path = tmp_path / "00000001.idx"
    data = bytearray(path.read_bytes())
    at = 128 + 40 + 8  # the time of the second entry of the index file
    data[at] ^= 1
    path.write_bytes(resealed(bytes(data)))
    store = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    asked: list[int] = []
    store.examiner.on_mistake = lambda: asked.append(1)

    assert store.examiner.confirm(1) == 1

    assert asked == [1]
    assert store.lost is None
    assert not path.exists()
    damage(tmp_path, 12)
    with pytest.raises(NotNow):
        there(store)
    store.release()
    again = open_store(tmp_path, segment_size=SEGMENT_SIZE)
    assert again.get(2) is not None
    again.release()
