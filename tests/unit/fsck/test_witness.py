"""Index files with a missing, unreadable or cut segment: a check reports the messages that a start counts as lost."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import xxhash
from tests.unit.fsck.store_files import (
    STREAM,
    Damage,
    check,
    cut,
    keep_up,
    overwritten,
    removed,
    start,
    tree,
    without_indexes,
)
from tests.unit.store.segment_files import DELETES, MSG, records

from pyjs.fsck.mending import _seal

ONE, TWO, LAST = "msgs/00000001.seg", "msgs/00000002.seg", "msgs/00000003.seg"
ENCODINGS = pytest.mark.parametrize("encoding", ["plain", "s2", "chacha", "s2 and chacha"])
MATRIX: dict[str, Damage] = {
    "the header and more of the first": overwritten(ONE, 32, 3000, b"\x55"),
    "the first is missing": removed(ONE),
    "the second is missing": removed(TWO),
    "the last is missing": removed(LAST),
    "two are missing": removed(ONE, TWO),
    "the first is zeros": overwritten(ONE, 0, 1 << 20),
    "the last is zeros": overwritten(LAST, 0, 1 << 20),
    "the last is cut": cut(LAST, 1000),
    "the last is nearly gone": cut(LAST, 20_000),
    "the second is cut": cut(TWO, 300),
    "the first is cut": cut(ONE, 5000),
    "the second is noise": overwritten(TWO, 0, 1 << 20, b"\x5a"),
}


def served(root: Path, encoding: str) -> dict[str, Any]:
    """Start a server on a copy of `root` with its index files, and return the contents of its stream."""
    copy = shutil.copytree(root, root.with_name("served"))
    js = start(copy, encoding)
    state = js.state("S")
    found = {key: state[key] for key in ("messages", "bytes", "first_seq", "last_seq")}
    found |= {"lost": js.stream("S").store.lost, "payloads": js.payloads("S")}
    js.node.stop()
    shutil.rmtree(copy)
    return found


@ENCODINGS
@pytest.mark.parametrize("name", MATRIX)
def test_a_check_tells_what_a_start_will_count_as_lost(name: str, root: Path, encoding: str) -> None:
    MATRIX[name](root)
    before = tree(root)

    report = check(root, encoding)

    assert tree(root) == before
    found = {stream.name: stream for stream in report.streams}["S"]
    state = served(root, encoding)
    assert state["lost"] is not None
    assert sorted(seq for first, last in found.lost for seq in range(first, last + 1)) == state["lost"][1]
    assert (found.messages, found.bytes, found.first_seq, found.last_seq) == tuple(
        state[field] for field in ("messages", "bytes", "first_seq", "last_seq")
    )
    assert report.exit_code() == 1


@ENCODINGS
@pytest.mark.parametrize("name", MATRIX)
def test_a_repair_keeps_what_only_the_index_file_told(name: str, root: Path, encoding: str) -> None:
    MATRIX[name](root)
    expected = served(root, encoding)

    repaired = check(root, encoding, repair=True)
    again = check(root, encoding)

    gone = {stream.name: stream for stream in repaired.streams}["S"].gone
    assert sorted(seq for first, last in gone for seq in range(first, last + 1)) == expected["lost"][1]
    assert [each.what for each in again.all_findings() if each.level != "note" and "/msgs" in each.path] == []
    found = served(root, encoding)
    assert found.pop("lost") is None
    expected.pop("lost")
    assert found == expected


@pytest.mark.parametrize("encoding", ["plain"])
def test_an_index_file_of_which_nothing_is_left_is_no_damage(root: Path, encoding: str) -> None:
    js = start(root, encoding)
    stream = root / STREAM
    kept = (stream / "msgs/00000001.idx").read_bytes()
    js.api("STREAM.PURGE.S", {"keep": 2})
    keep_up(js)
    js.node.stop()
    assert not (stream / ONE).exists()
    (stream / "msgs/00000001.idx").write_bytes(kept)

    report = check(root, encoding)

    told = [each for each in report.all_findings() if each.path.endswith("00000001.idx")]
    assert [(each.level, each.what) for each in told] == [
        ("note", "its segment is gone, and so is all that was in it; a start removes it")
    ]
    assert report.exit_code() == 0
    start(root, encoding).node.stop()
    assert not (stream / "msgs/00000001.idx").exists()


@pytest.mark.parametrize("encoding", ["plain"])
def test_an_index_file_that_says_nothing_is_removed_by_a_start(root: Path, encoding: str) -> None:
    path = root / STREAM / "msgs/00000007.idx"
    path.write_bytes(b"nothing")

    report = check(root, encoding)

    told = [each for each in report.all_findings() if each.path == str(path)]
    assert [(each.level, each.what) for each in told] == [
        ("note", "it tells nothing, and there is no segment; a start removes it")
    ]
    start(root, encoding).node.stop()
    assert not path.exists()


@pytest.mark.parametrize("encoding", ["plain"])
def test_segments_are_taken_in_the_order_of_their_numbers(root: Path, encoding: str) -> None:
    messages = root / STREAM / "msgs"
    for path in messages.glob("*.idx"):
        path.unlink()
    for number, name in ((1, "99999998"), (2, "99999999"), (3, "100000000")):
        renumber(messages / f"{number:08d}.seg", messages / f"{name}.seg")

    report = check(root, encoding)

    assert [each.what for each in report.all_findings() if each.level == "damage"] == []
    found = {stream.name: stream for stream in report.streams}["S"]
    assert found.segments == 3


def renumber(path: Path, to: Path) -> None:
    """Change the number of a segment: its records are chained to the header, so their checksums are recomputed."""
    data = path.read_bytes()
    path.unlink()
    head = data[:32] + struct.pack("<I", int(to.stem)) + data[36:56]
    out = bytearray(head + struct.pack("<Q", xxhash.xxh64_intdigest(head)))
    for _, kind, record in records(data):
        # its payload is overwritten, but its checksum is still the original one
        if kind == MSG and record[5] & 2:
            out += record
        else:
            _seal(out, record[:-8])
    to.write_bytes(out)


@pytest.mark.parametrize("encoding", ["plain"])
@pytest.mark.parametrize("count", [1, 5])
def test_whole_records_that_are_missing_at_an_end_are_lost(root: Path, encoding: str, count: int) -> None:
    data = (root / STREAM / TWO).read_bytes()
    ends = [at for at, _, _ in records(data)]
    (root / STREAM / TWO).write_bytes(data[: ends[-count]])
    without_indexes(root)

    report = check(root, encoding)

    found = {stream.name: stream for stream in report.streams}["S"]
    state = served(root, encoding)
    lost: list[int] = state["lost"][1] if state["lost"] else []
    assert bool(lost) == (count > 1)
    assert sorted(seq for first, last in found.lost for seq in range(first, last + 1)) == lost
    assert [each.what for each in report.all_findings() if each.level == "damage"] == [
        "the end of the segment is missing"
    ]
    check(root, encoding, repair=True)
    assert check(root, encoding).exit_code() == 0
    again = served(root, encoding)
    assert (again["messages"], again["last_seq"]) == (state["messages"], state["last_seq"])


def with_damaged_removals(root: Path, encoding: str, grown: bool) -> Path:
    """Overwrite the removals in the middle of the last segment; `grown`: a kill came after the next start."""
    js = start(root, encoding)
    js.publish("s.1", b"later")
    js.node.stop()
    if grown:
        js = start(root, encoding)
        js.publish("s.1", b"later")
        root = shutil.copytree(root, root.with_name("killed"))
        js.node.stop()
    path = root / STREAM / LAST
    data = path.read_bytes()
    places = [(at, at + len(record)) for at, kind, record in records(data) if kind == DELETES]
    first, end = places[0][0], places[-1][1]
    path.write_bytes(data[:first] + bytes(end - first) + data[end:])
    return root


@pytest.mark.parametrize("encoding", ["plain"])
@pytest.mark.parametrize("grown", [False, True])
def test_removals_whose_records_are_damaged_are_taken_from_the_index_file(
    root: Path, encoding: str, grown: bool
) -> None:
    expected = set(served(root, encoding)["payloads"])
    root = with_damaged_removals(root, encoding, grown)

    report = check(root, encoding)

    found = {stream.name: stream for stream in report.streams}["S"]
    state = served(root, encoding)
    assert {payload for payload in state["payloads"] if payload != b"later"} <= expected
    assert (found.messages, found.last_seq, found.lost) == (state["messages"], state["last_seq"], [])
    assert report.exit_code() == 1
    check(root, encoding, repair=True)
    assert check(root, encoding).exit_code() == 0
    again = served(without_indexes(root), encoding)
    assert (again["payloads"], again["lost"]) == (state["payloads"], None)
