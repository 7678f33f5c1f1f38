"""What a stream that is being made, changed, or opened later will take: nobody else gets it meanwhile.

Knows nothing of files and requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.manage.engine import JetStream


class Reservation:
    """A name, subjects and bytes, from the begin of a `with` to its end."""

    def __init__(self, js: JetStream, config: StreamConfig, old: StreamConfig | None = None) -> None:
        self._js = js
        self._config = config
        self._is_new = old is None
        known = set(old.subjects) if old is not None else set()
        self._subjects = [subject for subject in config.subjects if subject not in known]
        self._size = max(max(config.max_bytes, 0) - max(old.max_bytes if old is not None else 0, 0), 0)

    def __enter__(self) -> None:
        if self._is_new:
            self._js.coming_streams.add(self._config.name)
        for subject in self._subjects:
            self._js.subjects.add(subject, self._config.name)
        self._count(self._size)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._js.coming_streams.discard(self._config.name)
        self._count(-self._size)
        for subject in self._subjects:
            self._js.subjects.remove(subject, self._config.name)

    def _count(self, size: int) -> None:
        self._js.usage[self._config.storage].reserved += size
        self._js.shared.usage[self._config.storage].reserved += size


class HeldStreams:
    """Stored streams that are not open for the moment: their subjects and bytes stay theirs."""

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self._held: dict[str, Reservation] = {}  # by name
        self.some_unknown = False  # the metadata of one could not be read yet: its subjects are not known

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def hold(self, config: StreamConfig) -> None:
        """Keep what a stream has until `let_go`."""
        if config.name not in self._held:
            self._held[config.name] = Reservation(self._js, config)
            self._held[config.name].__enter__()

    def hold_all(self, postponed: Iterable[StreamConfig | None]) -> None:
        """Keep what these have; None: a stream of which nothing is known."""
        self.some_unknown = False
        for config in postponed:
            if config is None:
                self.some_unknown = True
            else:
                self.hold(config)

    def let_go(self, name: str) -> None:
        """Give back what a stream has, because it takes that itself now, or has ended."""
        reservation = self._held.pop(name, None)
        if reservation is not None:
            reservation.__exit__(None, None, None)

    def let_all_go(self) -> None:
        """Give back everything."""
        self.some_unknown = False
        for name in list(self._held):
            self.let_go(name)
