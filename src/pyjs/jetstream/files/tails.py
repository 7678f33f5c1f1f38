"""The tails file of an account: one file that holds the index files of all its open segments.

A stopping server writes the tails file for the next start. The file has the index files of the streams that the
server closes, and again those of streams that the last start did not open because it was interrupted or failed. A
starting server loads the tails file and gives each stream its index file. Before any stream changes, the server
removes the index files of the open streams from the tails file. Without the tails file, a start takes longer, and
cannot notice damage since the last stop.

This module knows nothing of the contents of an index file (store/format/tail_file has the format).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.disk import is_shortage
from pyjs.store.format.tail_file import read_tails, tails_path, write_tails

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyjs.base.disk import Disk
    from pyjs.base.log import Log
    from pyjs.store.format.tail_file import Tail, Tails

STREAMS_MIN = 64  # if fewer streams are closed, each writes its own index file


class TailIndexes:
    """The tails file of one account, which is loaded at a start and written at a stop."""

    def __init__(self, disk: Disk, streams: str, log: Log) -> None:
        self._disk = disk
        self._path = tails_path(streams)
        self._log = log
        self._tails: Tails = {}  # of streams that were not opened since the last stop
        self._stored = False  # whether the file exists

    def load(self) -> None:
        """Read the tails file that the last stop wrote, and log the problems in it.

        Raises:
            OSError: out of file descriptors or memory.
        """
        try:
            self._tails, problems = read_tails(self._disk, self._path)
        except OSError as error:
            if is_shortage(error):
                raise
            problems = [f"{self._path} cannot be read: {error}"]
        self._stored = bool(self._tails or problems)
        for problem in problems:
            self._log.warn(f"  {problem}; the segments that it is of are read")

    def of(self, name: str) -> Tail | None:
        """Return the stored index file of the stream with the file name `name`, or None if there is none."""
        return self._tails.get(name)

    def forget(self, opened: Collection[str]) -> None:
        """Remove the stored index files of open streams (given by file name), since these streams may now change."""
        if not self._stored:
            return
        self._tails = {name: tail for name, tail in self._tails.items() if name not in opened}
        try:
            write_tails(self._disk, self._path, self._tails)
            self._disk.sync_dir(self._path.rpartition("/")[0])
        except OSError as error:
            self._log.warn(f"  {self._path} is out of date, and may tell of losses that are none: {error}")
        self._stored = bool(self._tails)

    def room_for(self, streams: int) -> Tails | None:
        """Return a dict for the index files of `streams` closing streams, or None if these are too few."""
        return {} if streams >= STREAMS_MIN else None

    def keep(self, closed: Tails, opened: Collection[str]) -> None:
        """Write the tails file with the index files in `closed` and the stored ones of streams not in `opened`."""
        tails = {name: tail for name, tail in self._tails.items() if name not in opened} | closed
        if not tails and not self._stored:
            return
        try:
            write_tails(self._disk, self._path, tails)
        except OSError as error:
            self._log.warn(f"  {self._path} is not kept, and the next start reads segments: {error}")
