"""Stored streams created and changed in this thread, by an AccountFiles without a server."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyjs.base.disk import Disk, OsDisk
from pyjs.base.log import Log
from pyjs.core.sink import Turn
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.files.metadata import Change, MetadataWriter
from pyjs.jetstream.manage.persist import AccountFiles, Stores
from pyjs.store.crypt.keys import KeyRing
from pyjs.store.open_files import OpenFiles
from pyjs.store.segment.view import ViewCache
from pyjs.store.state.consumer_state import OpenLogs
from pyjs.store.store import StreamStore

if TYPE_CHECKING:
    from pyjs.core.chore import Step

T = TypeVar("T")


def account_files(
    disk: Disk, root: str, account: str, log: Log, now_ns: Callable[[], int], key_ring: KeyRing | None = None
) -> AccountFiles:
    """Return the files of an account that shares nothing with other accounts."""
    files = OpenFiles(disk)
    logs = OpenLogs(disk, files)
    return AccountFiles(Stores(disk, root, log, now_ns, files, logs, ViewCache(), key_ring), account)


class WriterAtOnce(MetadataWriter):
    """Makes each change when it is queued."""

    def __init__(self, root: Path | str, disk: OsDisk | None = None) -> None:
        Path(root).mkdir(parents=True, exist_ok=True)
        super().__init__(Turn(), disk or OsDisk(), str(root))

    def commit(self, change: Change) -> Iterator[None]:  # type: ignore[override]
        """Make the change."""
        self.commit_now(change)
        yield from ()

    def submit(self, change: Change, done: Callable[[Exception | None], None]) -> None:
        """Make the change."""
        self.commit_now(change)
        done(None)


def finish(steps: Generator[Step, None, T]) -> T:
    """Run stepped work to its end at once; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result


def create_stream(
    files: AccountFiles, writer: MetadataWriter, config: StreamConfig, created_ns: int
) -> StreamStore:
    """Return the store of a new stream."""
    return finish(files.create(config, created_ns, writer))


def change_stream(
    files: AccountFiles, writer: MetadataWriter, config: StreamConfig, created_ns: int, store: StreamStore
) -> None:
    """Store a changed configuration."""
    finish(files.change(config, created_ns, store, writer))
