"""The directory of a stream's segments: paths, open files, unsynced files and unsynced names.

This module knows nothing of records. Compiled: every write of a batch is noted here (benchmarks/, JetStream async
publish).
"""
from pyjs.base.bounds import INT64
from pyjs.store.open_files cimport OpenFiles

cdef int64_t TIME_MAX = INT64.high


cdef class SegmentFiles:
    def __init__(self, disk, str directory, log, uint64_t incarnation, key, handles) -> None:
        self.disk = disk
        self.handles = OpenFiles(disk) if handles is None else handles
        self.log = log
        self.directory = directory
        self.incarnation = incarnation
        self.key = key
        self.meta = b""
        self.unsynced = []
        self.found = []
        self.replaced = []
        self.names_above = ()
        self.ids_from = INT64.high
        self.last_times, self.kept = {}, {}
        self.suspects = set()
        disk.make_dirs(directory)
        self.names_unsynced = True

    def path_of(self, uint32_t number) -> str:
        """Return the path of a segment's file."""
        return f"{self.directory}/{number:08d}.seg"

    cdef bint keeps_ids(self, int64_t last_ts) noexcept nogil:
        """Return whether ids in a file are still needed; `last_ts` is the time of its last message."""
        return last_ts >= self.ids_from and self.ids_from != TIME_MAX

    cdef void wrote(self, str path) except *:
        """Mark the open file at `path` as unsynced."""
        self.handles.wrote(path)
        if path not in self.unsynced:
            self.unsynced.append(path)
