"""The index files in an account's common file: the check reads them, a repair writes them as separate files.

This module knows nothing of their contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.fsck.findings import DAMAGE, Finding
from pyjs.store.format.tail_file import read_tails, tails_path, write_tails
from pyjs.store.segment.index_file import store_index

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.store.format.tail_file import Tails


class StoredTails:
    """The common index files of all accounts of a store."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._by_account: dict[str, Tails] = {}  # by the directory of the account's streams

    def load(self, streams: str) -> list[Finding]:
        """Read the common file of the account whose streams are in `streams`; return findings about its damage."""
        path = tails_path(streams)
        try:
            self._by_account[streams], problems = read_tails(self._disk, path)
        except OSError as error:
            problems = [f"it cannot be read: {error.strerror or error}"]
        text = "index files in it are damaged; a start reads their segments: "
        return [Finding(DAMAGE, path, text + problem) for problem in problems]

    def of(self, directory: str) -> dict[str, bytes]:
        """Return {path of a separate file: index file} for the stream in `directory`, or {} if there is none."""
        streams, _, name = directory.rpartition("/")
        tail = self._by_account.get(streams, {}).get(name)
        return {} if tail is None else {f"{directory}/msgs/{tail[0]:08d}.idx": tail[1]}

    def put_in_place(self, directory: str) -> None:
        """Move the index file of a stream from the common file to a separate file. Raises OSError."""
        for path, data in self.of(directory).items():
            store_index(self._disk, path, data)
            streams, _, name = directory.rpartition("/")
            del self._by_account[streams][name]
            write_tails(self._disk, tails_path(streams), self._by_account[streams])
