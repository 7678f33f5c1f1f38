"""A temporary store directory for one server, and a disk for it that never syncs.

No later server opens the directory, so it need not survive a power failure. It is removed when the server
stops, or at the end of the process. A forked child does not remove it.
"""

from __future__ import annotations

import atexit
import os

from pyjs.base.disk import OsDisk


class ScratchStore:
    """A new directory in the system's temporary directory."""

    def __init__(self) -> None:
        """Create the directory. Raises OSError if the temporary directory cannot be written."""
        import tempfile  # imported lazily, in 2 ms: the command has no scratch store

        self.path = tempfile.mkdtemp(prefix="pyjs-")
        self._pid = os.getpid()
        _there.add(self)

    def remove(self) -> None:
        """Remove the directory with all its contents; ignores errors."""
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
    """A disk that writes files of this machine, but never syncs them."""

    def sync_file(self, fd: int) -> None:
        """Do nothing: a scratch store does not outlive the process."""

    def sync_dir(self, path: str) -> None:
        """Do nothing: a scratch store does not outlive the process."""

    def sync_filesystem(self, fd: int) -> None:
        """Do nothing: a scratch store does not outlive the process."""

    def check_file(self, fd: int) -> None:
        """Do nothing: a scratch store does not outlive the process."""
