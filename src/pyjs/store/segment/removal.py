"""Removal of segments that nothing needs any more, as a job for any thread.

Knows nothing of what was in them, nor of who needed it: what is removed here was given up before, in a way that the
next start understands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.store.segment.index_file import index_path, remove_file

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.base.log import Log


class SegmentRemoval:
    """Superfluous segments of one directory."""

    def __init__(self, disk: Disk, log: Log, directory: str, paths: list[str]) -> None:
        self._disk = disk
        self._log = log
        self._directory = directory
        self._paths = paths

    def __call__(self) -> OSError | None:
        """Remove them with their index files; return the error after which some may come back, None: none will."""
        for path in self._paths:
            remove_file(self._disk, self._log, index_path(path))
            try:
                self._disk.unlink(path)
            except FileNotFoundError:
                pass  # it could not even be made
            except OSError as error:
                self._log.warn(f"{path} could not be removed: {error}")
        try:
            self._disk.sync_dir(self._directory)
        except OSError as error:
            return error
        return None
