"""A temporary store directory for one server, and a disk for it that never syncs.

No later server opens the directory, so it need not survive a power failure. It is removed when the server
stops, or at the end of the process. A forked child does not remove it.
"""

from __future__ import annotations

import atexit
import os

from pyjs.base.disk import OsDisk


class ScratchStore:
    """A temporary store directory, which is removed at the latest when the process ends."""

    def __init__(self) -> None:
        """Create the directory.

        Raises:
            OSError: the temporary directory of the system cannot be written.
        """
        import tempfile  # imported lazily, in 2 ms: the command has no scratch store

        self.path = tempfile.mkdtemp(prefix="pyjs-")
        self._pid = os.getpid()
        _there.add(self)

    def remove(self) -> None:
        """Remove the directory with all its contents, ignoring errors; do nothing in a forked child."""
        import shutil  # imported lazily, in 2 ms: the command has no scratch store

        if self._pid == os.getpid():
            _there.discard(self)
            shutil.rmtree(self.path, ignore_errors=True)


# All directories to remove when the process ends. There is one atexit call for all of them, since atexit keeps every
# registered call.
_there: set[ScratchStore] = set()


@atexit.register
def _remove_all() -> None:
    for scratch in tuple(_there):
        scratch.remove()


class UnsyncedDisk(OsDisk):
    """A disk with files of this machine that are never synced."""

    def sync_file(self, fd: int) -> None:
        """Do nothing: a scratch store does not outlive the process."""

    def sync_dir(self, path: str) -> None:
        """Do nothing: a scratch store does not outlive the process."""

    def sync_filesystem(self, fd: int) -> None:
        """Do nothing: a scratch store does not outlive the process."""

    def check_file(self, fd: int) -> None:
        """Do nothing: a scratch store does not outlive the process."""
