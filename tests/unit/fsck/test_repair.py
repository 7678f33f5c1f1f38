"""After a repair the server serves the same as it would without the repair: tested for a matrix of damages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.fsck.store_files import (
    STREAM,
    Damage,
    check,
    cut,
    extended,
    flipped,
    flipped_in_removals,
    overwritten,
    removed,
    renamed,
    served,
    start,
    tree,
    unwitnessed,
    without_indexes,
)

from pyjs.fsck.findings import NOTE

ONE, TWO, LAST = "msgs/00000001.seg", "msgs/00000002.seg", "msgs/00000003.seg"
MATRIX: dict[str, Damage] = {
    "first segment: magic": flipped(ONE, 0),
    "first segment: checksum of the header": flipped(ONE, 60),
    "first segment: configuration": flipped(ONE, 110),
    "first segment: a payload": flipped(ONE, 30_000),
    "first segment: a length": flipped(ONE, 6000),
    "first segment: a sector": overwritten(ONE, 8192, 512),
    "first segment: the footer": flipped(ONE, -50),
    "first segment: cut": unwitnessed(cut(ONE, 4000)),
    "first segment: zeros": overwritten(ONE, 0, 40_000),
    "second segment: header and first records": overwritten(TWO, 32, 3000),
    "last segment: header and first records": overwritten(LAST, 32, 3000),
    "second segment: a payload": flipped(TWO, 20_000),
    "second segment: a page": overwritten(TWO, 4096, 4096, b"\xff"),
    "second segment: its last message and footer": unwitnessed(cut(TWO, 300)),
    "second segment: bytes after the footer": extended(TWO, b"behind"),
    "last segment: a payload": flipped(LAST, 3000),
    "last segment: the last record": unwitnessed(flipped(LAST, -20)),
    "last segment: a removal": unwitnessed(flipped_in_removals(LAST, 33)),
    "last segment: the length of a removal": unwitnessed(flipped_in_removals(LAST, 0)),
    "last segment: a checksum": unwitnessed(flipped(LAST, -1)),
    "last segment: cut": unwitnessed(cut(LAST, 1000)),
    "last segment: a few bytes more": extended(LAST, b"\x31" * 20),
    "last segment: a sector more": extended(LAST, b"\x31" * 512),
    "last segment: renamed": unwitnessed(renamed(LAST, "msgs/00000012.seg")),
    "an index file": flipped("msgs/00000001.idx", 200),
    "index files gone": removed("msgs/00000001.idx", "msgs/00000002.idx"),
    "configuration a": flipped("meta.a", 40),
    "configuration b": flipped("meta.b", 3),
    "configuration a gone": removed("meta.a"),
    "both configurations": removed("meta.a", "meta.b"),
    "a consumer's configuration": flipped("consumers.a", 50),
    "a consumer's snapshot": flipped("consumers/first.2/snap.1", 60),
    "a consumer's log": flipped("consumers/first.2/log.1", -3),
    "a consumer's log cut": cut("consumers/first.2/log.1", 5),
    "a consumer's snapshot gone": removed("consumers/first.2/snap.1"),
    "the duplicate window": flipped("window", 50),
    "positions of sources": flipped("sources/snap.1", 60),
}

PENDING_GONE = (
    # a start settles messages that waited for an ack, since it knows that they are lost
    "first segment: zeros"
)


def test_what_the_server_left_at_a_stop_is_clean(root: Path) -> None:
    report = check(root)
    assert [(finding.what, finding.path) for finding in report.all_findings()] == []
    assert report.exit_code() == 0


@pytest.mark.parametrize("name", MATRIX)
def test_a_check_changes_nothing_and_tells_what_the_server_will_find(name: str, root: Path) -> None:
    MATRIX[name](root)
    before = tree(root)

    report = check(root)

    assert tree(root) == before
    found = {stream.name: stream for stream in report.streams}["S"]
    state = served(root)["S"]
    assert (found.messages, found.bytes, found.first_seq, found.last_seq) == tuple(
        state["state"][field] for field in ("messages", "bytes", "first_seq", "last_seq")
    )
    lost = [seq for first, last in found.lost for seq in range(first, last + 1)]
    assert sorted(lost) == sorted((state["lost"] or (0, [], 0))[1])
    assert {
        each.name: (each.delivered_seq, each.ack_floor_seq, each.pending) for each in found.consumers
    } == {
        each: (info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"], info["num_ack_pending"])
        for each, info in state["consumers"].items()
    } or name == PENDING_GONE
    assert found.lost_bytes == (state["lost"] or (0, [], 0))[2]
    harmless = name in ("index files gone", "last segment: a few bytes more")
    assert report.exit_code() == (0 if harmless else 1)


@pytest.mark.parametrize("name", MATRIX)
def test_a_repaired_store_is_clean_and_holds_the_same(name: str, root: Path) -> None:
    MATRIX[name](root)
    expected = served(root)

    repaired = check(root, repair=True)
    again = check(root)

    assert repaired.all_repairs()
    assert [finding.what for finding in again.all_findings() if finding.level != "note"] == []
    assert again.exit_code() == 0
    found = served(root)
    for stream in (*expected.values(), *found.values()):
        stream.pop("lost")
    assert found == expected


@pytest.mark.parametrize("name", [name for name in MATRIX if "segment:" in name])
def test_a_segment_that_is_rewritten_stays_beside_as_it_was(name: str, root: Path) -> None:
    MATRIX[name](root)
    damaged = {path.read_bytes() for path in (root / STREAM / "msgs").glob("*.seg")}

    check(root, repair=True)

    kept = {path.read_bytes() for path in (root / STREAM / "msgs").iterdir()}
    lost = damaged - kept
    assert lost == set() or name == "last segment: a few bytes more"


def test_a_lost_sequence_is_not_used_again_after_a_repair(root: Path) -> None:
    flipped(LAST, -20)(root)
    without_indexes(root)
    before = check(root, repair=True)
    after = check(root)
    last = {stream.name: stream.last_seq for stream in before.streams}
    assert {stream.name: stream.last_seq for stream in after.streams} == last
    assert last["S"] == served(root)["S"]["state"]["last_seq"]


def test_a_stream_copied_without_its_empty_directory_gets_it_again(tmp_path: Path) -> None:
    # given
    js = start(tmp_path)
    js.add("EMPTY", subjects=["e"], storage="file")
    js.node.stop()
    directory = tmp_path / "jetstream/$G/streams/EMPTY/msgs"
    shutil.rmtree(directory)
    # when
    (finding,) = check(tmp_path).all_findings()
    # then
    assert (finding.level, finding.path) == (NOTE, str(directory))
    assert "missing" in finding.what
    # when
    report = check(tmp_path, repair=True)
    # then
    assert report.all_repairs() == [f"{directory} is made, without files"]
    assert directory.is_dir()
    assert list(check(tmp_path).all_findings()) == []
