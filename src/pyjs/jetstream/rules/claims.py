"""The filter subjects of the consumers of a workqueue stream, which must not overlap.

This module knows nothing of messages; jetstream/rules/consumer.py uses it before a consumer is created or updated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.subjects.overlap import SubjectTree

if TYPE_CHECKING:
    from pyjs.jetstream.config.consumer import ConsumerConfig


class Claims:
    """The filter subjects of each consumer of one stream."""

    def __init__(self) -> None:
        self.tree = SubjectTree()
        self._claimed: dict[str, tuple[str, ...]] = {}  # filter subjects by the name of the consumer

    def put(self, name: str, config: ConsumerConfig) -> None:
        """Set the filter subjects of the consumer `name`, or remove them if it is a direct or sourcing consumer."""
        self.remove(name)
        if config.direct or config.sourcing:
            return
        self._claimed[name] = config.filters or (">",)
        for subject in self._claimed[name]:
            self.tree.add(subject, name)

    def remove(self, name: str) -> None:
        """Remove the filter subjects of the consumer `name`."""
        for subject in self._claimed.pop(name, ()):
            self.tree.remove(subject, name)
