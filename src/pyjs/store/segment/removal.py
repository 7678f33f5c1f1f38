"""Removal of retired segments, in a job that any thread may run.

This module knows nothing of their contents. The records that make the segments superfluous are durable before the job
runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.store.segment.index_file import index_path, remove_file

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.base.log import Log


class SegmentRemoval:
    """A job that removes retired segments of one directory."""

    def __init__(self, disk: Disk, log: Log, directory: str, paths: list[str], keep: dict[str, str]) -> None:
        self._disk = disk
        self._log = log
        self._directory = directory
        self._paths = paths
        # path -> new name, for files that are no longer segments but are still needed for their ids
        self._keep = keep

    def __call__(self) -> OSError | None:
        """Delete or rename the segments, and delete their index files.

        Then sync their directory. If this sync fails, return its error, else None. Other errors are only logged.
        """
        for path in self._paths:
            remove_file(self._disk, self._log, index_path(path))
            try:
                if path in self._keep:
                    self._disk.rename(path, self._keep[path])
                else:
                    self._disk.unlink(path)
            except FileNotFoundError:
                pass  # the file may never have been created
            except OSError as error:
                self._log.warn(f"{path} could not be removed: {error}")
        try:
            self._disk.sync_dir(self._directory)
        except OSError as error:
            return error
        return None
