"""The files of a node log on disk: opened, filled, synced, sealed, and reused.

A file that no group needs is renamed to a spare; a spare is renamed to become the next file. Each name is
durable before the next rename: otherwise a power failure could leave an old name with new contents.

Invariant: files are freed oldest first, and only after the copies of their needed records are durable.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.consensus.log.files import HEADER, LOG, SPARE, TEMPORARY, LogFile, Seal
from pyjs.consensus.log.sync_job import FreshFileJob, SyncJob

if TYPE_CHECKING:
    from pyjs.base.disk import Disk

SPARES_MAX = 2


class Shelf:
    """All files of the log, oldest first; the newest file is being filled."""

    def __init__(self, disk: Disk, directory: str, file_size: int) -> None:
        self._disk = disk
        self.directory = directory
        self._file_size = file_size
        self.files: dict[int, LogFile] = {}  # by number
        self.newest: LogFile  # the file that is being filled
        self._spares: list[tuple[str, int]] = []  # path and size of spares whose names are durable
        self._renamed: list[tuple[str, int]] = []  # path and size of spares whose names are not durable
        self._dirty: dict[int, LogFile] = {}  # written since the last sync began
        self._names_changed = False
        self._unsealed: list[tuple[LogFile, Seal]] = []
        self._making: FreshFileJob | None = None
        self._failed_at = 0  # number of the newest file when the creation of a spare failed

    @property
    def oldest(self) -> LogFile:
        """Return the file that will be freed next."""
        return next(iter(self.files.values()))

    def add(self, file: LogFile, seal: Seal | None) -> None:
        """Add the next file, which is created before its first write; `seal` is the previous file's seal, or None."""
        if seal is not None:
            self._unsealed.append((self.newest, seal))
        self.files[file.number] = self.newest = file

    def adopt(self, file: LogFile, end: int) -> None:
        """Add a file of an earlier process, with records up to the offset `end`."""
        file.fd = self._disk.open_file(file.path)
        file.written = end
        self.files[file.number] = self.newest = file

    def find_spares(self) -> None:
        """Find spares that earlier processes left; remove a file whose creation was interrupted."""
        for name in self._disk.list_dir(self.directory):
            path = f"{self.directory}/{name}"
            if name == TEMPORARY:
                self._disk.unlink(path)
            elif name.endswith(SPARE):
                fd = self._disk.open_read_only(path)
                self._spares.append((path, self._disk.size_of(fd)))
                self._disk.close_file(fd)
        self._disk.sync_dir(self.directory)

    # -- writing -------------------------------------------------------------------------------------------

    def write(self, file: LogFile, offset: int, data: bytes) -> None:
        """Write records at the end of a file; create the file before its first write."""
        if file.fd < 0:
            self._open_new(file)
        assert offset == file.written
        self._disk.write_at(file.fd, data, offset)
        file.written = offset + len(data)
        self._dirty[file.number] = file

    def write_again(self, file: LogFile, size: int, offset: int) -> None:
        """Rewrite `size` bytes of a file, since bytes that can be read may still not be durable."""
        self._disk.write_at(file.fd, self._disk.read_at(file.fd, size, offset), offset)
        self._dirty[file.number] = file

    def _open_new(self, file: LogFile) -> None:
        spare = next((each for each in self._spares if each[1] == file.size), None)
        self._names_changed = True
        if spare is not None:
            self._spares.remove(spare)
            self._disk.rename(spare[0], file.path)
            file.fd = self._disk.open_file(file.path)
        else:
            file.fd = self._disk.open_file(file.path, create=True)
            self._disk.allocate(file.fd, 0, file.size)
        self._disk.write_at(file.fd, file.header.encode(), file.size - HEADER.size)

    # -- syncing -------------------------------------------------------------------------------------------

    def sync_job(self, mark: int) -> SyncJob | None:
        """Return a job that syncs all records up to `mark`, or None if there is nothing to sync."""
        if not self._dirty and not self._names_changed:
            return None
        files = [self._dirty[number] for number in sorted(self._dirty)]
        job = SyncJob(self._disk, files, self.directory, mark)
        job.has_names = self._names_changed
        for sealed, seal in list(self._unsealed):
            if self.files[seal.next].fd >= 0:
                job.seals.append((sealed, seal.encode(sealed.id)))
                self._unsealed.remove((sealed, seal))
        self._dirty, self._names_changed = {}, False
        job.spares, self._renamed = self._renamed, []
        return job

    def closing_job(self, seal: Seal) -> SyncJob:
        """Return the last job for the newest file, which writes its seal."""
        job = SyncJob(self._disk, [], self.directory, seal.last)
        job.seals = [(self.newest, seal.encode(self.newest.id))]
        return job

    def synced(self, job: SyncJob) -> None:
        """Handle the end of a successful sync, and free the oldest file if no group needs it."""
        self._spares += job.spares
        oldest = self.oldest
        if 0 < oldest.free_at <= job.mark and oldest is not self.newest:
            del self.files[oldest.number]
            self._disk.close_file(oldest.fd)
            self.retire(oldest.path, oldest.size)

    def retire(self, path: str, size: int) -> None:
        """Rename an unneeded file to a spare, or remove it."""
        self._names_changed = True
        if size != self._file_size or len(self._spares) + len(self._renamed) >= SPARES_MAX:
            self._disk.unlink(path)
            return
        spare = path.removesuffix(LOG) + SPARE
        self._disk.rename(path, spare)
        self._renamed.append((spare, size))

    # -- files in advance ----------------------------------------------------------------------------------

    def fresh_job(self) -> FreshFileJob | None:
        """Return a job that creates a spare.

        Return None if a spare exists, a job is running, or a job has failed since the newest file was begun.
        """
        if self._spares or self._renamed or self._making is not None:
            return None
        if self._failed_at == self.newest.number:
            return None
        self._making = FreshFileJob(self._disk, self.directory, self._file_size)
        return self._making

    def made(self, job: FreshFileJob, error: Exception | None) -> None:
        """Handle the end of a job from `fresh_job`: add the new spare, or record the failure."""
        assert job is self._making
        self._making = None
        if error is None:
            self._spares.append((job.path, job.size))
        else:
            self._failed_at = self.newest.number

    def close(self) -> None:
        """Close the descriptors of all files."""
        for file in self.files.values():
            fd, file.fd = file.fd, -1
            if fd >= 0:
                with suppress(OSError):  # a failed sync has already reported any error
                    self._disk.close_file(fd)
