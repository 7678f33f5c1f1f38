"""The last matches of wildcards, remembered between searches, compared with plain searches in random histories."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.unit.store.file_state import INCARNATION

from pyjs.base.disk import OsDisk
from pyjs.base.errors import StoreFailed
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.index.last_matches import LastMatches
from pyjs.store.memory import MemStore
from pyjs.store.store import StreamStore

FILTERS = [b"w.*.x", b"w.1.*", b"w.>", b"*.*.x", b"no.*", b"w.*.y", b"*.7.>"]
FILLING = 5000  # messages: a search through them is remembered


class Disk(OsDisk):
    """A disk that refuses all writes while `full` is set."""

    full = False

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(fd, data, offset)


class History:
    """A store with old messages that match, and many younger ones that do not."""

    def __init__(self, store: StreamStore, disk: Disk, rng: Random) -> None:
        self.store, self.disk, self.rng, self.now = store, disk, rng, 1
        self.known = LastMatches()
        for number in range(300):
            self.publish(b"w.%d.x" % number)
        self.fill(FILLING)

    def publish(self, subject: bytes) -> None:
        self.now += 1
        self.store.store(subject, b"", b"", self.now)

    def fill(self, count: int) -> None:
        for _ in range(count):
            self.publish(b"often")

    def step(self) -> None:
        """Change the store: mostly a little, so that remembered searches can be used."""
        store, rng = self.store, self.rng
        kind = rng.randrange(14)
        if kind < 4:
            self.publish(b"w.%d.%c" % (rng.randrange(9), rng.choice(b"xyz")))
        elif kind < 7:
            self.fill(rng.choice((1, 40, 40, 6000)))
        elif kind < 11:  # remove the last match, or any of the last messages
            last = store.last_match(rng.choice(FILTERS))
            store.drop_seq(rng.choice((last, last, store.last_seq - rng.randrange(100))))
        elif kind == 11:
            store.skip_seqs_to(store.last_seq + rng.choice((1, 3, 5000)))
        elif kind == 12:
            wanted = rng.choice(((b"w.1.*",), (b"w.*.y",), (b"often",), ()))
            before_seq = 0 if rng.random() < 0.05 else rng.randrange(2, store.last_seq + 2)
            store.purge(store.make_filter(wanted), before_seq, 0)
        else:
            self.write(rng.random() < 0.5)

    def write(self, fails: bool) -> None:
        """Write what was stored since the last call; if it fails, those messages are lost."""
        self.disk.full = fails
        with suppress(StoreFailed):
            self.store.flush()
        self.disk.full = False
        if isinstance(self.store, FileStore) and self.store.failed:
            assert self.store.try_resume()

    def check(self) -> None:
        wanted = self.rng.choice(FILTERS)
        assert self.known.last_match(self.store.catalogue, wanted) == self.store.last_match(wanted)


def opened(kind: str, directory: Path, disk: Disk) -> StreamStore:
    return (
        MemStore() if kind == "memory" else FileStore(disk, str(directory), ListLog(), 1 << 18, INCARNATION)
    )


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("seed", range(6))
def test_a_remembered_search_finds_the_same_as_a_plain_one(kind: str, seed: int, tmp_path: Path) -> None:
    disk = Disk()
    history = History(opened(kind, tmp_path, disk), disk, Random(seed))

    for _ in range(400):
        history.step()
        history.check()
        history.check()

    history.store.close()


def test_a_bounded_number_of_filters_is_remembered() -> None:
    history = History(MemStore(), Disk(), Random(1))
    wanted = [b"w.%d.*" % number for number in range(40)]

    for _ in range(2):
        for each in wanted:
            assert history.known.last_match(history.store.catalogue, each) == history.store.last_match(each)
            assert len(history.known.results) <= 16


@pytest.mark.parametrize("newer", [1, 4096, 4097, 36_866, 41_000])
def test_the_first_message_after_a_remembered_search_is_found_behind_many_newer_ones(newer: int) -> None:
    """More subjects match than a search looks up, so each step examines messages."""
    history = History(MemStore(), Disk(), Random(1))
    for number in range(17_000):
        history.publish(b"w.%d.x" % number)
    history.fill(40_000)
    before = history.known.last_match(history.store.catalogue, b"w.*.x")

    history.publish(b"w.5.x")
    history.fill(newer)

    assert history.known.last_match(history.store.catalogue, b"w.*.x") == before + 40_001
