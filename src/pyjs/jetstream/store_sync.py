"""When a file store is synced, and the answers that wait for it.

With `always` a PubAck leaves only after the fdatasync that covers its record; otherwise what was written is synced
some time later, at the latest `interval_ns` after the write. Syncs run wherever `submit` puts them, one at a time
per store: what is committed meanwhile is covered by the next (group commit). A full disk is probed until it has
room again.

Knows nothing of threads: the shell hands in a `submit` that uses one, tests and the default run the job at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from pyjs.base.timers import Timer, Timers
from pyjs.core.account import Account
from pyjs.jetstream.answers import Answers
from pyjs.jetstream.publish_errors import failure_body, store_error
from pyjs.store.filestore import FileStore, SyncJob

PROBE_NS = 1_000_000_000

Done = Callable[[Exception | None], None]
Submit = Callable[[SyncJob, Done], None]


def run_at_once(job: SyncJob, done: Done) -> None:
    """Sync here and now."""
    done(job())


class StoreSync:
    """The syncs of one stream's file store."""

    __slots__ = (
        "_account",
        "_held",
        "_interval_ns",
        "_name",
        "_probe",
        "_store",
        "_submit",
        "_timer",
        "_timers",
        "always",
    )

    def __init__(
        self,
        account: Account,
        name: str,
        store: FileStore,
        always: bool,
        interval_ns: int,
        timers: Timers,
        submit: Submit,
    ) -> None:
        self._account = account
        self._name = name
        self._store = store
        self.always = always
        self._interval_ns = interval_ns
        self._timers = timers
        self._submit = submit
        self._timer: Timer | None = None
        self._probe: Timer | None = None
        self._held: deque[tuple[int, Answers]] = deque()  # (written_mark that must be synced first, answers)

    def hold(self, answers: Answers) -> None:
        """Send `answers` once everything committed so far is on the medium."""
        self._held.append((self._store.written_mark, answers))
        self._release()
        if self._held:
            self._start()

    def committed(self, now_ns: int) -> None:
        """Have what was written synced in time."""
        if self._store.failed:
            self._probe_later(now_ns)
        elif self._timer is None and self._store.dirty:
            self._timer = self._timers.at(now_ns + self._interval_ns, self._due)

    def close(self) -> None:
        """Sync what is left, send what waited for it, do nothing more."""
        for timer in (self._timer, self._probe):
            if timer is not None:
                timer.cancel()
        self._store.sync_now()
        self._release()

    def _due(self) -> None:
        self._timer = None
        self._start()

    def _start(self) -> None:
        job = self._store.begin_sync()
        if job is not None:
            self._submit(job, partial(self._done, job))

    def _done(self, job: SyncJob, error: Exception | None) -> None:
        self._store.finish_sync(job, error)
        self._release()
        if self._held:
            self._start()

    def _release(self) -> None:
        failure = failure_body(self._name, store_error(self._store.error)) if self._store.failed else b""
        while self._held and (failure or self._held[0][0] <= self._store.synced_mark):
            self._held.popleft()[1].send_all(self._account, failure)

    def _probe_later(self, now_ns: int) -> None:
        if self._store.resumable and self._probe is None:
            self._probe = self._timers.at(now_ns + PROBE_NS, self._try_resume)

    def _try_resume(self) -> None:
        assert self._probe is not None
        tried_at_ns = self._probe.deadline_ns
        self._probe = None
        if not self._store.try_resume():
            self._probe_later(tried_at_ns)
