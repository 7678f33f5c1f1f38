"""The index files of an account's open segments between a stop and the next start, when there are many streams.

A start takes what the last stop kept, gives each stream its own, and forgets all of it before any stream changes. A
stop keeps those of the streams that it closes, and, of a start that was cut short or could not open a stream, those
that were not used. Nothing is lost without the file but time, and the witness of damage that came between.

Knows nothing of what an index file says (store/format/tail_file has the format).
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

STREAMS_MIN = 64  # that a stop closes: fewer have index files of their own


class TailIndexes:
    """Those of one account."""

    def __init__(self, disk: Disk, streams: str, log: Log) -> None:
        self._disk = disk
        self._path = tails_path(streams)
        self._log = log
        self._tails: Tails = {}  # of streams that were not opened since the last stop
        self._stored = False  # there is a file

    def load(self) -> None:
        """Take what the last stop kept.

        Raises:
            OSError: descriptors or memory are short.
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
        """Return what was kept of the stream whose file name is `name`."""
        return self._tails.get(name)

    def settle(self, opened: Collection[str]) -> None:
        """Forget those of streams that are open, by their file names, for good: they may change from now on."""
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
        """Return where so many streams, which are about to close, leave theirs; None: in files of their own."""
        return {} if streams >= STREAMS_MIN else None

    def keep(self, closed: Tails, opened: Collection[str]) -> None:
        """Keep those of streams that were `opened` and are closed now, beside those of streams that were not."""
        tails = {name: tail for name, tail in self._tails.items() if name not in opened} | closed
        if not tails and not self._stored:
            return
        try:
            write_tails(self._disk, self._path, tails)
        except OSError as error:
            self._log.warn(f"  {self._path} is not kept, and the next start reads segments: {error}")
