"""Both kinds of stores compared with a dict, over appends, removals, purges, restarts and kills."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.store.encodings import ENCODINGS, image_of, plain_index, upkeep
from tests.unit.store.file_state import open_store, state_of
from tests.unit.store.last_seqs import last_seqs
from tests.unit.store.reference import ReferenceStore
from tests.unit.store.segment_files import index_of, without_erasures

from pyjs.base.disk import OsDisk
from pyjs.base.errors import StoreFailed
from pyjs.base.log import ListLog
from pyjs.store.crypt.keys import StreamKey
from pyjs.store.file.store import FileStore
from pyjs.store.memory import MemStore
from pyjs.store.store import StreamStore

SUBJECTS = st.sampled_from([b"a", b"b", b"a.b", b"a.c", b"x.y.z"])
FILTERS = st.sampled_from([(), (b"a",), (b"a.*",), (b">",), (b"b", b"x.>"), (b"nope",)])
SEGMENT_SIZE = 2000  # bytes; a few messages fill a segment


class FullDisk(OsDisk):
    """Has no room while `full`."""

    full = False

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(fd, data, offset)


class StoreMachine(RuleBasedStateMachine):
    """The contract of every store."""

    overhead, header_overhead = 16, 0

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.model = ReferenceStore(self.overhead, self.header_overhead)
        self.store = self.open()
        self.store.many = 2

    def open(self) -> StreamStore:
        return MemStore()

    @rule(
        subject=SUBJECTS, headers=st.sampled_from([b"", b"NATS/1.0\r\n\r\n"]), payload=st.binary(max_size=300)
    )
    def append(self, subject: bytes, headers: bytes, payload: bytes) -> None:
        self.now += 10
        expected = self.model.store(subject, headers, payload, self.now)
        assert self.store.store(subject, headers, payload, self.now) == expected

    @rule()
    def skip(self) -> None:
        assert self.store.skip_seq() == self.model.skip_seq()

    @rule(at=st.floats(0, 1), erase=st.booleans())
    def drop(self, at: float, erase: bool) -> None:
        seq = 1 + int(at * self.model.last_seq)
        assert self.store.drop_seq(seq, erase) == self.model.drop_seq(seq)

    @rule()
    def drop_first(self) -> None:
        first = self.model.first_seq
        assert self.store.drop_seq(first) == self.model.drop_seq(first)

    @rule(subjects=FILTERS, at=st.floats(0, 1.2), use_seq=st.booleans(), keep=st.integers(0, 5))
    def purge(self, subjects: tuple[bytes, ...], at: float, use_seq: bool, keep: int) -> None:
        before = 1 + int(at * self.model.last_seq) if use_seq else 0
        keep = 0 if use_seq else keep
        if before == 1:
            return
        found = self.store.purge(self.store.make_filter(subjects), before, keep)
        subjects = () if subjects == (b">",) else subjects
        assert found == self.model.purge(subjects, before, keep)

    @rule()
    def commit(self) -> None:
        self.store.flush()

    @rule(subjects=FILTERS, at=st.floats(0, 1.1))
    def search(self, subjects: tuple[bytes, ...], at: float) -> None:
        seq = int(at * self.model.last_seq) + 1
        found = self.store.make_filter(subjects)
        assert self.store.catalogue.next_match(seq, found) == self.model.next_match(seq, subjects)
        assert self.store.catalogue.count_matching(seq, found) == self.model.count_matching(seq, subjects)
        assert last_seqs(self.store, found) == self.model.last_seqs(subjects)

    @invariant()
    def same_state(self) -> None:
        store, model = self.store, self.model
        assert (store.msgs, store.last_seq, store.first_seq) == (
            len(model.messages),
            model.last_seq,
            model.first_seq,
        )
        assert store.bytes == model.bytes
        assert store.catalogue.deleted() == model.deleted()
        assert store.catalogue.num_subjects() == len({subject for subject, *_ in model.messages.values()})
        for seq, (subject, headers, payload, ts) in model.messages.items():
            message = store.get(seq)
            assert message is not None
            assert (message.subject, message.headers, message.payload, message.ts) == (
                subject,
                headers,
                payload,
                ts,
            )

    def teardown(self) -> None:
        self.store.close()


class FileStoreMachine(StoreMachine):
    """A file store, which also survives restarts and kills."""

    overhead, header_overhead = 30, 4
    form_name = "plain"

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.generation = 0
        self.log = ListLog()
        self.earlier: dict[str, bytes] = {}  # index files of an earlier state
        self.job: Any = None  # the running sync
        super().__init__()

    @property
    def files(self) -> Path:
        return self.directory / str(self.generation)

    def open(self) -> StreamStore:
        store = open_store(self.files, self.log, SEGMENT_SIZE, *self.encoding)
        store.many = 2  # so that three messages already count as many
        return store

    @property
    def encoding(self) -> tuple[StreamKey | None, int]:
        return ENCODINGS[self.form_name]

    @rule()
    def upkeep(self) -> None:
        """Compress, encrypt and rewrite segments."""
        self.end_sync()
        self.store.flush()
        assert isinstance(self.store, FileStore)
        self.store.sync_now()
        upkeep(self.store)

    def copy_files(self, *patterns: str) -> None:
        """Continue with a copy of the directory, in the state that a kill leaves."""
        source = self.files
        self.generation += 1
        shutil.copytree(source, self.files, ignore=shutil.ignore_patterns(*patterns))

    @rule()
    def restart(self) -> None:
        self.end_sync()
        self.store.close()
        for path in self.files.glob("*.seg"):
            index = plain_index(path.with_suffix(".idx"), self.encoding[0])
            image = image_of(OsDisk(), path, self.encoding[0])
            assert without_erasures(index) == without_erasures(index_of(image))
        self.store = self.open()

    @rule()
    def kill(self) -> None:
        """Open a copy of the directory, in the state that a kill leaves after the last commit."""
        self.end_sync()
        self.store.flush()
        self.copy_files()
        self.store.close()
        self.store = self.open()

    @rule()
    def remember_index_files(self) -> None:
        self.earlier |= {path.name: path.read_bytes() for path in self.files.glob("*.idx")}

    @rule(stop=st.booleans(), harm=st.randoms(use_true_random=False))
    def start_with_harmed_index_files(self, stop: bool, harm: Random) -> None:
        """A start gives the same result with damaged index files as without any."""
        self.end_sync()
        self.store.flush()
        if stop:
            self.store.close()
        self.copy_files("*.idx")
        bare = open_store(self.files, self.log, SEGMENT_SIZE, *self.encoding)
        expected = state_of(bare)
        bare.close()
        self.generation -= 1
        shutil.rmtree(self.directory / str(self.generation + 1))
        self.copy_files()
        self.store.close()
        for path in sorted(self.files.glob("*.seg")):
            self.harm(path.with_suffix(".idx"), harm)

        self.store = self.open()

        found = state_of(cast(FileStore, self.store))
        assert {**found, "segments": 0} == {**expected, "segments": 0}
        assert all(".idx is not used" in text for _, text in self.log.lines)
        self.log.lines.clear()

    def harm(self, index: Path, harm: Random) -> None:
        data = index.read_bytes() if index.exists() else b""
        match harm.choice(("keep", "remove", "cut", "flip", "lengthen", "earlier")):
            case "remove":
                index.unlink(missing_ok=True)
            case "cut":
                index.write_bytes(data[: harm.randrange(len(data) + 1)])
            case "flip" if data:
                at = harm.randrange(len(data))
                index.write_bytes(data[:at] + bytes([data[at] ^ 1 << harm.randrange(8)]) + data[at + 1 :])
            case "lengthen":
                index.write_bytes(data + b"more")
            case "earlier" if index.name in self.earlier:
                index.write_bytes(self.earlier[index.name])

    @rule()
    def sync(self) -> None:
        self.end_sync()
        self.store.flush()
        assert isinstance(self.store, FileStore)
        self.store.sync_now()

    @rule()
    def begin_sync(self) -> None:
        """Begin a sync; its job ends in a later step, with all changes in between."""
        self.store.flush()
        if self.job is None:
            self.job = self.store.begin_sync()

    @rule()
    def end_sync(self) -> None:
        """Run the job that `begin_sync` has begun, and remove the files that it makes superfluous."""
        if self.job is not None:
            assert isinstance(self.store, FileStore)
            self.store.finish_sync(self.job, self.job())
            self.job = None
            while (removal := self.store.begin_removal()) is not None:
                self.store.finish_removal(removal())

    @invariant()
    def nothing_is_reported(self) -> None:
        assert self.log.lines == []

    def teardown(self) -> None:
        self.end_sync()
        super().teardown()
        shutil.rmtree(self.directory)


TestMemStore = StoreMachine.TestCase
TestMemStore.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestFileStore = FileStoreMachine.TestCase
TestFileStore.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


class CompressedMachine(FileStoreMachine):
    form_name = "zstd"


class ChachaMachine(FileStoreMachine):
    form_name = "chacha"


class AesMachine(FileStoreMachine):
    form_name = "aes"


class BothMachine(FileStoreMachine):
    form_name = "chacha and zstd"


TestCompressed = CompressedMachine.TestCase
TestChacha = ChachaMachine.TestCase
TestAes = AesMachine.TestCase
TestBoth = BothMachine.TestCase
TestCompressed.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
TestChacha.settings = TestAes.settings = TestBoth.settings = TestCompressed.settings


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_many_messages_at_the_front_go_in_one_piece(kind: str, tmp_path: Path) -> None:
    store = MemStore() if kind == "memory" else open_store(tmp_path, ListLog(), 1 << 20)
    for number in range(10_000):
        store.store(b"s.%d" % number, b"", b"x", 1 + number)
    store.store(b"s.7", b"", b"y", 10_001)
    assert store.drop_seq(9_999)

    purged = store.purge(store.make_filter(()), 9_998)

    assert (purged, store.msgs, store.first_seq, store.catalogue.num_subjects()) == (9_997, 3, 9_998, 3)
    assert len(store.catalogue.take_remains()) == 1
    assert store.get(9_997) is None
    found = [store.get_last(subject) for subject in (b"s.7", b"s.9997", b"s.5", b"s.*")]
    assert [message and message.seq for message in found] == [10_001, 9_998, None, 10_001]
    assert store.store(b"s.5", b"", b"z", 10_002) == 10_002
    assert store.catalogue.count_matching(0, store.make_filter((b"s.*",))) == 4


@dataclass
class Pair:
    """A store with many messages, and the model of it."""

    store: StreamStore
    model: ReferenceStore

    def fill(self, rng: Random, parts: Iterable[tuple[int, bytes]]) -> None:
        """Store messages of random subjects of each part (a number and letters), and remove some messages."""
        for count, letters in parts:
            for _ in range(count):
                subject, headers = b"%c" % rng.choice(letters), rng.choice((b"", b"NATS/1.0\r\n\r\n"))
                message = (subject, headers, b"%d" % self.model.last_seq, 1000 + self.model.last_seq)
                assert self.store.store(*message) == self.model.store(*message)
        self.store.flush()
        for seq in rng.sample(sorted(self.model.messages), 100):
            assert self.store.drop_seq(seq) == self.model.drop_seq(seq)

    def purge(self, subject: bytes, before_seq: int) -> None:
        """Purge a subject in both, and compare the numbers of removed messages."""
        purged = self.store.purge(self.store.make_filter((subject,)), before_seq)
        assert purged == self.model.purge((subject,), before_seq, 0)

    def check(self) -> None:
        """Compare everything."""
        store, model = self.store, self.model
        assert (store.msgs, store.first_seq, store.last_seq) == (
            len(model.messages),
            model.first_seq,
            model.last_seq,
        )
        assert store.bytes == model.bytes
        assert store.catalogue.deleted() == model.deleted()
        left = {seq: subject for seq, (subject, *_) in model.messages.items()}
        assert {seq: message.subject for seq in left if (message := store.get(seq))} == left
        for subject in (b"a", b"b", b"c"):
            wanted = store.make_filter((subject,))
            assert store.catalogue.count_matching(0, wanted) == model.count_matching(0, (subject,))
            for seq in (0, model.last_seq // 2, model.last_seq - 5):
                assert store.catalogue.next_match(seq, wanted) == model.next_match(seq, (subject,))
        assert last_seqs(store, store.make_filter(())) == model.last_seqs(())


# Parts of a stream: "a" alone at the front, mixed, alone in the middle, and none.
PARTS = [(6_000, b"a"), (6_000, b"ab"), (9_000, b"a"), (100, b"c"), (5_000, b"abb"), (10, b"b")]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_many_messages_of_one_subject_are_removed_as_if_one_by_one(
    kind: str, seed: int, tmp_path: Path
) -> None:
    rng = Random(seed)
    sizes = (16, 0) if kind == "memory" else (30, 4)
    store = MemStore() if kind == "memory" else open_store(tmp_path / "S", ListLog(), 200_000)
    pair = Pair(store, ReferenceStore(*sizes))
    pair.fill(rng, rng.sample(PARTS, len(PARTS)) if seed else PARTS)
    if kind == "file" and seed % 2:  # the entries are in the maps of index files
        store.close()
        pair.store = open_store(tmp_path / "S", ListLog(), 200_000)

    pair.purge(b"a", rng.randrange(pair.model.last_seq // 2, pair.model.last_seq))

    assert len(pair.store.catalogue.take_remains()) == 1
    pair.check()
    pair.fill(rng, [(5_000, b"a"), (3, b"bc")])
    pair.purge(b"a", 0)
    assert len(pair.store.catalogue.take_remains()) == 1
    pair.check()
    pair.store.flush()
    if kind == "file":
        shutil.copytree(tmp_path / "S", tmp_path / "killed")
        killed = open_store(tmp_path / "killed", ListLog(), 200_000)
        Pair(killed, pair.model).check()
        killed.release()
    pair.store.close()


def test_removals_that_a_full_disk_refuses_are_recorded_later(tmp_path: Path) -> None:
    disk = FullDisk()
    store = FileStore(disk, str(tmp_path), ListLog(), 1 << 20, 7)
    store.many = 2
    for seq in range(1, 101):
        store.store(b"b" if seq in (1, 50) else b"a", b"", b"x", seq)
    store.flush()
    store.purge(store.make_filter((b"a",)), 90)
    disk.full = True
    with pytest.raises(StoreFailed):
        store.flush()
    disk.full = False
    assert store.try_resume()

    store.flush()

    left = [1, 50, *range(90, 101)]
    again = FileStore(OsDisk(), str(tmp_path), ListLog(), 1 << 20, 7)
    assert [seq for seq in range(1, 101) if again.get(seq)] == left
    assert again.msgs == len(left)
    again.release()
    store.close()
