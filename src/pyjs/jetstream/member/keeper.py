"""The keeper opens, changes and removes streams of this server so that they match the metadata.

The keeper does not carry out changes one by one, since entries are applied again after a restart. A change only marks
its stream; the keeper then brings the stream to its current state in the metadata. The keeper begins as soon as the
server has applied every entry that was committed before its start. A stream is identified by its account, name and
creation time; the files contain this time, which is never used twice.

A stored stream is removed only if an entry has removed exactly this stream. Any other stream that is not in the
metadata remains, and is reported.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import StoreFailed
from pyjs.jetstream import errcodes
from pyjs.jetstream.cluster.changes import StreamChange
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.replication.streams import ReplicaLost

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.base.log import Log
    from pyjs.core.chore import Step
    from pyjs.core.faults import Faults
    from pyjs.core.sink import Turn
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.changes import Change
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.losses import Losses
    from pyjs.jetstream.member.meta_machine import MetaMachine
    from pyjs.jetstream.member.waiters import Waiters
    from pyjs.jetstream.transfer.building import StreamBuild

RETRY_NS = 2 * NS_PER_S
BUSY_MAX = 256  # maximum number of streams that are opened or changed at the same time


class Key(NamedTuple):
    """The key of a stream in the cluster: its account and its name."""

    account: str
    name: str

    def __str__(self) -> str:
        return f"Stream {self.name!r} of account {self.account!r}"


class Keeper:
    """The component that opens, changes and removes the streams of one server as the metadata requires."""

    def __init__(
        self,
        node: int,
        machine: MetaMachine,
        accounts: dict[str, JetStream],
        waiters: Waiters,
        losses: Losses,
        turn: Turn,
        log: Log,
        faults: Faults,
    ) -> None:
        self._node = node
        self._machine = machine
        self.accounts = accounts
        self._waiters = waiters
        self._losses = losses
        self._turn = turn
        self._log = log
        self._faults = faults
        self.is_caught_up = False
        self._due: dict[Key, None] = {}  # streams to examine, oldest first
        self._busy: set[Key] = set()
        self._again: dict[Key, int] = {}  # failed streams -> time of the next attempt, earliest first
        # Streams that an entry has removed from this server, by key and time of creation.
        self._removed: dict[tuple[Key, int], Assignment] = {}
        self._opened: dict[Key, Assignment] = {}  # replicated streams that are open
        # streams whose report was logged: they are stored here, but not in the metadata
        self._strange: set[Key] = set()
        self._failed_last: dict[Key, str] = {}  # the text that was logged last for a stream
        self.builds: dict[Key, StreamBuild] = {}  # complete streams that were built from archives
        # error of the last failed attempt for each stream; the next attempt may fail with the same one
        self.failures: dict[Key, ApiError] = {}

    def begin(self) -> None:
        """Start to process streams. All entries committed before the start of the server must have been applied."""
        for account, js in self.accounts.items():
            for name in js.streams:
                stream = self._machine.state.stream(account, name)
                if stream is None or not self._is_here(stream):
                    self._due[Key(account, name)] = None
        self.is_caught_up = True
        self._waiters.notify()

    def is_settled(self, key: Key) -> bool:
        """Return whether a stream matches the metadata, or the last attempt to make it match has failed."""
        self.take(self._machine.changes)
        return self.is_caught_up and key not in self._busy and key not in self._due

    def trouble(self, account: str, name: str) -> str:
        """Return the error message of the last attempt to make a stream match the metadata, or ""."""
        return self._failed_last.get(Key(account, name), "")

    def is_idle(self) -> bool:
        """Return whether every stream matches the metadata, so that no work is left."""
        self.take(self._machine.changes)
        return self.is_caught_up and not (self._due or self._busy or self._again)

    def take(self, changes: list[Change]) -> None:
        """Mark the streams in `changes` for processing, and clear the list."""
        for change in changes:
            if isinstance(change, StreamChange):
                self._mark(change)
        changes.clear()

    def _mark(self, change: StreamChange) -> None:
        stream = change.new or change.old
        assert stream is not None
        key = Key(stream.account, stream.name)
        old = change.old
        if old is not None and self._is_here(old) and (change.new is None or not self._is_here(change.new)):
            self._removed[key, old.created_ns] = old
            self._machine.owes = True
        self._due[key] = None
        self._again.pop(key, None)
        self.failures.pop(key, None)

    def _is_here(self, stream: Assignment) -> bool:
        return self._node in stream.nodes

    def steps(self) -> Generator[Step, None, None]:
        """Process due streams; never ends."""
        while True:
            again_ns = self._next_again_ns()
            wait_ns = max(again_ns - self._turn.now, 1) if again_ns else 0
            yield from self._waiters.until(partial(self._has_work, again_ns), wait_ns)
            self._try_again()
            yield from self._pass()

    def _has_work(self, again_ns: int) -> bool:
        """Return whether a stream is due, or the time of the next retry differs from `again_ns`."""
        self.take(self._machine.changes)
        is_due = self.is_caught_up and any(key not in self._busy for key in self._due)
        return is_due or self._next_again_ns() != again_ns

    def _next_again_ns(self) -> int:
        """Return the time of the next retry of a failed stream, or 0 if none has failed."""
        return next(iter(self._again.values()), 0)

    def _try_again(self) -> None:
        """Mark each failed stream whose retry is due, so that it is processed again."""
        while self._again and self._next_again_ns() <= self._turn.now:
            key = next(iter(self._again))
            del self._again[key]
            self._due[key] = None

    def _pass(self) -> Generator[Step, None, None]:
        """Start a chore for each due stream that has none, and wait while BUSY_MAX chores run."""
        for key in list(self._due):
            if key in self._busy:
                continue  # the stream is examined again after the running chore
            while len(self._busy) >= BUSY_MAX:
                yield from self._waiters.until(lambda: len(self._busy) < BUSY_MAX)
            self._due.pop(key)
            self._busy.add(key)
            self._turn.go_on(self._one(key))

    def _one(self, key: Key) -> Generator[Step, None, None]:
        """Bring one stream to its state in the metadata; if that fails, record the error."""
        self.failures.pop(key, None)
        try:
            yield from self._bring(key)
            self._failed_last.pop(key, None)
            self._tell_built(key, is_there=True)
        except Exception as error:
            self._fail(key, error)
            self._tell_built(key, is_there=False)
        finally:
            self._busy.discard(key)
        self._machine.owes = bool(self._removed)
        self._waiters.notify()

    def _tell_built(self, key: Key, *, is_there: bool) -> None:
        """Report to the metadata leader whether a stream is open, if this server has built it from an archive."""
        stream = self._machine.state.stream(*key)
        if stream is not None and stream.is_built and stream.first_node == self._node:
            self._losses.opened(stream, is_there=is_there)

    def _fail(self, key: Key, error: Exception) -> None:
        if isinstance(error, ApiError):
            self.failures[key] = error
        else:
            self.failures[key] = errcodes.STREAM_GENERAL.error(err=error)
        if not isinstance(error, (ApiError, StoreFailed, ReplicaLost)):
            self._faults.report("stream", str(key), error, self._turn.now)
        if str(error) != self._failed_last.get(key):
            self._failed_last[key] = str(error)
            self._log.error(f"{key} is not as the cluster wants it, it is tried again: {error}")
        if key not in self._due:  # the metadata has not changed the stream meanwhile
            self._again[key] = self._turn.now + RETRY_NS

    def _bring(self, key: Key) -> Generator[Step, None, None]:
        """Open, change or remove one stream as the metadata requires."""
        js = self.accounts.get(key.account)
        if js is None:
            errcodes.NOT_ENABLED_FOR_ACCOUNT.raise_if(self._wanted(key) is not None)
            return
        yield from js.gates.within(key.name, True, lambda: self._steps(js, key))

    def _wanted(self, key: Key) -> Assignment | None:
        stream = self._machine.state.stream(*key)
        return stream if stream is not None and self._is_here(stream) and not stream.stored.offline else None

    def _steps(self, js: JetStream, key: Key) -> Generator[Step, None, None]:
        wanted = self._wanted(key)
        yield from self._remove(js, key, wanted)
        if wanted is None:
            return
        build = self.builds.get(key)
        if build is not None and build.created_ns == wanted.created_ns and key.name not in js.streams:
            yield from self.builds.pop(key).add_steps()
        if wanted.is_built and wanted.first_node == self._node and not _is_stored(js, wanted):
            raise errcodes.STREAM_RESTORE.error(err="the server that has built the stream has lost it")
        replicated = js.shared.replicated
        if replicated is not None:
            yield from replicated.single_steps(js, wanted)
        if wanted.config.num_replicas > 1 or (replicated is not None and replicated.has_group(js, wanted)):
            yield from self._replicate(js, key, wanted)
            return
        self._opened.pop(key, None)
        from pyjs.jetstream.manage import streams  # imported with the first stream

        found = js.streams.get(key.name)
        if found is None:
            yield from streams.create_assigned(js, wanted.config, wanted.created_ns)
        elif found.created_ns != wanted.created_ns:
            self._report_strange(key)
        elif found.config != wanted.config:
            yield from streams.update(js, wanted.config)

    def _remove(self, js: JetStream, key: Key, wanted: Assignment | None) -> Generator[Step, None, None]:
        """Remove a stream that entries have removed from this server.

        A stored stream that is not in the metadata, and that no entry has removed, is only logged.
        """
        replicated = js.shared.replicated
        gone = [(each, old) for each, old in self._removed.items() if each[0] == key]
        for each, old in gone:
            stale = self._stale(js, old, wanted)
            if stale is not None:
                yield from self._remove_one(js, key, stale)
            elif replicated and wanted and old.group not in (wanted.group, wanted.ended):
                replicated.forget_group(js, old.group)
            del self._removed[each]
        left = js.streams.get(key.name)
        is_leaving = left is not None and replicated is not None and replicated.is_replica(left)
        if wanted is None and left is not None and not is_leaving:
            self._report_strange(key)

    def _stale(self, js: JetStream, old: Assignment, wanted: Assignment | None) -> Assignment | None:
        """Return the assignment whose replica must be deleted on this server, or None if there is nothing to delete.

        Entries are applied again at a start, so the stream may have been assigned to this server again after the
        removal.
        """
        if wanted is None or old.created_ns != wanted.created_ns:
            return old
        replicated, is_copy = js.shared.replicated, wanted.incarnation_on(self._node) > 1
        group = 0 if replicated is None else replicated.group_here(js, old.name)
        if group:
            is_stale = group != wanted.group and (group != wanted.ended or is_copy)
            return replace(old, group=group) if is_stale else None
        # a stream without a group needs no change, unless its messages come from other servers
        if old.name in js.streams:
            return old if is_copy else None
        is_known = old.group in (wanted.group, wanted.ended) and not (is_copy and old.group != wanted.group)
        return None if is_known else old

    def _remove_one(self, js: JetStream, key: Key, old: Assignment) -> Generator[Step, None, None]:
        present = self._machine.state.stream(*key)
        if (old.config.mirror or old.config.sources) and (
            present is None or present.created_ns != old.created_ns
        ):
            from pyjs.jetstream.mirror import sourcing  # imported with the first copy

            sourcing.leave(js, old.name, old.created_ns, sourcing.sources_of(old.config))
        if key.name in js.offline:
            from pyjs.jetstream.manage import streams

            yield from streams.delete(js, key.name)
        replicated = js.shared.replicated
        if replicated is not None and (old.config.num_replicas > 1 or replicated.has_group(js, old)):
            self._opened.pop(key, None)
            yield from replicated.drop_steps(js, old)
            return
        found = js.streams.get(key.name)
        if found is not None and found.created_ns == old.created_ns:
            from pyjs.jetstream.manage import streams

            yield from streams.delete(js, key.name)

    def _replicate(self, js: JetStream, key: Key, wanted: Assignment) -> Generator[Step, None, None]:
        """Open the replica of a stream, or apply a changed assignment to it.

        Raises:
            ReplicaLost: the replica must return as a new peer. This is reported to the leader of the metadata.
        """
        replicated = js.shared.replicated
        errcodes.STREAM_CREATE.raise_if(replicated is None, err="this server has no replicated streams")
        assert replicated is not None
        opened = self._opened.get(key)
        try:
            if self._losses.is_ahead(wanted):
                raise ReplicaLost(f"the replica of stream {key.name!r} in the log is a newer one")
            if opened is None or opened.group != wanted.group:
                yield from replicated.open_steps(js, wanted)
            elif opened.revision != wanted.revision:
                yield from replicated.change_steps(js, opened, wanted)
        except ReplicaLost:
            self._losses.add(wanted)
            raise
        self._opened[key] = wanted
        if self._losses.is_ahead(wanted):
            self._losses.add(wanted)

    def _report_strange(self, key: Key) -> None:
        if key not in self._strange:
            self._strange.add(key)
            self._log.error(
                f"{key} is in the store of this server, where the cluster did not put it: it stays as it is,"
                " and the cluster does not serve it"
            )


def _is_stored(js: JetStream, stream: Assignment) -> bool:
    """Return whether a stream is on this server, open or not."""
    opened, parked = js.streams.get(stream.name), js.parked.get(stream.name)
    found = [each.created_ns for each in (opened, parked) if each is not None]
    return stream.created_ns in found or stream.name in js.held
