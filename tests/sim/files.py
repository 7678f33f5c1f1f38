"""Files and directories of a simulated disk: what processes see, what is on the medium, and the changes in between.

tests/sim/disk describes the model. `lose_sync` and `evict` simulate a failed sync:

- The sync loses single writes (blocks may be smaller than a page) or whole pages; the new size of the file is kept.
- The lost pages are clean: the page cache shows them until they are evicted. After that, processes read what is on
  the medium, so even the next process of the same machine may find less than the process before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

PAGE = 4096
SECTOR = 512
WRITE, RESIZE = 0, 1  # the kinds of changes of a file


class File:
    """An inode: its page cache, its medium, and the changes between them."""

    def __init__(self) -> None:
        self.size = 0
        self.cache = bytearray(PAGE)  # zeros after `size`
        # caches that were replaced by larger ones, but are still visible through maps
        self.mapped: list[bytearray] = []
        self.medium = bytearray()
        self.changes: list[tuple[int, int, bytes]] = []  # (WRITE, offset, data) or (RESIZE, size, b"")
        self.lossy = False  # a sync failed: the medium may lack bytes of clean pages
        self.failed = (
            # a sync of the file system has lost data of this file, which the next sync of the file reports
            False
        )

    def write(self, offset: int, data: bytes) -> None:
        """Write to the page cache."""
        end = offset + len(data)
        self._reserve(end)
        self.cache[offset:end] = data
        for old in self.mapped:
            if offset < len(old):
                old[offset : min(end, len(old))] = data[: len(old) - offset]
        self.size = max(self.size, end)
        self.changes.append((WRITE, offset, data))

    def resize(self, size: int) -> None:
        """Truncate or extend the page cache."""
        if size < self.size:
            for each in (self.cache, *self.mapped):
                end = min(self.size, len(each))
                if size < end:
                    each[size:end] = bytes(end - size)
        self._reserve(size)
        self.size = size
        self.changes.append((RESIZE, size, b""))

    def _reserve(self, size: int) -> None:
        room = len(self.cache)
        if size > room:
            while room < size:
                room *= 8
            larger = bytearray(room)
            larger[: self.size] = self.cache[: self.size]
            self.mapped.append(self.cache)
            self.cache = larger

    def content(self) -> bytes:
        """Return the contents that a process reads."""
        return bytes(self.cache[: self.size])

    def sync(self) -> None:
        """Write every change to the medium."""
        for change in self.changes:
            _apply(self.medium, change)
        self.changes = []

    def lose_sync(self, rng: Random, faults: Random) -> None:
        """Simulate a failed sync: some writes or pages reach the medium, the others never will."""
        if faults.random() < 0.5:
            for kind, at, data in self.changes:
                if kind == RESIZE or rng.random() < 0.5:
                    _apply(self.medium, (kind, at, data))
                else:
                    self.medium.extend(bytes(max(0, at + len(data) - len(self.medium))))
        else:
            self._lose_pages(faults)
        self.changes = []
        self.lossy = True

    def _lose_pages(self, faults: Random) -> None:
        before = bytes(self.medium)
        for change in self.changes:
            _apply(self.medium, change)
        for page in range(0, len(self.medium), PAGE):
            if faults.random() < 0.5 and any(_touches(change, page) for change in self.changes):
                end = min(page + PAGE, len(self.medium))
                self.medium[page:end] = before[page:end].ljust(end - page, b"\0")

    def evict(self, faults: Random) -> None:
        """Drop clean pages from the page cache; they are read from the medium again."""
        for page in range(0, self.size, PAGE):
            end = min(page + PAGE, self.size)
            if faults.random() < 0.5 and not any(_touches(change, page) for change in self.changes):
                data = bytes(self.medium[page:end]).ljust(end - page, b"\0")
                for each in (self.cache, *self.mapped):
                    if page < len(each):
                        each[page : min(end, len(each))] = data[: len(each) - page]

    def lose_power(self, rng: Random) -> None:
        """Replace the contents by contents that the medium may have after a power cut."""
        chance = rng.random()
        if chance < 0.35:
            self.sync()
        elif chance < 0.75:
            self.medium = self._mixed(rng)
        self.changes = []
        self.lossy = False
        self.size = len(self.medium)
        self.cache = bytearray(max(PAGE, self.size))
        self.cache[: self.size] = self.medium
        self.mapped = []

    def _mixed(self, rng: Random) -> bytearray:
        """Return a possible state of the medium, to which each page was written independently of the others."""
        sizes = [len(self.medium)]  # sizes before the first change, and after each change
        for kind, at, data in self.changes:
            sizes.append(at if kind == RESIZE else max(sizes[-1], at + len(data)))
        durable = rng.randrange(len(sizes))  # number of changes of the size that reached the medium
        shrinks = [(i, sizes[i + 1]) for i in range(len(self.changes)) if sizes[i + 1] < sizes[i]]
        out = bytearray(self.medium)
        out.extend(bytes(max(0, max(sizes) - len(out))))
        for page in range(0, len(out), PAGE):
            self._mix_page(out, page, durable, shrinks, rng)
        del out[sizes[durable] :]
        return out

    def _mix_page(
        self, out: bytearray, page: int, durable: int, shrinks: list[tuple[int, int]], rng: Random
    ) -> None:
        low, high = 0, len(self.changes)
        for i, size in shrinks:
            if size < page + PAGE:
                low, high = (i + 1, high) if i < durable else (low, min(high, i))
        touching = [i for i in range(low, high) if _touches(self.changes[i], page)]
        arrived = rng.choice((0, len(touching), rng.randrange(len(touching) + 1)))
        for i in [*range(low), *touching[:arrived]]:
            _apply_within(out, self.changes[i], page, page + PAGE)
        if arrived < len(touching) and rng.random() < 0.3:
            torn_at = page + SECTOR * rng.randrange(PAGE // SECTOR)
            _apply_within(out, self.changes[touching[arrived]], page, torn_at)


def _touches(change: tuple[int, int, bytes], page: int) -> bool:
    kind, at, data = change
    return kind == WRITE and at < page + PAGE and at + len(data) > page


def _apply(out: bytearray, change: tuple[int, int, bytes]) -> None:
    kind, at, data = change
    if kind == WRITE:
        out.extend(bytes(max(0, at - len(out))))
        out[at : at + len(data)] = data
    else:
        del out[at:]
        out.extend(bytes(at - len(out)))


def _apply_within(out: bytearray, change: tuple[int, int, bytes], low: int, high: int) -> None:
    """Apply the part of a change that affects the bytes low .. high; the size does not change."""
    kind, at, data = change
    if kind == WRITE:
        first, last = max(low, at), min(high, at + len(data))
        if first < last:
            out[first:last] = data[first - at : last - at]
    elif at < high:
        first, last = max(low, at), min(high, len(out))
        out[first:last] = bytes(max(0, last - first))


class Directory:
    """Names as processes see them, names on the medium, and the journal between them."""

    def __init__(self) -> None:
        self.entries: dict[str, File | Directory] = {}
        self.medium: dict[str, File | Directory] = {}
        self.journal: list[
            tuple[str, str, File | Directory | None]
        ] = []  # (name, former name, file or directory; None: removed)

    def put(self, name: str, node: File | Directory, former: str = "") -> None:
        """Give `node` a name; a former name is removed in the same step."""
        self._change(name, former, node)

    def remove(self, name: str) -> None:
        """Remove a name."""
        self._change(name, "", None)

    def _change(self, name: str, former: str, node: File | Directory | None) -> None:
        self.journal.append((name, former, node))
        _enter(self.entries, name, former, node)

    def sync(self, count: int | None = None) -> None:
        """Write the first `count` changes to the medium, or all changes if `count` is None."""
        for change in self.journal[:count]:
            _enter(self.medium, *change)
        self.journal = []

    def lose_power(self, rng: Random) -> None:
        """Replace the directory and everything below by a state that the medium may have after a power cut."""
        self.sync(rng.choice((0, len(self.journal), rng.randrange(len(self.journal) + 1))))
        self.entries = dict(self.medium)
        for name in sorted(self.entries):
            self.entries[name].lose_power(rng)


def _enter(names: dict[str, File | Directory], name: str, former: str, node: File | Directory | None) -> None:
    if former:
        names.pop(former, None)
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def directories_below(top: Directory) -> Iterator[Directory]:
    yield top
    for _, node in sorted(top.entries.items()):
        if isinstance(node, Directory):
            yield from directories_below(node)


def files_below(top: Directory) -> Iterator[File]:
    for directory in directories_below(top):
        yield from (node for _, node in sorted(directory.entries.items()) if isinstance(node, File))
