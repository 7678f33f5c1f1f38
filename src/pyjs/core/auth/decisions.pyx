"""Cached decisions about whether a user may publish to a subject, from the user's permission lists.

All sessions of the user share the decisions. When the table is full, it is emptied; decisions about subjects in use
are soon added again. This module knows nothing of the permission lists.

Compiled, because it runs for every publish of a user with lists (measured in benchmarks/: 1-1-perm, jspub-perm).
"""
from pyjs.base.table cimport table_free, table_get, table_init, table_put

cdef enum:
    MAY = 1
    MAY_NOT = 2
    ENTRIES_MAX = 1024
    SIZE_MAX = 256              # bytes of a subject; decisions about longer subjects are not cached


cdef class Decisions:
    """A cache of decisions about publishing, for one user."""

    def __cinit__(self):
        table_init(&self.table, 2)

    def __dealloc__(self):
        table_free(&self.table)

    def __len__(self) -> int:
        """Return the number of cached subjects."""
        return self.table.used

    cdef bint allow(self, const char* subject, size_t n) noexcept nogil:
        return table_get(&self.table, subject, n) == <void*> MAY

    def get(self, bytes subject) -> bool | None:
        """Return the cached decision about `subject`, or None if there is none."""
        cdef void* found = table_get(&self.table, subject, len(subject))
        return None if found == NULL else found == <void*> MAY

    def put(self, bytes subject, bint allowed) -> None:
        """Cache the decision about `subject`, unless the subject is too long; a full cache is emptied first."""
        if len(subject) > SIZE_MAX:
            return
        if self.table.used >= ENTRIES_MAX:
            table_free(&self.table)
            table_init(&self.table, 2)
        table_put(&self.table, subject, len(subject), <void*> MAY if allowed else <void*> MAY_NOT)
