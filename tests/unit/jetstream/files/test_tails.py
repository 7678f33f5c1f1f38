"""Index files of many streams in one file: a start finds the same as with one file per stream."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.fsck.store_files import check
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.files import tails as tail_indexes
from pyjs.store.format.layout import file_name
from pyjs.store.format.tail_file import read_tails
from pyjs.store.segment.index_file import store_index

NAMES = ("A", "B", "ü")
KEY = "the key of the tests"
SEGMENT = "streams/B/msgs/00000001.seg"
Damage = Callable[[Path], None]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_indexes, "STREAMS_MIN", 2)


def start(root: Path, key: str = "", disk: OsDisk | None = None) -> JetStreamFixture:
    options = Options()
    options.jetstream = JetStreamOptions(enabled=True, store_dir=str(root / "jetstream"))
    options.jetstream.key, options.jetstream.cipher = key, "chacha"
    return JetStreamFixture(options, disk=disk)


def account(root: Path) -> Path:
    return root / "jetstream/$G"


def tails(root: Path) -> dict[str, tuple[int, bytes]]:
    found, problems = read_tails(OsDisk(), str(account(root) / "tails"))
    assert not problems
    return found


def fill(root: Path, key: str = "") -> None:
    """Create three streams of three messages each, and stop the server."""
    js = start(root, key)
    for number, name in enumerate(NAMES):
        js.add(name, subjects=[f"s.{number}.>"], storage="file")
        for at in range(3):
            js.publish(f"s.{number}.{at % 2}", b"%d" % at)
    js.node.stop()


def state_of(js: JetStreamFixture) -> dict[str, Any]:
    return {
        name: (js.payloads(name), stream.store.lost, stream.store.last_seq)
        for name, stream in js.engine.streams.items()
    }


def killed(js: JetStreamFixture) -> None:
    """Leave the files as after a kill."""
    for stream in js.engine.streams.values():
        stream.store.release()  # type: ignore[attr-defined]
    assert js.node.jetstream is not None
    assert js.node.jetstream._lock is not None
    js.node.jetstream._lock.release()


def in_files_of_their_own(root: Path) -> Path:
    """Return a copy of the store in which each stream has its own index file."""
    copy = Path(shutil.copytree(root, root.with_name("own")))
    for name, (number, data) in tails(root).items():
        store_index(OsDisk(), str(account(copy) / "streams" / name / f"msgs/{number:08d}.idx"), data)
    (account(copy) / "tails").unlink()
    return copy


@pytest.mark.parametrize("key", ["", KEY])
def test_a_stop_keeps_the_indexes_together_and_a_start_forgets_them(tmp_path: Path, key: str) -> None:
    fill(tmp_path, key)
    assert tails(tmp_path).keys() == {file_name(name) for name in NAMES}
    assert not list(tmp_path.rglob("*.idx"))
    js = start(tmp_path, key)
    assert not (account(tmp_path) / "tails").exists()
    assert state_of(js) == {name: ([b"0", b"1", b"2"], None, 3) for name in NAMES}


@pytest.mark.parametrize("key", ["", KEY])
def test_a_start_with_them_reads_no_record(tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, key)
    monkeypatch.setattr("pyjs.store.segment.recovery.contents_of", None)
    js = start(tmp_path, key)
    assert [stream.store.msgs for stream in js.engine.streams.values()] == [3, 3, 3]


def test_they_are_what_the_sync_of_a_sealed_segment_would_write(tmp_path: Path) -> None:
    fill(tmp_path)
    kept = tails(tmp_path)
    tail_indexes.STREAMS_MIN = 100
    js = start(tmp_path)
    js.node.stop()
    own = {path.parents[1].name: (int(path.stem), path.read_bytes()) for path in tmp_path.rglob("*.idx")}
    assert own == kept


def test_streams_that_did_not_change_are_kept_again(tmp_path: Path) -> None:
    fill(tmp_path)
    kept = tails(tmp_path)
    start(tmp_path).node.stop()
    assert tails(tmp_path) == kept


def test_after_a_kill_the_segments_are_read(tmp_path: Path) -> None:
    fill(tmp_path)
    js = start(tmp_path)
    js.publish("s.1.x", b"3")
    killed(js)
    assert state_of(start(tmp_path))["B"] == ([b"0", b"1", b"2", b"3"], None, 4)


def test_a_large_tail_has_a_file_of_its_own(tmp_path: Path) -> None:
    fill(tmp_path)
    js = start(tmp_path)
    for _ in range(100):
        js.publish("s.0.x")
    js.node.stop()
    assert tails(tmp_path).keys() == {file_name(name) for name in NAMES[1:]}
    assert [path.parents[1].name for path in tmp_path.rglob("*.idx")] == ["A"]
    assert start(tmp_path).stream("A").store.msgs == 103


def cut_to(size: int) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes()[:size])


def flipped(at: int) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0x10
        path.write_bytes(data)

    return damage


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES: dict[str, Damage] = {
    "missing": Path.unlink,
    "empty": cut_to(0),
    "cut in the header": cut_to(40),
    "cut in a record": cut_to(-20),
    "cut by one byte": cut_to(-1),
    "zeros": zeros,
    "a damaged header": flipped(20),
    "a damaged record": flipped(-30),
}


@pytest.mark.parametrize("key", ["", KEY])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_they_bear_witness_as_index_files_do(tmp_path: Path, damage: Damage, key: str) -> None:
    root = tmp_path / "store"
    fill(root, key)
    damage(account(root) / SEGMENT)
    own = in_files_of_their_own(root)
    lives = []
    for each in (root, own):
        js = start(each, key)
        first = state_of(js)
        killed(js)
        js = start(each, key)  # a second start reports the loss again, or the files record it
        second = state_of(js)
        js.publish("s.1.x", b"new")
        lives.append((first, second, state_of(js)))
        js.node.stop()
    assert lives[0] == lives[1]


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_check_tells_what_it_tells_with_files(tmp_path: Path, damage: Damage, repair: bool) -> None:
    root = tmp_path / "store"
    fill(root)
    damage(account(root) / SEGMENT)
    own = in_files_of_their_own(root)
    told = []
    for each in (root, own):
        report = check(each, repair=repair)
        told.append([(found.name, found.messages, found.lost, found.gone) for found in report.streams])
        told[-1].append(sorted(found.what for stream in report.streams for found in stream.findings))
    assert told[0] == told[1]
    if repair:
        assert state_of(start(root)) == state_of(start(own))


def test_a_check_of_a_stopped_store_finds_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    report = check(tmp_path)
    assert report.findings == []
    assert [found.findings for found in report.streams] == [[], [], []]


def test_a_check_tells_of_a_damaged_file(tmp_path: Path) -> None:
    fill(tmp_path)
    flipped(100)(account(tmp_path) / "tails")
    (finding,) = check(tmp_path).findings
    assert "index files in it are damaged" in finding.what


def test_a_damaged_file_costs_a_start_time_alone(tmp_path: Path) -> None:
    fill(tmp_path)
    flipped(100)(account(tmp_path) / "tails")
    js = start(tmp_path)
    assert state_of(js) == {name: ([b"0", b"1", b"2"], None, 3) for name in NAMES}
    assert any("the segments that it is of are read" in text for _, text in js.log.lines)


def test_a_stream_that_was_not_opened_keeps_its_own(tmp_path: Path) -> None:
    fill(tmp_path, KEY)
    kept = tails(tmp_path)
    js = start(tmp_path)  # started without the key
    assert tails(tmp_path) == kept
    js.node.stop()
    assert tails(tmp_path) == kept
    assert state_of(start(tmp_path, KEY)) == {name: ([b"0", b"1", b"2"], None, 3) for name in NAMES}


def test_a_start_that_is_cut_short_leaves_them(tmp_path: Path) -> None:
    fill(tmp_path)
    kept = tails(tmp_path)
    js = start(tmp_path / "other")
    js.options.jetstream.store_dir = str(tmp_path / "jetstream")
    js.node.stop()
    steps = js.node.start_jetstream_steps()
    for _ in range(4):
        next(steps)
    steps.close()
    js.node.stop()
    assert tails(tmp_path) == kept


def test_a_stop_that_cannot_keep_them_says_so(tmp_path: Path) -> None:
    js = start(tmp_path)
    for number, name in enumerate(NAMES):
        js.add(name, subjects=[f"s.{number}.>"], storage="file")
        js.publish(f"s.{number}.0", b"0")
    (account(tmp_path) / "tails.tmp").mkdir()
    js.node.stop()
    assert any("is not kept, and the next start reads segments" in text for _, text in js.log.lines)
    (account(tmp_path) / "tails.tmp").rmdir()
    assert [len(payloads) for payloads, *_ in state_of(start(tmp_path)).values()] == [1, 1, 1]
