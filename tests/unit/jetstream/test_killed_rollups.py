"""A kill between the two commits of a roll-up: the next start removes the messages that the roll-up replaces."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.support.disk import Crash, FaultyDisk, crash_is_printed
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.manage import segments

OLDER = ["s.a", "s.b", "s.a", "s.b"]
LEFT = ["s.b", "s.b", "s.a"]  # after a roll-up of s.a
# subject and header of the roll-up, and the subjects of the messages that it leaves
ROLLUPS = [
    ("s.a", b"sub", LEFT),
    ("s.a", b"SUB", LEFT),
    ("s.*", b"sub", ["s.*"]),
    ("s.b", b"all", ["s.b"]),
]
PAYLOAD = b"x" * 1000
HEADERS = b"NATS/1.0\r\nNats-Rollup: %b\r\n\r\n"

pytestmark = crash_is_printed


class KillingDisk(FaultyDisk):
    """A disk that ends the process at a call. Later calls fail too, as compiled code may continue for a while."""

    def _due(self) -> bool:
        if 0 <= self.at < self.calls:
            raise Crash
        return super()._due()


def started(root: Path, disk: FaultyDisk | None = None, **options: Any) -> JetStreamFixture:
    given = Options()
    given.jetstream = JetStreamOptions(enabled=True, store_dir=str(root), **options)
    return JetStreamFixture(given, disk)


def prepared(root: Path, config: dict[str, Any], **options: Any) -> Path:
    """Store the messages OLDER, and stop; return the store directory."""
    js = started(root, **options)
    js.add("S", subjects=["s.>"], storage="file", **{"allow_rollup_hdrs": True, **config})
    for subject in OLDER:
        js.publish(subject)
    js.node.stop()
    return root


def publish(js: JetStreamFixture, subject: str, scope: bytes, before: int = 0, after: int = 0) -> None:
    """Publish a roll-up, with other messages before and after it, in one turn."""
    headers, other = HEADERS % scope, b"PUB s.c %d\r\n%b\r\n" % (len(PAYLOAD), PAYLOAD)
    rollup = b"HPUB %b %d %d\r\n%b\r\n" % (subject.encode(), len(headers), len(headers), headers)
    js.user.send(other * before + rollup + other * after)


def killed(root: Path, call: int, *published: Any, **options: Any) -> Path | None:
    """Start, publish a roll-up, and kill the server at a call to its disk.

    Return a copy of its store directory, or None if the turn ended before that call.
    """
    disk = KillingDisk()
    js = started(root, disk, **options)
    disk.calls, disk.at = 0, call
    try:
        publish(js, *published)
    except Crash:
        pass
    if disk.calls <= call:
        disk.at = -1
        js.node.stop()
        return None
    return copied(root)


def copied(root: Path) -> Path:
    """Return a copy of the store of a killed server, whose lock this process still has."""
    return Path(shutil.copytree(root, root.with_name(f"{root.name}-copy")))


def subjects(root: Path, **options: Any) -> list[str]:
    """Start; return the subjects of the stored messages, and stop."""
    js = started(root, **options)
    store = js.stream("S").store
    found = [store.get(seq) for seq in range(store.first_seq, store.last_seq + 1)]
    js.node.stop()
    return [message.subject.decode() for message in found if message is not None]


def half_done(root: Path, left: list[str], *published: Any) -> Path:
    """Return the store of a server that was killed directly before the second commit of a roll-up's turn.

    `left` has the subjects of the messages that the next start leaves.
    """
    for call in count():
        store = killed(prepared(root / f"{call}", {}), call, *published)
        assert store is not None
        if subjects(copied(store)) == left:
            return store
    raise AssertionError


@pytest.mark.parametrize("options", [{}, {"key": "secret"}], ids=["plain", "encrypted"])
@pytest.mark.parametrize(("subject", "scope", "left"), ROLLUPS, ids=["sub", "upper", "wildcard", "all"])
def test_a_roll_up_is_stored_with_its_removals_or_not_at_all(
    tmp_path: Path, subject: str, scope: bytes, left: list[str], options: dict[str, str]
) -> None:
    found, store = [], prepared(tmp_path / "0", {}, **options)
    while (after := killed(store, len(found), subject, scope, **options)) is not None:
        found.append(subjects(after, **options))
        assert subjects(after, **options) == found[-1]
        store = prepared(tmp_path / f"{len(found)}", {}, **options)
    assert all(each in (OLDER, left) for each in found)
    assert (found[0], found[-1]) == (OLDER, left)
    assert subjects(store, **options) == left


def test_other_messages_of_the_turn_stay(tmp_path: Path) -> None:
    left = ["s.*", "s.c", "s.c", "s.c"]
    assert subjects(half_done(tmp_path, left, "s.*", b"sub", 2, 3)) == left


@pytest.mark.parametrize("after", [1, 4])
def test_the_messages_of_the_turn_may_be_in_several_segments(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SEGMENT_SIZE_MAX", "SEGMENT_SIZE_QUEUE"):
        monkeypatch.setattr(segments, name, 2048)
    store = half_done(tmp_path, [*LEFT, *["s.c"] * after], "s.a", b"sub", 0, after)
    assert len(list(store.rglob("*.seg"))) >= 1 + after // 2


def test_a_start_that_is_killed_too_leaves_the_rest_to_the_next_one(tmp_path: Path) -> None:
    half = half_done(tmp_path, LEFT, "s.a", b"sub")
    for call in count():
        store = Path(shutil.copytree(half, tmp_path / f"again{call}"))
        disk = KillingDisk(call)
        try:
            started(store, disk).node.stop()
        except Crash:
            store = copied(store)
        assert subjects(store) == LEFT
        if disk.calls <= call:
            break
    assert call > 3


def test_a_consumer_gets_no_message_that_an_unfinished_roll_up_replaces(tmp_path: Path) -> None:
    js = started(half_done(tmp_path, LEFT, "s.a", b"sub"))
    config = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "s.a"}
    info = js.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    assert info["num_pending"] == 1
    js.node.stop()


@pytest.mark.parametrize("after", [0, 4])
def test_a_header_that_was_stored_when_roll_ups_were_not_allowed_removes_nothing(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later messages are in other segments, and the change of the metadata follows the last of them."""
    for name in ("SEGMENT_SIZE_MAX", "SEGMENT_SIZE_QUEUE"):
        monkeypatch.setattr(segments, name, 2048)
    js = started(tmp_path / "a")
    js.add("O", subjects=["s.>"], allow_rollup_hdrs=True)
    js.add("S", storage="file", sources=[{"name": "O"}])
    for subject in OLDER:
        js.publish(subject)
    publish(js, "s.a", b"sub", after=after)
    updated = {"name": "S", "storage": "file", "sources": [{"name": "O"}], "allow_rollup_hdrs": True}
    assert "error" not in js.api("STREAM.UPDATE.S", updated)
    assert subjects(copied(tmp_path / "a")) == [*OLDER, "s.a", *["s.c"] * after]
    js.node.stop()
