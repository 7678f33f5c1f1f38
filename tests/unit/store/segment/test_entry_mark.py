"""Marks of a replicated stream: a start removes what follows the last one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.store.encodings import ENCODINGS
from tests.unit.store.file_state import INCARNATION

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.crypt.keys import StreamKey
from pyjs.store.file.store import FileStore

GROUP = 5


def open_replica(directory: Path, key: StreamKey | None, log: ListLog | None = None) -> FileStore:
    return FileStore(OsDisk(), str(directory), log or ListLog(), 1 << 20, INCARNATION, key, replicated=GROUP)


def segment(directory: Path) -> bytes:
    """Return the first segment without the space that is reserved after it."""
    return (directory / "00000001.seg").read_bytes().rstrip(b"\0")


@pytest.mark.parametrize("key", [None, ENCODINGS["chacha"][0]])
def test_what_follows_the_last_mark_of_a_plain_segment_is_cut_without_a_warning(
    tmp_path: Path, key: StreamKey | None
) -> None:
    # given: the server ends in an entry
    store = open_replica(tmp_path, None)
    store.begin_copied_entry()
    store.store(b"s", b"", b"marked", 1000)
    store.end_copied_entry(1, 1, 1000, 0, b"")
    store.flush()
    marked = segment(tmp_path)
    store.begin_copied_entry()
    store.store(b"s", b"", b"not marked", 1001)
    store.flush()
    store.release()
    # when: with a key, the next segment will be encrypted
    log = ListLog()
    again = open_replica(tmp_path, key, log)
    # then
    assert (again.last_seq, log.lines) == (1, [])
    assert segment(tmp_path).startswith(marked)
    assert b"not marked" not in segment(tmp_path)
    again.release()
