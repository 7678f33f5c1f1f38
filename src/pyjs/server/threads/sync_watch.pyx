"""The check after each turn whether unsynced streams need a sync before the timer of the syncer fires.

Compiled, because most turns of a busy server leave unsynced streams (measured in benchmarks/: r3-sync-1).
"""
from pyjs.core.sink cimport Turn
from pyjs.store.open_files cimport OpenFiles


cdef class SyncWatch:
    """The hook of a syncer in the driver."""

    def __init__(self, Turn turn not None, OpenFiles files not None, syncer) -> None:
        """Call `syncer.unsynced_left` after a turn that leaves unsynced streams, unless they wait for the timer."""
        self.turn, self.files, self.syncer = turn, files, syncer

    def after_turn(self) -> None:
        """Pass unsynced streams to the syncer. While its timer is set, do this only if many files are unsynced."""
        if self.turn.unsynced and (not self.is_timed or self.files.is_crowded()):
            self.syncer.unsynced_left()
