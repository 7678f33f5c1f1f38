"""The probe of a file store without space or descriptors: every second, it checks whether writes succeed again."""

from __future__ import annotations

from pyjs.base.timers import Timer, Timers
from pyjs.store.file.store import FileStore

PROBE_NS = 1_000_000_000


class StoreProbe:
    """The probe of one store; it is idle while the store works."""

    __slots__ = ("_store", "_timer", "_timers")

    def __init__(self, store: FileStore, timers: Timers) -> None:
        self._store = store
        self._timers = timers
        self._timer: Timer | None = None

    def failed(self, now_ns: int) -> None:
        """Begin to probe, unless only a restart can repair the store."""
        if self._store.resumable and self._timer is None:
            self._timer = self._timers.at(now_ns + PROBE_NS, self._due)

    def cancel(self) -> None:
        """Stop probing."""
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        assert self._timer is not None
        tried_at_ns, self._timer = self._timer.deadline_ns, None
        if not self._store.try_resume():
            self.failed(tried_at_ns)
