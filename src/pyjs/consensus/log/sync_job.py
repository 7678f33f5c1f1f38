"""Jobs of the node log for another thread: a sync, and the creation of a file in advance.

After a failed sync, a job marks the log at once: the process may be killed before the owner handles the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.disk import closing
from pyjs.consensus.log.files import FRESH, TAIL_SIZE, TEMPORARY
from pyjs.store.format.lost_sync import mark_lost_sync

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.disk import Disk
    from pyjs.consensus.log.files import LogFile

ZEROS = bytes(1 << 20)


class SyncJob:
    """A sync of the written records of the log. It may run in any thread."""

    def __init__(self, disk: Disk, files: list[LogFile], directory: str, mark: int) -> None:
        self.disk = disk
        self.files = files  # files to sync, in the order of their records
        self.directory = directory
        self.has_names = False  # whether names in the directory changed
        self.is_marked = False  # whether the log was marked after a failed sync
        self.mark = mark  # records up to this number are durable after the job
        self.seals: list[tuple[LogFile, bytes]] = []  # seals of files, written when the next file is durable
        self.spares: list[tuple[str, int]] = []  # path, size of files whose new names become durable

    def __call__(self) -> Exception | None:
        """Sync data, then names, then write the seals; return the first error, or None if all is durable."""
        try:
            for file in self.files:
                self.disk.sync_file(file.fd)
            if self.has_names:
                self.disk.sync_dir(self.directory)
            for file, seal in self.seals:
                self.disk.write_at(file.fd, seal, file.size - TAIL_SIZE)
                self.disk.sync_file(file.fd)
        except OSError as error:
            self.is_marked = mark_lost_sync(self.disk, self.directory) is None
            return error
        return None


class FreshFileJob:
    """The creation of a spare file of zeros. It may run in any thread.

    Later syncs of records in such a file write no file system metadata.
    """

    def __init__(self, disk: Disk, directory: str, size: int) -> None:
        self._disk = disk
        self._directory = directory
        self.size = size
        self.path = f"{directory}/{FRESH}"
        self.has_failed_sync = False  # whether the sync failed; a later sync would not report lost data
        self.is_marked = False  # whether the log was marked after a failed sync

    def __call__(self) -> Exception | None:
        """Write the file; return the error, or None if the file is durable."""
        temporary = f"{self._directory}/{TEMPORARY}"
        try:
            with closing(self._disk, self._disk.open_file(temporary, create=True)) as fd:
                for at in range(0, self.size, len(ZEROS)):
                    self._disk.write_at(fd, ZEROS[: self.size - at], at)
                self._sync(lambda: self._disk.sync_file(fd))
            self._disk.rename(temporary, self.path)
            self._sync(lambda: self._disk.sync_dir(self._directory))
        except OSError as error:
            if self.has_failed_sync:
                self.is_marked = mark_lost_sync(self._disk, self._directory) is None
            return error
        return None

    def _sync(self, call: Callable[[], None]) -> None:
        self.has_failed_sync = True
        call()
        self.has_failed_sync = False
