"""The streams of the other workers, as one worker knows them.

Each account of this worker reserves the subjects and bytes of these streams and knows their configurations. So a new
stream of this worker is checked against all streams of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.jetstream.spread.notes import Holdings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.base.log import Log
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.spread.notes import Holding


class Found(NamedTuple):
    """A stream of another worker, with the number of that worker."""

    worker: int
    holding: Holding

    @property
    def config(self) -> StreamConfig:
        """The configuration of the stream."""
        return self.holding.stored.config

    @property
    def created_ns(self) -> int:
        """The creation time of the stream, in ns since 1970.

        It is 0 if the other worker has not opened the stream.
        """
        return self.holding.created_ns


class Directory:
    """The streams of the other workers, as those workers have reported them."""

    def __init__(self, accounts: dict[str, JetStream], log: Log) -> None:
        self._accounts = accounts  # of this worker
        self._log = log
        self._streams: dict[str, dict[str, Found]] = {}  # by account, by name
        self.reported: set[int] = set()  # workers that have reported all their streams
        self.changed: list[tuple[str, str]] = []  # account and name of streams; drained by the owner

    def find(self, account: str, name: str) -> Found | None:
        """Return a stream by account and name, or None if no other worker has reported it."""
        return self._streams.get(account, {}).get(name)

    def streams(self, account: str) -> dict[str, Found]:
        """Return the streams of an account in other workers, by name."""
        return self._streams.get(account, {})

    def counts(self) -> dict[int, int]:
        """Return how many streams each other worker has, by worker; workers without streams are left out."""
        counts: dict[int, int] = {}
        for streams in self._streams.values():
            for each in streams.values():
                counts[each.worker] = counts.get(each.worker, 0) + 1
        return counts

    def take(self, note: Holdings) -> None:
        """Update the directory with a report that a worker has sent about its streams."""
        if note.is_whole:
            self.reported.add(note.worker)
            told = {(each.account, each.stored.config.name) for each in note.streams}
            for account, name in list(self._of(note.worker)):
                if (account, name) not in told:
                    self._drop(account, name, note.worker)
        for each in note.streams:
            self._put(note.worker, each)
        for account, name in note.gone:
            self._drop(account, name, note.worker)

    def whole(self, worker: int) -> Holdings:
        """Return a report of all known streams of another worker."""
        found = [self._streams[account][name].holding for account, name in self._of(worker)]
        return Holdings(worker, True, streams=tuple(found))

    def account_opened(self, js: JetStream) -> None:
        """Reserve names, subjects and bytes of other workers' streams in an account whose JetStream has started."""
        for each in self.streams(js.account.name).values():
            _tie(js, each, 1)

    def account_closed(self, js: JetStream) -> None:
        """Release the reservations for other workers' streams in an account that loses JetStream."""
        for each in self.streams(js.account.name).values():
            _tie(js, each, -1)

    def _of(self, worker: int) -> Iterator[tuple[str, str]]:
        for account, streams in self._streams.items():
            for name, each in streams.items():
                if each.worker == worker:
                    yield account, name

    def _put(self, worker: int, holding: Holding) -> None:
        account, name = holding.account, holding.stored.config.name
        js, old = self._accounts.get(account), self.find(account, name)
        new = Found(worker, holding)
        if old == new:
            return
        other = old.worker if old is not None and old.worker != worker else 0
        if other or (js is not None and name in js.streams):
            place = f"worker {other}" if other else "this worker"
            self._log.error(
                f"Stream {name!r} of account {account!r} is in the stores of worker {worker} and of {place}:"
                " remove one of the two while the server is stopped"
            )
            return
        if old is not None:
            self._drop(account, name, worker)
        self._streams.setdefault(account, {})[name] = new
        if js is not None:
            _tie(js, new, 1)
        self.changed.append((account, name))

    def _drop(self, account: str, name: str, worker: int) -> None:
        old = self.find(account, name)
        if old is None or old.worker != worker:
            return
        del self._streams[account][name]
        js = self._accounts.get(account)
        if js is not None:
            _tie(js, old, -1)
        self.changed.append((account, name))


def _tie(js: JetStream, found: Found, sign: int) -> None:
    """Reserve (`sign` 1) or release (`sign` -1) the name, subjects and bytes of a stream of another worker."""
    config = found.config
    for subject in config.subjects:
        (js.subjects.add if sign > 0 else js.subjects.remove)(subject, config.name)
    size = sign * max(config.max_bytes, 0)
    for usage in (js.usage[config.storage], js.shared.usage[config.storage]):
        usage.reserved += size
    if sign > 0:
        js.elsewhere[config.name] = config
    else:
        del js.elsewhere[config.name]
