"""The file that records a purge in steps, so that after a kill the next start completes the purge.

This module knows nothing of the removal of messages (purging.py) or of the format of the file
(store/format/purge_file).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.errors import CorruptRecord
from pyjs.jetstream.files.stream_changes import PurgeBegin, PurgeEnd
from pyjs.store.format.purge_file import NAME, Purge, encode_purge, read_purge

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.base.disk import Disk
    from pyjs.base.log import Log
    from pyjs.core.chore import Step
    from pyjs.jetstream.files.metadata import MetadataWriter
    from pyjs.store.crypt.keys import StreamKey


class PurgeFile:
    """The purge file of one stream."""

    def __init__(self, disk: Disk, directory: str, key: StreamKey | None, log: Log) -> None:
        self._disk = disk
        self._path = f"{directory}/{NAME}"
        self._key = key
        self._log = log

    def begin(self, purge: Purge, metadata: MetadataWriter) -> Generator[Step, None, None]:
        """Store a purge, so that this process or the next start completes it.

        Raises:
            StoreFailed: the purge is not stored, and must not begin.
        """
        yield from metadata.commit(PurgeBegin(self._path, encode_purge(purge, self._key)))

    def begun(self) -> Purge | None:
        """Return the purge that a kill interrupted, or None if there is no such purge or the file is damaged.

        Raises:
            UnknownFormat, Locked, OSError: the file cannot be read.
        """
        if not self._disk.exists(self._path):
            return None
        try:
            return read_purge(self._disk, self._path, self._key)
        except CorruptRecord as error:
            self._log.warn(f"  {self._path} was never durable, so its purge had not begun: {error}")
            return None

    def end(self, metadata: MetadataWriter) -> None:
        """Queue the removal of the purge file.

        If the removal fails, the next start repeats the purge, which then finds no messages.
        """
        metadata.submit(PurgeEnd(self._path), _leave_to_start)


def _leave_to_start(failure: Exception | None) -> None:
    """Ignore the error, since the next start will remove the file."""
