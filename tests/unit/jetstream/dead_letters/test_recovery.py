"""Dead letters across restarts, kills and power cuts: none is lost, and none is stored twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import cast

import pytest
from tests.support.disk import LossyDisk
from tests.unit.jetstream.deadfixture import STREAM_KEY, Dead
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.stream.stream import Stream

NS = 1_000_000_000


class Photographed(LossyDisk):
    """Copies what a kill and what a power cut would leave, before each change of a file."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.taken: list[Path] = []  # directories of copies
        self.takes = False

    def _take(self) -> None:
        if not self.takes:
            return
        for kind in ("killed", "cut"):
            copy = self.root.parent / f"{kind}{len(self.taken)}"
            shutil.copytree(self.root, copy)
            self.taken.append(copy)
        for path, data in self._synced.items():
            place = Path(path.replace(str(self.root), str(copy), 1))
            if place.exists():
                place.write_bytes(data) if path in self._named else place.unlink()

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._take()
        super().write_at(fd, data, offset)

    def sync_file(self, fd: int) -> None:
        self._take()
        super().sync_file(fd)

    def rename(self, old: str, new: str) -> None:
        self._take()
        super().rename(old, new)


class Stored(Dead):
    """The same in files, on a given disk and directory."""

    def __init__(self, directory: Path, disk: LossyDisk | None = None, *, always: bool = False) -> None:
        options = Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(directory)))
        options.jetstream.sync_always = always
        JetStreamFixture.__init__(self, options, disk)
        self.inbox = self.client()
        self.inbox.send(b"SUB in.> 1\r\n")
        self.inbox.take()

    def turn(self) -> None:
        super().turn()
        while unsynced := cast(list[Stream], self.node.turn_state.take("unsynced")):
            if not self.engine.options.sync_always:  # as before the interval is over
                return
            for each in unsynced:
                job = each.begin_sync()
                if job is not None:
                    each.finish_sync(job())
            super().turn()


@pytest.mark.parametrize("always", [False, True])
def test_a_kill_or_power_cut_at_any_moment_neither_loses_a_letter_nor_doubles_it(
    tmp_path: Path, always: bool
) -> None:
    # given
    disk = Photographed(tmp_path / "store")
    js = Stored(disk.root, disk, always=always)
    js.add("D", subjects=["$DLQ.S.>"], storage="file")
    js.add("S", subjects=["s.>"], storage="file", retention="workqueue", metadata={STREAM_KEY: "D"})
    js.consumer(max_deliver=2)
    js.fill(3)
    got = js.pull(batch=3)
    js.advance(seconds=2)
    fd = os.open(tmp_path, os.O_RDONLY)
    disk.sync_filesystem(fd)
    os.close(fd)
    # when
    disk.takes = True
    js.ack(got[0], b"+TERM no")
    js.ack(got[1], b"-NAK")
    js.ack(js.pull(batch=1)[0], b"-NAK")
    js.pull(batch=1)
    disk.takes = False
    assert [payload for _, payload in js.letters()] == [b"m1", b"m2"]
    # then
    assert len(disk.taken) > 8
    outcomes = set()
    for copy in disk.taken:
        again = Stored(copy)
        again.turn()
        waited = tuple(sorted(again.payloads("D")))
        for _ in range(4):  # what was not given up before is refused now
            for message in again.pull(batch=9):
                again.ack(message, b"-NAK")
            again.advance(seconds=31)
        assert sorted(payload for _, payload in again.letters()) == [b"m1", b"m2", b"m3"], copy
        assert again.state("S")["messages"] == 0
        outcomes.add(waited)
        again.node.stop()
    assert {(), (b"m1",), (b"m1", b"m2")} <= outcomes


def test_a_stored_letter_counts_although_the_window_for_ids_is_over(tmp_path: Path) -> None:
    # given: a letter that is stored, and a consumer whose state does not know it
    js = Stored(tmp_path / "store")
    js.add("D", subjects=["$DLQ.S.>"], storage="file", duplicate_window=NS)
    js.add("S", subjects=["s.>"], storage="file", retention="workqueue", metadata={STREAM_KEY: "D"})
    js.consumer(max_deliver=2)
    js.fill(1)
    (message,) = js.pull(batch=1)
    shutil.copytree(tmp_path / "store/$G/streams/S", tmp_path / "S")
    js.ack(message, b"+TERM")
    js.node.stop()
    shutil.rmtree(tmp_path / "store/$G/streams/S")
    (tmp_path / "S").rename(tmp_path / "store/$G/streams/S")
    # when
    again = Stored(tmp_path / "store")
    again.advance(seconds=60)
    again.ack(again.pull(batch=1)[0], b"+TERM")
    # then
    assert len(again.letters()) == 1
    assert again.state("S")["messages"] == 0


def test_letters_that_wait_are_sent_after_a_restart_with_their_reasons(tmp_path: Path) -> None:
    js = Stored(tmp_path / "store")
    js.add("D", subjects=["$DLQ.S.>"], storage="file", max_msgs=1, discard="new")
    js.add("S", subjects=["s.>"], storage="file", metadata={STREAM_KEY: "D"})
    js.consumer(max_deliver=2)
    js.fill(3)
    for message in js.pull(batch=3):
        js.ack(message, b"+TERM because of %d" % message.seq)
    js.core().acks.changes.lost = True  # the state is written whole, and then as changes
    js.pull(batch=1)
    js.node.stop()
    again = Stored(tmp_path / "store")
    assert again.given_up() == {2: 1, 3: 1}
    again.reconfigure("D", max_msgs=-1)
    again.advance(seconds=31)
    assert [again.headers(seq)["Dead-Letter-Reason"] for seq in (1, 2, 3)] == [
        "term: because of 1",
        "term: because of 2",
        "term: because of 3",
    ]


def test_an_ack_of_all_does_not_cancel_letters_that_wait(tmp_path: Path) -> None:
    js = Stored(tmp_path / "store")
    js.add("D", subjects=["$DLQ.S.>"], storage="file")
    js.add("S", subjects=["s.>"], storage="file", metadata={STREAM_KEY: "D"})
    js.consumer(max_deliver=2, ack_policy="all")
    js.fill(4)
    js.api("STREAM.DELETE.D")
    got = js.pull(batch=4)
    js.ack(got[0], b"+TERM")
    js.ack(got[1], b"+TERM x")
    file = js.core().keeper.file
    assert file is not None
    written = file.deltas_size
    js.ack(got[3])
    assert js.given_up() == {1: 1, 2: 1}
    assert 0 < file.deltas_size - written < 64, "an ack is a change, not a snapshot of all that waits"
    js.node.stop()
    again = Stored(tmp_path / "store")
    assert again.given_up() == {1: 1, 2: 1}
    again.add("D", subjects=["$DLQ.S.>"], storage="file")
    again.advance(seconds=31)
    assert [payload for _, payload in again.letters()] == [b"m1", b"m2"]
    assert again.position() == ((4, 4), (4, 4))
