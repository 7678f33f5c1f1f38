"""Names, subjects and bytes reserved for streams that are being created or updated, or will be opened later.

This module does not use files or requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.manage.engine import JetStream


class Reservation:
    """A reservation of a name, subjects and bytes, as a context manager."""

    def __init__(self, js: JetStream, config: StreamConfig, old: StreamConfig | None = None) -> None:
        self._js = js
        self.config = config
        self._is_new = old is None
        known = set(old.subjects) if old is not None else set()
        self._subjects = [subject for subject in config.subjects if subject not in known]
        self._size = max(max(config.max_bytes, 0) - max(old.max_bytes if old is not None else 0, 0), 0)

    def __enter__(self) -> None:
        if self._is_new:
            self._js.coming_streams.add(self.config.name)
        for subject in self._subjects:
            self._js.subjects.add(subject, self.config.name)
        self._count(self._size)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._js.coming_streams.discard(self.config.name)
        self._count(-self._size)
        for subject in self._subjects:
            self._js.subjects.remove(subject, self.config.name)

    def _count(self, size: int) -> None:
        self._js.usage[self.config.storage].reserved += size
        self._js.shared.usage[self.config.storage].reserved += size


class HeldStreams:
    """Stored streams that are not open yet, for which subjects and bytes are reserved."""

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self._held: dict[str, Reservation] = {}  # by name
        # the metadata of some stream could not be read yet, so its subjects are unknown
        self.some_unknown = False

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def configs(self) -> list[StreamConfig]:
        """Return the configurations of the streams."""
        return [each.config for each in self._held.values()]

    def hold(self, config: StreamConfig) -> None:
        """Reserve the subjects and bytes of a stream until `let_go` is called for it."""
        if config.name not in self._held:
            self._held[config.name] = Reservation(self._js, config)
            self._held[config.name].__enter__()

    def hold_all(self, postponed: Iterable[StreamConfig | None]) -> None:
        """Reserve subjects and bytes of many streams; None stands for a stream with unreadable metadata."""
        self.some_unknown = False
        for config in postponed:
            if config is None:
                self.some_unknown = True
            else:
                self.hold(config)

    def let_go(self, name: str) -> None:
        """Release the reservation of a stream that was opened or deleted."""
        reservation = self._held.pop(name, None)
        if reservation is not None:
            reservation.__exit__(None, None, None)

    def let_all_go(self) -> None:
        """Release all reservations."""
        self.some_unknown = False
        for name in list(self._held):
            self.let_go(name)
