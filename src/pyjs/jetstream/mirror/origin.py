"""The origin of a mirror or source, as the metadata of a cluster or the directory of several workers describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.jetstream.config.choices import LIMITS, WORKQUEUE

if TYPE_CHECKING:
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.config.stream import StreamSource
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.spread.directory import Found


@dataclass(frozen=True)
class Origin:
    """The origin of a mirror or source, looked up in the metadata of the cluster or the directory of workers."""

    js: JetStream
    source: StreamSource

    @property
    def found(self) -> Assignment | Found | None:
        """The stream, or None if it does not exist."""
        member, spread = self.js.shared.member, self.js.shared.spread
        if spread is not None:
            return spread.directory.find(self.js.account.name, self.source.name)
        return None if member is None else member.machine.state.stream(self.js.account.name, self.source.name)

    @property
    def is_missing(self) -> bool:
        """Whether the stream does not exist."""
        return self.found is None

    @property
    def is_kept(self) -> bool:
        """Whether the stream is an interest or workqueue stream, which stores messages for its consumers."""
        return self.found is not None and self.found.config.retention != LIMITS

    @property
    def is_queue(self) -> bool:
        """Whether the stream is a work queue."""
        return self.found is not None and self.found.config.retention == WORKQUEUE

    @property
    def created_ns(self) -> int:
        """The creation time of the stream in ns, or 0 if the stream does not exist."""
        return 0 if self.found is None else self.found.created_ns
