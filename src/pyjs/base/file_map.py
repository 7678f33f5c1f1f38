"""A read-only map of a file, of which pages that turn out unreadable become zeros; and memory that is mapped alike.

Loaded with the first map: a process without a store leaves the signal alone that tells of such pages.
"""

from __future__ import annotations

import mmap

from pyjs.base.bad_pages import guard, release


class FileMap(mmap.mmap):
    """The first bytes of a file, guarded until it is unmapped."""

    _slot = -1

    def __new__(cls, fd: int, size: int) -> FileMap:
        """Map the first `size` bytes."""
        made = super().__new__(cls, fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        made._slot = guard(made)
        return made

    def close(self) -> None:
        """Unmap; nobody may have a view of it."""
        super().close()
        self._release()

    def __exit__(self, *exc: object) -> None:
        """Unmap."""
        self.close()

    def __del__(self) -> None:
        """Be unguarded before the memory is somebody else's."""
        self._release()

    def unguard(self) -> None:
        """Let an unreadable page end the process again: for who reads without a check."""
        self._release()

    def _release(self) -> None:
        slot, self._slot = self._slot, -1
        release(slot)


def blank_memory(size: int) -> mmap.mmap:
    """Return memory of zeros, of which a page is real when something is written there; it goes with its last user."""
    return mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
