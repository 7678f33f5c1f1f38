"""The check after each turn whether unsynced streams need a sync."""
from pyjs.core.sink cimport Turn
from pyjs.store.open_files cimport OpenFiles

cdef class SyncWatch:
    cdef Turn turn
    cdef OpenFiles files
    cdef object syncer                  # syncer.Syncer
    cdef public bint is_timed           # the syncer's timer is set, and will sync all unsynced streams
