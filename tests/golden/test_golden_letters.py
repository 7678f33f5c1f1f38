"""A store with dead letters that wait, written long ago: opened, checked, continued, and damaged."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.golden.make_letters import CONSUMERS, HERE, MESSAGES, NAME, Golden, as_json

from pyjs.base.disk import OsDisk
from pyjs.fsck.check import StoreCheck
from pyjs.fsck.findings import DAMAGE
from pyjs.fsck.progress import Progress
from pyjs.jetstream.consumer.acks.log import decode
from pyjs.store.format.meta import envelope_size
from pyjs.store.state.consumer_state import ENTRY, ConsumerStateFile

GOLDEN = sorted(path.stem for path in HERE.glob("*.json"))
STATES = "$G/streams/S/consumers"
LETTERS = ["c.1", "c.2", "c.3", "all.3", "g.1", "g.3"]  # of the messages that were given up
REASONS = {"c.1": "term: no such customer", "c.2": "max_deliver", "g.1": "term: in the snapshot"}


@pytest.fixture(params=GOLDEN)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def store(name: str, tmp_path: Path) -> Path:
    """A copy of a golden store."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


@pytest.fixture
def expected(name: str) -> dict[str, Any]:
    """What was in it, and when."""
    found: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
    return found


def findings(store: Path) -> list[str]:
    """Return the levels of what a check finds."""
    return [each.level for each in StoreCheck(OsDisk(), str(store), Progress()).run().all_findings()]


def stored_letters(js: Golden) -> list[str]:
    """Return consumer and sequence of each letter."""
    return [".".join(subject.split(".")[2:4]) for subject, _ in js.letters()]


def test_there_is_a_golden_store_of_the_format() -> None:
    assert NAME in GOLDEN


def test_its_logs_have_every_kind_of_change(store: Path) -> None:
    kinds: set[int] = set()
    for directory in (store / STATES).iterdir():
        snapshot, deltas, problems = ConsumerStateFile(OsDisk(), str(directory)).load(seal=False)
        kinds |= {change[0] for delta in deltas for change in decode(delta)}
        assert problems == []
        assert (b'"terms"' in snapshot) == directory.name.startswith("g.")
    assert kinds == set(range(1, 12))


def test_what_was_stored_is_there_after_each_start(store: Path, expected: dict[str, Any]) -> None:
    assert findings(store) == []
    for _ in range(2):  # what the first start wrote is of today
        js = Golden(store, expected["now_ns"])
        assert json.loads(as_json(js.seen())) == expected["seen"]
        js.node.stop()
        assert findings(store) == []


def test_letters_that_waited_are_stored_once_and_the_consumers_go_on(
    store: Path, expected: dict[str, Any]
) -> None:
    # when
    js = Golden(store, expected["now_ns"])
    js.reconfigure("D", max_msgs=-1)
    js.advance(seconds=31)
    # then
    assert sorted(stored_letters(js)) == sorted(LETTERS)
    seqs = {letter: seq for seq, letter in enumerate(stored_letters(js), 1)}
    assert {each: js.headers(seqs[each])["Dead-Letter-Reason"] for each in REASONS} == REASONS
    js.advance(seconds=31)
    answer_all(js)
    assert js.letters("S") == []
    # and after another start
    js.node.stop()
    again = Golden(store, js.clock.now_ns())
    again.advance(seconds=31)
    assert sorted(stored_letters(again)) == sorted(LETTERS)
    again.node.stop()
    assert findings(store) == []


def entries_of(log: bytes) -> list[int]:
    """Return the offsets of the changes in a log."""
    at, found = envelope_size(log), []
    while at < len(log):
        found.append(at + ENTRY.size)
        at += ENTRY.size + ENTRY.unpack_from(log, at)[0]
    return found


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_damaged_change_causes_redeliveries_and_nothing_else(
    store: Path, expected: dict[str, Any], consumer: str, tmp_path: Path
) -> None:
    (path,) = store.glob(f"{STATES}/{consumer}.*/log.*")
    whole, state = path.read_bytes(), path.parent
    kept = {each: each.read_bytes() for each in store.rglob("*") if each.is_file()}
    for at in entries_of(whole):
        # given
        for each in [each for each in store.rglob("*") if each.is_file() and each not in kept]:
            each.unlink()
        for each, data in kept.items():
            each.write_bytes(data)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        # then
        assert findings(store) == [DAMAGE]
        finished(Golden(store, expected["now_ns"]), f"{state.name}, {at}")


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_state_without_an_intact_snapshot_is_set_aside_and_begins_again(
    store: Path, expected: dict[str, Any], consumer: str
) -> None:
    files = list(store.glob(f"{STATES}/{consumer}.*/*.*"))
    for path in files:
        data = bytearray(path.read_bytes())
        data[40] ^= 1
        path.write_bytes(data)
    js = Golden(store, expected["now_ns"])
    assert any("lost its state and begins again at sequence 1" in text for _, text in js.log.lines)
    assert {path.name for path in files[0].parent.glob(".damaged-*")} == {
        f".damaged-{path.name}" for path in files
    }
    finished(js, consumer)


def answer_all(js: Golden, answer: bytes = b"") -> None:
    """Answer everything that the consumers deliver now."""
    for consumer in CONSUMERS:
        more = {"group": "G"} if consumer == "g" else {}
        for message in js.pull(consumer, batch=MESSAGES, no_wait=True, **more):
            js.ack(message, answer)


def finished(js: Golden, case: str) -> None:
    """Refuse everything that is delivered until nothing is left: each message has its letters, once."""
    js.reconfigure("D", max_msgs=-1)
    for _ in range(3):
        js.advance(seconds=31)
        answer_all(js, b"+TERM")
    js.advance(seconds=31)
    found = stored_letters(js)
    assert len(found) == len(set(found)), case
    assert set(LETTERS) <= set(found), case
    assert js.letters("S") == [], case
    js.node.stop()
