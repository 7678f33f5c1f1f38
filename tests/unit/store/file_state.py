"""The whole visible state of a file store, for comparisons; and disks that check its calls."""

from __future__ import annotations

from pathlib import Path

from tests.unit.store.last_seqs import last_seqs

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.crypt.keys import StreamKey
from pyjs.store.file.store import FileStore
from pyjs.store.index.filter import StoreFilter
from pyjs.store.index.subject_walk import SubjectWalk
from pyjs.store.store import StreamStore

INCARNATION = 7
MANY = 1 << 62  # number of sequences: all of them


def open_store(
    directory: Path,
    log: ListLog | None = None,
    segment_size: int = 1 << 20,
    key: StreamKey | None = None,
    codec: int = 0,
) -> FileStore:
    """Open the store of a directory on the real disk."""
    store = FileStore(OsDisk(), str(directory), log or ListLog(), segment_size, INCARNATION, key)
    store.compactor.set_codec(codec)
    return store


def subject_counts(store: StreamStore, wanted: StoreFilter) -> dict[bytes, int]:
    """Return the number of live messages for each matching subject."""
    walk = SubjectWalk(store.catalogue, wanted)
    while not walk.look(MANY >> 40):
        pass
    return walk.take(MANY)


def state_of(store: FileStore) -> dict[str, object]:
    """Return everything that can be queried without a change."""
    everything = store.make_filter(())
    seqs = range(max(1, store.first_seq - 2), store.last_seq + 3)
    names = sorted(subject_counts(store, everything))
    times = {message.ts for seq in seqs if (message := store.get(seq)) is not None}
    return {
        "numbers": (store.msgs, store.bytes, store.first_seq, store.last_seq, store.first_ts, store.last_ts),
        "lost": (store.examiner.losses.msgs, store.examiner.losses.bytes, store.examiner.losses.seqs),
        "deleted": store.catalogue.deleted(),
        "messages": [
            (message.seq, message.ts, message.subject, message.headers, message.payload)
            for seq in seqs
            if (message := store.get(seq)) is not None
        ],
        "counts": subject_counts(store, everything),
        "last": last_seqs(store, everything),
        "up to": [last_seqs(store, everything, seq) for seq in seqs],
        "next": [
            store.catalogue.next_match(seq, store.make_filter((name,))) for name in names for seq in seqs
        ],
        "times": [store.catalogue.seq_at(ts + step) for ts in sorted(times) for step in (-1, 0, 1)],
        "segments": store.segment_paths(),
    }


class MapCounter(OsDisk):
    """Counts the segments that are mapped in order to read them completely."""

    def __init__(self) -> None:
        self.maps = 0
        self._segments: set[int] = set()  # their open descriptors

    def open_read_only(self, path: str) -> int:
        fd = super().open_read_only(path)
        if path.endswith(".seg"):
            self._segments.add(fd)
        return fd

    def close_file(self, fd: int) -> None:
        self._segments.discard(fd)
        super().close_file(fd)

    def map_file(self, fd: int, size: int):  # type: ignore[no-untyped-def]
        self.maps += fd in self._segments
        return super().map_file(fd, size)
