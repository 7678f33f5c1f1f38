"""The stored list of a stream's consumers: each entry creates, updates or deletes one consumer.

An entry is appended first to one copy of the list (store/state/consumer_list), then to the other. A consumer's state
gets its own directory when it first changes; the directory is removed after the entry that deletes the consumer is
durable.

A `ListFile` is used by the recovery, and later by the thread that runs the batches one after another. This module
knows nothing of configurations and states.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from pyjs.base.disk import Disk
from pyjs.base.errors import StoreFailed
from pyjs.jetstream.files.metadata import Change
from pyjs.store.format.layout import DAMAGED, file_name, free_name, make_directory, set_aside
from pyjs.store.format.meta import Opener, write_whole
from pyjs.store.state.consumer_list import (
    HEAD,
    NAME,
    ConsumerList,
    Listed,
    Problem,
    drop_values,
    encode_entry,
    encode_list,
    list_paths,
    load_list,
    put_values,
    state_name,
)
from pyjs.store.sync_set import SyncSet

if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from pyjs.store.crypt.keys import StreamKey

    # Name -> (creation time, configuration, state) of the consumers as the server has them in memory.
    Known: TypeAlias = dict[str, tuple[int, dict[str, Any], bytes]]

WASTE_SIZE_MIN = 64 * 1024  # bytes of superseded entries; with more, the list is rewritten


class ListFile:
    """Both copies of one stream's list of consumers, and their sizes."""

    def __init__(self, directory: str, key: StreamKey | None) -> None:
        self.directory = directory  # directory of the stream
        self.live: dict[str, int] = {}  # name -> ident of each consumer in the list
        self.missing = 0  # number of consumers that may exist although their entries are unreadable
        self.unusable = False  # the files are unreadable, and must not be rewritten
        self.closed = False  # the stream is deleted
        self._key = key
        self._paths = list_paths(directory)
        self._ends = (0, 0)
        self._last = 0  # number of the last entry; 0: no files exist yet
        self._count = 0  # number of entries in each file
        # The files have damaged or unfinished entries, and are rewritten before the next entry is appended.
        self._stale = False
        self._batch: SyncSet | None = None  # the last batch that appended entries

    @property
    def ends(self) -> tuple[int, int]:
        """The size in bytes of the valid part of each copy."""
        return self._ends

    def adopt(self, disk: Disk, found: ConsumerList) -> None:
        """Use the list that recovery has read, and rewrite its files if they are damaged.

        Raises:
            OSError: the files cannot be rewritten; the next change tries again.
        """
        self.live = {name: each.ident for name, each in found.live.items()}
        self._last, self._count, self._ends = found.last, found.count, (found.size, found.size)
        if found.last and not disk.exists(
            f"{self.directory}/{NAME}"
        ):  # a copy of a store may lack an empty list
            make_directory(disk, f"{self.directory}/{NAME}")
        if not found.clean or not found.sealed or found.gaps:
            self._stale = True
            if found.gaps:
                self._keep_aside(disk)
            self._rewrite(disk, found)

    def rewrite(self, disk: Disk, *, only_damaged: bool = False, known: Known | None = None) -> list[str]:
        """Rewrite both copies from their undamaged entries and `known`, and return the problems that were found.

        With `only_damaged`, undamaged copies are not rewritten.

        Raises:
            OSError: the files cannot be rewritten; the next change tries again.
            StoreFailed: an entry is damaged in both copies, and is not in `known`.
        """
        found = load_list(disk, self.directory, Opener(self._key), self._ends)
        if known is not None:
            self._put_right(found, known)
        if found.gaps or {name: each.ident for name, each in found.live.items()} != self.live:
            raise StoreFailed(self._paths[0], "both copies of the list of consumers are damaged")
        if not only_damaged or not found.clean:
            self._stale = True
            self._rewrite(disk, found)
        return [str(problem) for problem in found.problems]

    def _put_right(self, found: ConsumerList, known: Known) -> None:
        """Restore the entries of live consumers in `found` from `known`, and drop those of deleted consumers."""
        if not found.last:
            found.problems += [Problem(path, 0, "it is missing", False) for path in self._paths]
        if found.gaps or not found.last:
            found.clean = False
            found.gaps.clear()
        for name, ident in self.live.items():
            if name in known:
                found.live[name] = Listed(name, ident, *known[name])
        for name in found.live.keys() - self.live.keys():
            del found.live[name]  # the entry that deleted the consumer is damaged

    def is_written_by(self, dirty: SyncSet) -> bool:
        """Return whether the batch of `dirty` has appended entries.

        If so, the list must not be rewritten.
        """
        return self._batch is dirty

    def append(self, disk: Disk, dirty: SyncSet, values: dict[str, Any]) -> tuple[tuple[int, int], int, int]:
        """Append an entry to both copies, and return the state of the list before the entry, for `take_back`.

        Raises:
            OSError, StoreFailed: the entry was not written.
        """
        self.prepare(disk, dirty)
        before = (self._ends, self._last, self._count)
        data, count = self._first(disk, dirty) if not self._last else (b"", 0)
        number = self._last + 1 + count
        data += encode_entry(number, values, self._key)
        try:
            fds = [dirty.open(path, create=self._last == 0) for path in self._paths]
            for fd, end in zip(fds, self._ends, strict=True):
                disk.write_at(fd, data, end)
        except OSError:
            self.take_back(disk, before)
            raise
        self._ends = (self._ends[0] + len(data), self._ends[1] + len(data))
        self._last, self._count = number, self._count + 1 + count
        return before

    def prepare(self, disk: Disk, dirty: SyncSet) -> None:
        """Prepare the list for an entry.

        At the first entry of a batch, the list is rewritten if that is due.

        Raises:
            OSError, StoreFailed: no entry can be appended.
        """
        if self.closed:
            raise FileNotFoundError(errno.ENOENT, "the stream is gone", self.directory)
        if self._batch is not dirty:
            self._batch = dirty
            dead = self._count - 1 - len(self.live)
            if self._stale or (self._ends[0] > WASTE_SIZE_MIN and dead > len(self.live)):
                self.rewrite(disk)
        if self._stale:
            raise OSError(errno.EIO, "what was written before could not be taken back", self._paths[0])

    def next_number(self) -> int:
        """Return the number of the next entry; `prepare` must have been called before."""
        return self._last + 1 if self._last else 2

    def take_back(self, disk: Disk, before: tuple[tuple[int, int], int, int], *, lost: bool = False) -> None:
        """Remove the last entry; `before` is the value that `append` returned for it.

        With `lost`, a sync has failed, and the list is rewritten before the next entry.

        Raises:
            OSError: the next start may find the entry.
        """
        self._ends, self._last, self._count = before
        stale, self._stale = self._stale or lost, True
        for path, end in zip(self._paths, self._ends, strict=True):
            if disk.exists(path):
                fd = disk.open_file(path)
                try:
                    disk.truncate(fd, end)
                finally:
                    disk.close_file(fd)
        self._stale = stale

    def _first(self, disk: Disk, dirty: SyncSet) -> tuple[bytes, int]:
        """Create the directory for new files, and return the first bytes of the files.

        The second value is the number of entries in these bytes.
        """
        disk.make_dirs(f"{self.directory}/{NAME}")
        dirty.add_directory(self.directory)
        return encode_entry(1, {"op": HEAD, "count": 0}, self._key), 1

    def _rewrite(self, disk: Disk, found: ConsumerList) -> None:
        """Replace both copies of the list with the valid entries in `found`."""
        drops = [
            each for each in sorted(found.dropped) if disk.exists(state_directory(self.directory, *each))
        ]
        # needed until the directories of these consumers are removed
        entries = [drop_values(*each) for each in drops]
        entries += [each.values() for each in found.live.values()]
        data = encode_list(self._last + 1, entries, self._key)
        for copy, path in enumerate(self._paths):
            write_whole(disk, f"{self.directory}/{NAME}.tmp", path, data)
            self._ends = (len(data), len(data) if copy else self._ends[1])
            disk.sync_dir(self.directory)
        self._last += 1 + len(entries)
        self._count = 1 + len(entries)
        self._stale = False

    def _keep_aside(self, disk: Disk) -> None:
        """Copy the damaged files before they are rewritten, for the operator."""
        for path in self._paths:
            if disk.exists(path):
                aside = free_name(disk, f"{self.directory}/{NAME}/{path.rpartition('/')[2]}", DAMAGED)
                write_whole(disk, f"{self.directory}/{NAME}.tmp", aside, disk.read_file(path))
        disk.sync_dir(f"{self.directory}/{NAME}")


class _Entry:
    """The entry that one change appends to the list, with the data needed to remove the entry again."""

    def __init__(self, file: ListFile, name: str) -> None:
        self.path = f"{file.directory}/{NAME}/{file_name(name)}"
        self.name = name
        self._file = file
        self._before: tuple[tuple[int, int], int, int] | None = None
        self._ident_before = 0  # ident of the live consumer of that name; 0: there was none

    def append(self, disk: Disk, dirty: SyncSet, values: dict[str, Any], ident: int) -> None:
        """Append an entry with `values`.

        `ident` is the number of the consumer that then has the name, or 0 if there is none.
        """
        self._before = self._file.append(disk, dirty, values)
        self._ident_before = self._file.live.pop(self.name, 0)
        if ident:
            self._file.live[self.name] = ident

    def undo(self, disk: Disk) -> None:
        """Remove the entry, if it was appended."""
        if self._before is None:
            return
        self._file.live.pop(self.name, None)
        if self._ident_before:
            self._file.live[self.name] = self._ident_before
        self._file.take_back(disk, self._before, lost=True)


class NewConsumer(Change):
    """The creation of a consumer, with the first snapshot of its state."""

    def __init__(
        self, file: ListFile, name: str, created_ns: int, config: dict[str, Any], state: bytes
    ) -> None:
        self._file, self._entry = file, _Entry(file, name)
        self.path, self.name = self._entry.path, name
        self.state = state
        self.directory = ""  # directory of the consumer's state
        self.aside = ""  # new path of files that were found in this directory
        self._created_ns = created_ns
        self._config = config

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Append the consumer's entry, and set aside files that already exist in the directory of its state."""
        self._file.prepare(disk, dirty)
        ident = self._file.next_number()
        self.directory = state_directory(self._file.directory, self.name, ident)
        if disk.exists(self.directory):
            self.aside = set_aside(disk, self.directory)
        values = put_values(self.name, ident, self._created_ns, self._config, self.state)
        self._entry.append(disk, dirty, values, ident)

    def undo(self, disk: Disk) -> None:
        """Remove the entry."""
        self._entry.undo(disk)


class ChangedConsumer(Change):
    """An update of the configuration of a consumer."""

    def __init__(self, file: ListFile, name: str, created_ns: int, config: dict[str, Any]) -> None:
        self._file, self._entry = file, _Entry(file, name)
        self.path, self._name = self._entry.path, name
        self._created_ns = created_ns
        self._config = config

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Append an entry with the new configuration.

        Raises:
            FileNotFoundError: there is no such consumer.
            OSError, StoreFailed: the entry was not written.
        """
        ident = self._file.live.get(self._name, 0)
        if not ident:
            raise FileNotFoundError(errno.ENOENT, "there is no such consumer", self.path)
        values = put_values(self._name, ident, self._created_ns, self._config, None)
        self._entry.append(disk, dirty, values, ident)

    def undo(self, disk: Disk) -> None:
        """Remove the entry."""
        self._entry.undo(disk)


class RemovedConsumer(Change):
    """The deletion of a consumer and its files."""

    def __init__(self, file: ListFile, name: str) -> None:
        self._file, self._entry = file, _Entry(file, name)
        self.path, self._name = self._entry.path, name
        self._directory = ""

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Append an entry that deletes the consumer, unless the consumer or its stream is already deleted."""
        ident = self._file.live.get(self._name, 0)
        if ident and not self._file.closed and disk.exists(self._file.directory):
            self._directory = state_directory(self._file.directory, self._name, ident)
            self._entry.append(disk, dirty, drop_values(self._name, ident), 0)

    def undo(self, disk: Disk) -> None:
        """Remove the entry."""
        self._entry.undo(disk)

    def clean_up(self, disk: Disk) -> None:
        """Remove the directory of the consumer's state."""
        if self._directory and disk.exists(self._directory):
            disk.remove_tree(self._directory)


class CheckedList(Change):
    """A check of a consumer list that seemed damaged; it runs in the thread that writes lists."""

    def __init__(self, file: ListFile, known: Known | None = None) -> None:
        self.path = file.directory
        # the server's own data, which must not change until the check ends; None: read the files
        self.known = known
        self.problems: list[str] = []
        # the list was not checked, because the batch has already appended entries to it
        self.is_early = False
        self._file = file

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Check both copies, and rewrite them if one is damaged.

        If the batch has already appended entries to the list, only `is_early` is set.
        """
        if not self._file.closed and self._file.ends != (0, 0):
            self.is_early = self._file.is_written_by(dirty)
            if not self.is_early:
                self.problems = self._file.rewrite(disk, only_damaged=True, known=self.known)


def state_directory(stream: str, name: str, ident: int) -> str:
    """Return the directory of a consumer's state, which is in the directory of its stream."""
    return f"{stream}/{NAME}/{state_name(name, ident)}"
