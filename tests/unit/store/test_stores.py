"""Both stores against a dict, through appends, removals, purges, restarts and kills."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.store.reference import ReferenceStore

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.filestore import FileStore
from pyjs.store.memstore import MemStore
from pyjs.store.store import StreamStore

SUBJECTS = st.sampled_from([b"a", b"b", b"a.b", b"a.c", b"x.y.z"])
FILTERS = st.sampled_from([(), (b"a",), (b"a.*",), (b">",), (b"b", b"x.>"), (b"nope",)])
SEGMENT_SIZE = 2000  # bytes, so that a few messages fill one


class StoreMachine(RuleBasedStateMachine):
    """What every store promises."""

    overhead, header_overhead = 16, 0

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.model = ReferenceStore(self.overhead, self.header_overhead)
        self.store = self.open()

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
        assert self.store.next_match(seq, found) == self.model.next_match(seq, subjects)
        assert self.store.count_matching(seq, found) == self.model.count_matching(seq, subjects)
        assert self.store.last_seqs(found) == self.model.last_seqs(subjects)

    @invariant()
    def same_state(self) -> None:
        store, model = self.store, self.model
        assert (store.msgs, store.last_seq, store.first_seq) == (
            len(model.messages),
            model.last_seq,
            model.first_seq,
        )
        assert store.bytes == model.bytes
        assert store.deleted() == model.deleted()
        assert store.num_subjects() == len({subject for subject, *_ in model.messages.values()})
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

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.generation = 0
        self.log = ListLog()
        super().__init__()

    def open(self) -> StreamStore:
        path = str(self.directory / str(self.generation))
        return FileStore(OsDisk(), path, self.log, SEGMENT_SIZE, 7)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self.open()

    @rule()
    def kill(self) -> None:
        """Open a copy of the directory as a killed process leaves it after its last commit."""
        self.store.flush()
        source = self.directory / str(self.generation)
        self.generation += 1
        shutil.copytree(source, self.directory / str(self.generation))
        self.store.close()
        self.store = self.open()

    @rule()
    def sync(self) -> None:
        self.store.flush()
        assert isinstance(self.store, FileStore)
        self.store.sync_now()

    @invariant()
    def nothing_is_reported(self) -> None:
        assert self.log.lines == []

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


TestMemStore = StoreMachine.TestCase
TestMemStore.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestFileStore = FileStoreMachine.TestCase
TestFileStore.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
