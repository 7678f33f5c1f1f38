"""Reading ahead: it takes any sequence and size, and has no effect but on the page cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.store.encodings import ENCODINGS, upkeep
from tests.unit.store.file_state import open_store, state_of

SEGMENT_SIZE = 8_000
COUNT = 200
HIGHEST = (1 << 64) - 1


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_it_takes_any_sequence_and_size_and_changes_nothing(encoding: str, tmp_path: Path) -> None:
    # given: several segments of which nothing was read yet, with removed messages
    key, codec = ENCODINGS[encoding]
    store = open_store(tmp_path, None, SEGMENT_SIZE, key, codec)
    for seq in range(1, COUNT + 1):
        store.store(b"s", b"", b"%04d" % seq + b"x" * 150, 1000 + seq)
    for seq in (1, 2, *range(50, 120, 3)):
        store.drop_seq(seq)
    store.flush()
    store.sync_now()
    upkeep(store)
    expected = state_of(store)
    store.release()
    store = open_store(tmp_path, None, SEGMENT_SIZE, key, codec)
    assert len(store.segment_paths()) > 3
    # when
    for seq in (0, 1, 2, 49, 50, 51, COUNT // 2, COUNT, COUNT + 1, HIGHEST):
        for size in (0, 1, SEGMENT_SIZE, 10 * SEGMENT_SIZE, HIGHEST):
            store.read_ahead(seq, size)
    # then
    assert state_of(store) == expected
    store.release()
