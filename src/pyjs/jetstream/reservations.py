"""What a stream that is being made, or changed, will take: nobody else gets it while its metadata is written.

Knows nothing of files and requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from pyjs.jetstream.config import StreamConfig
    from pyjs.jetstream.engine import JetStream


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
