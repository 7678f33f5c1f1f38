"""Marks of a replicated stream: a start removes what follows the last one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.unit.store.encodings import ENCODINGS
from tests.unit.store.file_state import INCARNATION
from xxhash import xxh64_intdigest

from pyjs.base.disk import OsDisk
from pyjs.base.errors import CorruptRecord
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


HOUR = 3_600_000_000_000


def steps(*pairs: tuple[int, int]) -> bytes:
    """Return encoded clock steps."""
    return b"".join(struct.pack("<qq", *pair) for pair in pairs)


def stepped(directory: Path, key: StreamKey | None, data: bytes, last_id: bytes = b"") -> FileStore:
    """Return a store whose last entry left clock steps, after an entry that did not."""
    store = open_replica(directory, key)
    store.begin_copied_entry()
    store.store(b"s", b"", b"first", 1000)
    store.end_copied_entry(1, 1, 1000, 0, b"")
    store.expect_step()
    store.begin_copied_entry()
    store.store(b"s", b"", b"second", 3 * HOUR)
    store.end_copied_entry(2, 1, 3 * HOUR, 500, last_id, data)
    return store


def versions(store: FileStore) -> list[int]:
    """Return the version of each segment."""
    return [struct.unpack_from("<H", Path(path).read_bytes(), 8)[0] for path in store.segment_paths()]


@pytest.mark.parametrize("name", list(ENCODINGS))
@pytest.mark.parametrize("last_id", [b"", b"an id", bytes(300)])
def test_a_mark_has_the_clock_steps(tmp_path: Path, name: str, last_id: bytes) -> None:
    key = ENCODINGS[name][0]
    data = steps(*((1 + number * 10, 5) for number in range(1, 8)), (3 * HOUR, HOUR))
    store = stepped(tmp_path, key, data, last_id)
    store.release()
    again = open_replica(tmp_path, key)
    assert (again.applied_index, again.applied_id, again.ids_from) == (2, last_id[:256], 500)
    assert again.steps.encode() == data
    again.begin_copied_entry()
    again.end_copied_entry(3, 1, 4 * HOUR, 500, b"x")
    again.release()
    last = open_replica(tmp_path, key)
    assert (last.applied_index, last.applied_id, last.steps.count, last.msgs) == (3, b"x", 0, 2)
    last.release()


def test_only_a_segment_with_clock_steps_has_the_newer_version(tmp_path: Path) -> None:
    store = stepped(tmp_path, None, steps((3 * HOUR, HOUR)))
    assert versions(store) == [3, 4]
    store.expect_step()  # the open segment may have steps already
    assert versions(store) == [3, 4]
    store.begin_copied_entry()
    store.end_copied_entry(3, 1, 4 * HOUR, 500, b"")
    store.release()


@pytest.mark.parametrize(
    "pair",
    [(0, 0), (1, -1), (-(1 << 63), (1 << 63) - 1), ((1 << 63) - 1, 1), (HOUR, HOUR), (3 * HOUR + 1, 1)],
)
def test_impossible_clock_steps_are_refused_by_name(tmp_path: Path, pair: tuple[int, int]) -> None:
    good = steps((3 * HOUR, HOUR))
    store = stepped(tmp_path, None, good)
    path = store.segment_paths()[-1]
    store.release()
    written = Path(path).read_bytes()
    Path(path).write_bytes(resealed(written, good, steps(pair)))
    with pytest.raises(CorruptRecord, match=r"00000002\.seg.*clock step"):
        open_replica(tmp_path, None)


def resealed(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return a segment with other bytes in its records, which have the right checksums."""
    out, at = bytearray(data[:64]), 64
    while at + 40 <= len(data) and (length := struct.unpack_from("<I", data, at)[0]):
        record = data[at : at + length].replace(old, new)
        own = xxh64_intdigest(record[32:-8], xxh64_intdigest(record[:28]))
        check = struct.pack("<I", own & 0xFFFFFFFF or 1)
        checksum = struct.pack(
            "<Q", xxh64_intdigest(struct.pack("<Q", own), struct.unpack("<Q", out[-8:])[0])
        )
        out += record[:28] + check + record[32:-8] + checksum
        at += length
    return bytes(out) + data[at:]


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_a_compacted_segment_keeps_a_mark_with_clock_steps(tmp_path: Path, name: str) -> None:
    data, key = steps((3 * HOUR, HOUR)), ENCODINGS[name][0]
    store = stepped(tmp_path, key, data)
    for number in range(3, 45):
        store.begin_copied_entry()
        store.store(b"s", b"", bytes(50_000), 3 * HOUR + number)
        store.end_copied_entry(number, 1, 3 * HOUR + number, 500, b"x", data)
    compacted = store.segment_paths()[1]
    size = Path(compacted).stat().st_size
    store.begin_copied_entry()
    for seq in range(2, 18):
        store.drop_seq(seq)
    store.end_copied_entry(45, 1, 4 * HOUR, 4 * HOUR, b"y", data)  # the removed messages need no headers
    store.sync_now()
    while (job := store.begin_upkeep()) is not None:
        store.finish_upkeep(job())
    store.release()
    for path in sorted(tmp_path.glob("*.seg"))[2:]:
        path.unlink()  # so that its mark is the last one

    again = open_replica(tmp_path, key)

    assert Path(compacted).stat().st_size < size // 2
    assert (again.steps.encode(), again.applied_index > 2, again.applied_id) == (data, True, b"x")
    again.release()
